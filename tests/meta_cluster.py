"""Nodes with cluster state and partitions, on simulated disks, in one process; links are lists."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from flockmq.cluster.commands import Command, Result
from flockmq.cluster.policy import PolicySettings, SeenMember
from flockmq.cluster.state import ClusterState
from flockmq.durable.replicas.partitions import Partitions
from flockmq.durable.state.facts import Head
from flockmq.durable.state.members import Members, seen_member
from flockmq.durable.state.meta import Meta
from flockmq.durable.state.wall import WallClock
from flockmq.gossip.member import ALIVE, DEAD, Member
from flockmq.log.batch import BatchView
from flockmq.log.settings import StoreSettings
from flockmq.peering.calls import Calls
from flockmq.peering.channels import RAFT
from flockmq.raft.appends import OpenBatch, Outcome
from flockmq.raft.engine import RaftEngine
from flockmq.raft.ready import Ready
from flockmq.raft.replicas import Replica
from flockmq.raft.settings import RaftSettings
from flockmq.testing.lockstep import Lockstep, StoreNode

STORE = StoreSettings(journal_bytes=1_048_576, commit_bytes=262_144, segment_bytes=65_536, index_bytes=1_024)
SETTINGS = replace(RaftSettings(), tick_ms=50)
WALL = 1_700_000_000_000
STEP_MS = 50
SEED = int(os.environ.get("FLOCKMQ_TEST_SEED", "0"))
"""Lets the same tests run with other chances."""


class Append:
    """Remembers what became of a record."""

    def __init__(self) -> None:
        self.outcome: Outcome | None = None

    def settled(self, batch: OpenBatch, count: int, outcome: Outcome) -> None:
        self.outcome = outcome


class Node(StoreNode):
    """One node and its disk. ``start`` begins a life, ``kill`` ends it."""

    def __init__(self, cluster: Cluster, number: int, role: int) -> None:
        super().__init__(cluster, number, STORE, SETTINGS)
        self.cluster = cluster
        self.role = role
        self.may_stop = False
        self.kept = b""
        self.is_outdated = False
        self.head: Head | None = None
        self.payloads: dict[int, list[bytes]] = {}
        """What the partitions here applied."""
        self.closed: list[int] = []
        self.watchers: list[Callable[[ClusterState], None]] = []

    def _changed(self, state: ClusterState) -> None:
        self.partitions.follow(state)
        for watcher in self.watchers:
            watcher(state)

    def _parted(self, group: int) -> None:
        self.partitions.was_closed(group)

    def start(self) -> None:
        """Begin a life."""
        cluster = self.cluster
        host, store = self.open()
        self.payloads = {}
        self.head = None
        self.engine = RaftEngine(host, store, self._applied, self._state_of, self._stopped)
        self.calls = Calls(self)
        self.meta = Meta(self.engine, self.calls, self, cluster.rng, WallClock(WALL), self, self._changed, self._parted)
        self.partitions = Partitions(self.meta, self.engine, self._opened, self.closed.append)
        self.members = Members(self.meta, self.engine, self.list_members, cluster.policy)
        if self.is_outdated:
            self.meta.doubt_all()
        if self.kept:
            self.meta.restore(self.kept)
        self.meta.start()
        self.partitions.start()
        for other in cluster.nodes.values():
            if other.running and other is not self:
                self.calls.peer_up(other.number, cluster.now)
                other.calls.peer_up(self.number, cluster.now)

    def kill(self) -> None:
        """The process ends at once."""
        self.lose_power()
        for other in self.cluster.nodes.values():
            if other.running:
                other.calls.peer_down(self.number, self.cluster.now)

    def list_members(self) -> list[SeenMember]:
        """What SWIM would say."""
        return [
            seen_member(
                Member(node.number, node.boot, f"n{node.number}", "h", 1, 0, node.gossip, "1", node.role),
                store=node.store.identity,
            )
            for node in self.cluster.nodes.values()
            if node.boot
        ]

    @property
    def gossip(self) -> int:
        return ALIVE if self.running and self.number not in self.cluster.alone else DEAD

    # Facts and Outbox.

    def tell(self, index: int, has_replica: bool) -> None:
        self.head = Head(index, has_replica)

    def alive(self) -> list[int]:
        return [node.number for node in self.cluster.running()]

    def heads(self) -> dict[int, Head]:
        return {
            node.number: node.head
            for node in self.cluster.nodes.values()
            if node is not self and node.running and node.head is not None and self.cluster.is_linked(self, node)
        }

    def send(self, peer: int, channel: int, body: bytes) -> None:
        self.cluster.flying.append((self.number, peer, self.boot, channel, body))

    # What the engine asks.

    def _opened(self, group: int, replica: Replica) -> None:
        self.payloads[group] = replica.state.split(b",") if replica.state else []

    def _applied(self, group: int, ready: Ready) -> None:
        if group == 0:
            self.meta.applied(ready)
            return
        self.partitions.applied(group, ready)
        known = self.payloads.setdefault(group, [])
        if ready.restores:
            content = self.engine.replicas[group].checkpoints.content()
            assert content is not None
            known[:] = content.state.split(b",") if content.state else []
        for entry in ready.committed:
            if entry.count:
                known += [record.payload for record in BatchView(entry.data).records()]

    def _state_of(self, group: int) -> bytes:
        return self.meta.state_bytes() if group == 0 else b",".join(self.payloads.get(group, []))

    def _stopped(self, reason: str) -> None:
        assert self.may_stop, reason

    def keep(self, state: bytes) -> None:
        """The copy beside the store."""
        self.kept = state
        self.is_outdated = False

    def outdate(self) -> None:
        """The copy lacks a change."""
        self.is_outdated = True

    # What a driver does.

    def tick(self, now: int) -> None:
        self.engine.tick(now)
        self.calls.tick(now)
        self.partitions.tick(now)
        self.members.tick(now)

    def turn(self) -> bool:
        """Whether there was something to do."""
        had = self.engine.has_work()
        self.engine.turn(lambda peer, frame: self.send(peer, RAFT, frame))
        self.meta.flush(self.cluster.now)
        return self.write() or had

    def append(self, group: int, payload: bytes) -> Append:
        """A record for the leader of a partition."""
        waiter = Append()
        batch = self.engine.appends.open_batch(group)
        batch.builder.add(b"t", b"c", WALL, 0, payload)
        batch.waiting[waiter] = 1
        return waiter


class Cluster(Lockstep[Node, tuple[int, int, int, int, bytes]]):
    """All nodes, and the time."""

    def __init__(self, seed: int = 1, cores: int = 3, edges: int = 0) -> None:
        super().__init__(seed + SEED, now=1_000)
        self.policy = PolicySettings(autoclean_ms=60_000, seat_kept_ms=10_000, unseen_ms=10_000)
        self.alone: set[int] = set()
        """Nodes without links."""
        self.nodes |= {number: Node(self, number, int(number > cores)) for number in range(1, cores + edges + 1)}

    def found(self, *others: int) -> None:
        """Node 1 mints the cluster, others start."""
        self[1].start()
        self[1].meta.begin(77)
        for number in others:
            self[number].start()

    def is_linked(self, one: Node, other: Node) -> bool:
        return one.number not in self.alone and other.number not in self.alone

    def is_lost(self, part: tuple[int, int, int, int, bytes]) -> bool:
        source = self.nodes[part[0]]
        return not source.running or source.boot != part[2] or not self.is_linked(source, self.nodes[part[1]])

    def deliver(self, node: Node, part: tuple[int, int, int, int, bytes]) -> None:
        sender, _, _, channel, body = part
        if channel == RAFT:
            node.engine.receive(body)
        else:
            node.calls.receive(sender, body, self.now)

    def submit(self, number: int, command: Command, ms_max: int = 15_000) -> Result:
        """A command on a node, and its result."""
        results: list[Result] = []
        self[number].meta.submit(command).then(results.append)
        self.until(lambda: bool(results), ms_max)
        assert len(results) == 1
        return results[0]

    def append(self, number: int, group: int, payload: bytes) -> int:
        """Append a record through a node; its offset."""
        waiter = self[number].append(group, payload)
        self.until(lambda: waiter.outcome is not None)
        assert waiter.outcome is not None
        assert waiter.outcome.kind == 1, waiter.outcome.kind
        return waiter.outcome.offset

    def leader(self, group: int = 0) -> Node | None:
        """The leader of a group, None without one."""
        leaders = [node for node in self.running() if node.number not in self.alone and node.engine.is_leader(group)]
        return max(leaders, key=lambda node: node.engine.host.groups[group].state.term) if leaders else None

    def voters(self, group: int = 0) -> tuple[int, ...]:
        """The voters, as the leader knows them; empty while there is none, or they change."""
        leader = self.leader(group)
        if leader is None:
            return ()
        state = leader.engine.host.groups[group].state
        if state.configuration.is_joint or state.configuration_index > state.commit:
            return ()
        return state.configuration.voters
