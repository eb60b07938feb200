"""MQTT 5, section 4.9 and the limits both sides announce: receive maximum, packet size, topic aliases."""

from __future__ import annotations

import pytest

from conformance.checks import closed_with
from conformance.clauses import clause
from conformance.conftest import MakeHarness
from conformance.wire import MAX_PACKET, TOPIC_ALIAS, ack, connect, hexa, props, publish
from flockmq.mqtt.packets import PUBREC, Disconnect, Publish
from flockmq.node.settings import Limits
from flockmq.testing.harness import BrokerHarness, make_properties

# --- receive maximum of the client ---


@clause("5.0", "MQTT-3.3.4-9", "MQTT-4.9.0-1", "MQTT-4.9.0-2")
@pytest.mark.parametrize("receive_max", [1, 2, 7, 65_535])
@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt5_3_3_4_9_receive_maximum(harness: BrokerHarness, receive_max: int, qos: int) -> None:
    """Never more unacknowledged than the client allows; each acknowledgement lets the next one go."""
    client = harness.client("s", properties=make_properties(receive_maximum=receive_max))
    client.subscribe(b"a", qos=qos)
    publisher = harness.client("p")
    publisher.send(b"".join(publish(b"a", b"%d" % number, qos=qos, pid=number + 1) for number in range(20)))
    waiting = client.messages()
    assert len(waiting) == min(receive_max, 20)
    got = list(waiting)
    while waiting:
        client.acknowledge(waiting.pop(0))
        fresh = client.messages()
        waiting += fresh
        got += fresh
        assert len(waiting) <= receive_max
    assert [int(message.payload) for message in got] == list(range(20))


@clause("5.0", "MQTT-4.9.0-2", "MQTT-3.3.4-9")
def test_mqtt5_4_9_0_2_qos_2_frees_the_window_at_pubcomp(harness: BrokerHarness) -> None:
    """PUBREC alone does not open the window; PUBCOMP does."""
    client = harness.client("s", properties=make_properties(receive_maximum=1))
    client.subscribe(b"a", qos=2)
    publisher = harness.client("p")
    publisher.publish(b"a", b"1", qos=2)
    publisher.publish(b"a", b"2", qos=2)
    (message,) = client.messages()
    client.send(ack(0x50, message.packet_id))
    assert client.received_bytes() == ack(0x62, message.packet_id)
    client.send(ack(0x70, message.packet_id))
    assert client.payloads() == [b"2"]


@clause("5.0", "MQTT-4.9.0-2")
def test_mqtt5_4_9_0_2_a_repeated_acknowledgement_frees_once(harness: BrokerHarness) -> None:
    """Acknowledging the same message twice does not widen the window."""
    client = harness.client("s", properties=make_properties(receive_maximum=2))
    client.subscribe(b"a", qos=2)
    publisher = harness.client("p")
    for number in range(8):
        publisher.publish(b"a", b"%d" % number, qos=1 + number % 2)
    first, second = client.messages()
    assert (first.qos, second.qos) == (1, 2)
    client.send(ack(0x40, first.packet_id) * 5)
    assert len(client.messages()) == 1
    client.send(ack(0x50, second.packet_id) * 3 + ack(0x70, second.packet_id) * 3)
    assert len(client.messages()) == 1


@clause("5.0", "MQTT-4.9.0-3", "MQTT-3.3.4-10")
def test_mqtt5_4_9_0_3_other_packets_pass_a_full_window(harness: BrokerHarness) -> None:
    """With the window full everything else goes on: QoS 0, answers, pings, the client's own publishing."""
    client = harness.client("s", properties=make_properties(receive_maximum=1))
    client.subscribe(b"#", qos=1)
    publisher = harness.client("p")
    publisher.publish(b"a", b"1", qos=1)
    publisher.publish(b"a", b"2", qos=1)
    assert client.payloads() == [b"1"]
    publisher.publish(b"a", b"qos 0")
    assert client.payloads() == [b"qos 0"]
    client.ping()
    assert client.subscribe(b"b", qos=2) == 2
    assert client.unsubscribe(b"b") == 0
    assert client.publish(b"c", b"x", qos=2) == 0


