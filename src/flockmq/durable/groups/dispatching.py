"""The leaders of partitions dispatch for consumer groups: this node's offices, and the questions that they answer.

```
 PULL   --> demands --.
 applied: records ----+--> dirty groups --flush--> scan, hand out --> grants --> answers to PULL
 SETTLE --> window ---'--> statements --> log --committed--> codes
 tick   --> begins groups, states what is not selected, gives up on silent nodes, ends of backoffs
```
A group is dispatched only while this node may speak for the partition (``raft/speaking.py``): no other node leads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import LATER, OK, Reply
from flockmq.durable.groups.messages import ANEW, encode_grants, read_pull
from flockmq.durable.groups.office import STREAM_MS, NodeStream
from flockmq.durable.groups.offices import SILENT_MS
from flockmq.durable.machine.group_bodies import settling
from flockmq.errors import FlockError, OffsetGone
from flockmq.log.batch import DATA
from flockmq.peering.kinds import GROUP_PULL, GROUP_SETTLE
from flockmq.tasks import within

if TYPE_CHECKING:
    from flockmq.cluster.groups import ConsumerGroup
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.groups.messages import Pull
    from flockmq.durable.groups.office import GroupOffice, Office
    from flockmq.durable.groups.offices import Offices
    from flockmq.durable.groups.opening import Opening
    from flockmq.durable.groups.scanning import Scanner
    from flockmq.durable.groups.settling import Settling
    from flockmq.durable.groups.window import Holding
    from flockmq.durable.logs.local import LocalLogs
    from flockmq.durable.machine.control import Control
    from flockmq.durable.state.group_directory import GroupDirectory
    from flockmq.peering.fields import Reader
    from flockmq.raft.entry import Entry
    from flockmq.tasks import Task

PARK_MS: Final = 800
"""How long a PULL waits for grants at most: less than an attempt of a call."""
LOOK_MS: Final = 1_000
SWEEP_MS: Final = 30_000
SCANS_MAX: Final = 64
"""Pieces of a log that are looked at for one group in one turn."""


class Dispatching:
    """See the module. A listener of ``Machines``."""

    def __init__(
        self,
        calls: PartitionCalls,
        control: Control,
        local: LocalLogs,
        directory: GroupDirectory,
        offices: Offices,
        opening: Opening,
        settling: Settling,
        scanner: Scanner,
    ) -> None:
        self._calls = calls
        self._engine = calls.engine
        self._control = control
        self._local = local
        self._directory = directory
        self._offices = offices
        self._opening = opening
        self._settling = settling
        self._scanner = scanner
        self._confirming: set[int] = set()
        self._look_at = 0
        self._sweep_at = 0
        self._version = (-1, -1)
        calls.serve_leader(GROUP_PULL, self._on_pull)
        calls.serve_leader(GROUP_SETTLE, settling.on_settle)

    # PULL.

    def _on_pull(self, partition: int, reader: Reader) -> Task[Reply]:
        pull = read_pull(reader)
        office = self._offices.office(partition)
        if office is None:
            return Reply(LATER)
        stream = self._stream(office, pull)
        if stream is None:
            return Reply(OK, bytes((ANEW,)))
        for demand in pull.demands:
            group = self._directory.group(demand.group)
            if group is not None and self._opening.begin(partition, group):
                self._offices.group_office(office, demand.group)
        office.take_pull(stream, pull, self._calls.now)
        if office.dirty:
            self._offices.dirty[partition] = None
            self._engine.wake()
        until = self._calls.now + min(pull.wait_ms, PARK_MS)
        while not stream.grants and stream.number == pull.number and self._calls.now < until and not office.is_void:
            yield from within(stream.news.next(), until - self._calls.now)
        office.heard_at[pull.node_id] = self._calls.now
        if office.is_void or not self._engine.is_leader(partition):
            return Reply(LATER)
        return Reply(OK, encode_grants(office.term, stream.grants))

    def _stream(self, office: Office, pull: Pull) -> NodeStream | None:
        """The stream of a question; None: the node has to begin another one."""
        known = office.streams.get(pull.node_id)
        if known is not None and known.stream == pull.stream and known.boot == pull.boot:
            return known
        if not pull.is_whole or (known is not None and known.boot == pull.boot and known.stream > pull.stream):
            return None
        boot = office.boots.get(pull.node_id, pull.boot)
        if pull.boot < boot:
            return None
        office.boots[pull.node_id] = pull.boot
        if pull.boot > boot:
            office.end_stream(pull.node_id)
            self._lose_node(office, pull.node_id, b"its node started anew")
        elif known is not None or pull.node_id not in office.missing:
            office.end_stream(pull.node_id)
            office.reconcile(pull.node_id, pull.holdings)
        stream = office.streams[pull.node_id] = NodeStream(pull.node_id, pull.boot, pull.stream)
        return stream

    def _lose_node(self, office: Office, node_id: int, reason: bytes, group_id: int = 0) -> None:
        """What members of a node hold is delivered again."""
        for one, found in list(office.groups.items()):
            if not group_id or one == group_id:
                held = found.window.of_node(node_id)
                if held:
                    self._settling.lose(office, one, held, reason)

    # Handing out.

    def applied(self, partition: int, entries: list[Entry]) -> None:
        """The partition has moved on."""
        office = self._offices.open.get(partition)
        if office is None:
            return
        if office.hungry and (not entries or any(entry.kind == DATA for entry in entries)):
            office.dirty |= office.hungry
        if office.dying:
            self._follow_deaths(office)
        if office.dirty:
            self._offices.dirty[partition] = None

    def _follow_deaths(self, office: Office) -> None:
        table = self._offices.table(office.partition)
        for group_id in list(office.dying):
            found = office.groups.get(group_id)
            state = None if found is None else table.state(group_id, found.window.generation)
            if found is None or state is None:
                office.dying.discard(group_id)
                continue
            for offset in [one for one in found.window.dying if state.is_settled(one)]:
                found.window.buried(offset)
            if not found.window.dying:
                office.dying.discard(group_id)
            office.dirty.add(group_id)

    def closed(self, partition: int) -> None:
        """There is no replica of this partition here any more."""
        office = self._offices.open.pop(partition, None)
        if office is not None:
            office.void()
        self._scanner.closed(partition)

    def flush(self, now: int) -> None:
        """A turn ends: hand out what there is."""
        while self._offices.dirty:
            dirty = list(self._offices.dirty)
            self._offices.dirty.clear()
            speaking = self._local.speaking_for(dirty, now)
            for partition in dirty:
                office = self._offices.open.get(partition)
                if office is None or self._offices.office(partition) is not office:
                    continue
                if partition in speaking:
                    self._hand_out(office)
                else:
                    self._confirm(office, now)

    def _confirm(self, office: Office, now: int) -> None:
        """Without a lease: ask a quorum, then hand out at once."""
        if office.partition in self._confirming:
            return
        self._confirming.add(office.partition)

        def confirmed(is_so: bool) -> None:
            self._confirming.discard(office.partition)
            if is_so and self._offices.office(office.partition) is office:
                self._hand_out(office)

        self._local.confirm(office.partition, now).then(confirmed)

    def _hand_out(self, office: Office) -> None:
        dirty = office.dirty
        office.dirty = set()
        for group_id in sorted(dirty):
            office.hungry.discard(group_id)
            group = self._directory.group(group_id)
            found = self._offices.group_office(office, group_id)
            if office.is_void:
                return
            if group is not None and found is not None and found.takers and self._offices.may_dispatch(office, group):
                self._serve(office, group, found)
        for stream in list(office.streams.values()):
            if stream.grants:
                stream.news.fire()

    def _serve(self, office: Office, group: ConsumerGroup, found: GroupOffice) -> None:
        """Give the members of a group what they take."""
        window = found.window
        takers = list(found.takers.values())
        partition = office.partition
        end = self._local.end(partition)
        is_narrow = not window.is_keyed and any(taker.wants is not None for taker in takers)

        def names_of(low: int, high: int) -> list[tuple[int, int, bytes]]:
            return self._scanner.names(partition, low, high)

        now_ms = office.log_time(self._calls.now)
        for _ in range(SCANS_MAX):
            if not any(taker.room > 0 for taker in takers):
                return
            is_further = window.position < end and window.wants_more() and self._scan(office, group, found, end)
            try:
                holdings = window.hand_out(takers, now_ms, names_of if is_narrow else None)
            except FlockError:
                holdings = []  # the names can't be read now
            self._grant(office, group.id, window.generation, holdings)
            if not is_further and not holdings:
                break
        office.hungry.add(group.id)

    def _grant(self, office: Office, group_id: int, generation: int, holdings: list[Holding]) -> None:
        for holding in holdings:
            stream = office.streams.get(holding.holder.node_id)
            if stream is not None:
                stream.put(holding, group_id, generation)

    def _scan(self, office: Office, group: ConsumerGroup, found: GroupOffice, end: int) -> bool:
        window = found.window
        place = self._directory.place_of(office.partition)
        selection = self._directory.selection(group, office.partition)
        if place is None or selection is None:
            return False
        before = window.position
        try:
            position, pieces = self._scanner.scan(office.partition, before, end, group, place.topic, selection)
        except OffsetGone as error:
            window.gone(error.first)
        except FlockError:
            return False  # the replica is being mended, or is not so far
        else:
            window.feed(position, pieces)
        if window.passed:
            office.passing.add(group.id)
        if window.waiting:
            office.waiting.add(group.id)
        return window.position > before

    # Time.

    def tick(self, now: int) -> None:
        """Ends of backoffs; every second what members, nodes and the cluster state changed."""
        for partition, office in list(self._offices.open.items()):
            if office.is_void or not self._engine.is_leader(partition):
                office.void()
                self._offices.close(office)
                self._scanner.closed(partition)
                continue
            for group_id in list(office.waiting):
                found = office.groups.get(group_id)
                ready_at = -1 if found is None else found.window.ready_at()
                if ready_at < 0:
                    office.waiting.discard(group_id)
                elif ready_at <= office.log_time(now):
                    self._offices.mark(office, group_id)
        if now >= self._look_at and (self._directory.has_groups() or self._offices.open):
            self._look_at = now + LOOK_MS
            self._look(now)

    def _look(self, now: int) -> None:
        is_changed = self._version != self._directory.version
        self._version = self._directory.version
        for office in list(self._offices.open.values()):
            self._look_at_nodes(office, now)
            for group_id in list(office.passing):
                self._state_passed(office, group_id)
            if is_changed or not office.is_collected:
                for group_id in list(office.groups):
                    self._offices.mark(office, group_id)
        for partition in self._local.groups():
            if self._engine.knows_all(partition):
                self._opening.look(partition, self._version)
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_MS
            self._opening.sweep()

    def _look_at_nodes(self, office: Office, now: int) -> None:
        for node_id in list(office.streams):
            if now - office.heard_at.get(node_id, office.since) >= STREAM_MS:
                office.end_stream(node_id)
        for group_id, found in list(office.groups.items()):
            group = self._directory.group(group_id)
            if group is None:
                del office.groups[group_id]
                continue
            for node_id in {holder.node_id for holder in found.holders.values() if holder.held}:
                if not self._offices.may_hold(node_id):
                    self._lose_node(office, node_id, b"its node has left", group_id)
                elif self._offices.is_new_start(office, node_id):
                    self._lose_node(office, node_id, b"its node started anew", group_id)
                elif now - office.heard_at.get(node_id, office.since) >= group.ack_wait_ms + SILENT_MS:
                    self._lose_node(office, node_id, b"its node was silent", group_id)

    def _state_passed(self, office: Office, group_id: int) -> None:
        office.passing.discard(group_id)
        found = office.groups.get(group_id)
        passed = found.window.take_passed() if found is not None else []
        if found is not None and passed:
            statement = settling(group_id, found.window.generation, passed)
            office.stated = self._control.settle(office.partition, [statement], self._calls.now)
            office.stated.then(lambda done: None if done else self._offices.fail(office))
