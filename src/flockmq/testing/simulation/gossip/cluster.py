"""A whole cluster's membership in one process, from one seed: datagrams get lost and late, nodes die and pause.

```
 events in the order of their times --> datagram or link message arrives at a node | a node wakes up | links come up
        ^                                    |
        '---- loss, delay, partitions, <-----'  what the node sends; its events are checked against the truth
              one-way cuts, pauses
```
The nodes are the real ones (``flockmq.gossip.swim``) with the real bytes; only sealing is left out (its size is
counted). A node that has nothing to do costs nothing: it is run when it asked for it, or when something arrives. Links
stand for TCP: nothing is lost on them while both sides can reach each other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from flockmq.gossip.lists import LINK_PING
from flockmq.gossip.member import ALIVE_AGAIN, DIED, HAS_LEFT, JOINED, SUSPECTED, Member
from flockmq.gossip.seal import SEAL_BYTES
from flockmq.gossip.settings import LAN, GossipSettings
from flockmq.gossip.speaking import Address
from flockmq.gossip.swim import Swim
from flockmq.testing.simulation.events import EventQueue

DATAGRAM_HEAD_BYTES: Final = SEAL_BYTES + 28
"""Seal, UDP and IPv4."""
LINK_HEAD_BYTES: Final = 4 + 5 + 40
"""Frame, part, TCP and IPv4."""
PORT: Final = 16_000
INBOX_MAX: Final = 512
"""So many datagrams wait for a paused node, as in a socket's buffer; more are lost."""

START_MS: Final = 1_000_000
RETRY_MS: Final = 1_000
"""A node tries again so often to connect to one that it holds alive."""


class SimulatedNode:
    """One node, in one of its lives, and what it sent."""

    def __init__(self, simulation: GossipSimulation, index: int, node_id: int, boot: int) -> None:
        self.simulation = simulation
        self.index = index
        self.running = True
        self.paused_until = 0
        self.inbox: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        self.wake_at = 0
        self.life = 0
        self.bytes_sent = 0
        self.link_bytes_sent = 0
        me = Member(node_id, boot, f"n{index}@h{index}", f"h{index}", PORT, version="0.1.0", cluster_id=7)
        self.swim = Swim(simulation.settings, me, random.Random(simulation.rng.random()), simulation.now, self)  # noqa: S311

    def send(self, peer: int, channel: int, body: bytes) -> None:  # noqa: ARG002 - an Outbox
        """A message over a link."""
        if body[0] == LINK_PING and not self.simulation.link_probes:
            return
        self.link_bytes_sent += len(body) + LINK_HEAD_BYTES
        self.simulation.send_by_link(self.index, peer, body)

    def receive_datagram(self, source: int, body: bytes) -> None:
        """A datagram arrives."""
        self.swim.receive_datagram(body, (f"h{source}", PORT), self.simulation.now)

    def receive_by_link(self, source: int, body: bytes) -> None:
        """A message over a link arrives; it is lost if the link broke meanwhile."""
        if self.simulation.are_linked(self.index, source):
            self.swim.receive(self.simulation.nodes[source].swim.me.node_id, body, self.simulation.now)


class Reach:
    """Which nodes reach which."""

    def __init__(self) -> None:
        self.group: dict[int, int] = {}
        """Node -> its part of the network while there is a partition; empty when there is none."""
        self.cuts: set[tuple[int, int]] = set()
        """One-way: nothing gets from the first to the second."""

    def partition(self, *groups: list[int]) -> None:
        """Only nodes of one group reach each other; links between groups are silent."""
        self.group = {index: number for number, group in enumerate(groups) for index in group}

    def heal(self) -> None:
        """All nodes reach each other."""
        self.group = {}
        self.cuts.clear()

    def can_reach(self, source: int, target: int) -> bool:
        """Whether what is sent from here gets there."""
        if self.group and self.group.get(source) != self.group.get(target):
            return False
        return not self.cuts or (source, target) not in self.cuts


