"""Secure and bounded: each limit is enforced, with the reason code that says which one it was."""

from __future__ import annotations

import pytest

from conformance.checks import closed_silently, closed_with, refused_with
from conformance.conftest import MakeHarness
from conformance.gates import PasswordGate, TopicGate
from conformance.wire import PINGREQ, connect, hexa, publish, publish3, subscribe
from flockmq.mqtt.packets import PUBACK, PUBREC, Connack, Connect, Disconnect, Publish, Suback
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.testing.harness import BrokerHarness, make_properties

# --- connecting ---


@pytest.mark.parametrize("sent", [b"", b"\x10", hexa("10 0e 0004 4d51"), hexa("10")])
def test_connect_timeout(make_harness: MakeHarness, sent: bytes) -> None:
    """A CONNECT that does not come, or comes too slowly, is not waited for."""
    harness = make_harness(limits=Limits(connect_timeout_ms=2_000))
    client = harness.raw()
    if sent:
        client.send(sent)
    harness.advance(1_800)
    early = client.closed
    harness.advance(400)
    assert (early, client.closed) == (False, True)
    assert client.received_bytes() == b""


def test_connect_timeout_is_over_after_connect(make_harness: MakeHarness) -> None:
    """Whoever is in is no longer under it."""
    harness = make_harness(limits=Limits(connect_timeout_ms=2_000))
    client = harness.client("c")
    harness.advance(60_000)
    client.ping()


def test_a_byte_now_and_then_does_not_help(make_harness: MakeHarness) -> None:
    """Slow CONNECTs, a byte at a time, end at the same deadline."""
    harness = make_harness(limits=Limits(connect_timeout_ms=2_000))
    client = harness.raw()
    for byte in connect(b"c")[:10]:
        client.send(bytes([byte]))
        harness.advance(300)
    assert client.closed


def test_banned_clients(make_harness: MakeHarness) -> None:
    """By client id, user name or address, for a while or for good: refused with 0x8A."""
    harness = make_harness(gate=PasswordGate({"good": b"x", "bad": b"x"}))
    bans = harness.broker.bans
    assert bans.add("client", "c", harness.now + 5_000, "misbehaved", harness.now)
    assert bans.add("username", "bad", 0, "misbehaved", harness.now)
    assert bans.add("address", "10.0.0.1", 0, "misbehaved", harness.now)
    for packet, peer in (
        (Connect(5, "c", username="good", password=b"x"), "10.0.0.9"),
        (Connect(5, "d", username="bad", password=b"x"), "10.0.0.9"),
        (Connect(5, "d", username="good", password=b"x"), "10.0.0.1"),
    ):
        client = harness.connect(packet, peer=peer)
        assert refused_with(client) == 0x8A
    old = harness.connect(Connect(4, "c", username="good", password=b"x"))
    assert old.received_bytes() == hexa("20 02 00 05")
    harness.advance(6_000)
    harness.client("c", username="good", password=b"x")
    assert bans.remove("username", "bad")
    harness.client("d", username="bad", password=b"x")


def test_kick(harness: BrokerHarness) -> None:
    """A kicked client is told 0x98 (3.1.1: just closed); kicking somebody who is not there says so."""
    client = harness.client("c", session_expiry_s=60)
    old = harness.client("old", version=4)
    assert harness.broker.kick("c", harness.now)
    assert harness.broker.kick("old", harness.now)
    assert not harness.broker.kick("nobody", harness.now)
    harness.flush()
    assert closed_with(client) == 0x98
    closed_silently(old)


# --- publishing ---


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_message_rate(make_harness: MakeHarness, qos: int) -> None:
    """A second's worth may come at once; more is answered with 0x96."""
    harness = make_harness(limits=Limits(messages_per_s_max=10))
    client = harness.client("c")
    for second in range(3):
        client.send(b"".join(publish(b"a", b"x", qos=qos, pid=second * 10 + number + 1) for number in range(10)))
        assert not client.closed
        harness.advance(1_000)
    client.received()
    client.send(b"".join(publish(b"a", b"x", qos=qos, pid=100 + number) for number in range(11)))
    assert client.closed
    client.received()
    assert client.farewell is not None
    assert client.farewell.reason == 0x96


