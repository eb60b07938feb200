"""Nodes with the partitions of one topic, in one process: real engines, stores and calls; disks and network in hand.

```
 cluster.run(ms)          time passes, everything is written and delivered
 cluster.kill(1)          that node is gone, with all it had in memory; ``start(1)`` brings it back from its disk
 cluster.publish(2, ...)  records through node 2, to the leader
```
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from msgspec.structs import replace as change

from flockmq.cluster.model import CursorRecord, PartitionRecord, TopicRecord
from flockmq.cluster.state import ClusterState
from flockmq.durable.calls import PartitionCalls
from flockmq.durable.cursors.cursors import Cursors
from flockmq.durable.logs.local import EngineLogs
from flockmq.durable.logs.logs import Logs
from flockmq.durable.machine.control import Control
from flockmq.durable.machine.fences import Fences
from flockmq.durable.machine.machines import Machines
from flockmq.durable.machine.session_bodies import CLEAN_START, ClaimStatement, SessionStatement, session_body
from flockmq.durable.machine.session_record import read_record
from flockmq.durable.machine.session_table import SessionTable
from flockmq.durable.qos2.releases import Releases
from flockmq.durable.replicas.retention_sweeper import RetentionSweeper
from flockmq.durable.replicas.scrubbing import Scrubbing
from flockmq.durable.replicas.status import Statuses
from flockmq.durable.sessions.serving import results_of
from flockmq.durable.sessions.submitting import StatementResult
from flockmq.durable.sinks.sinks import Sinks
from flockmq.durable.state.group_directory import GroupDirectory
from flockmq.durable.state.layout import Layout
from flockmq.durable.state.wall import WallClock
from flockmq.log.settings import StoreSettings
from flockmq.node.events import EventList
from flockmq.node.ports import Claimed
from flockmq.peering.calls import Calls
from flockmq.peering.channels import RAFT
from flockmq.peering.fields import Reader
from flockmq.raft.appends import OpenBatch, Outcome
from flockmq.raft.engine import RaftEngine
from flockmq.raft.ready import Ready
from flockmq.raft.settings import RaftSettings
from flockmq.session.session import Session
from flockmq.tasks import Promise, promised
from flockmq.testing.lockstep import Lockstep, StoreNode

WALL_MS = 1_700_000_000_000
STORE = StoreSettings(journal_bytes=262_144, commit_bytes=65_536, segment_bytes=4_096, index_bytes=512)
SETTINGS = replace(RaftSettings(), tail_bytes_max=4_096)


class Sent:
    """Records that were published, and what became of them."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def settled(self, batch: OpenBatch, count: int, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


class Records:
    """The records of persistent sessions: the test is their log. Statements are applied at once."""

    def __init__(self) -> None:
        self.table = SessionTable()
        self.index = 0
        self.is_there = True
        """False: no majority keeps them, and nothing said is applied."""
        self.said: list[int] = []
        """Kinds of statements."""

    def say(self, client: bytes, statement: SessionStatement, size: int = 64) -> Promise[StatementResult | None]:
        if not self.is_there:
            return promised(None)
        self.index += 1
        self.said.append(statement.what)
        self.table.apply(session_body(self.index, [statement]), self.index, self.index)
        return promised(results_of(self.table, [statement], 0)[0])

    def claim(self, client_id: str, node: int, clean: bool = False) -> Claimed:
        """What the owner gets whose claim is granted."""
        client = client_id.encode()
        flags = CLEAN_START if clean else 0
        self.say(client, ClaimStatement(client, self.index + 1, 0, node, 1, None, 3_600, 5, flags))
        record = read_record(Reader(self.table.records[client].encode()))
        return Claimed(0, "", record)


class Node(StoreNode):
    """One node with all its parts."""

    def __init__(self, cluster: PartitionCluster, number: int) -> None:
        super().__init__(cluster, number, cluster.store, SETTINGS)
        self.cluster = cluster
        self.id = number
        self.seen: list[int] | None = None
        """The nodes that this one holds alive; None: those that run."""

    def start(self) -> None:
        cluster = self.cluster
        host, store = self.open(self.admits)
        self.machines = Machines()
        self.events = EventList()
        self.engine = RaftEngine(host, store, self.applied, self.machines.state_of, cluster.failed)
        self.calls = Calls(self)
        wall = WallClock(WALL_MS - cluster.start)
        self.layout = Layout(lambda: cluster.state)
        self.fences = Fences(self.engine, self.machines)
        self.control = Control(self.engine, self.machines, self.fences, wall)
        self.asking = PartitionCalls(self.id, self.engine, self.calls, self.layout)
        self.local = EngineLogs(self.engine, self.machines, self.layout)
        self.logs = Logs(self.id, self.local, self.layout, self.calls, self, self.engine.wake)
        self.cursors = Cursors(self.asking, self.control, self.machines, self.local)
        self.retention_sweeper = RetentionSweeper(
            self.engine, self.machines, self.layout, GroupDirectory(lambda: cluster.state), self.events, wall
        )
        self.sessions = cluster.sessions.setdefault(self.id, {})
        self.releases = Releases(self.asking, self.control, self.machines, cluster.records, self.sessions)
        self.scrubbing = Scrubbing(self.engine, self.asking, self.store.settings)
        self.statuses = Statuses(self.id, self.engine, self.machines, self.calls, self.scrubbing)
        self.sinks = Sinks(self.asking, self.control, self.machines)
        self.followers = (self.control, self.logs, self.sinks)
        for group in cluster.groups:
            if self.id in self.layout.replicas_of(group):
                replica = self.engine.open(group, cluster.voters)
                self.machines.opened(group, replica)
                self.retention_sweeper.opened(group, replica)
            else:
                host.elsewhere[group] = cluster.voters
        self.write()

    def alive(self) -> list[int]:
        """What membership says here."""
        return self.seen if self.seen is not None else self.cluster.alive()

    def applied(self, group: int, ready: Ready) -> None:
        if self.machines.restored(group, ready, self.engine):
            for follower in self.followers:
                follower.applied(group, [])
        if self.machines.applied(group, ready):
            for follower in self.followers:
                follower.applied(group, ready.committed)

    def closed(self, group: int) -> None:
        self.machines.closed(group)
        for follower in self.followers:
            follower.closed(group)

    def admits(self, group: int, batch: bytes) -> int:
        return self.fences.admits(group, batch)

    def send(self, peer: int, channel: int, body: bytes) -> None:
        self.cluster.flying.append((self.id, peer, channel, body))

    def tick(self, now: int) -> None:
        self.engine.tick(now)
        for part in (self.calls, self.control, self.retention_sweeper, self.releases):
            part.tick(now)
        wall_ms = now + WALL_MS - self.cluster.start
        work = self.scrubbing.take(now, wall_ms)
        if work is not None:
            work.perform(self.disk)
            self.scrubbing.done(work, now, wall_ms)

    def turn(self) -> bool:
        now = self.cluster.now
        self.asking.now = now
        self.cursors.flush(now)
        self.releases.flush(now)
        self.control.flush(now)
        self.engine.turn(lambda peer, frame: self.send(peer, RAFT, frame))
        self.write()
        return False  # the network has all that is under way


