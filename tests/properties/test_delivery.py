"""Whatever happens to nodes, links and clients: each subscriber sees each record it should, once, in offset order.

Committed batches reach replicas late, links break, leaders change, replicas are refilled by snapshots, clients stop
reading and acknowledging; in the end everything is made good and everybody must have had everything.
"""

from __future__ import annotations

import random
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from delivery_world import World
from flockmq.mqtt.packets import Publish, Suback, Subscribe, SubscribeEntry
from flockmq.mqtt.topics import matches
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.testing.harness import HarnessClient, make_properties

GROUPS: Final = (5, 6)
REPLICAS: Final = (1, 2)
NODES: Final = 3
TOPICS: Final = (b"plant/a", b"plant/b", b"plant/c/d")
FILTERS: Final = (b"plant/#", b"plant/a", b"+/b", b"plant/c/#", b"#")


class Subscriber:
    """One client with one subscription, and what it must see."""

    def __init__(self, client: HarnessClient, topic_filter: bytes, start: str) -> None:
        self.client = client
        self.topic_filter = topic_filter
        self.start = start
        self.since: dict[int, int] | None = None
        """By partition: where the log ended when its SUBACK came."""
        self.seen: list[tuple[int, int, bytes]] = []
        self.unacknowledged: list[Publish] = []
        self.is_blocked = False

    def take(self, world: World, acknowledge: bool) -> None:
        for packet in self.client.received():
            if isinstance(packet, Suback):
                assert packet.reasons == [1]
                self.since = {group: world.truths[group].end for group in GROUPS}
            elif isinstance(packet, Publish):
                group, offset = packet.payload.split(b" ")[:2]
                self.seen.append((int(group), int(offset), packet.topic))
                self.unacknowledged.append(packet)
        if acknowledge:
            for packet in self.unacknowledged:
                self.client.acknowledge(packet)
            self.unacknowledged.clear()


class Story:
    """A world in which things happen."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        queue = self.rng.choice([4, 20, 1_000])
        limits = Limits(queue_messages_max=queue, write_bytes_max=self.rng.choice([2_000, 1_000_000]))
        self.world = World(NODES, BrokerSettings(limits=limits))
        self.world.create("plant", *GROUPS, on=REPLICAS)
        self.world.run(300)
        self.records: dict[int, list[bytes]] = {group: [] for group in GROUPS}
        self.subscribers: list[Subscriber] = []

    def step(self) -> None:
        happens = self.rng.choice(
            [self.commit] * 6 + [self.apply] * 4 + [self.take] * 4 + [self.subscribe, self.pass_time]
        )
        rarely = self.rng.choice([self.cut, self.heal, self.lead, self.install, self.block, self.unblock])
        (rarely if self.rng.random() < 0.2 else happens)()

    def commit(self) -> None:
        group = self.rng.choice(GROUPS)
        records = []
        for _ in range(self.rng.choice([1, 3, 30])):
            offset = len(self.records[group])
            topic = self.rng.choice(TOPICS)
            self.records[group].append(topic)
            records.append((topic, b"%d %d " % (group, offset) + b"x" * self.rng.choice([0, 10, 200])))
        self.world.commit(group, *records, apply=False)

    def apply(self) -> None:
        self.world.apply(self.rng.choice(REPLICAS), self.rng.choice(GROUPS))

    def take(self) -> None:
        if self.subscribers:
            self.rng.choice(self.subscribers).take(self.world, self.rng.random() < 0.8)

    def subscribe(self) -> None:
        if len(self.subscribers) >= 6:
            return
        number = self.rng.randrange(1, NODES + 1)
        window = make_properties(receive_maximum=self.rng.choice([1, 5, 100]))
        client = self.world[number].client(f"c{len(self.subscribers)}", self.rng.choice([4, 5]), properties=window)
        subscriber = Subscriber(client, self.rng.choice(FILTERS), self.rng.choice(["", "earliest", "offset:0=2,1=5"]))
        self.subscribers.append(subscriber)
        start = f"$replay/{subscriber.start}/".encode() if subscriber.start else b""
        entry = SubscribeEntry(start + subscriber.topic_filter, 1, False, False, 0)
        client.send(Subscribe(client.next_id(), [entry]))
        subscriber.take(self.world, False)

    def pass_time(self) -> None:
        self.world.run(self.rng.choice([100, 300, 3_000]))

    def cut(self) -> None:
        self.world.cut(*self.rng.sample(range(1, NODES + 1), 2))

    def heal(self) -> None:
        if self.world.cuts:
            self.world.mend(*sorted(self.rng.choice(sorted(self.world.cuts))))

    def lead(self) -> None:
        self.world.lead(self.rng.choice(GROUPS), self.rng.choice(REPLICAS))

    def install(self) -> None:
        """One replica at most, else records would be gone."""
        self.world.install(REPLICAS[1], self.rng.choice(GROUPS))

    def block(self) -> None:
        if self.subscribers:
            subscriber = self.rng.choice(self.subscribers)
            subscriber.is_blocked = True
            subscriber.client.block()

    def unblock(self) -> None:
        for subscriber in self.subscribers:
            if subscriber.is_blocked:
                subscriber.is_blocked = False
                subscriber.client.unblock()

    def make_good(self) -> None:
        while self.world.cuts:
            self.heal()
        for group in GROUPS:
            self.world.lead(group, REPLICAS[0])
        self.unblock()
        self.world.run(3_000)
        idle = 0
        while idle < 3:  # an acknowledgement may bring the next message
            before = sum(len(subscriber.seen) for subscriber in self.subscribers)
            for subscriber in self.subscribers:
                subscriber.take(self.world, True)
            self.world.run(500)
            idle = idle + 1 if before == sum(len(subscriber.seen) for subscriber in self.subscribers) else 0

    def check(self) -> None:
        for subscriber in self.subscribers:
            assert subscriber.since is not None, "a SUBACK never came"
            for shard, group in enumerate(GROUPS):
                seen = [offset for one, offset, _ in subscriber.seen if one == group]
                first = subscriber.since[group]
                if subscriber.start == "earliest":
                    first = 0
                elif subscriber.start:
                    asked = (2, 5)[shard]
                    # Beyond the end it begins there, unless nobody could say in time where the end was.
                    is_literal = first < asked and bool(seen) and seen[0] >= asked
                    first = asked if is_literal else min(asked, first)
                if subscriber.start != "earliest" and seen:
                    # What was committed and not known to all replicas when it subscribed may come, or not.
                    first = min(first, seen[0])
                topics = self.records[group]
                wanted = [at for at in range(first, len(topics)) if matches(subscriber.topic_filter, topics[at])]
                assert seen == wanted, (subscriber.start, group)
        for node in self.world.nodes.values():
            assert node.delivery.readers.catching == {}
            assert node.delivery.readers.gone == 0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30))
def test_each_subscriber_sees_each_record_once_and_in_order(seed: int) -> None:
    story = Story(seed)
    for _ in range(story.rng.randrange(5, 60)):
        story.step()
    story.make_good()
    story.check()
