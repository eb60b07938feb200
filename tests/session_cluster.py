"""Brokers that share client ids, in one process, from one seed: virtual time, links that delay and break, deaths.

```
 SessionCluster --step--> every node: what its links deliver, a tick, a flush --> links (delay; in order per link)
       |                        `--> Broker, Ownership, WillCopies, and a little model of routes
       `-- cut, mend, kill, partition, heal: each node learns of it at a time of its own
```
Routes are modelled, not the real ones: a node tells its filters to the others and knows when they have them.
"""

from __future__ import annotations

import random
from collections import deque

from flockmq.mqtt.packets import Connect, Will
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.run import make_run
from flockmq.node.ports import Gate
from flockmq.node.publishing import publish_message
from flockmq.node.settings import BrokerSettings
from flockmq.peering.channels import SESSIONS
from flockmq.peering.claiming import Collector, Records
from flockmq.peering.ownership import Ownership
from flockmq.session.session import Session
from flockmq.testing.harness import START_MS, BrokerHarness
from flockmq.testing.harness_client import HarnessClient

STEP_MS = 5
ROUTES = 101
ROUTES_ACK = 102
RUN = 103


class SimOutbox:
    def __init__(self, cluster: SessionCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.sent_bytes = 0
        self.largest = 0

    def send(self, peer: int, channel: int, body: bytes) -> None:
        self.sent_bytes += len(body)
        self.largest = max(self.largest, len(body))
        self.cluster.carry(self.node_id, peer, channel, body)


class SimRoutes:
    """Filters of this node, told to all others; and theirs."""

    def __init__(self, cluster: SessionCluster, node: SimNode) -> None:
        self.cluster = cluster
        self.node = node
        self.version = 0
        self.told: set[bytes] = set()
        self.acknowledged: dict[int, int] = {}
        self.others: dict[int, set[bytes]] = {}

    def own(self) -> set[bytes]:
        table = self.node.harness.broker.subscriptions
        return set(table.filters())

    def flush(self) -> None:
        own = self.own()
        if own != self.told:
            self.told = own
            self.version += 1
            for peer in self.node.ownership.scene.linked:
                self.tell(peer)

    def tell(self, peer: int) -> None:
        body = self.version.to_bytes(8, "little") + b"\n".join(sorted(self.told))
        self.cluster.carry(self.node.node_id, peer, ROUTES, body)

    def mark(self) -> int:
        return self.version if self.own() == self.told else -1

    def is_known(self, mark: int) -> bool:
        return all(self.acknowledged.get(peer, -1) >= mark for peer in self.node.ownership.scene.linked)


class SimNode:
    def __init__(
        self, cluster: SessionCluster, node_id: int, boot: int, settings: BrokerSettings | None, gate: Gate | None
    ) -> None:
        self.node_id = node_id
        self.alive = True
        self.harness = BrokerHarness(
            cluster.rng.getrandbits(32), settings or BrokerSettings(sys_interval_ms=0), gate, node_id=node_id
        )
        self.harness.now = cluster.now
        self.outbox = SimOutbox(cluster, node_id)
        self.routes = SimRoutes(cluster, self)
        rng = random.Random(cluster.rng.getrandbits(32))
        collector = cluster.collectors.pop(0) if cluster.collectors else None
        records = cluster.records if collector is not None else None
        self.ownership = Ownership(
            self.harness.broker, node_id, boot, self.outbox, rng, self.routes, collector, records
        )
        self.harness.ports.ownership = self.ownership
        self.seen_wills: list[bytes] = []

    @property
    def sessions(self) -> dict[str, Session]:
        return self.harness.broker.sessions


class SessionCluster:
    def __init__(
        self,
        seed: int,
        count: int,
        *,
        delay_ms: tuple[int, int] = (1, 20),
        settings: BrokerSettings | None = None,
        gate: Gate | None = None,
        collectors: list[Collector] | None = None,
        records: Records | None = None,
    ) -> None:
        """``collectors``: of the nodes, in the order in which they start; ``records``: that they share."""
        self.collectors = collectors or []
        self.records = records
        self.rng = random.Random(seed)
        self.delay_ms = delay_ms
        self.settings = settings
        self.gate = gate
        self.now = START_MS
        self.nodes: dict[int, SimNode] = {}
        self.queues: dict[tuple[int, int], deque[tuple[int, int, bytes]]] = {}
        self.links: set[tuple[int, int]] = set()
        self.later: list[tuple[int, int, str, int, int]] = []
        """What nodes learn at a time of their own: when, order, what, node, about whom."""
        self.deaf: set[tuple[int, int]] = set()
        """Who holds whom dead though there is a link, and does not listen to it."""
        self.order = 0
        self.tick_at = 0
        self.published = 0
        for number in range(1, count + 1):
            self.start(number * 1_000_003)

    # --- nodes and links ---

    def start(self, node_id: int) -> SimNode:
        node = SimNode(self, node_id, self.now, self.settings, self.gate)
        others = [other.node_id for other in self.nodes.values() if other.alive and other.node_id != node_id]
        self.nodes[node_id] = node
        for other in others:
            self.mend(node_id, other)
        return node

    def mend(self, one: int, other: int) -> None:
        self.tell_later(1, 50, "up", one, other)

    def cut(self, one: int, other: int) -> None:
        for pair in ((one, other), (other, one)):
            if pair in self.links:
                self.links.discard(pair)
                self.queues.pop(pair, None)
                self.tell_later(1, 50, "down", pair[0], pair[1])

    def kill(self, node_id: int, spread_ms: int = 1_000) -> None:
        """A node dies: its clients and links are gone, and the others are sure of it at different times."""
        node = self.nodes[node_id]
        node.alive = False
        for other in list(self.nodes):
            if other != node_id:
                self.cut(node_id, other)
                self.tell_later(1_500, 1_500 + spread_ms, "dead", other, node_id)

    def partition(self, groups: list[list[int]], confirm_ms: int = 3_000) -> None:
        """Links between groups break; if it lasts, each side takes the other for dead."""
        for index, group in enumerate(groups):
            for one in group:
                for others in groups[index + 1 :]:
                    for other in others:
                        self.cut(one, other)
                        if confirm_ms:
                            self.tell_later(confirm_ms, confirm_ms + 1_500, "dead", one, other)
                            self.tell_later(confirm_ms, confirm_ms + 1_500, "dead", other, one)

    def heal(self) -> None:
        """All links come back, one after the other."""
        self.later = [item for item in self.later if item[2] != "dead" or not self.nodes[item[4]].alive]
        for one, other in sorted(self.deaf):
            self.tell_later(10, 1_000, "hear", one, other)
        alive = [node.node_id for node in self.nodes.values() if node.alive]
        for index, one in enumerate(alive):
            for other in alive[index + 1 :]:
                if (one, other) not in self.links:
                    self.tell_later(10, 1_000, "up", one, other)

    def tell_later(self, low_ms: int, high_ms: int, what: str, node: int, about: int) -> None:
        self.order += 1
        self.later.append((self.now + self.rng.randint(low_ms, high_ms), self.order, what, node, about))

    def carry(self, sender: int, receiver: int, channel: int, body: bytes) -> None:
        pair = (sender, receiver)
        if pair not in self.links:
            return
        queue = self.queues.setdefault(pair, deque())
        due = self.now + self.rng.randint(*self.delay_ms)
        if queue:
            due = max(due, queue[-1][0])
        queue.append((due, channel, body))

    # --- time ---

    def run(self, ms: int) -> None:
        end = self.now + ms
        while self.now < end:
            self.step()

    def settle(self, ms_max: int = 60_000) -> None:
        """Until nothing is on its way any more."""
        end = self.now + ms_max
        quiet = 0
        while quiet < 60:
            assert self.now < end, "The cluster does not come to rest"
            self.step()
            busy = bool(self.later) or any(self.queues.values())
            for node in self.living():
                mine = node.ownership
                busy = busy or bool(mine.claimant.claims or mine.giver.departures or mine.taker.arrivals)
                busy = busy or bool(mine.registrar.questions) or mine.census.sweeping or mine.census.sweep_wanted
            quiet = 0 if busy else quiet + 1

    def living(self) -> list[SimNode]:
        return [node for node in self.nodes.values() if node.alive]

    def step(self) -> None:
        self.now += STEP_MS
        for node in self.living():
            node.harness.now = self.now
        due = sorted(item for item in self.later if item[0] <= self.now)
        self.later = [item for item in self.later if item[0] > self.now]
        for _, _, what, node_id, about in due:
            self.happen(what, node_id, about)
        for pair in list(self.queues):
            queue = self.queues[pair]
            while queue and queue[0][0] <= self.now:
                _, channel, body = queue.popleft()
                receiver = self.nodes[pair[1]]
                if receiver.alive and pair in self.links and (pair[1], pair[0]) not in self.deaf:
                    self.deliver(receiver, pair[0], channel, body)
        ticks = self.now >= self.tick_at
        if ticks:
            self.tick_at = self.now + 100
        for node in self.living():
            if ticks:
                node.harness.broker.tick(self.now)
                node.ownership.tick(self.now)
            node.harness.flush()
            node.ownership.flush(self.now)
            node.routes.flush()
            node.harness.flush()

    def happen(self, what: str, node_id: int, about: int) -> None:
        node = self.nodes[node_id]
        other = self.nodes[about]
        if what == "up":
            if not (node.alive and other.alive) or (node_id, about) in self.links:
                return
            self.links.add((node_id, about))
            self.links.add((about, node_id))
            self.deaf -= {(node_id, about), (about, node_id)}
            for one, two in ((node, about), (other, node_id)):
                one.ownership.peer_up(two, self.now)
                one.routes.tell(two)
        elif not node.alive:
            return
        elif what == "down":
            if (node_id, about) not in self.links:
                node.routes.acknowledged.pop(about, None)
                node.ownership.peer_down(about, self.now)
        elif what == "dead" and (node_id, about) not in self.links:
            self.believe_dead(node, about)
        elif what == "deaf" and (node_id, about) in self.links:
            self.deaf.add((node_id, about))
            node.ownership.peer_down(about, self.now)
            self.believe_dead(node, about)
        elif what == "hear" and (node_id, about) in self.deaf:
            self.deaf.discard((node_id, about))
            if (node_id, about) in self.links:
                node.ownership.peer_up(about, self.now)
                other.routes.tell(node_id)

    def believe_dead(self, node: SimNode, about: int) -> None:
        node.routes.others.pop(about, None)
        node.ownership.peer_dead(about, self.now)

    def deliver(self, node: SimNode, sender: int, channel: int, body: bytes) -> None:
        if channel == SESSIONS:
            node.ownership.receive(sender, body, self.now)
        elif channel == ROUTES:
            node.routes.others[sender] = set(body[8:].split(b"\n")) - {b""}
            self.carry(node.node_id, sender, ROUTES_ACK, body[:8])
        elif channel == ROUTES_ACK:
            node.routes.acknowledged[sender] = int.from_bytes(body, "little")
        elif channel == RUN:
            topic, payload = body[1:].split(b"\0", 1)
            publish_message(node.harness.broker.node, make_run(5, body[0], False, topic, payload), self.now)

    # --- clients ---

    def connect(
        self,
        node: SimNode,
        client_id: str,
        *,
        clean: bool = False,
        expiry_s: int = 3_600,
        will: Will | None = None,
        username: str | None = None,
    ) -> HarnessClient:
        """Send a CONNECT; the CONNACK comes when the cluster has decided."""
        properties = Properties()
        properties.session_expiry_s = expiry_s
        packet = Connect(5, client_id, clean, 0, properties, will, username, b"x" if username else None)
        return node.harness.connect(packet)

    def publish(self, node: SimNode, topic: bytes, payload: bytes, qos: int) -> None:
        """A client of this node publishes: to its subscribers here, and to nodes that have said they have some."""
        self.published += 1
        publish_message(node.harness.broker.node, make_run(5, qos, False, topic, payload), self.now)
        for peer, filters in node.routes.others.items():
            if topic in filters:
                self.carry(node.node_id, peer, RUN, bytes((qos,)) + topic + b"\0" + payload)

    # --- what must be true in the end ---

    def owners(self, client_id: str) -> list[int]:
        return [node.node_id for node in self.living() if client_id in node.sessions]

    def connected(self, client_id: str) -> list[int]:
        found: list[int] = []
        for node in self.living():
            connections = node.harness.broker.connections.values()
            sessions = [connection.session for connection in connections if connection.session is not None]
            found += [node.node_id for session in sessions if session.client_id == client_id]
        return found

    def check(self, client_ids: list[str]) -> None:
        for client_id in client_ids:
            owners = self.owners(client_id)
            assert len(owners) <= 1, (client_id, owners)
            assert len(self.connected(client_id)) <= 1, (client_id, self.connected(client_id))
            for node in self.living():
                record = node.ownership.registrar.record_of(client_id)
                if node.ownership.registrar_of(client_id) == node.node_id:
                    known = [record.owner] if record is not None else []
                    assert known == owners, (client_id, known, owners)
        for node in self.living():
            ownership = node.ownership
            assert not ownership.claimant.claims
            assert not ownership.giver.departures
            assert not ownership.giver.leaving
            assert not ownership.taker.arrivals
            assert not ownership.taker.settling
            assert ownership.taker.arriving_bytes == 0
