"""Several retained stores with their sync over links that lose, delay, break and stop, all from one seed."""

from __future__ import annotations

import random

from flockmq.mqtt.run import Run, make_run
from flockmq.node.events import EventList
from flockmq.peering.channels import RETAINED
from flockmq.peering.retained import RetainedSync
from flockmq.routing.buckets import ORIGIN_BITS, ORIGIN_MASK
from flockmq.routing.retained import RetainedStore
from flockmq.testing.lockstep import Wires

WALL_MS = 1_772_366_400_000
TICK_MS = 100
Row = tuple[bytes, Run | None, int, int, int]


class Member:
    """One node: a store, its sync, a clock of its own, and what its disk has."""

    def __init__(self, cluster: RetainedCluster, node_id: int, skew_ms: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.skew_ms = skew_ms
        self.up = False
        self.disk: dict[bytes, tuple[Run | None, int, int, int]] = {}
        """By topic: run, stamp, node, expiry in wall time."""
        self.start()

    def start(self) -> None:
        """Begin with what the disk has."""
        self.started_at = self.cluster.now
        offset = WALL_MS + self.skew_ms + self.cluster.now - self.now
        self.store = RetainedStore(self.cluster.messages_max, 0, offset, self.cluster.tombstone_ms)
        self.events = EventList()
        self.sync = RetainedSync(
            self.node_id,
            self.store,
            self,
            self.events,
            random.Random(self.cluster.rng.random()),
            self.now,
            check_ms=1_000,
        )
        self.unsaved = self.store.keep_unsaved()
        for topic, (run, stamp, origin, expires) in self.disk.items():
            expires_at = max(expires - offset, 1) if expires else 0
            again = make_run(4, run.qos, True, topic, run.payload(0), b"", expires_at) if run is not None else None
            self.store.restore(topic, again, stamp, origin, self.now)
        self.up = True

    @property
    def now(self) -> int:
        """Its own clock, which began when it started."""
        return self.cluster.now - self.started_at + 1_000

    def send(self, peer: int, channel: int, body: bytes) -> None:
        assert channel == RETAINED
        assert len(body) <= 300_300  # one message alone may be larger than a chunk
        self.cluster.send(self.node_id, peer, body)

    def save(self) -> None:
        """The disk gets what changed."""
        for topic in self.unsaved.take(1 << 30):
            message = self.store.message(topic)
            version = self.store.version(topic)
            if message is not None:
                expires = message.run.expires_at + self.store.wall_offset_ms if message.run.expires_at else 0
                self.disk[topic] = (message.run, message.stamp, message.origin, expires)
            elif version:
                self.disk[topic] = (None, version >> ORIGIN_BITS, version & ORIGIN_MASK, 0)
            else:
                self.disk.pop(topic, None)

    def put(self, topic: bytes, payload: bytes, expiry_ms: int = 0) -> bool:
        expires_at = self.now + expiry_ms if expiry_ms else 0
        return self.store.put(topic, make_run(4, 1, True, topic, payload, b"", expires_at, 7).alone(), self.now)

    def delete(self, topic: bytes) -> None:
        self.store.delete(topic, self.now)

    def content(self) -> dict[bytes, bytes]:
        """What subscribers would get."""
        return {one.topic: one.run.payload(0) for one in self.store.match(b"#", self.now)}

    def versions(self) -> dict[bytes, int]:
        return {topic: self.store.version(topic) for topic in self.store.entries()}


class RetainedCluster:
    def __init__(
        self,
        seed: int,
        skews_ms: list[int],
        loss: float = 0.0,
        tombstone_ms: int = 7 * 86_400_000,
        messages_max: int = 0,
    ) -> None:
        self.rng = random.Random(seed)
        self.now = 0
        self.loss = loss
        self.tombstone_ms = tombstone_ms
        self.messages_max = messages_max
        self.bytes_sent = 0
        self.wires: Wires[bytes] = Wires()
        self.members: dict[int, Member] = {}
        for number, skew_ms in enumerate(skews_ms):
            node_id = (number + 1) * 0x1357_9BDF_0246_8ACE & (1 << 64) - 1
            self.members[node_id] = Member(self, node_id, skew_ms)
        self.nodes = list(self.members.values())
        for one in self.nodes:
            for other in self.nodes:
                self.connect(one, other)

    def connect(self, one: Member, other: Member) -> None:
        """Have a link between two nodes that both run."""
        if one is other or self.wires.is_up(one.node_id, other.node_id) or not one.up or not other.up:
            return
        self.wires.connect(one.node_id, other.node_id)
        one.sync.peer_up(other.node_id, one.now)
        other.sync.peer_up(one.node_id, other.now)

    def cut(self, one: Member, other: Member) -> None:
        """Lose the link and all that is on it."""
        if not self.wires.cut(one.node_id, other.node_id):
            return
        for member, peer in ((one, other), (other, one)):
            if member.up:
                member.sync.peer_down(peer.node_id, member.now)

    def stop(self, member: Member) -> None:
        """Kill a node: all that its disk does not have is gone."""
        member.up = False
        for other in self.nodes:
            self.cut(member, other)

    def heal(self) -> None:
        self.loss = 0.0
        for member in self.nodes:
            if not member.up:
                member.start()
        for one in self.nodes:
            for other in self.nodes:
                self.connect(one, other)

    def send(self, sender: int, receiver: int, body: bytes) -> None:
        self.bytes_sent += len(body)
        if self.wires.is_up(sender, receiver) and self.rng.random() >= self.loss:
            self.wires.send(sender, receiver, body)

    def turn(self) -> bool:
        """All members read what has come and end their turns; False when nothing was said."""
        busy = bool(self.wires.busy())
        for (sender, receiver), wire in list(self.wires.queues.items()):
            member = self.members[receiver]
            for _ in range(len(wire)):
                member.sync.receive(sender, self.wires.take(sender, receiver), member.now)
        for member in self.nodes:
            if member.up:
                member.sync.flush(member.now)
        return busy or bool(self.wires.busy())

    def run(self, milliseconds: int, save: bool = True, tick_ms: int = TICK_MS) -> None:
        until = self.now + milliseconds
        while self.now < until:
            self.now += tick_ms
            for member in self.nodes:
                if member.up:
                    member.sync.tick(member.now)
                    member.store.sweep(member.now, 1_000)
            for _ in range(4):
                if not self.turn():
                    break
            if save:
                for member in self.nodes:
                    if member.up:
                        member.save()

    def check_same(self) -> None:
        first = self.nodes[0]
        for member in self.nodes[1:]:
            assert member.content() == first.content()
            assert member.versions() == first.versions()
            assert [one.digest for one in member.store.buckets] == [one.digest for one in first.store.buckets]
