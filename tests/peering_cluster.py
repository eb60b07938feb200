"""Several brokers in one process, with real owned maps between them and a network that a test holds in its hands.

```
 client --> Node (a BrokerHarness) --> turn: maps' changes, Routes, OwnedMaps, Forwarding --> Wires, a queue each way
                                                                                               |
                         step() / settle(): one part at a time, directions in any order <------'
```
With ``auto`` everything is delivered after each thing that a client does, so that tests read as with one broker.
"""

from __future__ import annotations

import random

from flockmq.gossip.maps import OwnedMaps
from flockmq.gossip.maps_settings import MapsSettings
from flockmq.node.settings import BrokerSettings
from flockmq.peering.channels import MAPS, RUNS
from flockmq.peering.forwarding import Forwarding
from flockmq.peering.routes import Routes
from flockmq.testing.harness import BrokerHarness, HarnessClient
from flockmq.testing.lockstep import Wires

BOOT = 1_000


class Node(BrokerHarness):
    """One broker of the cluster."""

    def __init__(self, cluster: Cluster, node_id: int, name: str, boot: int, settings: BrokerSettings) -> None:
        super().__init__(node_id, settings, node_id=node_id)
        self.cluster = cluster
        self.node_id = node_id
        self.name = name
        self.boot = boot
        self.now = cluster.now
        self.maps = OwnedMaps(node_id, boot, self, MapsSettings(), random.Random(node_id), self.now)
        self.forwarding = Forwarding(self.broker.node, boot, self)
        self.routes = Routes(self.broker.node, node_id, self.forwarding, self.maps)
        self.ports.routes = self.routes

    def send(self, peer: int, channel: int, body: bytes) -> None:
        """The outbox of its parts."""
        self.cluster.wire.send(self.node_id, peer, (channel, body))

    def flush(self, sender: HarnessClient | None = None) -> None:
        super().flush(sender)
        if self.cluster.auto and not self.cluster.settling:
            self.cluster.settle()

    def turn(self) -> None:
        """The end of a loop turn."""
        for change in self.maps.take_changes():
            self.routes.apply(change.owner, change.key, change.value)
        self.routes.flush(self.now)
        self.maps.flush(self.now)
        self.forwarding.flush(self.now)
        super().flush()

    def meet(self, other: Node) -> None:
        """Membership says that another node is there."""
        self.maps.peer_alive(other.node_id, other.boot, self.now)
        self.routes.peer_alive(other.node_id, other.name, self.now)

    def lose(self, node_id: int) -> None:
        """Membership says that another node is dead."""
        self.maps.peer_dead(node_id, self.now)
        self.forwarding.peer_dead(node_id, self.now)
        self.routes.peer_dead(node_id, self.now)

    def receive(self, peer: int, channel: int, body: bytes) -> None:
        if channel == MAPS:
            self.maps.receive(peer, body, self.now)
        elif channel == RUNS:
            self.forwarding.receive(peer, body, self.now)

    def tick(self) -> None:
        self.broker.tick(self.now)
        self.maps.tick(self.now)
        self.routes.tick(self.now)
        self.forwarding.tick(self.now)
        self.turn()


class Cluster:
    """``count`` nodes with ids from 1 on, named node1, node2, ... all linked and known to each other."""

    def __init__(
        self, count: int = 3, seed: int = 0, auto: bool = True, settings: BrokerSettings | None = None
    ) -> None:
        self.rng = random.Random(seed)
        self.wire: Wires[tuple[int, bytes]] = Wires()
        self.now = 1_000_000
        self.auto = False
        self.settling = False
        self.settings = settings if settings is not None else BrokerSettings(sys_interval_ms=0)
        self.nodes: dict[int, Node] = {}
        for node_id in range(1, count + 1):
            self.start(node_id, BOOT)
        self.settle()
        self.auto = auto

    def __getitem__(self, node_id: int) -> Node:
        return self.nodes[node_id]

    def start(self, node_id: int, boot: int) -> Node:
        """Start a node and link it to all others."""
        node = Node(self, node_id, f"node{node_id}", boot, self.settings)
        for other in self.nodes.values():
            node.meet(other)
            other.meet(node)
        self.nodes[node_id] = node
        for other_id in self.nodes:
            if other_id != node_id:
                self.link(node_id, other_id)
        return node

    def kill(self, node_id: int) -> Node:
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
        self.wire.connect(one, other)
        for here, there in ((one, other), (other, one)):
            node = self.nodes[here]
            node.maps.peer_up(there, self.now)
            node.routes.peer_up(there, self.now)
            node.forwarding.peer_up(there, self.now)

    def cut(self, one: int, other: int) -> None:
        if not self.wire.cut(one, other):
            return
        for here, there in ((one, other), (other, one)):
            node = self.nodes.get(here)
            if node is not None:
                node.maps.peer_down(there, self.now)
                node.routes.peer_down(there, self.now)
                node.forwarding.peer_down(there, self.now)

    def step(self) -> bool:
        """One node ends a turn, or one part arrives somewhere; False when nothing is under way."""
        busy = self.wire.busy()
        if not busy or self.rng.random() < 0.3:
            self.turn_of(self.rng.choice(list(self.nodes.values())))
            return bool(busy)
        self.deliver(self.rng.choice(busy))
        return True

    def turn_of(self, node: Node) -> None:
        was = self.settling
        self.settling = True
        node.turn()
        self.settling = was

    def deliver(self, pair: tuple[int, int]) -> None:
        was = self.settling
        self.settling = True
        channel, body = self.wire.take(*pair)
        node = self.nodes.get(pair[1])
        if node is not None:
            node.receive(pair[0], channel, body)
        self.settling = was

    def settle(self) -> None:
        """Let everything arrive, directions in random order, until no node has anything to say."""
        for _ in range(1_000_000):
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
            self.now = min(self.now + 100, end)
            for node in list(self.nodes.values()):
                node.now = self.now
                was = self.settling
                self.settling = True
                node.tick()
                self.settling = was
            if self.auto:
                self.settle()
