"""MQTT 5, what is malformed and what breaks the protocol: each answered by its reason code and a closed connection."""

from __future__ import annotations

import pytest

from conformance.checks import closed_with, refused_with
from conformance.clauses import clause
from conformance.wire import (
    CONTENT_TYPE,
    DISCONNECT,
    MESSAGE_EXPIRY,
    PAYLOAD_FORMAT,
    REASON_STRING,
    RECEIVE_MAX,
    RESPONSE_TOPIC,
    SESSION_EXPIRY,
    SUBSCRIPTION_ID,
    TOPIC_ALIAS,
    USER_PROPERTY,
    ack,
    block,
    connect,
    field,
    hexa,
    packet,
    prop,
    props,
    publish,
    subscribe,
    u16,
    unsubscribe,
)
from flockmq.mqtt.packets import Disconnect
from flockmq.testing.harness import BrokerHarness

MALFORMED = 0x81
PROTOCOL = 0x82


FLAGS = {
    "PUBACK": hexa("41 02 0001"),
    "PUBREC": hexa("51 02 0001"),
    "PUBREL 0000": hexa("60 02 0001"),
    "PUBREL 0011": hexa("63 02 0001"),
    "PUBCOMP": hexa("71 02 0001"),
    "SUBSCRIBE 0000": subscribe(1, (b"a", 0), first=0x80),
    "SUBSCRIBE 1010": subscribe(1, (b"a", 0), first=0x8A),
    "UNSUBSCRIBE 0000": unsubscribe(1, b"a", first=0xA0),
    "UNSUBSCRIBE 0110": unsubscribe(1, b"a", first=0xA6),
    "PINGREQ": hexa("c1 00"),
    "DISCONNECT": hexa("e1 00"),
    "AUTH": hexa("f1 00"),
}


@clause("5.0", "MQTT-2.1.3-1", "MQTT-3.6.1-1", "MQTT-3.8.1-1", "MQTT-3.10.1-1", "MQTT-3.14.1-1", "MQTT-3.15.1-1")
@pytest.mark.parametrize("data", FLAGS.values(), ids=FLAGS.keys())
def test_mqtt5_2_1_3_1_reserved_header_flags(harness: BrokerHarness, data: bytes) -> None:
    """Any other value of the reserved flags is malformed."""
    client = harness.client("c")
    client.send(data)
    assert closed_with(client) == MALFORMED


MALFORMED_PACKETS = {
    "packet type 0": hexa("00 00"),
    "remaining length of five bytes": hexa("30 ff ff ff ff 7f"),
    "PINGREQ with a body": hexa("c0 01 00"),
    "PUBLISH without topic": hexa("30 00"),
    "PUBLISH, half a topic length": hexa("30 01 00"),
    "PUBLISH, topic longer than the packet": hexa("30 05 0009 616263"),
    "PUBLISH, packet identifier cut off": hexa("32 04 0001 61 00"),
    "PUBLISH, property longer than its block": packet(0x30, field(b"a") + b"\x01" + prop(PAYLOAD_FORMAT, 1)),
    "PUBLISH, block longer than the packet": packet(0x30, field(b"a") + b"\x7f" + prop(PAYLOAD_FORMAT, 1)),
    "PUBLISH, block length of five bytes": packet(0x30, field(b"a") + hexa("80 80 80 80 00")),
    "PUBLISH, unknown property": publish(b"a", properties=block(hexa("7e 00"))),
    "PUBLISH, property identifier 0": publish(b"a", properties=block(hexa("00 00"))),
    "PUBLISH, property of another packet": publish(b"a", properties=props((SESSION_EXPIRY, 1))),
    "PUBLISH, four byte property cut off": publish(b"a", properties=block(hexa("02 00 00"))),
    "PUBLISH, user property without its value": publish(b"a", properties=block(b"\x26" + field(b"k"))),
    "PUBACK without identifier": hexa("40 00"),
    "PUBACK, identifier cut off": hexa("40 01 00"),
    "PUBREL without identifier": hexa("62 00"),
    "PUBACK, property of another packet": ack(0x40, 1, b"\0" + props((MESSAGE_EXPIRY, 1))),
    "PUBACK, bytes after the properties": ack(0x40, 1, hexa("00 00 00")),
    "SUBSCRIBE, filter longer than the packet": hexa("82 06 0001 00 0009 61"),
    "SUBSCRIBE, filter without options": packet(0x82, u16(1) + b"\0" + field(b"a")),
    "SUBSCRIBE, property of another packet": subscribe(1, (b"a", 0), properties=props((TOPIC_ALIAS, 1))),
    "UNSUBSCRIBE, filter longer than the packet": hexa("a2 06 0001 00 0009 61"),
    "UNSUBSCRIBE, property of another packet": unsubscribe(1, b"a", properties=props((SUBSCRIPTION_ID, 1))),
    "DISCONNECT, property of another packet": packet(0xE0, b"\0" + props((MESSAGE_EXPIRY, 1))),
    "DISCONNECT, bytes after the properties": packet(0xE0, hexa("00 00 00")),
}


