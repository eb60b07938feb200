"""What a client can do to the broker with few bytes: nothing escapes, nothing grows, nothing takes long."""

from __future__ import annotations

import pytest

from conformance.checks import closed_with, refused_with
from conformance.conftest import MakeHarness
from conformance.gates import StepGate, TopicGate
from conformance.wire import (
    AUTH_METHOD,
    MAX_PACKET,
    PAYLOAD_FORMAT,
    REQUEST_RESPONSE,
    SUBSCRIPTION_ID,
    connect,
    hexa,
    props,
    publish,
    publish3,
    subscribe,
)
from flockmq.mqtt.packets import Ack, Connack, Connect
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.testing.harness import BrokerHarness, make_properties


def test_the_longest_client_id_asks_for_response_information(make_harness: MakeHarness) -> None:
    """A prefix and 65,535 bytes are no MQTT string: it is left out."""
    harness = make_harness(limits=Limits(connect_bytes_max=70_000))
    if harness.feeding == "bytes":
        pytest.skip("65,535 single bytes prove nothing more")
    client = harness.raw()
    client.send(connect(b"c" * 65_535, properties=props((REQUEST_RESPONSE, 1))))
    connack = client.expect(Connack)
    assert connack.reason == 0
    assert connack.properties.response_information is None


@pytest.mark.parametrize("unit", [b"m", b"\xe2\x80\xa8", b"\x01"])
def test_a_very_long_authentication_method(make_harness: MakeHarness, unit: bytes) -> None:
    """However it is quoted in the reason string, that stays an MQTT string."""
    harness = make_harness(limits=Limits(connect_bytes_max=70_000))
    if harness.feeding == "bytes":
        pytest.skip("65,535 single bytes prove nothing more")
    client = harness.raw()
    client.send(connect(properties=props((AUTH_METHOD, unit * (65_535 // len(unit))))))
    assert refused_with(client) == 0x8C


def test_a_ban_with_a_very_long_reason(harness: BrokerHarness) -> None:
    """Whoever bans may tell a story; the client gets its beginning."""
    harness.broker.bans.add("client", "c", 0, "é" * 100_000, harness.now)
    client = harness.connect(Connect(5, "c"))
    assert refused_with(client) == 0x8A


def test_no_connack_is_larger_than_the_client_accepts(harness: BrokerHarness) -> None:
    """[MQTT-3.1.2-24] Not even one that refuses."""
    harness.broker.bans.add("client", "c", 0, "", harness.now)
    client = harness.raw()
    client.send(connect(properties=props((MAX_PACKET, 4))))
    assert refused_with(client) is None


def test_connack_has_its_own_reason_codes(make_harness: MakeHarness) -> None:
    """[MQTT-3.2.2-8] What may not come before CONNACK is a protocol error, whatever else is wrong with it."""
    harness = make_harness(gate=StepGate())
    client = harness.raw()
    client.send(connect(properties=props((AUTH_METHOD, b"two-step"))))
    client.received()
    client.send(hexa("82 06 0001 00 0000 00"))  # SUBSCRIBE with an empty filter
    assert refused_with(client) == 0x82


def test_no_limit_means_no_limit(make_harness: MakeHarness) -> None:
    """0 switches a limit off, also for a topic whose route is known already."""
    harness = make_harness(limits=Limits(topic_bytes_max=0, topic_levels_max=0, receive_max=0, packet_bytes_max=0))
    reader = harness.client("reader")
    reader.subscribe(b"#", qos=2)
    publisher = harness.client("p")
    for number in range(5):
        assert publisher.publish(b"a/b", b"%d" % number, qos=number % 3) == 0
    assert [message.payload for message in reader.consume()] == [b"0", b"1", b"2", b"3", b"4"]


def test_wrong_payloads_count_as_messages(make_harness: MakeHarness) -> None:
    """What is refused one by one is under the message rate, too."""
    harness = make_harness(limits=Limits(messages_per_s_max=10))
    client = harness.client("c")
    for number in range(10):
        client.send(publish(b"a", b"\xff", qos=1, pid=number + 1, properties=props((PAYLOAD_FORMAT, 1))))
    assert [packet.reason for packet in client.received() if isinstance(packet, Ack)] == [0x99] * 10
    assert harness.broker.stats.publishes_in_qos1 == 10
    client.send(publish(b"a", b"\xff", qos=1, pid=11, properties=props((PAYLOAD_FORMAT, 1))))
    assert closed_with(client) == 0x96


def test_topics_remembered_are_bounded_in_bytes(make_harness: MakeHarness) -> None:
    """Neither routes nor verdicts are kept for names of tens of kilobytes, or with a hundred levels."""
    harness = make_harness(gate=TopicGate())
    if harness.feeding == "bytes":
        pytest.skip("single bytes prove nothing more")
    client = harness.client("c")
    for number in range(20):
        for topic in (b"%d" % number + b"x" * 60_000, b"/".join([b"%d" % number] * 100)):
            for _ in range(4):
                client.send(publish(topic))
    kept = harness.broker.subscriptions.plans
    assert sum(len(topic) for topic in kept) < 10_000
    assert max((topic.count(b"/") for topic in kept), default=0) < 20
    assert sum(len(topic) for topic in client.connection.verdicts or {}) < 10_000


def test_subscriptions_that_overlap_a_thousand_times(harness: BrokerHarness) -> None:
    """Each copy names its subscriptions, but a message of one byte does not become one of kilobytes."""
    client = harness.client("c")
    for mask in range(1 << 9):
        levels = [b"+" if mask >> bit & 1 else b"a" for bit in range(9)]
        identifier = props((SUBSCRIPTION_ID, 268_435_455 - mask))
        client.send(subscribe(mask + 1, (b"/".join(levels), 0), properties=identifier))
    client.received()
    client.send(publish(b"/".join([b"a"] * 9), b"x"))
    (message,) = client.messages()
    assert message.properties is not None
    assert len(message.properties.subscription_identifiers) == 128


def test_pieces_of_a_large_packet_are_not_kept_one_by_one(make_harness: MakeHarness) -> None:
    """Two bytes that come alone don't cost the fifty of an object of their own."""
    harness = make_harness()
    client = harness.client("c")
    data = publish(b"a", b"x" * 50_000)
    for at in range(0, 20_000, 2):
        harness.broker.receive(client.connection, data[at : at + 2], harness.now)
    assert isinstance(client.connection.chunks, bytearray)
    harness.broker.receive(client.connection, data[20_000:], harness.now)
    client.ping()
    assert client.connection.messages_in == 1


def test_deep_and_long_filters_count_as_several(make_harness: MakeHarness) -> None:
    """Their memory is what the limit is about. Unsubscribing gives all of it back."""
    harness = make_harness(limits=Limits(subscriptions_max=20))
    client = harness.client("c")
    deep = b"/".join([b"a"] * 100)
    assert [client.subscribe(deep + b"/%d" % number) for number in range(4)] == [0, 0, 0x97, 0x97]
    assert client.subscribe(b"b") == 0
    assert [client.unsubscribe(deep + b"/%d" % number) for number in range(3)] == [0, 0, 0x11]
    assert client.subscribe(b"x" * 5_000) == 0
    assert [client.subscribe(b"%d" % number) for number in range(15)] == [0] * 14 + [0x97]
    assert client.subscribe(b"b") == 0, "it is there already"


def test_deep_retained_topics_count_for_what_they_take(make_harness: MakeHarness) -> None:
    """Two topics that share a hundred levels need a hundred branches of the tree."""
    harness = make_harness(BrokerSettings(retained_bytes_max=50_000))
    client = harness.client("c")
    deep = b"/".join([b"a"] * 100)
    codes = [client.publish(deep + b"/%d" % number, b"x", qos=1, retain=True) for number in range(4)]
    assert codes == [0x10, 0x10, 0x97, 0x97]
    assert harness.broker.retained.usage.bytes <= 50_000


def test_small_messages_that_wait_are_put_together(make_harness: MakeHarness) -> None:
    """What waits for a reader is bounded in bytes: a million objects around them would be many times as much."""
    harness = make_harness(BrokerSettings(congestion_grace_ms=0))
    reader = harness.client("reader", version=4)
    reader.subscribe(b"#")
    picky = harness.client("picky", properties=make_properties(maximum_packet_size=1_000))
    picky.subscribe(b"#")
    publisher = harness.client("p", version=4)
    for one in (reader, picky):
        one.block()
    count = 6_000 if harness.feeding != "bytes" else 1_500
    publisher.send(b"".join(publish3(b"%d" % (number % 7), b"%d" % number) for number in range(count)))
    for one in (reader, picky):
        assert len(one.connection.out) < 1_200
        one.unblock()
        assert [int(payload) for payload in one.payloads()] == list(range(count))