class GossipSimulation(Reach):
    """The cluster, its network and the truth about which nodes run."""

    def __init__(
        self,
        seed: int,
        settings: GossipSettings = LAN,
        *,
        loss: float = 0.0,
        delay_ms_min: int = 1,
        delay_ms_max: int = 4,
        links: bool = True,
        link_probes: bool = True,
        queue: EventQueue | None = None,
    ) -> None:
        super().__init__()
        self.settings = settings
        self.rng = random.Random(seed)  # noqa: S311
        self.loss = loss
        self.delay_ms_min = delay_ms_min
        self.delay_ms_max = delay_ms_max
        self.links = links
        self.link_probes = link_probes
        """Whether probes may also go over links; without, all that is known of failures came by datagrams."""
        self.queue = queue if queue is not None else EventQueue()
        self.nodes: list[SimulatedNode] = []
        self.index_of: dict[int, int] = {}
        self.suspicions = 0
        """How often any node began to suspect one that runs."""
        self.false_deaths: list[tuple[int, int, int]] = []
        """Time, the node that held another dead, and that other one, which was not."""
        self.died_at: dict[int, int] = {}
        self.known_dead: dict[int, dict[int, int]] = {}
        """For each killed node when each other one heard of it."""
        self.excused: set[int] = set()
        """Nodes whose being called dead is no mistake now: paused, cut off."""
        self.datagrams = 0
        self._linked: set[tuple[int, int]] = set()

    @property
    def now(self) -> int:
        """Milliseconds, as all nodes see them."""
        return START_MS + self.queue.now // 1_000

    # The cluster

    def start(self, contacts: list[int]) -> int:
        """Start a new node that knows these contact points; its index."""
        index = len(self.nodes)
        node_id = self.rng.getrandbits(63) | 1
        node = SimulatedNode(self, index, node_id, self.now)
        self.nodes.append(node)
        self.index_of[node_id] = index
        self._begin(node, contacts)
        return index

    def _begin(self, node: SimulatedNode, contacts: list[int]) -> None:
        node.swim.join([(f"h{contact}", PORT) for contact in contacts], self.now)
        node.wake_at = 0
        self._after(node)

    def start_many(self, count: int, over_ms: int = 0, contacts: int = 3) -> None:
        """Start nodes one after the other; the first few are the contact points of all."""
        for number in range(count):
            self.start([index for index in range(min(contacts, count)) if index != len(self.nodes)])
            if over_ms:
                self.run(over_ms // count if number else 0)

    def kill(self, index: int, *, silent: bool = False) -> None:
        """It is gone without a word; links to it break, or fall silent as when a machine loses power."""
        node = self.nodes[index]
        node.running = False
        node.inbox = []
        self.died_at[index] = self.now
        self.known_dead[index] = {}
        for one, other in [pair for pair in self._linked if index in pair]:
            self._linked.discard((one, other))
            survivor = self.nodes[other if one == index else one]
            if not silent and survivor.running and self.can_reach(index, survivor.index):
                survivor.swim.peer_down(node.swim.me.node_id, self.now)
                self._after(survivor)

    def restart(self, index: int, contacts: list[int] | None = None, *, new_id: bool = False) -> None:
        """The same name and address in a new life; with another id if its disk was lost."""
        old = self.nodes[index]
        if old.running:
            self.kill(index)
        node_id = self.rng.getrandbits(63) | 1 if new_id else old.swim.me.node_id
        node = SimulatedNode(self, index, node_id, self.now)
        node.life = old.life + 1
        self.nodes[index] = node
        self.index_of[node_id] = index
        self._begin(node, contacts if contacts is not None else [0, 1, 2])

    def leave(self, index: int) -> None:
        """It says good-bye, then is gone; time passes until it is."""
        self.take_leave(index)
        while self.nodes[index].running:
            self.run(50)

    def take_leave(self, index: int) -> None:
        """It says good-bye, and is gone as soon as it has told enough others."""
        node = self.nodes[index]
        node.swim.leave(self.now)
        self._after(node)
        self.queue.after(50_000, self._end_left, node)

    def _end_left(self, node: SimulatedNode) -> None:
        if node.swim.has_left(self.now):
            node.running = False
        elif node.running:
            self.queue.after(50_000, self._end_left, node)

    def pause(self, index: int, duration_ms: int) -> None:
        """The process stands still for a while; its socket's buffer fills."""
        self.nodes[index].paused_until = self.now + duration_ms
        self.queue.after(duration_ms * 1_000, self._resume, index, self.nodes[index].life)

    def running(self) -> list[SimulatedNode]:
        """All nodes that live."""
        return [node for node in self.nodes if node.running]

    def agree(self) -> bool:
        """Whether all running nodes see exactly the running nodes as alive, in the same incarnations."""
        running = self.running()
        views = {node.swim.view for node in running}
        if len(views) != 1:
            return False
        ids = {node.swim.me.node_id for node in running}
        return all(len(node.swim.roster.live) + 1 == len(ids) for node in running) and all(
            set(node.swim.roster.live) <= ids for node in running[:3]
        )

    # Time

    def run(self, duration_ms: int) -> None:
        """Let time pass."""
        self.queue.run_until(self.queue.now + duration_ms * 1_000)

    def run_until_agreed(self, limit_ms: int, step_ms: int = 100) -> int:
        """Let time pass until all agree; how long it took, or -1."""
        began = self.now
        while not self.agree():
            if self.now - began >= limit_ms:
                return -1
            self.run(step_ms)
        return self.now - began

    def _happen(self, index: int, action: Callable[..., None], *arguments: object) -> None:
        """Something comes to a node: it is lost if the node is gone, and waits while the node stands still."""
        node = self.nodes[index]
        if not node.running:
            return
        if node.paused_until > self.now:
            if len(node.inbox) < INBOX_MAX:
                node.inbox.append((action, arguments))
            return
        action(node, *arguments)
        self._after(node)

    def _resume(self, index: int, life: int) -> None:
        node = self.nodes[index]
        if not node.running or life != node.life:
            return
        inbox = node.inbox
        node.inbox = []
        for action, arguments in inbox:
            self._happen(index, action, *arguments)
        node.wake_at = 0
        self._after(node)

    def _wake(self, index: int, life: int) -> None:
        node = self.nodes[index]
        now = self.now
        if not node.running or life != node.life or node.paused_until > now or now != node.wake_at:
            return  # the node asked for another moment since
        node.wake_at = 0
        node.swim.tick(now)
        self._after(node)

    # What nodes do

    def _after(self, node: SimulatedNode) -> None:
        """Carry out what a node wants after it was run."""
        swim = node.swim
        out = swim.take_datagrams()
        if out:
            self._send(node, out)
        if swim.roster.events:
            self._look_at_events(node)
        wake_at = swim.wake_at
        if not node.wake_at or wake_at < node.wake_at:
            node.wake_at = max(wake_at, self.now + 1)
            self.queue.after((node.wake_at - self.now) * 1_000, self._wake, node.index, node.life)

    def _send(self, node: SimulatedNode, out: list[tuple[Address, bytes]]) -> None:
        index = node.index
        rng_random = self.rng.random
        spread = self.delay_ms_max - self.delay_ms_min + 1
        restricted = bool(self.group or self.cuts)
        for (host, _), body in out:
            node.bytes_sent += len(body) + DATAGRAM_HEAD_BYTES
            target = int(host[1:])
            if target >= len(self.nodes):
                continue  # not started yet
            if self.loss and rng_random() < self.loss:
                continue
            if restricted and not self.can_reach(index, target):
                continue
            delay = self.delay_ms_min + int(rng_random() * spread)
            self.queue.after(delay * 1_000, self._happen, target, SimulatedNode.receive_datagram, index, body)
        self.datagrams += len(out)

    def are_linked(self, one: int, other: int) -> bool:
        """Whether there is a link."""
        return (min(one, other), max(one, other)) in self._linked

    def send_by_link(self, index: int, peer: int, body: bytes) -> None:
        """A message for a link: it arrives, unless the link is gone or silent."""
        target = self.index_of.get(peer, -1)
        pair = (min(index, target), max(index, target))
        if pair in self._linked and self.can_reach(index, target) and self.can_reach(target, index):
            delay_us = self.delay_ms_max * 1_000
            self.queue.after(delay_us, self._happen, target, SimulatedNode.receive_by_link, index, body)

    def _link_up(self, node: SimulatedNode, other: int) -> None:
        """A connection is tried, again and again while this node holds the other alive."""
        index = node.index
        pair = (min(index, other), max(index, other))
        if pair in self._linked:
            return
        peer = self.nodes[other]
        reaches = self.can_reach(index, other) and self.can_reach(other, index)
        if peer.running and reaches and peer.paused_until <= self.now:
            self._linked.add(pair)
            node.swim.peer_up(peer.swim.me.node_id, self.now)
            peer.swim.peer_up(node.swim.me.node_id, self.now)
            self._after(peer)
        else:
            known = node.swim.members.get(peer.swim.me.node_id)
            if known is not None and known.is_live:
                self.queue.after(RETRY_MS * 1_000, self._happen, index, self._link_up, other)

    def _look_at_events(self, node: SimulatedNode) -> None:
        for event in node.swim.take_events():
            other = self.index_of[event.member.node_id]
            kind = event.kind
            if kind in {JOINED, ALIVE_AGAIN}:
                if self.links:
                    delay_us = 2 * self.delay_ms_max * 1_000
                    self.queue.after(delay_us, self._happen, node.index, self._link_up, other)
            elif kind == SUSPECTED:
                if self.nodes[other].running and other not in self.excused:
                    self.suspicions += 1
            elif kind in {DIED, HAS_LEFT}:
                self._gone(node, other, event.member, is_dead=kind == DIED)

    def _gone(self, node: SimulatedNode, other: int, member: Member, *, is_dead: bool) -> None:
        pair = (min(node.index, other), max(node.index, other))
        truth = self.nodes[other]
        same_life = truth.swim.me.node_id == member.node_id and truth.swim.me.boot == member.boot
        if pair in self._linked and same_life:
            self._linked.discard(pair)
            node.swim.peer_down(member.node_id, self.now)
            if truth.running:
                truth.swim.peer_down(node.swim.me.node_id, self.now)
        if not is_dead:
            return
        if truth.running and same_life:
            if other not in self.excused and node.index not in self.excused:
                self.false_deaths.append((self.now, node.index, other))
        elif other in self.known_dead:
            self.known_dead[other].setdefault(node.index, self.now)