def test_message_rate_311(make_harness: MakeHarness) -> None:
    """3.1.1 clients are closed."""
    harness = make_harness(limits=Limits(messages_per_s_max=10))
    client = harness.client("c", version=4)
    client.send(publish3(b"a", b"x") * 11)
    closed_silently(client)


def test_acl_on_publish(make_harness: MakeHarness) -> None:
    """A publish that is not allowed reaches nobody: 0x87 at QoS 1 and 2, dropped at QoS 0; it is not retained."""
    harness = make_harness(gate=TopicGate())
    watcher = harness.client("w")
    watcher.subscribe(b"#", qos=2)
    client = harness.client("c")
    client.publish(b"forbidden/a", b"x", retain=True)
    assert client.publish(b"forbidden/a", b"x", qos=1, retain=True) == 0x87
    assert client.publish(b"forbidden/a", b"x", qos=2) == 0x87
    assert watcher.messages() == []
    assert harness.broker.retained.usage.count == 0
    assert client.publish(b"fine", b"x", qos=2) == 0
    assert watcher.topics() == [b"fine"]


def test_acl_verdicts_follow_the_gate(make_harness: MakeHarness) -> None:
    """Verdicts are remembered until the gate says that they may have changed."""
    gate = TopicGate()
    harness = make_harness(gate=gate)
    client = harness.client("c")
    for _ in range(5):
        client.publish(b"a", b"x", qos=1)
    assert gate.asked == [b"a"]
    gate.forbidden = b"a"
    gate.version += 1
    assert client.publish(b"a", b"x", qos=1) == 0x87


def test_delayed_is_checked_for_its_target(make_harness: MakeHarness) -> None:
    """$delayed does not lead around the rules."""
    harness = make_harness(gate=TopicGate())
    assert harness.client("c").publish(b"$delayed/1/forbidden/a", b"x", qos=1) == 0x87


def test_acl_on_queued_session(make_harness: MakeHarness) -> None:
    """A client id that belongs to one user can't be taken, nor its session read, by another."""
    harness = make_harness(gate=PasswordGate({"alice": b"a", "mallory": b"m"}))
    alice = harness.client("c", username="alice", password=b"a", session_expiry_s=600)
    alice.subscribe(b"secret", qos=1)
    thief = harness.connect(Connect(5, "c", False, username="mallory", password=b"m"))
    assert refused_with(thief) in {0x85, 0x87}
    alice.ping()


# --- retained ---


def test_retained_messages_are_limited(make_harness: MakeHarness) -> None:
    """Beyond the limit: 0x97 and no delivery at QoS 1 and 2; replacing and removing still work."""
    harness = make_harness(BrokerSettings(retained_messages_max=2))
    client = harness.client("c")
    assert client.publish(b"a", b"x", qos=1, retain=True) in {0, 0x10}
    assert client.publish(b"b", b"x", qos=1, retain=True) in {0, 0x10}
    assert client.publish(b"c", b"x", qos=1, retain=True) == 0x97
    assert client.publish(b"c", b"x", qos=2, retain=True) == 0x97
    client.publish(b"c", b"x", qos=0, retain=True)
    assert harness.broker.retained.usage.count == 2
    assert client.publish(b"a", b"other", qos=1, retain=True) in {0, 0x10}
    assert client.publish(b"a", b"", qos=1, retain=True) in {0, 0x10}
    assert client.publish(b"c", b"x", qos=1, retain=True) in {0, 0x10}
    late = harness.client("late")
    late.subscribe(b"#")
    assert sorted(late.topics()) == [b"b", b"c"]


def test_retained_bytes_are_limited(make_harness: MakeHarness) -> None:
    """Large messages count by their size."""
    harness = make_harness(BrokerSettings(retained_bytes_max=10_000))
    client = harness.client("c")
    codes = [client.publish(b"t/%d" % number, b"x" * 3_000, qos=1, retain=True) for number in range(5)]
    assert codes[0] in {0, 0x10}
    assert codes[-1] == 0x97
    assert harness.broker.retained.usage.bytes <= 10_000


