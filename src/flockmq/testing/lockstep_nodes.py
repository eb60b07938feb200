"""Whole nodes that a test moves by hand: assembled as a server does it, on simulated disks, with links that are lists.

```
 cluster.found(2, 3)        node 1 mints the cluster, others join it by gossip
 cluster.submit(2, ...)     a command through node 2, and its result
 cluster.append(3, 1, ...)  a record through node 3, to the leader of group 1
 cluster.isolate(1)         its links break, its datagrams are lost; ``heal`` ends that
 node.kill(), start()       a life ends, with all that was in memory; the next one begins with the disk
```
``run``, ``until`` and ``settle`` let time pass, see ``lockstep``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from flockmq.cluster.policy import PolicySettings
from flockmq.durable.assembly import assemble
from flockmq.durable.parts import Parts
from flockmq.durable.state.facts import Head, MapFacts
from flockmq.errors import Damaged, NoReplica
from flockmq.gossip.member import Member
from flockmq.gossip.settings import profile
from flockmq.log.batch import BatchView
from flockmq.log.settings import StoreSettings
from flockmq.node.ports import OpenGate
from flockmq.node.settings import BrokerSettings
from flockmq.peering.formation import Rules
from flockmq.raft.settings import RaftSettings
from flockmq.testing.harness import START_MS, WALL_MS, BrokerHarness
from flockmq.testing.lockstep import Lockstep, StoreNode

if TYPE_CHECKING:
    from flockmq.cluster.commands import Command, Result
    from flockmq.cluster.state import ClusterState
    from flockmq.node.ports import Gate
    from flockmq.raft.appends import OpenBatch, Outcome

CLUSTER_ID: Final = 77
PORT: Final = 16_000
SLOW_TICK_MS: Final = 100
STORE: Final = StoreSettings(journal_bytes=1_048_576, commit_bytes=262_144, segment_bytes=65_536, index_bytes=1_024)
RAFT: Final = replace(RaftSettings(), tick_ms=50)
READ_BYTES: Final = 1_048_576
SEED: Final = int(os.environ.get("FLOCKMQ_TEST_SEED", "0"))
"""Lets the same tests run with other chances."""

Part = tuple[int, int, int, bytes]
"""Sender, receiver, the link (0: a datagram) and what is said."""


class Append:
    """Remembers what became of a record."""

    def __init__(self) -> None:
        self.outcome: Outcome | None = None

    def settled(self, batch: OpenBatch, count: int, outcome: Outcome) -> None:  # noqa: ARG002
        """The log has the record, or not."""
        self.outcome = outcome


class WholeNode(StoreNode):
    """An assembled node and its disk; also the edges of the node."""

    def __init__(self, cluster: NodesLockstep, number: int, role: int) -> None:
        super().__init__(cluster, number, STORE, RAFT)
        self.cluster = cluster
        self.role = role
        self.may_stop = False
        """Whether consensus may stop here."""
        self.kept = b""
        """The copy of the cluster state beside the store."""
        self.is_outdated = False
        """Whether that copy lacks a change."""
        self.wanted: dict[int, None] = {}
        """Nodes that this one wants to be linked with."""
        self.watchers: list[Callable[[ClusterState], None]] = []
        """Called when the cluster state has changed here."""

    def start(self) -> None:
        """Begin a life."""
        cluster = self.cluster
        now = cluster.now
        store = self.recover()
        host = host_of(self.number)
        self.whole = assemble(
            Parts(
                me=Member(self.number, self.boot, f"n{self.number}", host, PORT, role=self.role, cluster_id=CLUSTER_ID),
                settings=cluster.settings,
                gate=cluster.gate,
                gossip=profile("local"),
                rules=Rules(lists_peers=False, contact_points=1),
                rng=cluster.rng,
                now=now,
                wall_ms=cluster.wall_ms(),
                edges=self,
                store=store,
                raft=self._raft,
                policy=cluster.policy,
            )
        )
        durable = self.whole.durable
        assert durable is not None
        self.durable = durable
        self.engine = durable.engine
        self.meta = durable.meta
        self.members = durable.members
        self.partitions = durable.partitions
        self.harness = BrokerHarness(self.number, cluster.settings, broker=self.whole.broker)
        self.wanted = {}
        self._is_awake = True
        self._slow_at = now
        durable.open(self.kept, now, is_copy_lost=self.is_outdated)
        self.whole.cluster.swim.join([(host_of(other), PORT) for other in cluster.nodes if other != self.number], now)

    def kill(self) -> None:
        """The process ends at once."""
        self.lose_power()
        self.cluster.unlink(self.number)

    # What a driver does.

    def tick(self, now: int) -> None:
        """Time passes."""
        self.harness.now = now
        if now >= self._slow_at:
            self._slow_at = now + SLOW_TICK_MS
            self.whole.broker.tick(now)
            self.whole.cluster.tick(now)
        wall_ms = self.cluster.wall_ms()
        self.durable.tick(now, wall_ms)
        work = self.durable.scrubbing.take(now, wall_ms)
        if work is not None:
            work.perform(self.disk)
            self.durable.scrubbing.done(work, now, wall_ms)
        self._is_awake = True

    def turn(self) -> bool:
        """Whether there was something to do."""
        had = self._is_awake or self.engine.has_work() or self.whole.cluster.has_more()
        self._is_awake = False
        self.harness.flush()
        for peer, pieces in self.whole.cluster.turn(self.cluster.now):
            self.ship(peer, pieces)
        for (host, _), body in self.whole.cluster.swim.take_datagrams():
            self.cluster.flying.append((self.number, int(host.rpartition(".")[2]), 0, body))
        for request in self.whole.cluster.take_link_requests():
            if request.host:
                self.wanted[request.node_id] = None
            else:
                self.wanted.pop(request.node_id, None)
                self.cluster.unlink(self.number, request.node_id)
        self.harness.flush()
        return self.write() or had

    # Edges.

    def kick(self) -> None:
        """The store may have something to write, which every turn does."""

    def wake(self) -> None:
        """The node has work."""
        self._is_awake = True

    def ship(self, peer: int, pieces: list[bytes]) -> None:
        """Send a frame to a linked node."""
        link = self.cluster.link_of(self.number, peer)
        if link:
            self.cluster.flying.append((self.number, peer, link, b"".join(pieces)))

    def keep(self, state: bytes) -> None:
        """Save this copy of the cluster state."""
        self.kept = state
        self.is_outdated = False

    def outdate(self) -> None:
        """The copy lacks a change."""
        self.is_outdated = True

    def changed(self, state: ClusterState) -> None:
        """The cluster state has changed."""
        for watcher in self.watchers:
            watcher(state)

    def stopped(self, reason: str) -> None:
        """Consensus takes no part any more."""
        assert self.may_stop, f"{reason} {self.engine.events[-1:]}"

    # What a test asks.

    def heads(self) -> dict[int, Head]:
        """How far the other nodes say they are."""
        return MapFacts(self.whole.cluster.maps, self.whole.cluster.swim, self.number).heads()

    def append(self, group: int, payload: bytes) -> Append:
        """A record for the leader of a partition."""
        waiter = Append()
        batch = self.engine.appends.open_batch(group)
        batch.builder.add(b"t", b"c", self.cluster.wall_ms(), 0, payload)
        batch.waiting[waiter] = 1
        return waiter

    def payloads(self, group: int) -> list[bytes]:
        """All records of a partition that this node's replica has applied; none when it can't read them all."""
        local = self.durable.local
        found: list[bytes] = []
        if not local.is_here(group):
            return found
        offset = local.first(group)
        while offset < local.end(group):
            try:
                batches = local.read(group, offset, READ_BYTES)
            except (NoReplica, Damaged):
                return []
            for batch in batches:
                view = BatchView(batch)
                found += [record.payload for record in view.records() if record.offset >= offset]
                offset = view.next_offset
        return found


class NodesLockstep(Lockstep[WholeNode, Part]):
    """All nodes, their links and the time."""

    def __init__(
        self,
        seed: int = 1,
        cores: int = 3,
        edges: int = 0,
        settings: BrokerSettings | None = None,
        gate: Gate | None = None,
    ) -> None:
        super().__init__(seed + SEED, now=START_MS)
        self.policy = PolicySettings(autoclean_ms=60_000, seat_kept_ms=10_000, unseen_ms=10_000)
        self.settings = settings or BrokerSettings(sys_interval_ms=0)
        self.gate: Gate = gate or OpenGate()
        self.links: dict[tuple[int, int], int] = {}
        """By the lower and the higher node id."""
        self._links_made = 0
        self.nodes |= {number: WholeNode(self, number, int(number > cores)) for number in range(1, cores + edges + 1)}

    def wall_ms(self) -> int:
        """The time of day that belongs to ``now``."""
        return self.now - START_MS + WALL_MS

    def found(self, *others: int) -> None:
        """Node 1 mints the cluster, others start."""
        self[1].start()
        self[1].durable.begin(CLUSTER_ID)
        for number in others:
            self[number].start()

    # Links.

    def link_of(self, one: int, other: int) -> int:
        """The link between two nodes; 0: none."""
        return self.links.get((min(one, other), max(one, other)), 0)

    def is_lost(self, part: Part) -> bool:
        """Frames get lost with their link, datagrams where there is no way."""
        sender, receiver, link, _ = part
        return link != self.link_of(sender, receiver) if link else super().is_lost(part)

    def deliver(self, node: WholeNode, part: Part) -> None:
        """A frame or a datagram."""
        sender, _, link, body = part
        node.wake()
        if link:
            node.whole.cluster.frame(sender, body, self.now)
        else:
            node.whole.cluster.datagram(body, (host_of(sender), PORT), self.now)

    def turn(self) -> bool:
        """One turn of all nodes; links that are wanted stand behind it."""
        moved = super().turn()
        for node in self.running():
            for peer in node.wanted:
                moved = self._link(node, self.nodes[peer]) or moved
        return moved

    def _link(self, one: WholeNode, other: WholeNode) -> bool:
        ends = (min(one.number, other.number), max(one.number, other.number))
        if not other.running or ends in self.links or self.cuts & {ends, ends[::-1]}:
            return False
        self._links_made += 1
        self.links[ends] = self._links_made
        for node, peer in ((one, other), (other, one)):
            node.whole.cluster.link_up(peer.number, CLUSTER_ID, self.now)
            node.wake()
        return True

    def unlink(self, number: int, peer: int = 0) -> None:
        """Break the links of a node, or the one with a peer."""
        for ends in [ends for ends in self.links if number in ends and (not peer or peer in ends)]:
            del self.links[ends]
            for here, there in (ends, ends[::-1]):
                if self[here].running:
                    self[here].whole.cluster.link_down(there, self.now)
                    self[here].wake()

    def cut(self, sender: int, receiver: int) -> None:
        """Two nodes reach each other no more: a link needs both directions."""
        super().cut(sender, receiver)
        self.unlink(sender, receiver)

    def isolate(self, *numbers: int) -> None:
        """These nodes talk only among themselves."""
        super().isolate(*numbers)
        for one, other in self.cuts:
            self.unlink(one, other)

    # What a test asks.

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

    def is_alone(self, number: int) -> bool:
        """Whether a node reaches no other."""
        others = [other for other in self.nodes if other != number]
        return bool(others) and all((number, other) in self.cuts for other in others)

    def leader(self, group: int = 0) -> WholeNode | None:
        """The leader of a group among the nodes that reach others; None without one."""
        leaders = [node for node in self.running() if node.engine.is_leader(group) and not self.is_alone(node.number)]
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


def host_of(number: int) -> str:
    """The address of a node."""
    return f"10.0.0.{number}"
