"""MQTT 3.1.1, sections 3.8 to 3.14 and 4.7: subscriptions, pings, DISCONNECT, topics, and what closes a connection."""

from __future__ import annotations

import pytest

from conformance.checks import closed_silently
from conformance.clauses import clause
from conformance.conftest import MakeHarness
from conformance.gates import TopicGate
from conformance.wire import (
    PINGREQ,
    PINGRESP,
    ack,
    field,
    hexa,
    packet,
    publish3,
    subscribe3,
    u16,
    unsubscribe3,
)
from flockmq.testing.harness import BrokerHarness, HarnessClient


def client3(harness: BrokerHarness, name: str = "c") -> HarnessClient:
    """A 3.1.1 client with a clean session."""
    return harness.client(name, version=4)


@clause("3.1.1", "MQTT-3.8.4-1", "MQTT-3.8.4-2", "MQTT-2.3.1-7", "MQTT-3.8.4-5")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt311_3_8_4_1_suback(harness: BrokerHarness, qos: int) -> None:
    """SUBACK with the packet identifier and the granted QoS."""
    client = client3(harness)
    client.send(subscribe3(0xABCD, (b"a/b", qos)))
    assert client.received_bytes() == hexa("90 03 abcd") + bytes([qos])


@clause("3.1.1", "MQTT-3.8.4-4", "MQTT-3.8.4-5", "MQTT-3.9.3-1", "MQTT-3.8.3-2")
def test_mqtt311_3_8_4_4_many_filters(harness: BrokerHarness) -> None:
    """Many filters, wildcards among them, are answered in one SUBACK in their order."""
    client = client3(harness)
    client.send(subscribe3(7, (b"a", 2), (b"b/#", 0), (b"+/c", 1)))
    assert client.received_bytes() == hexa("90 05 0007 02 00 01")
    publisher = client3(harness, "p")
    for topic in (b"a", b"b", b"x/c"):
        publisher.publish(topic, b"", qos=2)
    assert [(message.topic, message.qos) for message in client.consume()] == [(b"a", 2), (b"b", 0), (b"x/c", 1)]


@clause("3.1.1", "MQTT-3.9.3-2", "MQTT-3.8.4-5")
def test_mqtt311_3_9_3_2_refused(make_harness: MakeHarness) -> None:
    """A filter that is not allowed gets 0x80, the only failure there is."""
    harness = make_harness(gate=TopicGate())
    client = client3(harness)
    client.send(subscribe3(3, (b"forbidden/a", 1), (b"fine", 1)))
    assert client.received_bytes() == hexa("90 04 0003 80 01")


@clause("3.1.1", "MQTT-3.8.4-3")
def test_mqtt311_3_8_4_3_same_filter_replaces(harness: BrokerHarness) -> None:
    """The same filter again replaces: new QoS, one copy, retained messages once more, nothing lost."""
    client = client3(harness)
    publisher = client3(harness, "p")
    client.subscribe(b"a", qos=2)
    publisher.publish(b"a", b"kept", qos=2, retain=True)
    publisher.publish(b"a", b"1", qos=2)
    client.subscribe(b"a", qos=1)
    publisher.publish(b"a", b"2", qos=2)
    got = client.consume()
    assert [(message.payload, message.qos, message.retain) for message in got] == [
        (b"kept", 2, False), (b"1", 2, False), (b"kept", 1, True), (b"2", 1, False),
    ]  # fmt: skip


@clause("3.1.1", "MQTT-3.10.4-4", "MQTT-3.10.4-5", "MQTT-3.10.4-6", "MQTT-2.3.1-7")
def test_mqtt311_3_10_4_4_unsuback(harness: BrokerHarness) -> None:
    """One UNSUBACK of four bytes with the packet identifier, whether or not anything was deleted."""
    client = client3(harness)
    client.subscribe(b"a")
    client.subscribe(b"b/#")
    client.send(unsubscribe3(0x0102, b"a", b"nope", b"b/#"))
    assert client.received_bytes() == hexa("b0 02 0102")
    client.send(unsubscribe3(0x0103, b"nope"))
    assert client.received_bytes() == hexa("b0 02 0103")
    assert not harness.broker.sessions["c"].subscriptions