class PartitionCluster(Lockstep[Node, tuple[int, int, int, bytes]]):
    """See the module."""

    def __init__(
        self,
        nodes: int = 3,
        groups: int = 2,
        voters: tuple[int, ...] = (1, 2, 3),
        seed: int = 5,
        store: StoreSettings = STORE,
        sessions: dict[int, dict[str, Session]] | None = None,
    ) -> None:
        """``sessions``: by node, of those that have a broker."""
        super().__init__(seed)
        self.sessions = sessions or {}
        self.records = Records()
        self.store = store
        self.start = self.now
        self.voters = voters
        self.groups = list(range(1, groups + 1))
        self.state = ClusterState()
        self.lost: Callable[[int, int], bool] = lambda sender, receiver: False
        self.set_topic()
        self.nodes |= {number: Node(self, number) for number in range(1, nodes + 1)}
        for node in self.nodes.values():
            node.start()
        for node in self.nodes.values():
            self._link(node)
        self.run(3_000)

    def failed(self, reason: str) -> None:
        raise AssertionError(reason)

    def set_topic(self, retention_ms: int = 0, retention_bytes: int = 0) -> None:
        """The one topic there is."""
        partitions = tuple(
            PartitionRecord(group, shard, self.voters, self.voters, self.voters, self.voters[0], self.voters)
            for shard, group in enumerate(self.groups)
        )
        self.state.topics["default/t"] = TopicRecord(
            namespace="default",
            name="t",
            filters=(b"t/#",),
            shards=len(partitions),
            replication_factor=3,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            ack=0,
            key=0,
            key_property="",
            exchange="fanout",
            created_ms=0,
            changed_index=0,
            partitions=partitions,
        )
        self.state.places = {group: ("default/t", shard) for shard, group in enumerate(self.groups)}

    def set_cursor(self, name: str, hold: bool) -> None:
        self.state.cursors[f"default/{name}"] = CursorRecord("default", name, "t", hold)
        self.state.versions = change(self.state.versions, cursors=self.state.versions.cursors + 1)

    def alive(self) -> list[int]:
        return [number for number, node in self.nodes.items() if node.running]

    def _link(self, node: Node) -> None:
        for other in self.nodes.values():
            if other is not node and other.running:
                node.calls.peer_up(other.id, self.now)
                other.calls.peer_up(node.id, self.now)

    def is_lost(self, part: tuple[int, int, int, bytes]) -> bool:
        return self.lost(part[0], part[1])

    def deliver(self, node: Node, part: tuple[int, int, int, bytes]) -> None:
        sender, _, channel, body = part
        if channel == RAFT:
            node.engine.receive(body)
        else:
            node.calls.receive(sender, body, self.now)

    def kill(self, number: int) -> None:
        self.nodes[number].lose_power()
        for node in self.running():
            node.calls.peer_dead(number, self.now)

    def restart(self, number: int) -> None:
        self.nodes[number].start()
        self._link(self.nodes[number])

    def leader(self, group: int) -> Node:
        return next(node for node in self.nodes.values() if node.running and node.engine.is_leader(group))

    def lead(self, group: int, number: int) -> None:
        """Let a node lead a group."""
        if self.leader(group).id != number:
            assert self.leader(group).engine.host.transfer(group, number) is None
            self.run(500)
        assert self.leader(group).id == number

    def publish(
        self,
        number: int,
        group: int,
        *payloads: bytes,
        client: bytes = b"c",
        epoch: int = 0,
        ids: tuple[int, ...] = (),
        topic: bytes = b"t/x",
    ) -> Sent:
        """Records through a node; run to have them committed."""
        sent = Sent()
        batch = self.nodes[number].engine.appends.open_batch(group)
        for position, payload in enumerate(payloads):
            packet_id = ids[position] if ids else 0
            now = self.now - self.start + WALL_MS
            batch.builder.add(topic, client, now, 2, payload)
            batch.builder.mark(packet_id=packet_id, session_epoch=epoch)
        batch.waiting[sent] = len(payloads)
        return sent

    def fill(self, group: int, count: int, size: int = 100) -> None:
        """Committed records, a batch each."""
        for number in range(count):
            self.publish(self.leader(group).id, group, b"%05d" % number + b"x" * size)
            self.settle()
        self.run(100)