@clause("5.0", "MQTT-3.3.4-9", "MQTT-4.9.0-1")
def test_mqtt5_3_3_4_9_smaller_window_on_resume(harness: BrokerHarness) -> None:
    """The window belongs to the connection: a client that comes back with less is not sent more than that."""
    client = harness.client("s", session_expiry_s=60)
    client.subscribe(b"a", qos=1)
    publisher = harness.client("p")
    for number in range(10):
        publisher.publish(b"a", b"%d" % number, qos=1)
    assert len(client.messages()) == 10
    client.drop()
    again = harness.client("s", clean_start=False, session_expiry_s=60, properties=make_properties(receive_maximum=3))
    waiting = again.messages()
    assert [message.payload for message in waiting] == [b"0", b"1", b"2"]
    got = list(waiting)
    while waiting:
        again.acknowledge(waiting.pop(0))
        fresh = again.messages()
        waiting += fresh
        got += fresh
        assert len(waiting) <= 3
    assert [int(message.payload) for message in got] == list(range(10))
    assert all(message.dup for message in got), "all of them were sent before"


@clause("5.0", "MQTT-3.3.4-9")
def test_mqtt5_3_3_4_9_listener_may_allow_less(make_harness: MakeHarness) -> None:
    """The broker's own bound on messages in flight holds also for clients that would take more."""
    harness = make_harness(limits=Limits(inflight_max=4))
    client = harness.client("s")
    client.subscribe(b"a", qos=1)
    publisher = harness.client("p")
    for number in range(10):
        publisher.publish(b"a", b"%d" % number, qos=1)
    assert len(client.messages()) == 4


# --- receive maximum of the server ---


@clause("5.0", "MQTT-3.3.4-7")
def test_mqtt5_3_3_4_7_server_receive_maximum(make_harness: MakeHarness) -> None:
    """As many unreleased QoS 2 messages as announced are taken; one more is answered with 0x93."""
    harness = make_harness(limits=Limits(receive_max=3))
    client = harness.client("c")
    assert client.connack.properties.receive_maximum == 3
    for pid in (1, 2, 3):
        client.send(publish(b"a", b"x", qos=2, pid=pid))
        client.expect_ack(PUBREC, pid)
    client.send(publish(b"a", b"x", qos=2, pid=3, dup=1))
    client.expect_ack(PUBREC, 3)
    client.send(publish(b"a", b"x", qos=2, pid=4))
    assert closed_with(client) == 0x93


@clause("5.0", "MQTT-3.3.4-7")
def test_mqtt5_3_3_4_7_in_one_read(make_harness: MakeHarness) -> None:
    """The same when all come at once."""
    harness = make_harness(limits=Limits(receive_max=3))
    client = harness.client("c")
    client.send(b"".join(publish(b"a", b"x", qos=2, pid=pid) for pid in (1, 2, 3, 4)))
    assert client.closed
    assert client.received_bytes().rpartition(b"\xe0")[2][1] == 0x93


@clause("5.0", "MQTT-3.3.4-7")
def test_mqtt5_3_3_4_7_released_ids_make_room(make_harness: MakeHarness) -> None:
    """PUBREL makes room; QoS 1 is acknowledged at once and never fills the window."""
    harness = make_harness(limits=Limits(receive_max=2))
    client = harness.client("c")
    for _ in range(5):
        client.send(publish(b"a", b"x", qos=2, pid=1) + publish(b"a", b"x", qos=2, pid=2))
        client.send(b"".join(publish(b"a", b"x", qos=1, pid=pid) for pid in range(10, 20)))
        client.send(ack(0x62, 1) + ack(0x62, 2))
    client.received()
    client.ping()


# --- maximum packet size of the client ---


@clause("5.0", "MQTT-3.1.2-24", "MQTT-3.1.2-25")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt5_3_1_2_25_too_large_for_the_client(harness: BrokerHarness, qos: int) -> None:
    """A message that does not fit is dropped as if delivered; the ones around it arrive, the window stays open."""
    client = harness.client(
        "s", session_expiry_s=60, properties=make_properties(maximum_packet_size=64, receive_maximum=1)
    )
    client.subscribe(b"a", qos=qos)
    publisher = harness.client("p")
    for payload in (b"1", b"x" * 100, b"2", b"y" * 60, b"3"):
        assert publisher.publish(b"a", payload, qos=qos) == 0
    assert [message.payload for message in client.consume()] == [b"1", b"2", b"3"]
    client.drop()
    again = harness.client("s", clean_start=False)
    assert again.messages() == []