@clause("3.1.1", "MQTT-3.10.4-1", "MQTT-3.10.4-2")
def test_mqtt311_3_10_4_1_compared_by_character(harness: BrokerHarness) -> None:
    """Only the equal filter is deleted; then nothing more is added."""
    client = client3(harness)
    client.subscribe(b"a/b", qos=1)
    publisher = client3(harness, "p")
    for other in (b"a/+", b"#", b"A/b", b"a/b/"):
        client.unsubscribe(other)
    publisher.publish(b"a/b", b"1", qos=1)
    assert [message.payload for message in client.consume()] == [b"1"]
    client.unsubscribe(b"a/b")
    publisher.publish(b"a/b", b"2", qos=1)
    assert client.messages() == []


@clause("3.1.1", "MQTT-3.10.4-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt311_3_10_4_3_deliveries_are_completed(harness: BrokerHarness, qos: int) -> None:
    """What was sent before UNSUBSCRIBE is completed, also after a reconnect."""
    client = harness.client("c", version=4, clean_start=False)
    client.subscribe(b"a", qos=qos)
    client3(harness, "p").publish(b"a", b"x", qos=qos)
    assert len(client.messages()) == 1
    client.unsubscribe(b"a")
    client.drop()
    again = harness.client("c", version=4, clean_start=False)
    (message,) = again.messages()
    assert message.dup
    again.acknowledge(message)
    again.ping()


@clause("3.1.1", "MQTT-3.12.4-1")
def test_mqtt311_3_12_4_1_ping(harness: BrokerHarness) -> None:
    """PINGREQ is answered by PINGRESP."""
    client = client3(harness)
    client.send(PINGREQ + PINGREQ)
    assert client.received_bytes() == PINGRESP + PINGRESP


VIOLATIONS = {
    "packet type 0": hexa("00 00"),
    "packet type 15": hexa("f0 00"),
    "CONNACK": hexa("20 02 00 00"),
    "SUBACK": hexa("90 03 0001 00"),
    "UNSUBACK": hexa("b0 02 0001"),
    "PINGRESP": hexa("d0 00"),
    "PUBACK flags [2.2.2-2]": hexa("41 02 0001"),
    "PUBREC flags [2.2.2-2]": hexa("51 02 0001"),
    "PUBREL flags 0000 [3.6.1-1]": hexa("60 02 0001"),
    "PUBREL flags 0011 [3.6.1-1]": hexa("63 02 0001"),
    "PUBCOMP flags [2.2.2-2]": hexa("74 02 0001"),
    "SUBSCRIBE flags 0000 [3.8.1-1]": subscribe3(1, (b"a", 0), first=0x80),
    "SUBSCRIBE flags 0011 [3.8.1-1]": subscribe3(1, (b"a", 0), first=0x83),
    "UNSUBSCRIBE flags 0000 [3.10.1-1]": unsubscribe3(1, b"a", first=0xA0),
    "UNSUBSCRIBE flags 1010 [3.10.1-1]": unsubscribe3(1, b"a", first=0xAA),
    "PINGREQ flags [2.2.2-2]": hexa("c1 00"),
    "DISCONNECT flags [3.14.1-1]": hexa("e8 00"),
    "SUBSCRIBE without filter [3.8.3-3]": packet(0x82, u16(1)),
    "SUBSCRIBE, no QoS byte": packet(0x82, u16(1) + field(b"a")),
    "SUBSCRIBE, QoS 3 [3.8.3-4]": subscribe3(1, (b"a", 3)),
    "SUBSCRIBE, reserved bits [3.8.3-4]": subscribe3(1, (b"a", 4)),
    "SUBSCRIBE, reserved high bits [3.8.3-4]": subscribe3(1, (b"a", 0x81)),
    "SUBSCRIBE, packet identifier 0 [2.3.1-1]": subscribe3(0, (b"a", 0)),
    "SUBSCRIBE, filter not UTF-8 [3.8.3-1]": subscribe3(1, (b"\xff", 0)),
    "SUBSCRIBE, filter with U+0000 [4.7.3-2]": subscribe3(1, (b"a\0", 0)),
    "SUBSCRIBE, empty filter [4.7.3-1]": subscribe3(1, (b"", 0)),
    "UNSUBSCRIBE without filter [3.10.3-2]": packet(0xA2, u16(1)),
    "UNSUBSCRIBE, packet identifier 0 [2.3.1-1]": unsubscribe3(0, b"a"),
    "UNSUBSCRIBE, filter not UTF-8 [3.10.3-1]": unsubscribe3(1, b"\xed\xa0\x80"),
    "UNSUBSCRIBE, empty filter [4.7.3-1]": unsubscribe3(1, b""),
    "PUBLISH QoS 1, packet identifier 0 [2.3.1-1]": publish3(b"a", qos=1, pid=0),
    "PUBLISH QoS 2, packet identifier 0 [2.3.1-1]": publish3(b"a", qos=2, pid=0),
    "PUBLISH, no topic": hexa("30 00"),
    "PUBLISH, topic cut off": hexa("30 04 0005 6161"),
    "PUBLISH QoS 1, no identifier": hexa("32 03 0001 61"),
    "PUBACK too short": hexa("40 01 00"),
    "PUBACK too long": hexa("40 03 0001 00"),
    "PUBACK, packet identifier 0": hexa("40 02 0000"),
    "PINGREQ with a body": hexa("c0 01 00"),
    "DISCONNECT with a body": hexa("e0 01 00"),
    "remaining length of five bytes": hexa("30 80 80 80 80 01"),
}


@clause(
    "3.1.1",
    "MQTT-4.8.0-1", "MQTT-2.2.2-1", "MQTT-2.2.2-2", "MQTT-2.3.1-1", "MQTT-3.6.1-1", "MQTT-3.8.1-1", "MQTT-3.8.3-1",
    "MQTT-3.8.3-3", "MQTT-3.8.3-4", "MQTT-3.10.1-1", "MQTT-3.10.3-1", "MQTT-3.10.3-2", "MQTT-3.14.1-1",
    "MQTT-4.7.3-1", "MQTT-4.7.3-2", "MQTT-1.5.3-1", "MQTT-1.5.3-2",
)  # fmt: skip
@pytest.mark.parametrize("data", VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_mqtt311_4_8_0_1_violations(harness: BrokerHarness, data: bytes) -> None:
    """Every violation closes the connection, without a packet, and nobody else's."""
    other = client3(harness, "other")
    client = client3(harness)
    client.send(data)
    closed_silently(client)
    other.ping()


@clause("3.1.1", "MQTT-4.7.1-2", "MQTT-4.7.1-3")
@pytest.mark.parametrize("topic_filter", [b"a/#/b", b"a#", b"#a", b"+a", b"a/b+", b"a/+b"])
def test_mqtt311_4_7_1_2_wildcards_in_the_wrong_place(harness: BrokerHarness, topic_filter: bytes) -> None:
    """A filter with misplaced wildcards is refused: by close, or by 0x80."""
    client = client3(harness)
    client.send(subscribe3(1, (topic_filter, 0)))
    out = client.received_bytes()
    assert (client.closed and out == b"") or out == hexa("90 03 0001 80")
    assert not any(session.subscriptions for session in harness.broker.sessions.values())


MATCHES = [
    (b"sport/tennis/player1/#", [b"sport/tennis/player1", b"sport/tennis/player1/score"], [b"sport/tennis"]),
    (b"sport/#", [b"sport", b"sport/a"], [b"sports"]),
    (b"sport/tennis/+", [b"sport/tennis/a"], [b"sport/tennis", b"sport/tennis/a/b"]),
    (b"+/+", [b"/finance"], [b"finance"]),
    (b"/+", [b"/finance"], [b"a/b"]),
    (b"+", [b"finance"], [b"/finance", b"$a"]),
    (b"#", [b"a", b"/a"], [b"$a/b"]),
    (b"+/monitor/#", [b"a/monitor"], [b"$a/monitor"]),
    (b"$a/#", [b"$a/b", b"$a"], [b"a/b"]),
]


@clause("3.1.1", "MQTT-4.7.1-1", "MQTT-4.7.1-2", "MQTT-4.7.1-3", "MQTT-4.7.2-1", "MQTT-3.3.2-3")
@pytest.mark.parametrize(("topic_filter", "matching", "other"), MATCHES, ids=[row[0].decode() for row in MATCHES])
def test_mqtt311_4_7_2_1_matching(
    harness: BrokerHarness, topic_filter: bytes, matching: list[bytes], other: list[bytes]
) -> None:
    """Each filter gets exactly the names it should; leading wildcards get nothing that begins with $."""
    client = client3(harness)
    client.subscribe(topic_filter)
    publisher = client3(harness, "p")
    for topic in matching + other:
        publisher.publish(topic, b"x")
    assert client.topics() == matching


@clause("3.1.1", "MQTT-4.7.3-3")
def test_mqtt311_4_7_3_3_longest_topic(harness: BrokerHarness) -> None:
    """65,535 bytes of topic are allowed."""
    if harness.feeding == "bytes":
        pytest.skip("65,535 single bytes prove nothing more")
    client = client3(harness)
    client.subscribe(b"x" * 65_535)
    client.publish(b"x" * 65_535, b"y")
    assert client.payloads() == [b"y"]


@clause("3.1.1", "MQTT-4.7.3-4", "MQTT-1.5.3-3", "MQTT-1.5.3-1")
@pytest.mark.parametrize("text", ["\ufeffa", "é", "e\u0301", "😀", "\ud7ff", "\ue000", "\U0010ffff"])
def test_mqtt311_1_5_3_3_strings_are_kept(harness: BrokerHarness, text: str) -> None:
    """Strings go through byte for byte: byte order marks stay, nothing is normalised."""
    client = harness.client(text, version=4)
    topic = text.encode()
    client.subscribe(topic)
    client.subscribe(b"a")
    client.send(publish3(topic, b"x"))
    assert client.received_bytes() == publish3(topic, b"x")
    assert text in harness.broker.sessions


def test_padded_remaining_length(harness: BrokerHarness) -> None:
    """3.1.1 does not forbid a longer form of the remaining length, and small clients use it."""
    client = client3(harness)
    client.subscribe(b"a")
    client.send(hexa("30 84 80 00 0001 61 78") + hexa("c0 80 00"))
    packets = client.received_bytes()
    assert packets == hexa("30 04 0001 61 78") + PINGRESP, "and what is forwarded is in the short form"


def test_acknowledgements_of_nothing(harness: BrokerHarness) -> None:
    """Acknowledgements of unknown identifiers harm nobody; PUBREC and PUBREL are answered."""
    client = client3(harness)
    client.send(ack(0x40, 9) + ack(0x70, 9) + ack(0x50, 9) + ack(0x62, 9))
    assert client.received_bytes() == ack(0x62, 9) + ack(0x70, 9)


# --- one clause, one test ---


def shut(harness: BrokerHarness, data: bytes) -> None:
    """These bytes close the connection without a packet."""
    client = client3(harness)
    client.send(data)
    closed_silently(client)


@clause("3.1.1", "MQTT-1.5.3-1")
@pytest.mark.parametrize("text", [b"\xed\xa0\x80", b"\xc0\xaf", b"\xff", b"\xe2\x82", b"\xf4\x90\x80\x80"])
def test_mqtt311_1_5_3_1_ill_formed_strings(harness: BrokerHarness, text: bytes) -> None:
    """Ill-formed UTF-8 in a topic or filter closes."""
    shut(harness, publish3(text, b"x"))
    shut(harness, subscribe3(1, (text, 0)))
    shut(harness, unsubscribe3(1, text))


@clause("3.1.1", "MQTT-1.5.3-2")
def test_mqtt311_1_5_3_2_null_character(harness: BrokerHarness) -> None:
    """U+0000 in a string closes."""
    shut(harness, publish3(b"a\0", b"x"))
    shut(harness, subscribe3(1, (b"\0a", 0)))


@clause("3.1.1", "MQTT-2.2.2-1", "MQTT-2.2.2-2")
@pytest.mark.parametrize("first", [0x41, 0x52, 0x74, 0x60, 0x80, 0xA0, 0xC8, 0xE1])
def test_mqtt311_2_2_2_2_invalid_flags(harness: BrokerHarness, first: int) -> None:
    """Flags other than those of the table close."""
    body = {0x80: u16(1) + field(b"a") + b"\0", 0xA0: u16(1) + field(b"a"), 0xC0: b"", 0xE0: b""}
    shut(harness, packet(first, body.get(first & 0xF0, u16(1))))


@clause("3.1.1", "MQTT-2.2.2-1")
def test_mqtt311_2_2_2_1_flags_of_the_server(harness: BrokerHarness) -> None:
    """The server's own packets have the flags of the table: PUBREL 0010, all others but PUBLISH 0."""
    client = client3(harness)
    client.send(subscribe3(1, (b"a", 2)) + publish3(b"a", qos=2, pid=1) + ack(0x62, 1) + ack(0x50, 1))
    client.send(publish3(b"b", qos=1, pid=2) + unsubscribe3(3, b"a") + PINGREQ)
    names = [type(one).__name__ for one in client.received()]
    assert names == ["Suback", "Publish", "Ack", "Ack", "Ack", "Ack", "Unsuback", "Pingresp"]


@clause("3.1.1", "MQTT-2.3.1-1")
def test_mqtt311_2_3_1_1_identifier_0(harness: BrokerHarness) -> None:
    """Packet identifier 0 closes."""
    shut(harness, subscribe3(0, (b"a", 0)))
    shut(harness, unsubscribe3(0, b"a"))
    shut(harness, publish3(b"a", qos=1, pid=0))
    shut(harness, publish3(b"a", qos=2, pid=0))


@clause("3.1.1", "MQTT-2.3.1-7")
@pytest.mark.parametrize("pid", [1, 255, 256, 65_535])
def test_mqtt311_2_3_1_7_answers_repeat_the_identifier(harness: BrokerHarness, pid: int) -> None:
    """SUBACK and UNSUBACK have the identifier of their request."""
    client = client3(harness)
    client.send(subscribe3(pid, (b"a", 1)) + unsubscribe3(pid, b"a"))
    assert client.received_bytes() == packet(0x90, u16(pid) + b"\x01") + packet(0xB0, u16(pid))


@clause("3.1.1", "MQTT-3.6.1-1")
@pytest.mark.parametrize("first", [0x60, 0x61, 0x63, 0x66, 0x6A])
def test_mqtt311_3_6_1_1_pubrel_flags(harness: BrokerHarness, first: int) -> None:
    """The flags of PUBREL are 0010."""
    shut(harness, ack(first, 1))


@clause("3.1.1", "MQTT-3.8.1-1")
@pytest.mark.parametrize("first", [0x80, 0x81, 0x83, 0x86, 0x8A])
def test_mqtt311_3_8_1_1_subscribe_flags(harness: BrokerHarness, first: int) -> None:
    """The flags of SUBSCRIBE are 0010."""
    shut(harness, subscribe3(1, (b"a", 0), first=first))


@clause("3.1.1", "MQTT-3.8.3-1")
def test_mqtt311_3_8_3_1_filter_is_utf8(harness: BrokerHarness) -> None:
    """Every filter of a SUBSCRIBE is a valid string, not only the first."""
    shut(harness, subscribe3(1, (b"fine", 0), (b"\xff", 0)))


@clause("3.1.1", "MQTT-3.8.3-2")
def test_mqtt311_3_8_3_2_wildcards_are_supported(harness: BrokerHarness) -> None:
    """Filters with wildcards are granted."""
    client = client3(harness)
    assert [client.subscribe(one, qos=1) for one in (b"#", b"+", b"a/+/#")] == [1, 1, 1]


@clause("3.1.1", "MQTT-3.8.3-3")
def test_mqtt311_3_8_3_3_subscribe_without_filter(harness: BrokerHarness) -> None:
    """SUBSCRIBE has at least one filter."""
    shut(harness, packet(0x82, u16(1)))


@clause("3.1.1", "MQTT-3.8.3-4")
@pytest.mark.parametrize("qos", [3, 4, 8, 0x10, 0x40, 0x81])
def test_mqtt311_3_8_3_4_requested_qos(harness: BrokerHarness, qos: int) -> None:
    """Anything but 0, 1 and 2 is malformed."""
    shut(harness, subscribe3(1, (b"a", qos)))


@clause("3.1.1", "MQTT-3.8.4-2")
def test_mqtt311_3_8_4_2_suback_identifiers(harness: BrokerHarness) -> None:
    """Several SUBSCRIBEs under way are told apart by their identifiers."""
    client = client3(harness)
    client.send(b"".join(subscribe3(pid, (b"a", 0)) for pid in (9, 3, 7)))
    assert client.received_bytes() == b"".join(packet(0x90, u16(pid) + b"\0") for pid in (9, 3, 7))


@clause("3.1.1", "MQTT-3.8.4-5")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt311_3_8_4_5_granted_qos(harness: BrokerHarness, qos: int) -> None:
    """What a return code grants is what is delivered."""
    client = client3(harness)
    assert client.subscribe(b"a", qos=qos) == qos
    client3(harness, "p").publish(b"a", b"x", qos=2)
    assert [message.qos for message in client.consume()] == [qos]


@clause("3.1.1", "MQTT-3.9.3-1")
def test_mqtt311_3_9_3_1_order_of_codes(make_harness: MakeHarness) -> None:
    """The return codes stand in the order of the filters, failures among them."""
    client = client3(make_harness(gate=TopicGate()))
    client.send(subscribe3(1, (b"forbidden", 0), (b"a", 2), (b"forbidden/b", 2), (b"b", 1), (b"c", 0)))
    assert client.received_bytes() == hexa("90 07 0001 80 02 80 01 00")


@clause("3.1.1", "MQTT-3.10.1-1")
@pytest.mark.parametrize("first", [0xA0, 0xA1, 0xA3, 0xA6, 0xAA])
def test_mqtt311_3_10_1_1_unsubscribe_flags(harness: BrokerHarness, first: int) -> None:
    """The flags of UNSUBSCRIBE are 0010."""
    shut(harness, unsubscribe3(1, b"a", first=first))


@clause("3.1.1", "MQTT-3.10.3-1")
def test_mqtt311_3_10_3_1_unsubscribe_filter_is_utf8(harness: BrokerHarness) -> None:
    """Every filter of an UNSUBSCRIBE is a valid string, one behind the other."""
    shut(harness, unsubscribe3(1, b"fine", b"\xff"))
    shut(harness, packet(0xA2, u16(1) + field(b"a") + b"\0"))


@clause("3.1.1", "MQTT-3.10.3-2")
def test_mqtt311_3_10_3_2_unsubscribe_without_filter(harness: BrokerHarness) -> None:
    """UNSUBSCRIBE has at least one filter."""
    shut(harness, packet(0xA2, u16(1)))


@clause("3.1.1", "MQTT-3.10.4-2")
def test_mqtt311_3_10_4_2_no_new_messages(harness: BrokerHarness) -> None:
    """After UNSUBSCRIBE nothing more is added, also not by a publish in the same read."""
    client = client3(harness)
    client.subscribe(b"a", qos=1)
    client.send(publish3(b"a", b"1") + unsubscribe3(9, b"a") + publish3(b"a", b"2"))
    assert client.received_bytes() == publish3(b"a", b"1") + hexa("b0 02 0009")


@clause("3.1.1", "MQTT-3.10.4-5")
def test_mqtt311_3_10_4_5_nothing_to_delete(harness: BrokerHarness) -> None:
    """UNSUBACK also when there was no such subscription."""
    client = client3(harness)
    client.send(unsubscribe3(9, b"never"))
    assert client.received_bytes() == hexa("b0 02 0009")


@clause("3.1.1", "MQTT-3.10.4-6")
def test_mqtt311_3_10_4_6_many_filters(harness: BrokerHarness) -> None:
    """Many filters in one UNSUBSCRIBE are all deleted, one UNSUBACK says so."""
    client = client3(harness)
    for topic_filter in (b"a", b"b/+", b"c/#"):
        client.subscribe(topic_filter)
    client.send(unsubscribe3(9, b"a", b"b/+", b"c/#"))
    assert client.received_bytes() == hexa("b0 02 0009")
    assert not harness.broker.sessions["c"].subscriptions


@clause("3.1.1", "MQTT-3.14.1-1")
@pytest.mark.parametrize("first", [0xE1, 0xE2, 0xE4, 0xE8])
def test_mqtt311_3_14_1_1_disconnect_flags(harness: BrokerHarness, first: int) -> None:
    """The flags of DISCONNECT are 0."""
    shut(harness, bytes((first, 0)))


@clause("3.1.1", "MQTT-4.7.1-1")
@pytest.mark.parametrize("topic", [b"+", b"#", b"a/+/b", b"a/#"])
def test_mqtt311_4_7_1_1_wildcards_in_topic_names(harness: BrokerHarness, topic: bytes) -> None:
    """What is a fine filter is no topic name."""
    client = client3(harness)
    assert client.subscribe(topic) == 0
    client.send(publish3(topic, b"x"))
    closed_silently(client)


@clause("3.1.1", "MQTT-4.7.1-3")
def test_mqtt311_4_7_1_3_single_level_wildcard(harness: BrokerHarness) -> None:
    """+ stands for exactly one level, at any place, an empty one included."""
    client = client3(harness)
    publisher = client3(harness, "p")
    for topic_filter, expected in (
        (b"+/b/c", [b"a/b/c", b"/b/c"]),
        (b"a/+/c", [b"a/b/c"]),
        (b"a/b/+", [b"a/b/c", b"a/b/"]),
    ):
        client.subscribe(topic_filter)
        for topic in (b"a/b/c", b"/b/c", b"a/b/", b"a/b", b"a/b/c/d"):
            publisher.publish(topic, b"x")
        assert client.topics() == expected
        client.unsubscribe(topic_filter)


@clause("3.1.1", "MQTT-4.7.3-1")
def test_mqtt311_4_7_3_1_one_character(harness: BrokerHarness) -> None:
    """Empty names and filters close; one character is enough."""
    shut(harness, publish3(b"", b"x"))
    shut(harness, subscribe3(1, (b"", 0)))
    client = client3(harness)
    assert client.subscribe(b"/") == 0
    client.publish(b"/", b"x")
    assert client.topics() == [b"/"]


@clause("3.1.1", "MQTT-4.7.3-2")
def test_mqtt311_4_7_3_2_null_character(harness: BrokerHarness) -> None:
    """U+0000 is in no topic name and no filter."""
    shut(harness, publish3(b"a/\0/b", b"x"))
    shut(harness, subscribe3(1, (b"a/\0/b", 0)))


@clause("3.1.1", "MQTT-4.7.3-4")
def test_mqtt311_4_7_3_4_no_normalisation(harness: BrokerHarness) -> None:
    """Composed and decomposed letters are different topics."""
    client = client3(harness)
    client.subscribe("é".encode())
    client.publish("e\u0301".encode(), b"x")
    assert client.messages() == []
    client.publish("é".encode(), b"x")
    assert len(client.messages()) == 1
