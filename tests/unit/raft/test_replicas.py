"""Replicas on a real store, whose disk is simulated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flockmq.log.batch import BatchBuilder, BatchView
from flockmq.log.settings import StoreSettings
from flockmq.raft.configuration import Configuration
from flockmq.raft.entry import Entry
from flockmq.raft.forwarder import Forwarder
from flockmq.raft.outcome import Outcome
from flockmq.raft.persistence import stage
from flockmq.raft.ready import Proposal
from flockmq.raft.replicas import CheckpointContent, Replica, bootstrap, decode_content, open_replica
from flockmq.raft.senders import COMMITTED, RunId, SenderTable
from flockmq.raft.settings import RaftSettings
from flockmq.raft.state import DAMAGED, FORGOTTEN, LEADER, SOUND
from flockmq.testing.lockstep import Lockstep, StoreNode, perform
from raft_cluster import SETTINGS, batch

GROUP = 3
SMALL = replace(SETTINGS, tail_bytes_max=1)
STORE = StoreSettings(journal_bytes=65_536, commit_bytes=16_384, segment_bytes=2_048, index_bytes=512)


class Machine:
    """What stands behind the group: payloads, joined."""

    def __init__(self, state: bytes) -> None:
        self.state = state

    def apply(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.count:
                for record in BatchView(entry.data).records():
                    self.state += record.payload


class Node(StoreNode):
    """A node with one group, whose driver is this test."""

    def __init__(self, cluster: Nodes, number: int) -> None:
        super().__init__(cluster, number, STORE, cluster.settings)
        self.cluster = cluster
        self.id = number
        self.outcomes: list[Outcome] = []

    def start(self, voters: tuple[int, ...] = (), is_new: bool = False) -> None:
        self.host, _ = self.open()
        if voters:
            bootstrap(self.store.create(GROUP), Configuration(voters))
        elif is_new:
            self.store.create(GROUP)
        self.replica: Replica = open_replica(self.host, self.store.groups[GROUP], is_new=is_new)
        self.machine = Machine(self.replica.state)
        self.forwarder = Forwarder(GROUP, self.id, self.boot)
        self.host.add_forwarder(self.forwarder)
        self.write()

    def write(self) -> bool:
        return perform(self.store, self.disk)

    def tick(self, now: int) -> None:
        self.host.tick(now)

    def turn(self) -> bool:
        if not self.running or not self.host.has_work():
            return False
        turn = self.host.take_turn(self.store.has_room())
        for write in turn.writes:
            stage(self.replica, write.ready)
        for item in turn.applies:
            if item.ready.restores:
                content = self.replica.checkpoints.content()
                assert content is not None
                self.machine = Machine(content.state)
            self.machine.apply(item.ready.committed)
        self.cluster.flying += [(self.id, receiver, frame) for receiver, frame in turn.frames]
        self.write()
        if turn.number:
            self.host.persisted(turn.number)
        self.outcomes += self.forwarder.take_outcomes()
        return True

    def checkpoint(self) -> None:
        """Keep what is applied, forget the entries that made it."""
        assert self.replica.checkpoints.save(self.replica.node, self.replica.desk.table, self.machine.state)
        assert not self.replica.checkpoints.use_saved()
        self.write()
        assert self.replica.checkpoints.use_saved()
        latest = self.replica.checkpoints.latest()
        assert latest is not None
        self.replica.log.compact_to(latest.index)
        self.write()


class Nodes(Lockstep[Node, tuple[int, int, bytes]]):
    """Three of them, and more when they are added."""

    def __init__(self, settings: RaftSettings = SMALL) -> None:
        super().__init__(seed=5)
        self.settings = settings
        self.nodes |= {number: Node(self, number) for number in (1, 2, 3)}
        for node in self.nodes.values():
            node.start((1, 2, 3))
        self.run(3_000)

    def deliver(self, node: Node, part: tuple[int, int, bytes]) -> None:
        node.host.receive(part[2])

    def leader(self) -> Node:
        return next(node for node in self.nodes.values() if node.running and node.replica.node.state.role == LEADER)

    def followers(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.running and node is not self.leader()]

    def write(self, count: int, prefix: bytes = b"") -> bytes:
        for number in range(count):
            outcome = self.leader().host.propose(GROUP, batch(b"%s%03d " % (prefix, number)))
            assert isinstance(outcome, Proposal)
            self.run(50)
        self.run(100)
        return self.leader().machine.state


def test_a_group_begins_with_the_same_entry_everywhere() -> None:
    nodes = Nodes()
    logs = [node.replica.log.entries(1, 2, 1) for node in nodes.nodes.values()]
    assert logs[0] == logs[1] == logs[2]
    assert nodes.leader().replica.node.state.term > 1, "nobody is elected in the term of that entry"
    assert nodes.leader().replica.node.state.configuration == Configuration((1, 2, 3))


def test_a_restart_goes_on_where_the_disk_stands() -> None:
    nodes = Nodes()
    state = nodes.write(20)
    for node in nodes.nodes.values():
        node.lose_power()
    for node in nodes.nodes.values():
        node.start()
    nodes.run(4_000)
    assert [node.machine.state for node in nodes.nodes.values()] == [state] * 3


def test_a_restart_begins_with_the_checkpoint() -> None:
    nodes = Nodes()
    state = nodes.write(20)
    node = nodes.followers()[0]
    node.checkpoint()
    assert node.replica.log.first_index() > 1
    node.lose_power()
    node.start()
    assert node.replica.state == state
    nodes.run(1_000)
    assert node.machine.state == state
    assert nodes.write(1, b"x") == node.machine.state == state + b"x000 "


def test_a_node_far_behind_gets_checkpoint_and_retained_entries() -> None:
    nodes = Nodes()
    behind = nodes.followers()[0]
    behind.lose_power()
    state = nodes.write(40)
    nodes.leader().checkpoint()
    first = nodes.leader().replica.log.first_index()
    assert first > 2
    behind.start()
    nodes.run(3_000)
    assert behind.machine.state == state
    last = nodes.leader().replica.log.last_index()
    assert behind.replica.log.first_index() == first
    assert behind.replica.log.entries(first, last + 1, 1 << 20) == nodes.leader().replica.log.entries(
        first, last + 1, 1 << 20
    )
    behind.lose_power()
    behind.start()
    nodes.run(1_000)
    assert behind.machine.state == state


def test_the_table_of_senders_comes_with_a_checkpoint() -> None:
    """A run that was committed before the checkpoint must be known to a leader that has only that."""
    nodes = Nodes()
    sender = nodes.leader()
    behind = nodes.followers()[0]
    behind.lose_power()
    builder = BatchBuilder()
    builder.add(b"t", b"c", 0, 0, b"run ")
    sender.forwarder.submit(builder.build(note=sender.forwarder.note()), 1)
    sender.host.submitted(GROUP)
    nodes.run(200)
    assert [outcome.kind for outcome in sender.outcomes] == [COMMITTED]
    nodes.write(40)
    nodes.leader().checkpoint()
    behind.start()
    nodes.run(3_000)
    table = behind.replica.desk.table
    assert table.encode() == sender.replica.desk.table.encode()
    assert table.senders[sender.id].offset_of(1) == sender.outcomes[0].offset


def test_damage_in_the_log_is_refilled() -> None:
    nodes = Nodes()
    state = nodes.write(20)
    node = nodes.followers()[0]
    node.store.request_checkpoint()
    node.write()
    path = node.replica.log.path(node.replica.log.segments[0].file_name())
    node.lose_power()
    data = node.disk.read(path, 0, 1_000)
    node.disk.write(path, 700, bytes([data[700] ^ 1]))
    node.disk.sync(path)
    node.start()
    assert node.replica.node.state.health == DAMAGED
    nodes.run(1_000)
    assert node.replica.node.state.health == SOUND
    assert node.replica.log.damage is None
    assert node.machine.state == state
    node.lose_power()
    node.start()
    assert node.replica.node.state.health == SOUND


def test_a_damaged_checkpoint_is_done_without() -> None:
    nodes = Nodes()
    state = nodes.write(20)
    nodes.leader().checkpoint()
    node = nodes.followers()[0]
    node.checkpoint()
    assert node.replica.log.snapshot is not None
    path = node.replica.log.path(node.replica.log.snapshot.file_name())
    node.lose_power()
    node.disk.write(path, 10, b"\xff")
    node.disk.sync(path)
    node.start()
    assert node.replica.state == b""
    assert node.replica.node.state.health == DAMAGED
    nodes.run(3_000)
    assert node.machine.state == state
    assert node.replica.node.state.health == SOUND


def test_a_new_replica_has_no_vote_until_it_is_a_learner_with_everything() -> None:
    nodes = Nodes()
    state = nodes.write(10)
    nodes.nodes[4] = Node(nodes, 4)
    nodes.nodes[4].start(is_new=True)
    assert nodes.nodes[4].replica.node.state.health == FORGOTTEN
    assert isinstance(nodes.leader().host.change(GROUP, (1, 2, 3), (4,)), Proposal)
    nodes.run(1_500)
    assert nodes.nodes[4].machine.state == state
    assert nodes.nodes[4].replica.node.state.health == SOUND


def test_a_checkpoint_waits_for_the_one_before() -> None:
    nodes = Nodes()
    nodes.write(3)
    leader = nodes.leader()
    assert leader.replica.checkpoints.save(leader.replica.node, SenderTable(), b"a")
    assert not leader.replica.checkpoints.save(leader.replica.node, SenderTable(), b"b")
    leader.write()
    assert leader.replica.checkpoints.use_saved()
    content = leader.replica.checkpoints.content()
    assert content is not None
    assert content.state == b"a"


def test_the_content_of_a_checkpoint_comes_back() -> None:
    table = SenderTable()
    table.note(RunId(1, 2, 3), 4)
    data = CheckpointContent(Configuration((1, 2), (), (3,)), table, b"state").encode()
    content = decode_content(data)
    assert (content.configuration, content.state) == (Configuration((1, 2), (), (3,)), b"state")
    assert content.table.encode() == table.encode()


@pytest.mark.parametrize(
    "data", [b"", b"FLKC", b"x" * 40, CheckpointContent(Configuration((1,)), SenderTable(), b"").encode() + b"x"]
)
def test_other_bytes_are_no_checkpoint(data: bytes) -> None:
    with pytest.raises(ValueError, match="checkpoint"):
        decode_content(data)


def test_a_replica_on_a_new_disk_stays_forgotten_over_restarts_and_keeps_what_it_was_sent() -> None:
    nodes = Nodes()
    nodes.write(20)
    node = nodes.followers()[0]
    node.lose_power()
    node.disk.wipe()
    node.start(is_new=True)
    assert node.replica.node.state.health == FORGOTTEN
    nodes.run(1_000)
    last = node.replica.log.last_index()
    assert last > 20
    node.lose_power()
    node.start()
    assert node.replica.node.state.health == FORGOTTEN
    assert node.replica.log.last_index() == last