# --- subscribing ---


def test_subscriptions_are_limited(make_harness: MakeHarness) -> None:
    """Beyond the limit 0x97 (3.1.1: 0x80); the same filter again and others after unsubscribing are fine."""
    harness = make_harness(limits=Limits(subscriptions_max=2))
    client = harness.client("c")
    client.send(subscribe(1, (b"a", 0), (b"b", 1), (b"c", 2)))
    assert client.expect(Suback).reasons == [0, 1, 0x97]
    assert client.subscribe(b"a", qos=2) == 2
    client.unsubscribe(b"b")
    assert client.subscribe(b"c") == 0
    old = harness.client("old", version=4)
    assert [old.subscribe(topic_filter) for topic_filter in (b"a", b"b", b"c")] == [0, 0, 0x80]


# --- queues ---


def test_queued_messages_are_limited(make_harness: MakeHarness) -> None:
    """A session that is away keeps its first messages up to the bound; further ones are dropped and counted."""
    harness = make_harness(limits=Limits(queue_messages_max=5))
    away = harness.client("away", session_expiry_s=600)
    away.subscribe(b"a", qos=1)
    away.drop()
    publisher = harness.client("p")
    publisher.send(b"".join(publish(b"a", b"%d" % number, qos=1, pid=number + 1) for number in range(12)))
    assert harness.broker.stats.dropped_queue == 7
    again = harness.client("away", clean_start=False, session_expiry_s=600)
    assert [int(message.payload) for message in again.consume()] == [0, 1, 2, 3, 4]


def test_queue_bytes_are_limited(make_harness: MakeHarness) -> None:
    """Large messages fill the queue sooner; what was acknowledged makes room again."""
    limits = Limits(queue_bytes_max=10_000, inflight_max=2)
    harness = make_harness(BrokerSettings(limits=limits, congestion_grace_ms=0))
    client = harness.client("s")
    client.subscribe(b"a", qos=1)
    publisher = harness.client("p")
    for _ in range(3):
        for _ in range(20):
            publisher.publish(b"a", b"x" * 1_000, qos=1)
        session = harness.broker.sessions["s"]
        assert session.outbound is not None
        assert session.outbound.held <= 10_000
        got = client.consume()
        assert 5 <= len(got) <= 10


def test_a_reader_that_never_reads(make_harness: MakeHarness) -> None:
    """It costs a bounded amount; QoS 0 beyond is dropped and counted; others are served."""
    harness = make_harness(BrokerSettings(limits=Limits(write_bytes_max=20_000), congestion_grace_ms=100))
    deaf = harness.client("deaf")
    deaf.subscribe(b"a")
    other = harness.client("other")
    other.subscribe(b"a")
    deaf.block()
    publisher = harness.client("p")
    for number in range(100):
        publisher.send(publish(b"a", b"x" * 1_000 + b"%d" % number))
        harness.advance(100)
    assert deaf.connection.out_bytes <= 20_000
    assert len(other.messages()) == 100, "nobody else loses a message"
    assert harness.broker.stats.dropped_slow >= 70
    deaf.unblock()
    got = [int(message.payload[1_000:]) for message in deaf.messages()]
    assert got == sorted(got)
    publisher.send(publish(b"a", b"again"))
    assert deaf.payloads() == [b"again"]


def test_publishers_wait_for_a_slow_reader(make_harness: MakeHarness) -> None:
    """A reader that is slow for a moment loses nothing: its publisher is slowed down instead."""
    harness = make_harness(BrokerSettings(limits=Limits(write_bytes_max=20_000), congestion_grace_ms=5_000))
    slow = harness.client("slow")
    slow.subscribe(b"a")
    publisher = harness.client("p")
    slow.block()
    for number in range(60):
        publisher.send(publish(b"a", b"x" * 1_000 + b"%d" % number))
    assert publisher.connection.reading_paused
    got = []
    for _ in range(20):
        slow.unblock()
        got += [int(message.payload[1_000:]) for message in slow.messages()]
        slow.block()
    assert got == list(range(60))
    assert harness.broker.stats.dropped_slow == 0


