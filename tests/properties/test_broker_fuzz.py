"""The whole broker against garbage, broken packets and everything that can happen in any order.

Three promises are searched for holes. Whatever bytes a client sends, the broker raises nothing, answers in packets that
can be read, and serves everybody else. Whatever happens in whatever order, windows and queues keep their bounds. And
well-behaved clients get what they were promised: QoS 2 once, QoS 1 at least once, in the order it was published.

FLOCKMQ_HYPOTHESIS=long searches 100,000 cases each.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from conformance.wire import (
    CONTENT_TYPE,
    DISCONNECT,
    MESSAGE_EXPIRY,
    PINGREQ,
    SESSION_EXPIRY,
    SUBSCRIPTION_ID,
    TOPIC_ALIAS,
    USER_PROPERTY,
    WILL_DELAY,
    ack,
    connect,
    field,
    packet,
    props,
    publish,
    subscribe,
    unsubscribe,
)
from flockmq.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Ack, Publish
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.session.connection import REPLY_BYTES_MAX
from flockmq.testing.harness import BrokerHarness, HarnessClient, make_properties

SMALL_LIMITS = Limits(
    packet_bytes_max=4_000,
    inflight_max=5,
    receive_max=5,
    queue_messages_max=20,
    queue_bytes_max=8_000,
    write_bytes_max=4_000,
    topic_aliases_max=2,
    subscriptions_max=5,
)

# --- bytes that clients send ---

TOPICS = st.sampled_from(
    [b"a", b"a/b", b"$x/a", b"", b"+", b"#", b"a/#", b"$share/g/a", b"$delayed/1/a", b"\xff", b"x" * 99]
)
IDS = st.integers(0, 5)


@st.composite
def plausible_packets(draw: st.DrawFn) -> bytes:
    """A packet that is right, or nearly so."""
    kind = draw(st.integers(0, 9))
    topic = draw(TOPICS)
    pid = draw(IDS)
    if kind == 0:
        flags = draw(st.integers(0, 255))
        will = props((WILL_DELAY, 1)) + field(topic) + field(b"w")
        rest = (
            (will if flags & 4 else b"") + (field(b"u") if flags & 128 else b"") + (field(b"p") if flags & 64 else b"")
        )
        version = draw(st.sampled_from([3, 4, 5]))
        block = props((SESSION_EXPIRY, 10)) if version == 5 else b""
        return connect(
            draw(st.sampled_from([b"", b"c", b"d"])), version=version, flags=flags, properties=block, rest=rest
        )
    if kind <= 3:
        properties: bytes | None = draw(
            st.sampled_from(
                [
                    b"\0",
                    None,
                    props((TOPIC_ALIAS, pid)),
                    props((MESSAGE_EXPIRY, pid)),
                    props((USER_PROPERTY, (b"k", b"v")), (CONTENT_TYPE, topic)),
                    props((SUBSCRIPTION_ID, 1)),
                ]
            )
        )
        qos = draw(st.integers(0, 3))
        return publish(
            topic, draw(st.binary(max_size=8)), qos=qos, pid=pid, retain=draw(st.integers(0, 1)),
            dup=draw(st.integers(0, 1)), properties=properties,
        )  # fmt: skip
    if kind == 4:
        return subscribe(pid, (topic, draw(st.integers(0, 255))), properties=draw(st.sampled_from([b"\0", None])))
    if kind == 5:
        return unsubscribe(pid, topic, properties=draw(st.sampled_from([b"\0", None])))
    if kind <= 7:
        tail = draw(st.sampled_from([b"", b"\0", b"\x80\0", b"\x92"]))
        return ack(draw(st.sampled_from([0x40, 0x50, 0x62, 0x70])), pid, tail)
    return draw(st.sampled_from([PINGREQ, DISCONNECT, packet(0xE0, b"\x04"), packet(0xF0, b""), packet(0xD0, b"")]))


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A stream of packets with some bytes changed, cut out, doubled or put in."""
    data = b"".join(draw(st.lists(plausible_packets(), min_size=1, max_size=6)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        length = draw(st.integers(0, 8))
        how = draw(st.integers(0, 3))
        if how == 0:
            data = data[:at] + draw(st.binary(min_size=1, max_size=4)) + data[at + length :]
        elif how == 1:
            data = data[:at] + data[at + length :]
        elif how == 2:
            data = data[: at + length] + data[at:]
        else:
            data = data[:at] + draw(st.binary(min_size=1, max_size=8)) + data[at:]
    return data


STREAMS = st.one_of(mutated(), mutated(), st.binary(max_size=64))


def cut(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """Pieces of the data, as a network would deliver them."""
    places = sorted({place % (len(data) + 1) for place in cuts})
    return [data[low:high] for low, high in zip([0, *places], [*places, len(data)], strict=True)]


def check_bounds(harness: BrokerHarness) -> None:
    """What any connection and any session may hold."""
    limits = harness.settings.limits
    for connection in harness.broker.connections.values():
        assert connection.out_bytes <= limits.write_bytes_max + 2 * REPLY_BYTES_MAX
        assert len(connection.rest) <= limits.packet_bytes_max
        assert len(connection.aliases_in or ()) <= limits.topic_aliases_max
        assert len(connection.aliases_out or ()) <= limits.topic_aliases_max
    for session in harness.broker.sessions.values():
        assert len(session.subscriptions) <= limits.subscriptions_max
        assert len(session.received or ()) <= limits.receive_max
        if session.outbound is not None:
            assert session.outbound.queued <= limits.queue_messages_max
            assert session.outbound.held <= limits.queue_bytes_max
            assert session.outbound.inflight >= 0


def check_service(harness: BrokerHarness, subscriber: HarnessClient, publisher: HarnessClient) -> None:
    """Two clients that did nothing wrong are served."""
    for qos in (0, 1, 2):
        assert publisher.publish(b"service", b"%d" % qos, qos=qos) == 0
    assert [message.payload for message in subscriber.consume()] == [b"0", b"1", b"2"]


@given(
    st.lists(st.tuples(STREAMS, st.lists(st.integers(0, 200), max_size=4)), min_size=1, max_size=4),
    st.sampled_from([0, 4, 5]),
    st.sampled_from([0, 90, 2_500, 20_000]),
    st.integers(0, 3),
)
def test_any_bytes(streams: list[tuple[bytes, list[int]]], version: int, wait_ms: int, blocked: int) -> None:
    """Nothing a client sends, before or after CONNECT, raises, breaks a bound or disturbs others."""
    harness = BrokerHarness(1, BrokerSettings(limits=SMALL_LIMITS, sys_interval_ms=0))
    subscriber = harness.client("subscriber")
    subscriber.subscribe(b"service", qos=2)
    publisher = harness.client("publisher")
    for number, (data, cuts) in enumerate(streams):
        client = harness.client("c", version=version) if version else harness.raw()
        if number == blocked:
            client.block()
        for piece in cut(data, cuts):
            client.send(piece)
            # A driver may hand in what it had read before it learnt of the end.
            harness.broker.receive(client.connection, b"", harness.now)
        check_bounds(harness)
        harness.advance(wait_ms)
        client.version = client.connection.version or 5
        client.received()
        check_service(harness, subscriber, publisher)
        client.drop()
    harness.advance(30_000)
    check_bounds(harness)
    check_service(harness, subscriber, publisher)


@given(mutated(), st.lists(st.integers(0, 200), max_size=6), st.sampled_from([4, 5]))
def test_cuts_do_not_matter(data: bytes, cuts: list[int], version: int) -> None:
    """The same bytes have the same outcome however they are cut: answers, end, what is left behind.

    Retained messages are left out: they are sent at the end of a turn, so what was replaced within one is not.
    """
    outcomes = []
    for pieces in ([data], cut(data, cuts), cut(data, range(len(data)))):
        harness = BrokerHarness(1, BrokerSettings(limits=SMALL_LIMITS, sys_interval_ms=0))
        client = harness.client("c", version=version)
        watchers = [harness.client(name) for name in ("plain", "dollar", "shared")]
        for watcher, topic_filter in zip(watchers, (b"#", b"$x/#", b"$share/h/a"), strict=True):
            watcher.subscribe(topic_filter, qos=2)
        for piece in pieces:
            client.send(piece)
        session = harness.broker.sessions.get("c")
        filters = sorted(session.subscriptions) if session is not None else None
        assume(harness.broker.retained.sequence == 0)
        heard = [one.received_bytes() for one in (client, *watchers)]
        outcomes.append((heard, client.closed, filters))
    assert outcomes[0] == outcomes[1] == outcomes[2]


# --- everything in any order ---


class Subscriber:
    """A well-behaved subscriber that reads and acknowledges when told to, and remembers what it got."""

    def __init__(
        self, name: str, version: int, topic_filter: bytes, qos: int, receive_max: int, aliases_max: int = 0
    ) -> None:
        self.name = name
        self.version = version
        self.topic_filter = topic_filter
        self.qos = qos
        self.receive_max = receive_max
        self.aliases_max = aliases_max
        self.client: HarnessClient | None = None
        self.is_blocked = False
        self.got: list[tuple[bytes, int, int]] = []
        """(topic, number, QoS) of every message, in the order of its first delivery."""
        self.seen: set[int] = set()
        self.open_ids: set[int] = set()
        """QoS 2 identifiers between PUBLISH and PUBREL, kept over connections as a client must."""
        self.outstanding: set[int] = set()
        """Identifiers sent to us on this connection and not finished."""
        self.pending: list[tuple[int, int]] = []
        """Answers we owe: (kind, identifier)."""

    def connect(self, harness: BrokerHarness) -> None:
        """Come, or come back, or take over."""
        properties = make_properties(
            receive_maximum=self.receive_max, session_expiry_s=100_000, topic_alias_maximum=self.aliases_max
        )
        self.client = harness.client(
            self.name, self.version, False, properties=properties if self.version == 5 else None
        )
        self.outstanding = set()
        self.pending = []
        self.is_blocked = False

    def read(self) -> None:
        """Take what came."""
        if self.client is None:
            return
        for one in self.client.received():
            if isinstance(one, Publish):
                self.on_publish(self.client.resolve(one))
            elif isinstance(one, Ack):
                assert one.kind == PUBREL
                self.open_ids.discard(one.packet_id)
                self.pending.append((PUBCOMP, one.packet_id))

    def on_publish(self, message: Publish) -> None:
        number = int(message.payload)
        assert message.qos <= self.qos
        if message.qos == 0:
            assert not message.dup
            assert number not in self.seen, "QoS 0 came twice"
        else:
            assert message.packet_id not in self.outstanding, "an identifier in use was given again"
            self.outstanding.add(message.packet_id)
            window = self.receive_max if self.version == 5 else 65_535
            assert len(self.outstanding) <= window, "more in flight than the client takes"
            self.pending.append((PUBACK if message.qos == 1 else PUBREC, message.packet_id))
        if message.qos == 2:
            repeated = message.packet_id in self.open_ids
            self.open_ids.add(message.packet_id)
            assert repeated or number not in self.seen, "QoS 2 came twice"
            assert not repeated or message.dup
            if repeated:
                return
        elif number in self.seen:
            assert message.dup, "QoS 1 came twice without a reason"
            return
        self.seen.add(number)
        self.got.append((message.topic, number, message.qos))

    def answer(self, count: int) -> None:
        """Pay some of the answers we owe, oldest first."""
        if self.client is None:
            return
        owed = self.pending[:count]
        del self.pending[:count]
        for kind, packet_id in owed:
            if kind != PUBREC:
                self.outstanding.discard(packet_id)
            self.client.send(Ack(kind, packet_id))


class Fleet(RuleBasedStateMachine):
    """Subscribers of all kinds, a group, publishers that sometimes repeat, slow readers, lost connections, time."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.sent: list[tuple[bytes, int, int]] = []
        self.is_bounded = False

    @initialize(bounded=st.booleans(), seed=st.integers(0, 3), feeding=st.sampled_from(["whole", "random"]))
    def start(self, bounded: bool, seed: int, feeding: str) -> None:
        """A broker with room for everything, or one with hardly any."""
        self.is_bounded = bounded
        limits = SMALL_LIMITS if bounded else Limits()
        broker = BrokerSettings(limits=limits, congestion_grace_ms=0 if bounded else 100)
        self.harness = BrokerHarness(seed, broker, feeding=feeding)
        self.subscribers = [
            Subscriber("zero", 5, b"t/#", 0, 65_535),
            Subscriber("one", 5, b"t/+", 1, 2),
            Subscriber("two", 5, b"t/1", 2, 3),
            Subscriber("old", 4, b"t/#", 2, 65_535),
            Subscriber("alias", 5, b"t/#", 2, 4, aliases_max=1),
        ]
        self.members = [
            Subscriber("m0", 5, b"$share/g/t/#", 2, 2),
            Subscriber("m1", 4, b"$share/g/t/#", 2, 65_535),
        ]
        for one in self.everybody:
            one.connect(self.harness)
            assert one.client is not None
            assert one.client.subscribe(one.topic_filter, one.qos) == one.qos
        self.publisher = self.harness.client("p", session_expiry_s=1_000)

    @property
    def everybody(self) -> list[Subscriber]:
        """Plain subscribers and members of the group."""
        return self.subscribers + self.members

    @rule(
        topic=st.sampled_from([b"t/1", b"t/2"]),
        qos=st.integers(0, 2),
        count=st.integers(1, 5),
        again=st.booleans(),
        dup=st.integers(0, 1),
    )
    def publish(self, topic: bytes, qos: int, count: int, again: bool, dup: int) -> None:
        """Some messages in one go; at QoS 2 the connection may be lost before the answer, and all is repeated."""
        publisher = self.publisher
        ids = [publisher.next_id() for _ in range(count)]
        data = b""
        for packet_id in ids:
            self.number += 1
            data += publish(topic, b"%d" % self.number, qos=qos, pid=packet_id)
            self.sent.append((topic, self.number, qos))
        publisher.send(data)
        if qos == 2 and again:
            publisher.drop()
            self.publisher = self.harness.client("p", clean_start=False, session_expiry_s=1_000)
            publisher, self.publisher._next_id = self.publisher, publisher._next_id
            first = self.number - count + 1
            repeats = [publish(topic, b"%d" % (first + at), qos=2, pid=ids[at], dup=dup) for at in range(count)]
            publisher.send(b"".join(repeats + repeats[::-1]))
        if qos == 2:
            publisher.send(b"".join(ack(0x62, packet_id) for packet_id in ids))
        publisher.received()
        assert not publisher.closed

    @rule(index=st.integers(0, 6), count=st.integers(0, 5))
    def read(self, index: int, count: int) -> None:
        """Somebody reads and answers a little."""
        one = self.everybody[index]
        one.read()
        one.answer(count)

    @rule(index=st.integers(0, 6))
    def drop(self, index: int) -> None:
        """A connection is lost, with all that was not read."""
        one = self.everybody[index]
        if one.client is not None:
            one.client.drop()
            one.client = None

    @rule(index=st.integers(0, 6))
    def come_back(self, index: int) -> None:
        """Somebody connects again, or takes its own session over."""
        self.everybody[index].connect(self.harness)

    @rule(index=st.integers(0, 6))
    def block(self, index: int) -> None:
        """Somebody stops reading from its socket, or starts again."""
        one = self.everybody[index]
        if one.client is None:
            return
        if one.is_blocked:
            one.client.unblock()
        else:
            one.client.block()
        one.is_blocked = not one.is_blocked

    @rule(ms=st.sampled_from([50, 300, 5_000]))
    def wait(self, ms: int) -> None:
        """Time passes."""
        self.harness.advance(ms)

    @rule(data=STREAMS)
    def misbehave(self, data: bytes) -> None:
        """Somebody else sends nonsense, where nobody listens."""
        client = self.harness.client("nonsense", version=4)
        client.send(data.replace(b"t", b"n"))  # no topic that anybody here listens to
        client.drop()

    @invariant()
    def bounds(self) -> None:
        """Nothing grows beyond its bound."""
        if hasattr(self, "harness"):
            check_bounds(self.harness)

    def teardown(self) -> None:
        """In the end everybody comes back, reads all there is, and has what it was promised."""
        if not hasattr(self, "harness"):
            return
        for one in self.everybody:
            if one.is_blocked and one.client is not None:
                one.client.unblock()
            one.connect(self.harness)
        for _ in range(len(self.sent) + 2):
            for one in self.everybody:
                one.read()
                one.answer(len(one.pending))
        for one in self.everybody:
            assert not one.pending
            self.check_order(one)
            self.check_no_invention(one)
        if not self.is_bounded:
            for one in self.subscribers:
                self.check_complete(one.topic_filter, one.qos, one.seen)
            self.check_complete(b"t/#", 2, self.members[0].seen | self.members[1].seen)
        twice = {number for _, number, qos in self.members[0].got if qos == 2} & self.members[1].seen
        assert not twice, "a group got a QoS 2 message twice"

    def check_order(self, one: Subscriber) -> None:
        """One publisher, one topic, one QoS: in order. A group has no order, but each member has."""
        for topic in (b"t/1", b"t/2"):
            for qos in (0, 1, 2):
                numbers = [number for name, number, at in one.got if name == topic and at == qos]
                assert numbers == sorted(numbers), f"{one.name} got {topic!r} at QoS {qos} out of order"

    def check_no_invention(self, one: Subscriber) -> None:
        """What came was sent, to that topic."""
        sent = {(topic, number) for topic, number, _ in self.sent}
        assert {(topic, number) for topic, number, _ in one.got} <= sent

    def check_complete(self, topic_filter: bytes, qos: int, seen: set[int]) -> None:
        """Nothing that was promised is missing."""
        wanted = {
            number for topic, number, at in self.sent if min(at, qos) and (topic_filter != b"t/1" or topic == b"t/1")
        }
        assert wanted <= seen, f"{topic_filter!r} never got {sorted(wanted - seen)[:5]}"


def test_everything_in_any_order() -> None:
    """See Fleet. A case is up to fifty steps here, so the long search makes fewer of them."""
    cases = max(100, settings().max_examples // 20)
    run_state_machine_as_test(Fleet, settings=settings(max_examples=cases, stateful_step_count=50))