@clause("5.0", "MQTT-3.1.2-24")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt5_3_1_2_24_exactly_fitting(harness: BrokerHarness, qos: int) -> None:
    """The limit counts the whole packet, header included: what fits exactly is sent, one byte more is not."""
    client = harness.client("s", properties=make_properties(maximum_packet_size=50))
    client.subscribe(b"a", qos=qos)
    fits = 50 - 2 - 3 - 1 - (2 if qos else 0)
    publisher = harness.client("p")
    publisher.publish(b"a", b"x" * (fits + 1), qos=qos)
    publisher.publish(b"a", b"y" * fits, qos=qos)
    assert [message.payload[:1] for message in client.consume()] == [b"y"]


@clause("5.0", "MQTT-3.1.2-24")
def test_mqtt5_3_1_2_24_others_get_it(harness: BrokerHarness) -> None:
    """A client's limit is its own; identifiers, expiry and the rest of the packet count as well."""
    small = harness.client("small", properties=make_properties(maximum_packet_size=30))
    small.subscribe(b"a", qos=1, identifier=1_000_000)
    large = harness.client("large")
    large.subscribe(b"a", qos=1)
    properties = make_properties(message_expiry_s=100, user=[("key", "value")])
    harness.client("p").publish(b"a", b"0123456789", qos=1, properties=properties)
    assert small.consume() == []
    assert len(large.consume()) == 1


@clause("5.0", "MQTT-3.1.2-24", "MQTT-3.1.2-25")
def test_mqtt5_3_1_2_24_smaller_limit_on_resume(harness: BrokerHarness) -> None:
    """What was in flight and no longer fits after a reconnect is dropped as if delivered."""
    client = harness.client("s", session_expiry_s=60)
    client.subscribe(b"a", qos=2)
    publisher = harness.client("p")
    for payload in (b"x" * 200, b"small", b"y" * 200):
        publisher.publish(b"a", payload, qos=2)
    assert len(client.messages()) == 3
    client.drop()
    small = make_properties(maximum_packet_size=100, receive_maximum=1)
    again = harness.client("s", clean_start=False, session_expiry_s=60, properties=small)
    assert [message.payload for message in again.consume()] == [b"small"]
    publisher.publish(b"a", b"next", qos=2)
    assert [message.payload for message in again.consume()] == [b"next"]


@clause("5.0", "MQTT-3.1.2-24", "MQTT-3.1.2-25")
def test_mqtt5_3_1_2_24_retained_too_large(harness: BrokerHarness) -> None:
    """Retained messages obey the same limit."""
    publisher = harness.client("p")
    publisher.publish(b"a", b"x" * 200, retain=True)
    publisher.publish(b"b", b"small", retain=True)
    client = harness.client("s", properties=make_properties(maximum_packet_size=100))
    client.subscribe(b"#")
    assert client.payloads() == [b"small"]


@clause("5.0", "MQTT-3.1.2-24")
def test_mqtt5_3_1_2_24_connack(harness: BrokerHarness) -> None:
    """Not even the CONNACK may be larger than the client takes."""
    client = harness.raw()
    client.send(connect(b"c", properties=props((MAX_PACKET, 8))))
    out = client.received_bytes()
    assert len(out) <= 8, out.hex(" ")


@clause("5.0", "MQTT-3.14.2-3", "MQTT-3.14.2-4", "MQTT-3.1.2-24")
def test_mqtt5_3_14_2_3_disconnect_fits(harness: BrokerHarness) -> None:
    """DISCONNECT leaves its reason string out rather than being too large."""
    client = harness.client("c", properties=make_properties(maximum_packet_size=32))
    client.send(hexa("82 03 0001 00"))
    out = client.received_bytes()
    assert out[0] == 0xE0
    assert len(out) <= 32
    assert client.closed


# --- maximum packet size of the server ---


@clause("5.0", "MQTT-3.2.2-15")
@pytest.mark.parametrize("qos", [0, 1])
def test_mqtt5_3_2_2_15_too_large_for_the_server(make_harness: MakeHarness, qos: int) -> None:
    """A larger packet than announced is answered with 0x95; one of exactly that size is taken."""
    harness = make_harness(limits=Limits(packet_bytes_max=200))
    client = harness.client("c")
    assert client.connack.properties.maximum_packet_size == 200
    head = len(publish(b"a", b"", qos=qos, pid=1)) + 1
    client.send(publish(b"a", b"x" * (200 - head), qos=qos, pid=1))
    client.received()
    client.ping()
    client.send(publish(b"a", b"x" * (200 - head + 1), qos=qos, pid=1))
    assert closed_with(client) == 0x95


