"""The offices of the partitions that this node leads: when one begins, what it asks other nodes, when it is void.

```
 this node leads and knows all --> Office(term) --HELD to every node--> answers: what their members hold
                                                  `-> started anew, or has left: holds nothing
                                                  `-> silent: holds until ack_wait is over
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.cluster.model import LEFT
from flockmq.durable.calls import OK
from flockmq.durable.groups.messages import read_holdings
from flockmq.durable.groups.office import Office
from flockmq.errors import FlockError
from flockmq.peering.fields import U64, Reader
from flockmq.peering.kinds import GROUP_HELD
from flockmq.tasks import Sleep, within

if TYPE_CHECKING:
    from flockmq.cluster.groups import ConsumerGroup
    from flockmq.durable.calls import PartitionCalls, Reply
    from flockmq.durable.groups.office import GroupOffice
    from flockmq.durable.groups.scanning import Scanner
    from flockmq.durable.machine.group_table import GroupTable
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.state.group_directory import GroupDirectory
    from flockmq.durable.state.meta import Meta
    from flockmq.gossip.swim import Swim
    from flockmq.tasks import Promise, Task

ASK_AGAIN_MS: Final = 250
SILENT_MS: Final = 2_000
"""A silent node holds for ``ack_wait`` and this: more than a question takes on its way."""


class Offices:
    """See the module."""

    def __init__(
        self,
        calls: PartitionCalls,
        machines: Machines,
        directory: GroupDirectory,
        meta: Meta,
        swim: Swim,
        scanner: Scanner,
    ) -> None:
        self._calls = calls
        self._engine = calls.engine
        self._machines = machines
        self._directory = directory
        self._meta = meta
        self._swim = swim
        self._scanner = scanner
        self.open: dict[int, Office] = {}
        """By partition."""
        self.dirty: dict[int, None] = {}
        """Partitions with something to hand out."""

    def office(self, partition: int) -> Office | None:
        """The office of the present term; None while this node does not lead."""
        machine = self._machines.by_group.get(partition)
        if machine is None or not self._engine.knows_all(partition):
            return None
        term = self._engine.replicas[partition].node.state.term
        office = self.open.get(partition)
        if office is None or office.term != term or office.is_void:
            if office is not None:
                office.void()
            office = self.open[partition] = Office(partition, term, self._calls.now, machine.clock_ms)
            self._calls.tasks.start("what members hold", self._collect(office))
        return office

    def group_office(self, office: Office, group_id: int) -> GroupOffice | None:
        """The office of a group that exists and that the log has begun."""
        group = self._directory.group(group_id)
        return None if group is None else office.group(group, self.table(office.partition))

    def table(self, partition: int) -> GroupTable:
        """What the log says about the groups of a partition."""
        return self._machines.by_group[partition].groups

    def fail(self, office: Office) -> None:
        """A statement was not committed: what the windows say is wrong."""
        office.void()
        self.close(office)

    def close(self, office: Office) -> None:
        """The office is over."""
        if self.open.get(office.partition) is office:
            del self.open[office.partition]

    def mark(self, office: Office, group_id: int) -> None:
        """A group may have something to hand out."""
        office.dirty.add(group_id)
        if office.partition not in self.dirty:
            self.dirty[office.partition] = None
            self._engine.wake()

    def may_hold(self, node_id: int) -> bool:
        """Whether members of a node may hold something. A node that is held dead may live, and have members."""
        if node_id == self._calls.me:
            return True
        node = self._meta.state.nodes.get(node_id)
        if node is None:
            return False
        member = self._swim.members.get(node_id)
        return node.state != LEFT or (member is not None and member.is_live)

    def is_new_start(self, office: Office, node_id: int) -> bool:
        """Whether a node has started anew since its members got what they hold."""
        member = self._swim.members.get(node_id)
        return member is not None and member.boot > office.boots.get(node_id, member.boot)

    def may_dispatch(self, office: Office, group: ConsumerGroup) -> bool:
        """Whether records of a group may be handed out."""
        return not group.paused and self.knows_holders(office, group)

    def knows_holders(self, office: Office, group: ConsumerGroup) -> bool:
        """Whether all nodes have said what their members hold, or the time of silent ones is over."""
        return office.is_collected or self._calls.now - office.since >= group.ack_wait_ms + SILENT_MS

    # What members hold.

    def _collect(self, office: Office) -> Task[None]:
        """Ask every node what its members hold; dispatch when all have answered."""
        nodes = [node.id for node in self._meta.state.nodes.values() if self.may_hold(node.id)]
        office.missing = {self._calls.me, *nodes}
        body = U64.pack(office.partition) + U64.pack(office.term)
        while office.missing and not self._is_over(office):
            questions = {node: self._calls.ask_replica(node, GROUP_HELD, body) for node in sorted(office.missing)}
            yield from self._hear(office, questions)
            office.missing = {node for node in office.missing if self.may_hold(node)}
            if office.missing:
                yield Sleep(ASK_AGAIN_MS)
        office.is_collected = True
        if not self._is_over(office):
            for group_id in list(office.groups):
                self.mark(office, group_id)

    def _hear(self, office: Office, questions: dict[int, Promise[Reply]]) -> Task[None]:
        for node_id, question in questions.items():
            reply = yield from within(question, ASK_AGAIN_MS)
            if reply is not None and reply.code == OK and not self._is_over(office):
                self._claim(office, node_id, reply.body)

    def _is_over(self, office: Office) -> bool:
        return office.is_void or self.open.get(office.partition) is not office

    def _claim(self, office: Office, node_id: int, body: bytes) -> None:
        """A node has said what its members hold."""
        office.missing.discard(node_id)
        place = self._directory.place_of(office.partition)
        reader = Reader(body)
        office.boots[node_id] = reader.u64()
        office.heard_at[node_id] = self._calls.now
        for one in read_holdings(reader):
            group = self._directory.group(one.group)
            found = self.group_office(office, one.group)
            if group is None or found is None or place is None or found.window.generation != one.generation:
                continue
            holder = found.holder(node_id, one.handle, one.name)
            try:
                pieces = self._scanner.keys(office.partition, one.low, one.high, group, place.topic)
            except FlockError:
                continue  # the log has them no more
            for piece in pieces:
                found.window.claim(holder, piece.low, piece.high, one.attempt, piece.key)