def test_qos_1_waits_for_a_reader_that_never_reads(make_harness: MakeHarness) -> None:
    """QoS 1 to a blocked client stays in its bounded queue and arrives in order once it reads."""
    limits = Limits(write_bytes_max=20_000, queue_messages_max=50)
    harness = make_harness(BrokerSettings(limits=limits, congestion_grace_ms=0))
    slow = harness.client("slow")
    slow.subscribe(b"a", qos=1)
    slow.block()
    publisher = harness.client("p")
    for number in range(80):
        publisher.publish(b"a", b"x" * 1_000 + b"%d" % number, qos=1)
    assert slow.connection.out_bytes <= 40_000
    slow.unblock()
    got = [int(message.payload[1_000:]) for message in slow.consume()]
    assert got == list(range(len(got)))
    assert 50 <= len(got) < 80


def test_publishers_wait_for_acknowledgements(make_harness: MakeHarness) -> None:
    """A subscriber that acknowledges slowly loses nothing: publishers wait while its queue is more than half full."""
    limits = Limits(queue_messages_max=20, inflight_max=2)
    harness = make_harness(BrokerSettings(limits=limits, congestion_grace_ms=5_000))
    slow = harness.client("slow")
    slow.subscribe(b"a", qos=1)
    publisher = harness.client("p")
    for number in range(100):
        publisher.send(publish(b"a", b"%d" % number, qos=1, pid=number + 1))
    assert publisher.connection.reading_paused
    got: list[int] = []
    while len(got) < 100:
        fresh = [int(message.payload) for message in slow.consume()]
        assert fresh, f"stuck after {len(got)}"
        got += fresh
    assert got == list(range(100))
    assert harness.broker.stats.dropped_queue == 0
    assert not publisher.connection.reading_paused


def test_a_subscriber_that_never_acknowledges_stops_nobody(make_harness: MakeHarness) -> None:
    """After the grace its messages are dropped and counted; publisher and other subscribers go on."""
    limits = Limits(queue_messages_max=20, inflight_max=2)
    harness = make_harness(BrokerSettings(limits=limits, congestion_grace_ms=200))
    stuck = harness.client("stuck")
    stuck.subscribe(b"a", qos=1)
    other = harness.client("other")
    other.subscribe(b"a", qos=0)
    publisher = harness.client("p")
    for number in range(100):
        publisher.send(publish(b"a", b"%d" % number, qos=1, pid=number + 1))
    harness.advance(1_000)
    assert not publisher.connection.reading_paused
    assert [int(message.payload) for message in other.messages()] == list(range(100))
    assert harness.broker.stats.dropped_queue == 78


def test_answers_to_a_client_that_never_reads(make_harness: MakeHarness) -> None:
    """A client that sends and does not read its answers is no longer read from: the answers are bounded."""
    harness = make_harness()
    client = harness.client("c")
    client.block()
    for _ in range(200):
        client.send(PINGREQ * 500)
    assert client.connection.reading_paused
    assert client.connection.out_bytes < 200_000
    client.unblock()
    client.ping()


@pytest.mark.parametrize("data", [subscribe(1, (b"a", 0)), publish(b"a", qos=1, pid=1), publish(b"b", qos=2, pid=1)])
def test_no_answer_can_pile_up(make_harness: MakeHarness, data: bytes) -> None:
    """The same for every packet that has an answer."""
    harness = make_harness()
    client = harness.client("c")
    client.block()
    for _ in range(100):
        client.send(data * 300)
    assert client.connection.out_bytes < 200_000


def test_retained_flood_is_bounded(make_harness: MakeHarness) -> None:
    """Subscribing to many retained messages while not reading holds no more than the write bound."""
    harness = make_harness(limits=Limits(write_bytes_max=20_000))
    publisher = harness.client("p")
    for number in range(100):
        publisher.publish(b"t/%d" % number, b"x" * 1_000, retain=True)
    client = harness.client("c")
    client.block()
    for _ in range(10):
        client.send(subscribe(1, (b"t/#", 0)))
    assert client.connection.out_bytes <= 20_000 + 65_536


# --- what must not be held ---


