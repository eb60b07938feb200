"""Members of a consumer group in the whole-node simulation, and the rules that the group is held against.

```
 the group is made --> members: fetch at some node --> hold for a while --> ack | nack | bury, at some other node
                                                                 `-> or forget it: its time is over
```
| rule | broken when |
| --- | --- |
| group one holder | a record (``key`` mode: a key) is with two members whose nodes live and whose time is not over |
| group done | a record is delivered after its ack, or burial, was confirmed |
| group order | in ``key`` mode, the first delivery of a record comes behind that of a later one of its key |
| group delivery | a delivery has no higher number than the one before it of the same leader, whose node lives |
| group complete | in the end a record is not settled, or settled without a word of a member |
| group letters | a record that was buried is not once in the topic of dead letters, or one that was not is |

A node that dies takes the holdings of its members with it: their records may come again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.cluster.commands_groups import CreateGroup
from flockmq.cluster.dead_letters import read_dead
from flockmq.cluster.groups import KEY, SHARE, Binding
from flockmq.cluster.model import DEFAULT_NAMESPACE
from flockmq.cluster.tables import key_of
from flockmq.durable.groups.tokens import read_token
from flockmq.durable.groups.window import ATTEMPT_BITS, DELIVERIES
from flockmq.log.batch import DATA, BatchView
from flockmq.testing.simulation.nodes.clients import TOPIC
from flockmq.testing.simulation.world import Violation

if TYPE_CHECKING:
    import random

    from flockmq.cluster.groups import ConsumerGroup
    from flockmq.durable.groups.port import Fetched
    from flockmq.log.group import GroupLog
    from flockmq.testing.simulation.nodes.process import DurableMachine
    from flockmq.testing.simulation.nodes.world import NodesWorld

GROUP: Final = "work"
DEAD: Final = "work.dead"
MEMBERS: Final = 4
ACK_WAIT_MS: Final = 1_500
BACKOFF_MS: Final = 100
MAKE_US: Final = 500_000
PAUSE_US: Final = 40_000
WAIT_MS: Final = 400
READ_BYTES: Final = 1 << 20

Place = tuple[int, int]
"""Partition and offset of a record."""


class Held:
    """One delivery to a member."""

    def __init__(self, member: str, number: int, life: int, until_us: int, record: Fetched) -> None:
        self.member = member
        self.number = number
        self.life = life
        """The node that handed it out, and which life of that node."""
        self.until_us = until_us
        self.record = record
        self.is_over = False


class MemberRules:
    """What was promised to the group."""

    def __init__(self, cluster: NodesWorld) -> None:
        self._cluster = cluster
        self.group: ConsumerGroup | None = None
        self._held: dict[Place, Held] = {}
        """The latest delivery of each record."""
        self._by_key: dict[tuple[int, bytes], dict[Place, Held]] = {}
        self._done: set[Place] = set()
        self._said: set[Place] = set()
        """A member acknowledged or buried them; whether that was confirmed or not."""
        self._buried: set[Place] = set()
        self._certainly_buried: set[Place] = set()
        self._first: dict[tuple[int, bytes], int] = {}

    def is_keyed(self) -> bool:
        """Whether keys matter."""
        return self._cluster.plan.groups > 1

    # What members say.

    def delivered(self, member: str, machine: DurableMachine, records: list[Fetched]) -> list[Held]:
        """A node handed records to a member."""
        found: list[Held] = []
        for record in records:
            place = (record.partition, record.offset)
            until_us = self._cluster.queue.now + (ACK_WAIT_MS - 2) * 1_000  # the time of nodes goes by milliseconds
            held = Held(member, machine.number, machine.life, until_us, record)
            self._cluster.count("records of groups")
            self._cluster.count("records of groups again", record.deliveries > 1)
            self._check(place, held)
            self._held[place] = held
            if self.is_keyed():
                self._by_key.setdefault((record.partition, record.topic), {})[place] = held
            found.append(held)
        return found

    def _check(self, place: Place, held: Held) -> None:
        where = f"offset {place[1]} of group {place[0]} (delivery {held.record.deliveries}, {held.member})"
        if place in self._done:
            raise Violation("group done", f"{where} was settled before")
        before = self._held.get(place)
        if before is not None and self._is_active(before):
            raise Violation("group one holder", f"{where} is with {before.member} at node {before.number}")
        if before is not None and self._lives(before) and _attempt(held) <= _attempt(before):
            raise Violation("group delivery", f"{where} comes after delivery {before.record.deliveries}")
        if not self.is_keyed():
            return
        key = (place[0], held.record.topic)
        others = self._by_key.get(key, {})
        for other, one in list(others.items()):
            if not self._is_active(one):
                del others[other]
            elif (one.number, one.member) != (held.number, held.member):
                raise Violation("group one holder", f"the key of {where} is with {one.member} at node {one.number}")
        if before is None:
            if place[1] < self._first.get(key, -1):
                raise Violation("group order", f"{where} comes behind {self._first[key]}")
            self._first[key] = place[1]

    def _is_active(self, held: Held) -> bool:
        return self._lives(held) and not held.is_over and self._cluster.queue.now < held.until_us

    def _lives(self, held: Held) -> bool:
        machine = self._cluster.machine(held.number)
        return machine.process is not None and machine.life == held.life

    def says(self, held: Held, is_burial: bool) -> None:
        """A member acknowledges or buries a record."""
        held.is_over = True
        place = (held.record.partition, held.record.offset)
        self._said.add(place)
        if is_burial:
            self._buried.add(place)

    def confirmed(self, held: Held, is_burial: bool) -> None:
        """That is settled."""
        place = (held.record.partition, held.record.offset)
        if is_burial:
            self._certainly_buried.add(place)
        self._done.add(place)
        self._cluster.count("records of groups settled")

    # In the end.

    def missing(self) -> str:
        """What is not settled."""
        if not self._cluster.plan.groups:
            return ""
        if self.group is None:
            return "there is no group"
        for group in self._cluster.groups:
            leader = self._cluster[self._cluster.leader_among([group], 0) or 1]
            machine = leader.durable.machines.by_group.get(group)
            if machine is None or machine.groups.runs:
                return f"dead letters of group {group} are on their way"
            floor = machine.groups.held_offset(self.group.id)
            if floor < machine.end_offset:
                return f"group {group} is settled up to {floor} of {machine.end_offset}"
        return ""

    def check(self) -> None:
        """All records are settled by a member, and the dead letters are where they belong, once."""
        if self.group is None:
            return
        for group, end in zip(self._cluster.groups, self._cluster.ends, strict=True):
            for offset in range(end):
                if (group, offset) not in self._said:
                    raise Violation("group complete", f"offset {offset} of group {group} was settled by no member")
        self._check_letters()

    def _check_letters(self) -> None:
        process = self._cluster.processes()[0]
        state = process.durable.meta.state
        places = {(one.shard): one.group for one in state.topics[key_of(DEFAULT_NAMESPACE, TOPIC)].partitions}
        found: list[Place] = []
        for partition in state.topics[key_of(DEFAULT_NAMESPACE, DEAD)].partitions:
            holder = self._cluster.machine(partition.replicas[0]).process
            assert holder is not None
            found += [
                (places[shard], offset) for shard, offset in _letters(holder.engine.replicas[partition.group].log)
            ]
        self._cluster.count("dead letters", len(found))
        twice = sorted({one for one in found if found.count(one) > 1})
        missing = sorted(self._certainly_buried - set(found))
        if any(fault.kind == "jump" for fault in self._cluster.plan.faults):
            missing = []  # by a clock that is set to another day, retention may take them
        strange = sorted(set(found) - self._buried)
        if twice or missing or strange:
            text = f"twice {twice[:3]}, missing {missing[:3]}, not buried {strange[:3]}"
            raise Violation("group letters", text)


def _attempt(held: Held) -> tuple[int, int]:
    """A leader that did not hear of a delivery, for its node was silent, counts on from what the log has."""
    token = read_token(held.record.token)
    assert token is not None
    return token.attempt >> ATTEMPT_BITS, token.attempt & DELIVERIES


def _letters(log: GroupLog) -> list[tuple[int, int]]:
    """Shard and offset of each dead letter."""
    found: list[tuple[int, int]] = []
    index = log.first_index()
    while index <= log.last_index():
        for batch in log.entries(index, log.last_index() + 1, READ_BYTES):
            index += 1
            view = BatchView(batch)
            if view.kind == DATA:
                letters = [read_dead(record.user) for record in view.records()]
                found += [(letter.shard, letter.offset) for letter in letters]
    return found


class MembersFounder:
    """Has the group made, at some node, until it is there."""

    def __init__(self, cluster: NodesWorld, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._look()

    def _look(self) -> None:
        cluster = self._cluster
        key = key_of(DEFAULT_NAMESPACE, GROUP)
        for process in cluster.processes():
            known = process.durable.meta.state.groups.get(key)
            if known is not None:
                cluster.group_rules.group = known
                return
        machine = self._rng.choice(cluster.machines)
        if machine.process is not None:
            machine.do(machine.life, self._make, machine)
        cluster.queue.after(MAKE_US, self._look)

    def _make(self, machine: DurableMachine) -> None:
        if machine.process is not None:
            mode = KEY if self._cluster.plan.groups > 1 else SHARE
            command = CreateGroup(
                GROUP,
                (Binding(TOPIC, "fanout"),),
                mode=mode,
                ack_wait_ms=ACK_WAIT_MS,
                max_deliver=0,
                backoff_ms=BACKOFF_MS,
                start="earliest",
            )
            machine.process.durable.meta.submit(command)


class SharingMember:
    """Fetches at one node after the other, and settles elsewhere."""

    def __init__(self, cluster: NodesWorld, name: str, rng: random.Random) -> None:
        self._cluster = cluster
        self._name = name
        self._rng = rng
        self._calls = 0
        self._next()

    def _next(self) -> None:
        self._calls += 1
        self._cluster.queue.after(int(self._rng.random() * 2 * PAUSE_US) + 1, self._fetch, self._calls)

    def _fetch(self, call: int) -> None:
        """Ask some node; when that says nothing for long, another one."""
        cluster = self._cluster
        if call != self._calls:
            return
        group = cluster.group_rules.group
        machine = self._rng.choice(cluster.machines)
        if group is None or machine.process is None:
            self._next()
            return
        cluster.queue.after(10 * WAIT_MS * 1_000, self._again, call)
        machine.do(machine.life, self._ask, machine, group, self._rng.choice((1, 3, 10)), call)

    def _again(self, call: int) -> None:
        if call == self._calls:
            self._next()

    def _ask(self, machine: DurableMachine, group: ConsumerGroup, count: int, call: int) -> None:
        if machine.process is None:
            return
        durable = machine.process.durable
        durable.logs.tasks.now = self._cluster.now_ms()
        found = durable.group_room.port.fetch(group.id, self._name, count, WAIT_MS)
        found.then(partial(self._got, machine, call))

    def _got(self, machine: DurableMachine, call: int, records: list[Fetched]) -> None:
        try:
            deliveries = self._cluster.group_rules.delivered(self._name, machine, records)
        except Violation as violation:  # not within the node: that would take it for a mistake of consensus
            self._cluster.queue.after(0, _break, violation)
            return
        for held in deliveries:
            if self._rng.random() < 0.97:
                delay_us = int(self._rng.random() * self._rng.choice((20_000, 20_000, 400_000, 1_600_000)))
                self._cluster.queue.after(delay_us + 1, self._settle, held)
        if call == self._calls:
            self._next()

    def _settle(self, held: Held) -> None:
        machine = self._rng.choice(self._cluster.machines)
        if machine.process is not None:
            machine.do(machine.life, self._say, machine, held, self._rng.random())

    def _say(self, machine: DurableMachine, held: Held, chance: float) -> None:
        if machine.process is None:
            return
        durable = machine.process.durable
        durable.logs.tasks.now = self._cluster.now_ms()
        port = durable.group_room.port
        tokens = [held.record.token]
        if chance < 0.08:
            held.is_over = True
            port.nack(tokens)
            return
        is_burial = chance < 0.12
        self._cluster.group_rules.says(held, is_burial)
        told = port.bury(tokens, "no use") if is_burial else port.ack(tokens)
        told.then(partial(self._said, held, is_burial))

    def _said(self, held: Held, is_burial: bool, outcome: list[str]) -> None:
        if outcome == [""]:
            self._cluster.group_rules.confirmed(held, is_burial)


def _break(violation: Violation) -> None:
    raise violation
