"""What members say of records becomes statements of the log, and the log's word becomes their outcome.

```
 ACK     held --> SETTLE --------------------------------------------.
 NACK    held --> deliveries left? FAIL, again after the backoff      +--> one entry per turn --> committed --> DONE
 EXPIRED, LOST    the same, without backoff                           |                      `-> not: office void, LATER
 BURY, or no delivery left --> DEAD, target: a partition of the topic of dead letters (letters.py) ------'
 BACK    held --> fresh again, nothing is stated        EXTEND  held --> held for longer, nothing is stated
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.cluster.dead_letters import dead_name
from flockmq.durable.calls import LATER as ASK_LATER
from flockmq.durable.calls import OK, Reply
from flockmq.durable.groups.messages import (
    ACK,
    BACK,
    BURY,
    BY_BACKOFF,
    DONE,
    EXPIRED,
    EXTEND,
    EXTENDED,
    LATER,
    NACK,
    NO_GROUP,
    OTHER_GENERATION,
    STALE,
    read_settlements,
)
from flockmq.durable.machine.group_bodies import (
    MEMBER_BYTES_MAX,
    NO_TARGET,
    REASON_BYTES_MAX,
    Death,
    Failed,
    dying,
    failing,
    settling,
)
from flockmq.errors import FlockError
from flockmq.routing.durable import shard_of

if TYPE_CHECKING:
    from flockmq.cluster.groups import ConsumerGroup
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.groups.messages import Settlement
    from flockmq.durable.groups.office import GroupOffice, Office
    from flockmq.durable.groups.offices import Offices
    from flockmq.durable.groups.scanning import Scanner
    from flockmq.durable.groups.window import Holding, Pin
    from flockmq.durable.logs.local import LocalLogs
    from flockmq.durable.machine.control import Control
    from flockmq.durable.machine.group_bodies import GroupStatement
    from flockmq.durable.machine.ranges import Range
    from flockmq.durable.state.group_directory import GroupDirectory
    from flockmq.peering.fields import Reader
    from flockmq.tasks import Promise, Task


class _Stated:
    """Statements about one group that go into the log together."""

    def __init__(self, group: ConsumerGroup, found: GroupOffice) -> None:
        self.group = group
        self.found = found
        self.ranges: list[Range] = []
        self.failed: list[Failed] = []
        self.pins: list[Pin] = []
        self.deaths: dict[int, list[Death]] = {}
        """By target."""

    def statements(self) -> list[GroupStatement]:
        """All of them; what is not selected goes along."""
        window = self.found.window
        found: list[GroupStatement] = []
        ranges = self.ranges + window.take_passed() if self.ranges else self.ranges
        if ranges:
            found.append(settling(self.group.id, window.generation, ranges))
        if self.failed:
            found.append(failing(self.group.id, window.generation, self.failed))
        for target, deaths in self.deaths.items():
            found.append(dying(self.group.id, window.generation, target, deaths))
        return found


class Settling:
    """See the module."""

    def __init__(
        self,
        calls: PartitionCalls,
        control: Control,
        local: LocalLogs,
        directory: GroupDirectory,
        offices: Offices,
        scanner: Scanner,
    ) -> None:
        self._calls = calls
        self._control = control
        self._local = local
        self._directory = directory
        self._offices = offices
        self._scanner = scanner

    def on_settle(self, partition: int, reader: Reader) -> Task[Reply]:
        """A SETTLE question."""
        node_id = reader.u64()
        boot = reader.u64()
        settlements = read_settlements(reader)
        office = self._offices.office(partition)
        if office is None:
            return Reply(ASK_LATER)
        if office.boots.get(node_id) == boot:
            office.heard_at[node_id] = self._calls.now
        if not office.is_collected and any(self._is_unknown(office, one) for one in settlements):
            return Reply(ASK_LATER)
        stated: dict[int, _Stated] = {}
        codes = [self._settle(office, one, stated) for one in settlements]
        if office.is_void:
            return Reply(ASK_LATER)
        told = self._state(office, stated)
        if told is not None and not (yield from told):
            self._offices.fail(office)
            return Reply(ASK_LATER)
        return Reply(OK, bytes(codes))

    def _is_unknown(self, office: Office, one: Settlement) -> bool:
        """Whether this leader may yet hear that a member has these records. Acks count without that."""
        group = self._directory.group(one.group)
        if one.what == ACK or group is None or self._offices.knows_holders(office, group):
            return False
        found = self._offices.group_office(office, one.group)
        return found is not None and not found.window.overlapping(one.low, one.high)

    def lose(self, office: Office, group_id: int, holdings: list[Holding], reason: bytes) -> None:
        """Members are gone with what they hold."""
        group = self._directory.group(group_id)
        found = office.groups.get(group_id)
        if group is None or found is None:
            return
        stated = _Stated(group, found)
        for holding in holdings:
            failed, _ = found.window.fail(holding.low, holding.high, holding.attempt)
            for one in failed:
                self._fail(office, stated, one, 0, reason)
        told = self._state(office, {group_id: stated})
        if told is not None:
            told.then(lambda done: None if done else self._offices.fail(office))
        self._offices.mark(office, group_id)

    def _state(self, office: Office, stated: dict[int, _Stated]) -> Promise[bool] | None:
        """Have it committed; with nothing to state, what is on its way."""
        statements = [statement for one in stated.values() for statement in one.statements()]
        if statements:
            told = office.stated = self._control.settle(office.partition, statements, self._calls.now)

            def committed(done: bool) -> None:
                if done and not office.is_void:
                    for one in stated.values():
                        one.found.window.retried(one.failed)
                    one.found.window.unpin(one.pins)
                    if one.failed:
                        office.waiting.add(one.group.id)
                        self._offices.mark(office, one.group.id)

            told.then(committed)
        return office.stated

    def _settle(self, office: Office, one: Settlement, stated: dict[int, _Stated]) -> int:
        """Take one settlement; its code."""
        group = self._directory.group(one.group)
        if group is None:
            return NO_GROUP
        if group.generation != one.generation:
            return OTHER_GENERATION
        found = self._offices.group_office(office, one.group)
        if found is None:
            return LATER
        if one.low >= one.high or one.high > self._local.end(office.partition):
            return STALE
        known = stated.get(one.group)
        if known is None or known.found is not found:
            known = stated[one.group] = _Stated(group, found)
        self._offices.mark(office, one.group)
        window = found.window
        if one.what == ACK:
            ranges, code = window.ack(one.low, one.high, one.attempt)
            known.ranges += ranges
            known.pins += window.take_pins()
            return code
        if one.what == BACK:
            window.give_back(one.low, one.high, one.attempt)
            return DONE
        if one.what in (EXTEND, EXPIRED):
            held = [each for each in window.overlapping(one.low, one.high) if each.attempt == one.attempt]
            if one.what == EXTEND:
                for each in held:
                    each.until = self._calls.now + one.delay_ms
                return DONE if held else STALE
            if any(each.until > self._calls.now for each in held):
                return EXTENDED
        failed, code = window.fail(one.low, one.high, one.attempt)
        for each in failed:
            if one.what == BURY:
                self._bury(office, known, each, one.reason)
            else:
                delay_ms = one.delay_ms if one.what == NACK else 0
                self._fail(office, known, each, delay_ms, one.reason)
        return code

    def _fail(self, office: Office, stated: _Stated, failed: Holding, delay_ms: int, reason: bytes) -> None:
        group = stated.group
        if group.max_deliver and failed.deliveries >= group.max_deliver:
            self._bury(office, stated, failed, reason)
            return
        if delay_ms == BY_BACKOFF:
            delay_ms = group.backoff_after(failed.deliveries)
        ready_ms = office.log_time(self._calls.now) + delay_ms
        stated.failed += stated.found.window.retry(failed, ready_ms)

    def _bury(self, office: Office, stated: _Stated, failed: Holding, reason: bytes) -> None:
        """These records become dead letters."""
        stated.found.window.bury(failed)
        stated.pins += stated.found.window.take_pins()
        office.dying.add(stated.group.id)
        member = failed.holder.name[:MEMBER_BYTES_MAX]
        for low, high, target in self.targets(office.partition, stated.group, failed.low, failed.high):
            deaths = stated.deaths.setdefault(target, [])
            for offset in range(low, high):
                deaths.append(Death(offset, failed.deliveries, reason[:REASON_BYTES_MAX], member))

    def targets(self, partition: int, group: ConsumerGroup, low: int, high: int) -> list[tuple[int, int, int]]:
        """Which partitions take the dead letters of a range of records."""
        topic = self._directory.dead_topic(group)
        if topic is None:
            return [(low, high, NO_TARGET)]
        if len(topic.partitions) == 1:
            return [(low, high, topic.partitions[0].group)]
        try:
            names = self._scanner.names(partition, low, high)
        except FlockError:
            names = [(low, high, b"")]
        groups = {one.shard: one.group for one in topic.partitions}
        return [
            (start, stop, groups[shard_of(dead_name(group.namespace, group.name, name), len(groups))])
            for start, stop, name in names
        ]