def test_unfinished_packets_hold_what_came(make_harness: MakeHarness) -> None:
    """A packet announced as large holds only the bytes that came."""
    harness = make_harness(limits=Limits(packet_bytes_max=200_000_000))
    clients = [harness.client(f"c{number}") for number in range(20)]
    for client in clients:
        client.send(hexa("30 80 80 80 50") + b"\x00\x01a")
    held = sum(len(client.connection.rest) + len(client.connection.chunks or b"") for client in clients)
    assert held < 2_000


def test_aliases_are_bounded(make_harness: MakeHarness) -> None:
    """A client that asks for 65,535 aliases gets as many as the listener allows."""
    harness = make_harness(limits=Limits(topic_aliases_max=4))
    client = harness.client("c", properties=make_properties(topic_alias_maximum=65_535))
    client.subscribe(b"#")
    publisher = harness.client("p")
    for number in range(20):
        publisher.publish(b"t/%d" % number, b"x")
    assert client.topics() == [b"t/%d" % number for number in range(20)]
    assert len(client.connection.aliases_out or {}) <= 4


def test_events_hold_no_secrets(make_harness: MakeHarness) -> None:
    """Passwords and payloads do not reach the log."""
    harness = make_harness(gate=PasswordGate({"user": b"hunter2"}))
    harness.connect(Connect(5, "c", username="user", password=b"wrong-hunter3"))
    client = harness.client("c", username="user", password=b"hunter2")
    client.publish(b"a", b"private payload")
    client.send(hexa("00 00"))
    told = repr([(event.kind, event.fields) for event in harness.broker.take_events()])
    assert "connect_refused" in told
    assert "hunter" not in told
    assert "private payload" not in told


# --- the broker's own topics ---


@pytest.mark.parametrize("topic", [b"$SYS/broker/version", b"$SYS/x"])
def test_sys_topics_are_not_for_clients(harness: BrokerHarness, topic: bytes) -> None:
    """Nobody but the broker publishes to $SYS."""
    watcher = harness.client("w")
    watcher.subscribe(b"$SYS/x")
    client = harness.client("c")
    assert client.publish(topic, b"x", qos=1, retain=True) == 0x87
    client.send(Publish(topic, b"x", 2, packet_id=4))
    assert client.expect_ack(PUBREC, 4).reason == 0x87
    client.send(Publish(topic, b"x"))
    assert watcher.messages() == []


def test_sys_figures(make_harness: MakeHarness) -> None:
    """$SYS tells the node's figures: retained, brought up to date at the interval, to both versions."""
    harness = make_harness(BrokerSettings(sys_interval_ms=10_000))
    harness.advance(1_000)
    client = harness.client("c")
    old = harness.client("old", version=4)
    for one in (client, old):
        one.subscribe(b"$SYS/broker/clients/+")
        first = {message.topic: message for message in one.messages()}
        assert first[b"$SYS/broker/clients/connected"].payload == b"0"
        assert first[b"$SYS/broker/clients/connected"].retain
    harness.advance(10_000)
    for one in (client, old):
        figures = {message.topic: message.payload for message in one.messages()}
        assert figures[b"$SYS/broker/clients/connected"] == b"2"
    client.subscribe(b"$SYS/#")
    topics = set(client.topics())
    assert b"$SYS/broker/version" in topics
    assert b"$SYS/broker/uptime" in topics
    assert harness.broker.retained.usage.count == 0, "they are in nobody's limit"


def test_sys_can_be_turned_off(make_harness: MakeHarness) -> None:
    """Interval 0: no $SYS topics."""
    harness = make_harness(BrokerSettings(sys_interval_ms=0))
    harness.advance(60_000)
    client = harness.client("c")
    client.subscribe(b"$SYS/#")
    harness.advance(60_000)
    assert client.messages() == []


# --- delayed messages ---


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_delayed(harness: BrokerHarness, version: int, qos: int) -> None:
    """$delayed/SECONDS/topic is acknowledged at once and published to the topic when its time has come."""
    watcher = harness.client("w")
    watcher.subscribe(b"#", qos=2)
    client = harness.client("c", version=version)
    assert client.publish(b"$delayed/10/a/b", b"later", qos=qos) == 0
    client.drop()
    harness.advance(9_800)
    assert watcher.messages() == []
    harness.advance(400)
    (message,) = watcher.consume()
    assert (message.topic, message.payload, message.qos) == (b"a/b", b"later", qos)