@clause("5.0", "MQTT-4.13.1-1", "MQTT-4.13.2-1", "MQTT-3.14.4-1", "MQTT-3.14.4-2")
@pytest.mark.parametrize("data", MALFORMED_PACKETS.values(), ids=MALFORMED_PACKETS.keys())
def test_mqtt5_4_13_1_1_malformed_packet(harness: BrokerHarness, data: bytes) -> None:
    """What can't be read ends the connection with 0x81, and nobody else's."""
    other = harness.client("other")
    client = harness.client("c")
    client.send(data)
    assert closed_with(client) == MALFORMED
    other.ping()


PROTOCOL_ERRORS = {
    "CONNACK": hexa("20 03 00 00 00"),
    "SUBACK": hexa("90 04 0001 00 00"),
    "UNSUBACK": hexa("b0 04 0001 00 00"),
    "PINGRESP": hexa("d0 00"),
    "PUBLISH, neither topic nor alias": publish(b""),
    "PUBLISH, alias nobody set": publish(b"", properties=props((TOPIC_ALIAS, 3))),
    "PUBLISH, payload format twice": publish(b"a", properties=props((PAYLOAD_FORMAT, 1), (PAYLOAD_FORMAT, 1))),
    "PUBLISH, expiry twice": publish(b"a", properties=props((MESSAGE_EXPIRY, 1), (MESSAGE_EXPIRY, 1))),
    "PUBLISH, alias twice": publish(b"a", properties=props((TOPIC_ALIAS, 1), (TOPIC_ALIAS, 1))),
    "PUBLISH, response topic twice": publish(b"a", properties=props((RESPONSE_TOPIC, b"r"), (RESPONSE_TOPIC, b"r"))),
    "PUBLISH, content type twice": publish(b"a", properties=props((CONTENT_TYPE, b"t"), (CONTENT_TYPE, b"t"))),
    "PUBACK, reason string twice": ack(0x40, 1, b"\0" + props((REASON_STRING, b"x"), (REASON_STRING, b"x"))),
    "SUBSCRIBE without filter": subscribe(1),
    "SUBSCRIBE, QoS 3": subscribe(1, (b"a", 3)),
    "SUBSCRIBE, retain handling 3": subscribe(1, (b"a", 0x30)),
    "SUBSCRIBE, subscription identifier 0": subscribe(1, (b"a", 0), properties=props((SUBSCRIPTION_ID, 0))),
    "SUBSCRIBE, subscription identifier twice": subscribe(
        1, (b"a", 0), properties=props((SUBSCRIPTION_ID, 1), (SUBSCRIPTION_ID, 2))
    ),
    "UNSUBSCRIBE without filter": unsubscribe(1),
    "AUTH without a method": hexa("f0 00"),
    "DISCONNECT, expiry for a session that had none": packet(0xE0, b"\0" + props((SESSION_EXPIRY, 60))),
    "DISCONNECT, expiry twice": packet(0xE0, b"\0" + props((SESSION_EXPIRY, 0), (SESSION_EXPIRY, 0))),
}


