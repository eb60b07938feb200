"""Assembled nodes whose links, membership and time a test moves by hand: one turn or one part of a frame at a time.

```
 client --> SteppedNode: assemble(parts) --> turn --> frames, part by part --> Wires, a queue each way
                                                                                |
                   step() / settle(): one part at a time, directions in any order
 meet(), lose() --> gossip about one member: no probe finds out by itself
```
With ``auto`` everything is delivered after each thing that a client does, so that tests read as with one broker.
Links have no delay. ``cluster_harness`` has clusters with delays and membership that finds out by itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Unpack

from flockmq.durable.assembly import assemble
from flockmq.durable.parts import Parts
from flockmq.gossip.claims import encode_claim
from flockmq.gossip.member import DEAD, Member
from flockmq.gossip.messages import GOSSIP, HEAD, VERSION
from flockmq.gossip.settings import GossipSettings
from flockmq.node.ports import OpenGate
from flockmq.node.settings import BrokerSettings
from flockmq.peering.channels import part_head, split_parts
from flockmq.peering.formation import Rules
from flockmq.testing.edges import StorelessEdges
from flockmq.testing.harness import START_MS, WALL_MS, BrokerHarness, HarnessClient, Where
from flockmq.testing.lockstep import Wires

if TYPE_CHECKING:
    from flockmq.mqtt.packets import Connect

BOOT: Final = 1_000
CLUSTER_ID: Final = 0xF10C
PORT: Final = 16_000
TICK_MS: Final = 100
STEPS_MAX: Final = 1_000_000
WITNESS: Final = 0xFFFF
"""Sender of the gossip of ``hear``: no node of the cluster."""
NEVER_MS: Final = 1 << 40
QUIET: Final = GossipSettings(
    probe_interval_ms=NEVER_MS, compare_interval_ms=NEVER_MS, revive_interval_ms=NEVER_MS, dead_keep_ms=NEVER_MS
)
"""Membership changes when a test says so."""


class SteppedNode(BrokerHarness, StorelessEdges):
    """One node of the cluster: its clients, and the edges of the assembled node."""

    def __init__(self, world: SteppedCluster, node_id: int, boot: int) -> None:
        self.world = world
        self.node_id = node_id
        self.name = f"node{node_id}"
        address = f"10.0.0.{node_id}", PORT
        whole = assemble(
            Parts(
                me=Member(node_id, boot, self.name, *address, cluster_id=CLUSTER_ID),
                settings=world.settings,
                gate=OpenGate(),
                gossip=QUIET,
                rules=Rules(lists_peers=False, contact_points=1),
                rng=random.Random(node_id),  # noqa: S311  (to be repeated)
                now=world.now,
                wall_ms=WALL_MS + world.now - START_MS,
                edges=self,
                store=None,
            )
        )
        super().__init__(node_id, world.settings, broker=whole.broker)
        self.now = world.now
        self.cluster = whole.cluster
        self.maps = self.cluster.maps
        self.routes = self.cluster.routes
        self.forwarding = self.cluster.forwarding

    def ship(self, peer: int, pieces: list[bytes]) -> None:
        """Put the parts of a frame on the link."""
        for part in split_parts(b"".join(pieces)):
            self.world.wire.send(self.node_id, peer, part)

    def connect(self, packet: Connect, **where: Unpack[Where]) -> HarnessClient:
        """Send this CONNECT; step until the nodes have decided about its client id."""
        client = super().connect(packet, **where)
        self.world.step_until(lambda: client.has_received)
        return client

    def flush(self, sender: HarnessClient | None = None) -> None:
        """Do what a driver does; with ``auto`` all nodes come to rest."""
        super().flush(sender)
        self.world.flushed()

    def turn(self) -> None:
        """The end of a loop turn."""
        super().flush()
        for peer, pieces in self.cluster.turn(self.now):
            self.ship(peer, pieces)
        super().flush()

    def speak(self) -> None:
        """Put on the links what components have said so far, before the turn ends."""
        for peer, pieces in self.cluster.exchange.take_frames():
            self.ship(peer, pieces)

    def receive(self, peer: int, channel: int, body: bytes) -> None:
        """A part arrives."""
        self.cluster.frame(peer, part_head(channel, len(body)) + body, self.now)

    def tick(self, now: int) -> None:
        """Time passes."""
        self.now = now
        self.broker.tick(now)
        self.cluster.tick(now)
        self.turn()

    # Membership.

    def hear(self, member: Member) -> None:
        """Gossip about a member reaches this node."""
        head = HEAD.pack(VERSION, GOSSIP, CLUSTER_ID, WITNESS, 1, 0, 0, 0, 0, 0)
        self.cluster.datagram(head + encode_claim(member), ("10.0.255.255", PORT), self.now)
        self.cluster.swim.take_datagrams()

    def meet(self, other: SteppedNode) -> None:
        """Hear that another node is there; a node that this one holds dead contradicts first."""
        known = self.cluster.member_of(other.node_id)
        if known is not None and known.boot == other.cluster.swim.me.boot and known.state == DEAD:
            other.hear(known)
        self.hear(other.cluster.swim.me)

    def lose(self, node_id: int) -> None:
        """Hear that another node is dead."""
        known = self.cluster.member_of(node_id)
        assert known is not None
        self.hear(known.with_claim(known.incarnation, DEAD))


class SteppedCluster:
    """``count`` nodes with ids from 1 on, named node1, node2, ... all linked and known to each other."""

    def __init__(
        self, count: int = 3, seed: int = 0, auto: bool = True, settings: BrokerSettings | None = None
    ) -> None:
        self.rng = random.Random(seed)  # noqa: S311  (to be repeated)
        self.wire: Wires[tuple[int, bytes]] = Wires()
        """Parts under way: channel and body."""
        self.now = START_MS
        self.auto = False
        self.settings = settings if settings is not None else BrokerSettings(sys_interval_ms=0)
        self.nodes: dict[int, SteppedNode] = {}
        self._settling = False
        for node_id in range(1, count + 1):
            self.start(node_id, BOOT)
        self.settle()
        self.auto = auto

    def __getitem__(self, node_id: int) -> SteppedNode:
        return self.nodes[node_id]

    # Nodes and links.

    def start(self, node_id: int, boot: int) -> SteppedNode:
        """Start a node and link it to all others."""
        node = SteppedNode(self, node_id, boot)
        for other in self.nodes.values():
            node.meet(other)
            other.meet(node)
        self.nodes[node_id] = node
        for other_id in self.nodes:
            if other_id != node_id:
                self.link(node_id, other_id)
        return node

    def kill(self, node_id: int) -> SteppedNode:
        """A node is gone without a word; the others find out when ``bury`` is called."""
        node = self.nodes.pop(node_id)
        for other_id in self.nodes:
            self.cut(node_id, other_id)
        return node

    def bury(self, node_id: int) -> None:
        """The others agree that a node is dead."""
        for node in self.nodes.values():
            node.lose(node_id)

    def link(self, one: int, other: int) -> None:
        """Have a new link between two nodes."""
        self.wire.connect(one, other)
        self.link_one(one, other)
        self.link_one(other, one)

    def cut(self, one: int, other: int) -> None:
        """Lose a link with all that is under way."""
        if not self.wire.cut(one, other):
            return
        for here, there in ((one, other), (other, one)):
            if here in self.nodes:
                self.nodes[here].cluster.link_down(there, self.now)

    def link_one(self, here: int, there: int) -> None:
        """Only one of two nodes knows of a new link so far."""
        if not self.wire.is_up(here, there):
            self.wire.connect(here, there)
        self.nodes[here].cluster.link_up(there, CLUSTER_ID, self.now)

    def drop(self, sender: int, receiver: int, is_lost: Callable[[int, bytes], bool]) -> None:
        """Lose parts that are under way; ``is_lost`` says which, by channel and body."""
        queue = self.wire.queues[sender, receiver]
        kept = [part for part in queue if not is_lost(*part)]
        queue.clear()
        queue.extend(kept)

    # Steps.

    def flushed(self) -> None:
        """A client did something."""
        if self.auto and not self._settling:
            self.settle()

    def turn_of(self, node: SteppedNode) -> None:
        """One node ends a turn."""
        self._quietly(node.turn)

    def deliver(self, pair: tuple[int, int]) -> None:
        """The next part from a sender to a receiver arrives."""
        channel, body = self.wire.take(*pair)
        node = self.nodes.get(pair[1])
        if node is not None:
            self._quietly(lambda: node.receive(pair[0], channel, body))

    def step(self) -> bool:
        """One node ends a turn, or one part arrives somewhere; False when nothing is under way."""
        busy = self.wire.busy()
        if not busy or self.rng.random() < 0.3:
            self.turn_of(self.rng.choice(list(self.nodes.values())))
            return bool(busy)
        self.deliver(self.rng.choice(busy))
        return True

    def step_until(self, reached: Callable[[], bool]) -> None:
        """Step by step, until something is so."""
        for _ in range(STEPS_MAX):
            if reached():
                return
            self.step()
        raise AssertionError("The nodes don't get there")

    def settle(self) -> None:
        """Let everything arrive, directions in random order, until no node has anything to say."""
        for _ in range(STEPS_MAX):
            for node in list(self.nodes.values()):
                self.turn_of(node)
            busy = self.wire.busy()
            if not busy:
                return
            while busy:
                self.deliver(self.rng.choice(busy))
                busy = self.wire.busy()
        raise AssertionError("The nodes never stop talking")

    def advance(self, ms: int) -> None:
        """Let time pass on all nodes."""
        end = self.now + ms
        while self.now < end:
            self.now = min(self.now + TICK_MS, end)
            for node in list(self.nodes.values()):
                self._quietly(lambda node=node: node.tick(self.now))  # type: ignore[misc]
            if self.auto:
                self.settle()

    def _quietly(self, action: Callable[[], None]) -> None:
        """Do something after which the other nodes get no turn."""
        was = self._settling
        self._settling = True
        action()
        self._settling = was