def test_delayed_keeps_all_else(harness: BrokerHarness) -> None:
    """Retain and properties are those of the message; several keep their order of time, then of sending."""
    watcher = harness.client("w")
    watcher.subscribe(b"#", qos=1, retain_as_published=True)
    client = harness.client("c")
    client.publish(b"$delayed/2/a", b"third", qos=1, properties=make_properties(user=[("k", "v")], content_type="t"))
    client.publish(b"$delayed/1/a", b"first", retain=True)
    client.publish(b"$delayed/1/a", b"second")
    client.publish(b"$delayed/0/a", b"now")
    harness.advance(200)
    assert watcher.payloads() == [b"now"]
    harness.advance(3_000)
    got = watcher.consume()
    assert [(message.payload, message.retain) for message in got] == [
        (b"first", True), (b"second", False), (b"third", False),
    ]  # fmt: skip
    assert got[2].properties is not None
    assert got[2].properties.user == [("k", "v")]
    late = harness.client("late")
    late.subscribe(b"a")
    assert late.payloads() == [b"first"]


@pytest.mark.parametrize(
    "name",
    [b"a/b", b"/b", b"1/", b"1", b"-1/b", b"1.5/b", b"99999999999/b", b"1/$SYS/x", b"1/$delayed/1/a", b"1/a/+", b""],
)
def test_delayed_to_nowhere(harness: BrokerHarness, name: bytes) -> None:
    """A delayed topic of the wrong form is refused with 0x90, on its acknowledgement or by DISCONNECT."""
    client = harness.client("c")
    client.send(publish(b"$delayed/" + name, b"x", qos=1, pid=1))
    if client.closed:
        assert client.expect(Disconnect).reason == 0x90
    else:
        assert client.expect_ack(PUBACK, 1).reason == 0x90
    harness.advance(5_000)


def test_delayed_messages_are_limited(make_harness: MakeHarness) -> None:
    """In number, bytes and time: 0x97 beyond, 0x90 for a delay that is too long."""
    harness = make_harness(BrokerSettings(delayed_messages_max=2, delayed_s_max=100))
    client = harness.client("c")
    assert client.publish(b"$delayed/101/a", b"x", qos=1) == 0x90
    assert client.publish(b"$delayed/100/a", b"x", qos=1) == 0
    assert client.publish(b"$delayed/1/a", b"x", qos=1) == 0
    assert client.publish(b"$delayed/1/a", b"x", qos=1) == 0x97
    assert client.publish(b"$delayed/1/a", b"x", qos=2) == 0x97
    harness.advance(1_500)
    assert client.publish(b"$delayed/1/a", b"x", qos=2) == 0
    small = make_harness(BrokerSettings(delayed_bytes_max=1_000))
    client = small.client("c")
    codes = [client.publish(b"$delayed/1/a", b"x" * 400, qos=1) for _ in range(4)]
    assert codes[0] == 0
    assert codes[-1] == 0x97


def test_delayed_message_expires(harness: BrokerHarness) -> None:
    """A message that expires before its delay is over is not published."""
    watcher = harness.client("w")
    watcher.subscribe(b"#", qos=1)
    client = harness.client("c")
    client.publish(b"$delayed/10/a", b"x", qos=1, properties=make_properties(message_expiry_s=5))
    client.publish(b"$delayed/10/a", b"y", qos=1, properties=make_properties(message_expiry_s=50))
    harness.advance(11_000)
    assert [message.payload for message in watcher.consume()] == [b"y"]


# --- the admin's side ---


def test_publish_on_the_brokers_behalf(harness: BrokerHarness) -> None:
    """Messages of the admin API reach subscribers of both versions and can be retained."""
    new = harness.client("new")
    new.subscribe(b"a", qos=1)
    old = harness.client("old", version=4)
    old.subscribe(b"a", qos=0)
    harness.broker.publish(b"a", b"x", 1, True, harness.now, make_properties(user=[("k", "v")]))
    harness.flush()
    (message,) = new.consume()
    assert message.properties is not None
    assert message.properties.user == [("k", "v")]
    assert old.payloads() == [b"x"]
    late = harness.client("late", version=4)
    late.subscribe(b"a")
    assert late.payloads() == [b"x"]