@clause("5.0", "MQTT-4.13.1-1", "MQTT-4.13.2-1", "MQTT-3.8.3-2", "MQTT-3.10.3-2", "MQTT-4.12.0-7")
@pytest.mark.parametrize("data", PROTOCOL_ERRORS.values(), ids=PROTOCOL_ERRORS.keys())
def test_mqtt5_4_13_1_1_protocol_error(harness: BrokerHarness, data: bytes) -> None:
    """What can be read but is not allowed ends the connection with 0x82."""
    client = harness.client("c")
    client.send(data)
    assert closed_with(client) == PROTOCOL


EITHER = {
    "PUBLISH QoS 1, packet identifier 0": publish(b"a", qos=1, pid=0),
    "PUBLISH QoS 2, packet identifier 0": publish(b"a", qos=2, pid=0),
    "SUBSCRIBE, packet identifier 0": subscribe(0, (b"a", 0)),
    "UNSUBSCRIBE, packet identifier 0": unsubscribe(0, b"a"),
    "PUBACK, packet identifier 0": ack(0x40, 0),
    "PUBREC, packet identifier 0": ack(0x50, 0),
    "PUBREL, packet identifier 0": ack(0x62, 0),
    "PUBCOMP, packet identifier 0": ack(0x70, 0),
    "PUBLISH QoS 0 with DUP": publish(b"a", dup=1),
    "PUBLISH, payload format 2": publish(b"a", properties=props((PAYLOAD_FORMAT, 2))),
    "PUBACK, reason code of another packet": ack(0x40, 1, b"\x8e\0"),
    "PUBREC, reason code of another packet": ack(0x50, 1, b"\x92\0"),
    "PUBREL, reason code of another packet": ack(0x62, 1, b"\x87\0"),
    "PUBCOMP, reason code of another packet": ack(0x70, 1, b"\x01\0"),
    "DISCONNECT, reason code of another packet": packet(0xE0, b"\x01"),
    "DISCONNECT, reason code of a server": packet(0xE0, b"\x8e"),
    "AUTH, unknown reason code": packet(0xF0, b"\x20\0"),
}


@clause("5.0", "MQTT-2.2.1-3", "MQTT-4.13.1-1", "MQTT-3.3.1-2")
@pytest.mark.parametrize("data", EITHER.values(), ids=EITHER.keys())
def test_mqtt5_2_2_1_3_wrong_value(harness: BrokerHarness, data: bytes) -> None:
    """A value that is not allowed ends the connection; the specification leaves open which of the two codes says so."""
    client = harness.client("c")
    client.send(data)
    assert closed_with(client) in {MALFORMED, PROTOCOL}


@clause("5.0", "MQTT-3.3.1-4")
def test_mqtt5_3_3_1_4_qos_3(harness: BrokerHarness) -> None:
    """QoS 3 is malformed."""
    client = harness.client("c")
    client.send(publish(b"a", qos=3, pid=1))
    assert closed_with(client) == MALFORMED


@clause("5.0", "MQTT-3.3.4-6")
def test_mqtt5_3_3_4_6_subscription_identifier_from_client(harness: BrokerHarness) -> None:
    """A client's PUBLISH must not carry a subscription identifier."""
    client = harness.client("c")
    client.send(publish(b"a", properties=props((SUBSCRIPTION_ID, 1))))
    assert closed_with(client) == PROTOCOL


@clause("5.0", "MQTT-3.8.3-5")
@pytest.mark.parametrize("options", [0x40, 0x80, 0xC1])
def test_mqtt5_3_8_3_5_reserved_option_bits(harness: BrokerHarness, options: int) -> None:
    """The two high bits of the subscription options are 0."""
    client = harness.client("c")
    client.send(subscribe(1, (b"a", options)))
    assert closed_with(client) == MALFORMED


