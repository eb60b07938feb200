"""Three brokers, anything in any order: once it is quiet, a publish on any of them reaches whom it should, once.

The obvious model: who is subscribed to what, in one list. Parts between nodes arrive in any order between pairs, links
break with what is on them and come back, nodes are held dead and are not, nodes die and start anew, and messages are
published while routes are still under way.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from flockmq.mqtt.packets import Subscribe, SubscribeEntry, Unsubscribe
from flockmq.mqtt.topics import matches, split_shared
from flockmq.testing.harness import HarnessClient
from flockmq.testing.stepped import BOOT, SteppedCluster

FILTERS = [b"a", b"a/b", b"a/+", b"a/#", b"+/b", b"#", b"$share/g/a/+", b"$share/g/#", b"$share/h/a/b"]
NAMES = [b"a", b"a/b", b"a/c", b"b/b", b"c"]
CLIENTS = 6

STEP = st.one_of(
    st.tuples(st.just("subscribe"), st.integers(0, CLIENTS - 1), st.sampled_from(FILTERS)),
    st.tuples(st.just("unsubscribe"), st.integers(0, CLIENTS - 1), st.sampled_from(FILTERS)),
    st.tuples(st.just("run"), st.integers(1, 20), st.just(b"")),
    st.tuples(st.just("break"), st.integers(0, 2), st.just(b"")),
    st.tuples(st.just("part"), st.integers(0, 2), st.just(b"")),
    st.tuples(st.just("restart"), st.integers(1, 3), st.just(b"")),
    st.tuples(st.just("publish"), st.integers(0, CLIENTS - 1), st.sampled_from(NAMES)),
)
PAIRS = [(1, 2), (1, 3), (2, 3)]


class World:
    """The cluster, and what should be true of it."""

    def __init__(self, seed: int) -> None:
        self.cluster = SteppedCluster(3, seed, auto=False)
        self.clients: list[HarnessClient] = []
        for number in range(CLIENTS):
            self.clients.append(self.cluster[number % 3 + 1].client(f"client{number}"))
        self.cluster.settle()
        self.wanted: list[set[bytes]] = [set() for _ in range(CLIENTS)]
        self.early: dict[bytes, tuple[bytes, int]] = {}
        """Messages published while routes may be on their way: topic, QoS."""
        self.number = 0
        self.boot = BOOT

    def restart(self, node_id: int) -> None:
        """A node dies with its clients' sessions; they come back to the new one with nothing."""
        self.boot += 1
        self.cluster.kill(node_id)
        self.cluster.step()
        self.cluster.bury(node_id)
        self.cluster.step()
        node = self.cluster.start(node_id, self.boot)
        for number in range(CLIENTS):
            if number % 3 + 1 == node_id:
                self.clients[number] = node.client(f"client{number}")
                self.wanted[number] = set()

    def part(self, one: int, other: int) -> None:
        """Two nodes take each other for dead, and find out that they are not."""
        self.cluster.cut(one, other)
        for _ in range(3):
            self.cluster.step()
        for here, there in ((one, other), (other, one)):
            self.cluster[here].lose(there)
        for _ in range(3):
            self.cluster.step()
        for here, there in ((one, other), (other, one)):
            self.cluster[here].meet(self.cluster[there])
        self.cluster.link(one, other)

    def publish(self, client: int, topic: bytes, qos: int) -> bytes:
        self.number += 1
        payload = b"%d" % self.number
        self.clients[client].publish(topic, payload, qos)
        return payload

    def do(self, what: str, number: int, name: bytes) -> None:
        if what == "subscribe":
            client = self.clients[number]
            client.send(Subscribe(client.next_id(), [SubscribeEntry(name, 1)], None))
            self.wanted[number].add(name)
        elif what == "unsubscribe":
            client = self.clients[number]
            client.send(Unsubscribe(client.next_id(), [name]))
            self.wanted[number].discard(name)
        elif what == "run":
            for _ in range(number):
                self.cluster.step()
        elif what == "break":
            one, other = PAIRS[number]
            self.cluster.cut(one, other)
            for _ in range(3):
                self.cluster.step()
            self.cluster.link(one, other)
        elif what == "part":
            self.part(*PAIRS[number])
        elif what == "restart":
            self.restart(number)
        else:
            qos = self.number % 3
            self.early[self.publish(number, name, qos)] = (name, qos)

    def collect(self) -> list[list[tuple[bytes, int]]]:
        return [[(message.payload, message.qos) for message in client.consume()] for client in self.clients]

    def check(self, topic: bytes, payload: bytes, got: list[list[tuple[bytes, int]]]) -> None:
        """Everybody who subscribed alone got it once more than as a member; each group got it once."""
        alone = 0
        copies = [sum(one == payload for one, _ in each) for each in got]
        groups: set[bytes] = set()
        for number, filters in enumerate(self.wanted):
            mine = [one for one in filters if split_shared(one)[0] is None and matches(one, topic)]
            shared = {
                one for one in filters if split_shared(one)[0] is not None and matches(split_shared(one)[1], topic)
            }
            groups |= shared
            alone += bool(mine)
            assert copies[number] >= bool(mine), (number, topic)
            assert copies[number] <= bool(mine) + len(shared), (number, topic)
        assert sum(copies) == alone + len(groups), (topic, copies)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=40), st.integers(0, 2**32))
def test_every_publish_reaches_exactly_the_right_clients_once(steps: list[tuple[str, int, bytes]], seed: int) -> None:
    world = World(seed)
    for what, number, name in steps:
        world.do(what, number, name)
    world.cluster.settle()
    world.cluster.advance(5_000)  # a link may have broken with a HELLO or a question on it
    world.cluster.settle()
    for each in world.collect():
        kept = [payload for payload, _ in each]
        assert all(kept.count(payload) <= len(FILTERS) for payload in kept)
    nodes = list(world.cluster.nodes.values())
    for node in nodes:
        for stream in node.forwarding.streams.values():
            assert (stream.peer.kept_bytes, stream.peer.out, stream.unacknowledged) == (0, [], [])
    published = [(topic, world.publish(client, topic, 1)) for topic in NAMES for client in range(3)]
    world.cluster.settle()
    got = world.collect()
    for topic, payload in published:
        world.check(topic, payload, got)


@settings(max_examples=100, deadline=None)
@given(st.lists(STEP.filter(lambda step: step[0] in ("publish", "run", "break")), max_size=40), st.integers(0, 2**32))
def test_what_is_published_while_links_break_arrives_once_above_qos_0(
    steps: list[tuple[str, int, bytes]], seed: int
) -> None:
    world = World(seed)
    for number, topic_filter in enumerate((b"a/#", b"#", b"a/+", b"$share/g/#", b"$share/g/#", b"+/b")):
        world.do("subscribe", number, topic_filter)
    world.cluster.settle()
    for what, number, name in steps:
        world.do(what, number, name)
    world.cluster.settle()
    world.cluster.advance(5_000)
    world.cluster.settle()
    got = world.collect()
    for payload, (topic, qos) in world.early.items():
        if qos:
            world.check(topic, payload, got)
        for each in got:
            assert sum(one == payload for one, _ in each) <= 1