def test_shutdown_refuses_new_clients(harness: BrokerHarness) -> None:
    """While stopping nobody gets in any more."""
    waiting = harness.raw()
    harness.shutdown()
    assert waiting.closed
    client = harness.raw()
    client.send(connect(b"c"))
    assert client.closed
    out = client.received()
    assert all(isinstance(packet, Connack) and packet.reason >= 0x80 for packet in out)
    assert not harness.broker.sessions or "c" not in harness.broker.sessions


# --- a burst in one read, larger than a bound ---


@pytest.mark.parametrize("identifier", [0, 7])
@pytest.mark.parametrize("version", [4, 5])
def test_a_burst_fills_the_buffer(make_harness: MakeHarness, version: int, identifier: int) -> None:
    """Of a burst that is larger than the write bound as much arrives as fits, and the rest is counted."""
    harness = make_harness(limits=Limits(write_bytes_max=20_000))
    client = harness.client("s", version=version)
    client.subscribe(b"a", identifier=identifier if version == 5 else 0)
    harness.broker.receive(
        harness.client("p").connection,
        b"".join(publish(b"a", b"x" * 1_000 + b"%d" % number) for number in range(10, 70)),
        harness.now,
    )
    harness.flush()
    got = [int(message.payload[1_000:]) for message in client.messages()]
    assert got == list(range(10, 10 + len(got)))
    assert 17 <= len(got) <= 20
    assert harness.broker.stats.dropped_slow == 60 - len(got)


def test_a_burst_fills_the_queue(make_harness: MakeHarness) -> None:
    """Of a burst that is larger than the queue as much is kept as fits."""
    harness = make_harness(limits=Limits(queue_bytes_max=20_000))
    away = harness.client("away", session_expiry_s=600)
    away.subscribe(b"a", qos=1)
    away.drop()
    harness.broker.receive(
        harness.client("p").connection,
        b"".join(publish(b"a", b"x" * 1_000 + b"%d" % number, qos=1, pid=number) for number in range(10, 70)),
        harness.now,
    )
    got = [int(one.payload[1_000:]) for one in harness.client("away", clean_start=False).consume()]
    assert got == list(range(10, 10 + len(got)))
    assert 17 <= len(got) <= 20
    assert harness.broker.stats.dropped_queue == 60 - len(got)


# --- congestion ---


def test_a_full_buffer_that_drains_at_once_holds_nobody(make_harness: MakeHarness) -> None:
    """A reader whose transport takes everything slows its publisher down for one turn, not for a grace period."""
    harness = make_harness(BrokerSettings(limits=Limits(write_bytes_max=2_000), congestion_grace_ms=60_000))
    client = harness.client("s")
    client.subscribe(b"a")
    publisher = harness.client("p")
    for number in range(50):
        publisher.send(publish(b"a", b"x" * 1_200 + b"%d" % number))
    assert [int(message.payload[1_200:]) for message in client.messages()] == list(range(50))
    assert not publisher.has_unsent


def test_grace_is_used_up_only_by_waiting(make_harness: MakeHarness) -> None:
    """A reader that drained in time has its grace again: the next burst loses nothing either."""
    harness = make_harness(BrokerSettings(limits=Limits(write_bytes_max=2_000), congestion_grace_ms=1_000))
    client = harness.client("s")
    client.subscribe(b"a")
    publisher = harness.client("p")
    sent = 0
    for _ in range(5):
        client.block()
        for _ in range(6):
            publisher.send(publish(b"a", b"x" * 500 + b"%d" % sent))
            sent += 1
        harness.advance(500)
        while publisher.has_unsent:
            client.unblock()
            client.block()
        client.unblock()
        harness.advance(5_000)
    assert [int(message.payload[500:]) for message in client.messages()] == list(range(sent))
    assert harness.broker.stats.dropped_slow == 0