OVERLONG = {
    "remaining length of PINGREQ": hexa("c0 80 00"),
    "remaining length of PUBLISH": hexa("30 84 00 0001 61 00"),
    "remaining length of SUBSCRIBE": hexa("82 87 80 00 0001 00 0001 61 00"),
    "property length": packet(0x30, field(b"a") + hexa("80 00")),
    "property length before a property": packet(0x30, field(b"a") + hexa("82 00 01 01")),
    "subscription identifier": subscribe(1, (b"a", 0), properties=block(hexa("0b 81 00"))),
}


@clause("5.0", "MQTT-1.5.5-1")
@pytest.mark.parametrize("data", OVERLONG.values(), ids=OVERLONG.keys())
def test_mqtt5_1_5_5_1_overlong_integer(harness: BrokerHarness, data: bytes) -> None:
    """A variable byte integer that could be shorter is malformed."""
    client = harness.client("c")
    client.send(data)
    assert closed_with(client) == MALFORMED


@clause("5.0", "MQTT-2.2.2-1")
@pytest.mark.parametrize(
    "data",
    [packet(0x30, field(b"a")), packet(0x82, u16(1)), packet(0xA2, u16(1))],
    ids=["PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE"],
)
def test_mqtt5_2_2_2_1_property_length_missing(harness: BrokerHarness, data: bytes) -> None:
    """No properties are a property length of 0; leaving the length out is malformed."""
    client = harness.client("c")
    client.send(data)
    assert closed_with(client) in {MALFORMED, PROTOCOL}


@clause("5.0", "MQTT-2.2.2-1")
def test_mqtt5_2_2_2_1_server_writes_property_length(harness: BrokerHarness) -> None:
    """The server's own packets have a property length of zero where there are none."""
    client = harness.client("c")
    client.send(subscribe(7, (b"a", 0)))
    assert client.received_bytes() == hexa("90 04 0007 00 00")
    client.send(publish(b"a", b"x"))
    assert client.received_bytes() == hexa("30 05 0001 61 00 78")
    client.send(unsubscribe(8, b"a"))
    assert client.received_bytes() == hexa("b0 04 0008 00 00")


@clause("5.0", "MQTT-2.2.1-2")
def test_mqtt5_2_2_1_2_qos0_without_identifier(harness: BrokerHarness) -> None:
    """In a QoS 0 PUBLISH the topic is followed by the properties at once."""
    client = harness.client("c")
    client.subscribe(b"a", qos=2)
    client.send(hexa("30 06 0001 61 00 00 01"))
    assert client.received_bytes() == hexa("30 06 0001 61 00 00 01"), "00 01 is payload, not an identifier"


@clause("5.0", "MQTT-3.14.2-1", "MQTT-3.14.2-2")
def test_mqtt5_3_14_2_2_disconnect_of_the_server(harness: BrokerHarness) -> None:
    """The server's DISCONNECT has a code of its own table and no session expiry interval."""
    client = harness.client("c", session_expiry_s=60)
    client.send(hexa("00 00"))
    farewell = client.expect(Disconnect)
    client.expect_nothing()
    assert farewell.reason == MALFORMED
    assert farewell.properties is None or farewell.properties.session_expiry_s is None
    assert client.closed


@clause("5.0", "MQTT-3.14.4-1", "MQTT-4.13.1-1")
def test_mqtt5_3_14_4_1_nothing_after_an_error(harness: BrokerHarness) -> None:
    """What follows a broken packet in the same bytes is not processed."""
    watcher = harness.client("watcher")
    watcher.subscribe(b"#")
    client = harness.client("c")
    client.send(publish(b"before", b"1") + hexa("00 00") + publish(b"after", b"2"))
    assert closed_with(client) == MALFORMED
    assert watcher.topics() == [b"before"]


@clause("5.0", "MQTT-4.13.1-1")
def test_mqtt5_4_13_1_1_connect_properties(harness: BrokerHarness) -> None:
    """Properties of CONNECT are checked before there is a connection to speak of."""
    client = harness.raw()
    client.send(connect(properties=props((RECEIVE_MAX, 0))))
    assert refused_with(client) in {None, PROTOCOL}
    assert not harness.broker.sessions