@clause("5.0", "MQTT-3.2.2-15")
def test_mqtt5_3_2_2_15_announced_length_is_enough(make_harness: MakeHarness) -> None:
    """The header alone decides: nothing is held for a length that was only announced."""
    harness = make_harness(limits=Limits(packet_bytes_max=100_000))
    client = harness.client("c")
    client.send(hexa("30 ff ff ff 7f"))
    assert closed_with(client) == 0x95
    raw = harness.raw()
    raw.send(hexa("10 ff ff ff 7f"))
    raw.send(hexa("00 04 4d 51 54 54 05 02 00"))  # now it is known how to say so
    assert raw.closed


def test_large_packet_in_pieces(make_harness: MakeHarness) -> None:
    """A packet near the limit arrives whole, however it is cut."""
    harness = make_harness(limits=Limits(packet_bytes_max=60_000))
    client = harness.client("s")
    client.subscribe(b"a", qos=1)
    payload = bytes(number % 251 for number in range(50_000))
    harness.client("p").publish(b"a", payload, qos=1)
    assert [message.payload for message in client.consume()] == [payload]


# --- topic aliases towards clients ---


@clause("5.0", "MQTT-3.1.2-27")
@pytest.mark.parametrize("alias_max", [None, 0])
def test_mqtt5_3_1_2_27_no_aliases_wanted(harness: BrokerHarness, alias_max: int | None) -> None:
    """Without a Topic Alias Maximum the client gets topic names only."""
    client = harness.client("s", properties=make_properties(topic_alias_maximum=alias_max))
    client.subscribe(b"#", qos=1)
    publisher = harness.client("p")
    for _ in range(3):
        publisher.publish(b"a/long/topic/name", b"x", qos=1)
    for packet in client.received():
        assert isinstance(packet, Publish)
        assert packet.topic == b"a/long/topic/name"
        assert packet.properties is None


@clause("5.0", "MQTT-3.1.2-26", "MQTT-3.3.2-11")
@pytest.mark.parametrize("alias_max", [1, 3, 65_535])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt5_3_1_2_26_aliases_within_the_maximum(harness: BrokerHarness, alias_max: int, qos: int) -> None:
    """Aliases stay between 1 and the maximum, the first use names the topic, and every message is complete."""
    client = harness.client("s", properties=make_properties(topic_alias_maximum=alias_max))
    client.subscribe(b"#", qos=qos)
    publisher = harness.client("p")
    sent = []
    for number in range(30):
        topic = b"topic/%d" % (number % 5)
        publisher.publish(topic, b"%d" % number, qos=qos)
        sent.append((topic, b"%d" % number))
    known: dict[int, bytes] = {}
    got: list[tuple[bytes, bytes]] = []
    while packets := [packet for packet in client.received() if isinstance(packet, Publish)]:
        for packet in packets:
            alias = packet.properties.topic_alias if packet.properties is not None else None
            topic = packet.topic
            if alias is not None:
                assert 1 <= alias <= alias_max
                if topic:
                    known[alias] = topic
                topic = known[alias]
            assert topic
            got.append((topic, packet.payload))
            client.acknowledge(packet)
    assert got == sent
    assert known, "aliases are of use here and should be used"


@clause("5.0", "MQTT-3.3.2-7")
def test_mqtt5_3_3_2_7_aliases_to_the_client_end_with_the_connection(harness: BrokerHarness) -> None:
    """On the next connection the topic is named again, for repetitions as well."""
    options = {"topic_alias_maximum": 5}
    client = harness.client("s", session_expiry_s=60, properties=make_properties(**options))
    client.subscribe(b"a", qos=1)
    publisher = harness.client("p")
    publisher.publish(b"a", b"1", qos=1)
    publisher.publish(b"a", b"2", qos=1)
    assert client.topics() == [b"a", b"a"]
    client.drop()
    again = harness.client("s", clean_start=False, session_expiry_s=60, properties=make_properties(**options))
    publisher.publish(b"a", b"3", qos=1)
    assert [(message.topic, message.payload) for message in again.messages()] == [
        (b"a", b"1"), (b"a", b"2"), (b"a", b"3"),
    ]  # fmt: skip


