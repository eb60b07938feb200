"""Shards are added while leaders come and go: a publisher elsewhere sees nothing lost, and no key out of order.

Three nodes hold the partitions, a fourth has the publisher. They hear of new shards at different times; disks are slow,
frames get lost, nodes crash and come back. The publisher is an honest MQTT client: what was not acknowledged when its
connection ended it sends again, in order.
"""

from __future__ import annotations

import pytest

from flockmq.durable.publish.appending import Appending
from flockmq.log.batch import DATA, BatchView
from flockmq.log.settings import StoreSettings
from flockmq.mqtt.packets import PUBACK, Ack, Publish
from flockmq.raft.engine import RaftEngine
from flockmq.raft.ready import Ready
from flockmq.raft.settings import RaftSettings
from flockmq.routing.durable import DurableTopic
from flockmq.testing.harness import BrokerHarness, HarnessClient
from flockmq.testing.lockstep import Lockstep, StoreNode

REPLICAS = (1, 2, 3)
PUBLISHER = 4
KEYS = 4
SHARDS_MAX = 6
STEP_MS = 20
STORE = StoreSettings(journal_bytes=1_048_576, commit_bytes=262_144)


class Node(StoreNode):
    """A node with an engine."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number, STORE, RaftSettings())
        self.world = world
        self.id = number
        self.known = world.topic
        self.start()

    def start(self) -> None:
        self.host, store = self.open()
        self.engine = RaftEngine(
            self.host, store, self.applied, lambda group: b"", self.world.failed, on_room=self.world.room
        )
        self.learn(self.known)

    def learn(self, topic: DurableTopic) -> None:
        """Another cluster state is known here."""
        self.known = topic
        self.host.rules.known = topic.index
        for group in topic.groups:
            self.host.rules.least[group] = topic.index
            if self.id == PUBLISHER:
                self.host.elsewhere[group] = REPLICAS
            elif group not in self.engine.replicas:
                self.engine.open(group, REPLICAS)

    def applied(self, group: int, ready: Ready) -> None:
        for entry in ready.committed:
            if entry.kind == DATA:
                view = BatchView(entry.data)
                for position in range(view.count):
                    self.world.seen.setdefault(view.record(position).payload, len(self.world.seen))

    def tick(self, now: int) -> None:
        self.engine.tick(now)

    def turn(self) -> bool:
        for _ in range(2):
            self.engine.turn(lambda peer, frame: self.world.flying.append((self.id, peer, frame)))
        if self.world.rng.random() < self.world.disk_speed:
            self.write()
        return False


class World(Lockstep[Node, tuple[int, int, bytes]]):
    """See the module."""

    def __init__(self, seed: int) -> None:
        self.harness = BrokerHarness(node_id=PUBLISHER)
        super().__init__(seed, self.harness.now, STEP_MS)
        self.topic = DurableTopic(b"default", b"t", [b"t/#"], [1], index=1)
        self.seen: dict[bytes, int] = {}
        """Payloads in the order in which they were first applied, anywhere."""
        self.alone: set[int] = set()
        self.disk_speed = 0.7
        self.nodes |= {number: Node(self, number) for number in (*REPLICAS, PUBLISHER)}
        own = self.nodes[PUBLISHER]
        broker = self.harness.broker.node
        self.appending = Appending(broker, own.engine.appends, 4_000_000)
        self.harness.ports.appending = self.appending
        self.publisher_learns()
        self.number = 0
        self.sent: list[bytes] = []
        self.unacknowledged: list[Publish] = []
        self.connections = 0
        self.client = self.connect()

    def room(self, group: int) -> None:
        self.appending.on_room(group)

    def failed(self, reason: str) -> None:
        raise AssertionError(reason)

    # The publisher.

    def connect(self) -> HarnessClient:
        self.connections += 1
        client = self.harness.client("c", clean_start=False, session_expiry_s=3_600)
        for packet in self.unacknowledged:
            packet.dup = True
            client.send(packet)
        return client

    def publish(self) -> None:
        if len(self.unacknowledged) > 200:
            return
        self.number += 1
        key = self.rng.randrange(KEYS)
        payload = b"%d %d" % (key, self.number)
        packet = Publish(b"t/%d" % key, payload, 1, packet_id=self.number)
        self.sent.append(payload)
        self.unacknowledged.append(packet)
        self.client.send(packet)

    def listen(self) -> None:
        for packet in self.client.received():
            if isinstance(packet, Ack):
                assert packet.kind == PUBACK
                assert packet.reason in (0, 0x80)
                first = self.unacknowledged.pop(0)
                assert packet.packet_id == first.packet_id, "acknowledged out of order"
                if packet.reason:
                    self.sent.remove(first.payload)
                    assert first.dup or first.payload not in self.seen, "refused, and in the log"
                else:
                    assert first.payload in self.seen, "acknowledged, and nowhere"
        if self.client.closed:
            self.client = self.connect()

    def publisher_learns(self) -> None:
        table = self.harness.broker.node.table
        table.topics.put(self.topic)
        table.topics.index = self.topic.index
        table.topics_changed(self.topic.filters)
        self.nodes[PUBLISHER].learn(self.topic)
        self.appending.topics_changed(self.now)

    # What happens.

    def is_lost(self, part: tuple[int, int, bytes]) -> bool:
        return bool(self.alone & {part[0], part[1]})

    def deliver(self, node: Node, part: tuple[int, int, bytes]) -> None:
        node.engine.receive(part[2])

    def grow(self) -> None:
        topic = self.topic
        if len(topic.groups) < SHARDS_MAX:
            groups = [*topic.groups, topic.groups[-1] + 1]
            self.topic = DurableTopic(topic.namespace, topic.name, topic.filters, groups, index=topic.index + 5)

    def something(self) -> None:
        rng = self.rng
        what = rng.choice(["grow", "learn", "learn", "publisher", "cut", "heal", "heal", "crash", "start", "start"])
        node = self.nodes[rng.choice(REPLICAS)]
        if what == "grow":
            self.grow()
        elif what == "publisher":
            self.publisher_learns()
        elif what == "cut":
            self.alone = {rng.choice((*REPLICAS, PUBLISHER))}
        elif what == "heal":
            self.alone = set()
        elif what == "learn" and node.running:
            node.learn(self.topic)
        elif what == "crash" and all(other.running for other in self.nodes.values()):
            node.lose_power()
        elif what == "start" and not node.running:
            node.start()

    def step(self) -> None:
        self.harness.now = self.now + STEP_MS
        self.tick()
        self.turn()
        self.appending.tick(self.now)
        self.harness.broker.tick(self.now)
        self.harness.flush()
        self.listen()

    def heal(self) -> None:
        self.alone = set()
        self.disk_speed = 1.0
        for node in self.nodes.values():
            if not node.running:
                node.start()
            node.learn(self.topic)
        self.publisher_learns()


@pytest.mark.parametrize("seed", range(4))
def test_no_key_is_out_of_order_while_shards_are_added(seed: int) -> None:
    world = World(seed)
    for _ in range(100):
        world.step()
    for _ in range(1_200):
        if world.rng.random() < 0.5:
            world.publish()
        if world.rng.random() < 0.03:
            world.something()
        world.step()
    world.heal()
    for _ in range(4_000):
        world.step()
        if not world.unacknowledged:
            break
    assert not world.unacknowledged, "something waits for ever"
    assert set(world.sent) <= set(world.seen), "acknowledged and lost"
    for key in range(KEYS):
        start = b"%d " % key
        order = [payload for payload in world.seen if payload.startswith(start) and payload in set(world.sent)]
        assert order == [payload for payload in world.sent if payload.startswith(start)]