@clause("5.0", "MQTT-4.13.1-1")
def test_mqtt5_4_13_1_1_user_property_may_repeat(harness: BrokerHarness) -> None:
    """User properties are the one property that may stand there again and again."""
    client = harness.client("c")
    client.send(publish(b"a", properties=props((USER_PROPERTY, (b"k", b"1")), (USER_PROPERTY, (b"k", b"1")))))
    client.ping()


def test_bytes_after_disconnect_are_ignored(harness: BrokerHarness) -> None:
    """A client that goes on after DISCONNECT is not heard."""
    watcher = harness.client("watcher")
    watcher.subscribe(b"#")
    client = harness.client("c")
    client.send(DISCONNECT + publish(b"late", b"x"))
    assert client.closed
    assert watcher.topics() == []


# --- one clause, one test ---


def end(harness: BrokerHarness, data: bytes) -> int:
    """The reason code with which these bytes end a connection."""
    client = harness.client("c")
    client.send(data)
    return closed_with(client)


@clause("5.0", "MQTT-3.3.1-2")
def test_mqtt5_3_3_1_2_dup_at_qos_0(harness: BrokerHarness) -> None:
    """DUP on QoS 0 can't be."""
    assert end(harness, publish(b"a", b"x", dup=1)) in {MALFORMED, PROTOCOL}


@clause("5.0", "MQTT-3.6.1-1")
@pytest.mark.parametrize("first", [0x60, 0x61, 0x63, 0x66, 0x6A])
def test_mqtt5_3_6_1_1_pubrel_flags(harness: BrokerHarness, first: int) -> None:
    """The flags of PUBREL are 0010."""
    assert end(harness, ack(first, 1)) == MALFORMED


@clause("5.0", "MQTT-3.8.1-1")
@pytest.mark.parametrize("first", [0x80, 0x81, 0x83, 0x86, 0x8A])
def test_mqtt5_3_8_1_1_subscribe_flags(harness: BrokerHarness, first: int) -> None:
    """The flags of SUBSCRIBE are 0010."""
    assert end(harness, subscribe(1, (b"a", 0), first=first)) == MALFORMED


@clause("5.0", "MQTT-3.8.3-2")
def test_mqtt5_3_8_3_2_subscribe_without_filter(harness: BrokerHarness) -> None:
    """SUBSCRIBE has at least one filter."""
    assert end(harness, subscribe(1)) == PROTOCOL


@clause("5.0", "MQTT-3.10.1-1")
@pytest.mark.parametrize("first", [0xA0, 0xA1, 0xA3, 0xA6, 0xAA])
def test_mqtt5_3_10_1_1_unsubscribe_flags(harness: BrokerHarness, first: int) -> None:
    """The flags of UNSUBSCRIBE are 0010."""
    assert end(harness, unsubscribe(1, b"a", first=first)) == MALFORMED


@clause("5.0", "MQTT-3.10.3-2")
def test_mqtt5_3_10_3_2_unsubscribe_without_filter(harness: BrokerHarness) -> None:
    """UNSUBSCRIBE has at least one filter."""
    assert end(harness, unsubscribe(1)) == PROTOCOL


@clause("5.0", "MQTT-3.14.4-2")
def test_mqtt5_3_14_4_2_closed_after_disconnect(harness: BrokerHarness) -> None:
    """After its DISCONNECT the server closes, and what the client still sends is not heard."""
    watcher = harness.client("w")
    watcher.subscribe(b"#")
    client = harness.client("c")
    client.send(hexa("00 00"))
    assert closed_with(client) == MALFORMED
    harness.broker.receive(client.connection, publish(b"a", b"late"), harness.now)
    harness.flush()
    assert watcher.messages() == []


@clause("5.0", "MQTT-4.13.2-1")
@pytest.mark.parametrize(("data", "code"), [(hexa("00 00"), 0x81), (hexa("d0 00"), 0x82), (publish(b"+"), 0x90)])
def test_mqtt5_4_13_2_1_code_and_close(harness: BrokerHarness, data: bytes, code: int) -> None:
    """A DISCONNECT of 0x80 and above comes with the end of the connection."""
    assert end(harness, data) == code