@clause("5.0", "MQTT-3.1.2-26", "MQTT-3.1.2-25")
@pytest.mark.parametrize("qos", [0, 1])
def test_mqtt5_3_1_2_26_alias_of_a_dropped_packet(harness: BrokerHarness, qos: int) -> None:
    """A packet that was too large to send has not set an alias: the next one names the topic."""
    client = harness.client("s", properties=make_properties(topic_alias_maximum=5, maximum_packet_size=60))
    client.subscribe(b"a", qos=qos)
    publisher = harness.client("p")
    for size in (52, 100, 50, 10, 53, 51, 10):
        publisher.publish(b"a", b"x" * size, qos=qos)
    got = client.consume()
    assert all(message.topic == b"a" for message in got)
    assert sum(1 for message in got if len(message.payload) == 10) == 2


@clause("5.0", "MQTT-3.2.2-18", "MQTT-3.2.2-17")
def test_mqtt5_3_2_2_18_server_without_aliases(make_harness: MakeHarness) -> None:
    """A listener that takes no aliases does not announce them and answers one with 0x94."""
    harness = make_harness(limits=Limits(topic_aliases_max=0))
    client = harness.client("c")
    assert client.connack.properties.topic_alias_maximum in {None, 0}
    client.send(publish(b"a", b"x", properties=props((TOPIC_ALIAS, 1))))
    assert closed_with(client) == 0x94


# --- one clause, one test ---


@clause("5.0", "MQTT-3.3.4-10")
def test_mqtt5_3_3_4_10_answers_pass_a_full_window(harness: BrokerHarness) -> None:
    """PUBACK, PUBREC, PUBREL, SUBACK and PINGRESP do not wait for the window."""
    client = harness.client("s", properties=make_properties(receive_maximum=1))
    client.subscribe(b"a", qos=2)
    publisher = harness.client("p")
    publisher.publish(b"a", b"1", qos=2)
    publisher.publish(b"a", b"2", qos=2)
    (message,) = client.messages()
    client.send(ack(0x50, message.packet_id))
    assert client.received_bytes() == ack(0x62, message.packet_id)
    client.send(publish(b"b", qos=1, pid=1) + publish(b"b", qos=2, pid=2) + hexa("c0 00"))
    assert client.received_bytes() == hexa("40 03 0001 10 50 03 0002 10 d0 00")


@clause("5.0", "MQTT-4.9.0-1")
@pytest.mark.parametrize("receive_max", [1, 5])
def test_mqtt5_4_9_0_1_quota_at_the_start(harness: BrokerHarness, receive_max: int) -> None:
    """The quota begins above zero and within the Receive Maximum: something is sent, and not too much."""
    client = harness.client("s", properties=make_properties(receive_maximum=receive_max))
    client.subscribe(b"a", qos=1)
    publisher = harness.client("p")
    for _ in range(10):
        publisher.publish(b"a", b"x", qos=1)
    assert 1 <= len(client.messages()) <= receive_max


@clause("5.0", "MQTT-3.2.2-17")
@pytest.mark.parametrize("allowed", [1, 10])
def test_mqtt5_3_2_2_17_alias_above_what_was_told(make_harness: MakeHarness, allowed: int) -> None:
    """What the CONNACK allows is taken, one more is answered with 0x94."""
    harness = make_harness(limits=Limits(topic_aliases_max=allowed))
    client = harness.client("c")
    assert client.connack.properties.topic_alias_maximum == allowed
    client.send(publish(b"a", b"x", properties=props((TOPIC_ALIAS, allowed))))
    client.ping()
    client.send(publish(b"a", b"x", properties=props((TOPIC_ALIAS, allowed + 1))))
    assert closed_with(client) == 0x94


@clause("5.0", "MQTT-3.3.2-11")
def test_mqtt5_3_3_2_11_alias_to_the_client(harness: BrokerHarness) -> None:
    """A client that takes one alias sees no other, however many topics there are."""
    client = harness.client("s", properties=make_properties(topic_alias_maximum=1))
    client.subscribe(b"#")
    publisher = harness.client("p")
    for number in range(10):
        publisher.publish(b"t/%d" % (number % 3), b"x")
    seen = {one.properties.topic_alias for one in client.received() if isinstance(one, Publish) and one.properties}
    assert seen <= {1, None}


@clause("5.0", "MQTT-3.14.2-4")
def test_mqtt5_3_14_2_4_disconnect_without_user_properties(harness: BrokerHarness) -> None:
    """DISCONNECT has no user properties, so they can't make it too large."""
    client = harness.client("c")
    client.send(hexa("00 00"))
    farewell = client.expect(Disconnect)
    assert farewell.properties is None or farewell.properties.user == []
