"""MQTT 5, sections 3.1 and 3.2: CONNECT and CONNACK."""

from __future__ import annotations

import string

import pytest

from conformance.checks import closed_with, refused_with
from conformance.clauses import clause
from conformance.conftest import MakeHarness
from conformance.gates import PasswordGate
from conformance.wire import (
    AUTH_DATA,
    DISCONNECT,
    MAX_PACKET,
    MESSAGE_EXPIRY,
    PINGREQ,
    RECEIVE_MAX,
    REQUEST_PROBLEM,
    REQUEST_RESPONSE,
    SESSION_EXPIRY,
    TOPIC_ALIAS_MAX,
    USER_PROPERTY,
    WILL_DELAY,
    ack,
    block,
    connect,
    field,
    hexa,
    packet,
    props,
    publish,
    subscribe,
    unsubscribe,
)
from flockmq.mqtt.packets import Connack, Connect, Pingresp, Will
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.testing.harness import BrokerHarness, make_properties

NOT_CONNECT = {
    "CONNACK": hexa("20 03 00 00 00"),
    "PUBLISH": publish(b"a", b"x"),
    "PUBACK": ack(0x40, 1),
    "SUBSCRIBE": subscribe(1, (b"a", 0)),
    "UNSUBSCRIBE": unsubscribe(1, b"a"),
    "PINGREQ": PINGREQ,
    "DISCONNECT": DISCONNECT,
    "AUTH": hexa("f0 00"),
    "HTTP": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "TLS": hexa("16 03 01 02 00 01 00 01 fc 03 03"),
}


@clause("5.0", "MQTT-3.1.0-1", "MQTT-3.14.0-1", "MQTT-3.2.0-1")
@pytest.mark.parametrize("data", NOT_CONNECT.values(), ids=NOT_CONNECT.keys())
def test_mqtt5_3_1_0_1_first_packet_is_connect(harness: BrokerHarness, data: bytes) -> None:
    """Anything else is closed, and without a DISCONNECT, for there was no CONNACK yet."""
    client = harness.raw()
    client.send(data)
    assert client.closed
    assert client.received_bytes() == b""


@clause("5.0", "MQTT-3.1.0-2", "MQTT-3.2.0-2")
@pytest.mark.parametrize(
    "data", [connect(b"c"), connect(version=9), connect(name=b"X"), connect(b"", version=4, flags=0), connect(flags=3)]
)
def test_mqtt5_3_1_0_2_second_connect(harness: BrokerHarness, data: bytes) -> None:
    """A second CONNECT is a protocol error, whatever else is wrong with it; there is no second CONNACK."""
    client = harness.client("c")
    client.send(data)
    assert closed_with(client) == 0x82


@clause("5.0", "MQTT-3.1.2-1")
@pytest.mark.parametrize("name", [b"mqtt", b"MQTX", b"MQT", b"", b"MQTTT", b"MQIsdp"])
def test_mqtt5_3_1_2_1_protocol_name(harness: BrokerHarness, name: bytes) -> None:
    """Another protocol name is refused, with 0x84 or without a word."""
    client = harness.raw()
    client.send(connect(name=name))
    assert refused_with(client) in {None, 0x84, 0x01}
    assert not harness.broker.sessions


@clause("5.0", "MQTT-3.1.2-2")
@pytest.mark.parametrize("version", [0, 1, 2, 6, 127, 255])
def test_mqtt5_3_1_2_2_protocol_version(harness: BrokerHarness, version: int) -> None:
    """A version that does not exist is refused with 0x84 (0x01 in the words of 3.1.1)."""
    client = harness.raw()
    client.send(connect(version=version, properties=b"\0"))
    assert refused_with(client) in {0x84, 0x01}


MALFORMED_CONNECTS = {
    "reserved flag [3.1.2-3]": connect(flags=0x03),
    "will QoS without will [3.1.2-11]": connect(flags=0x0A),
    "will QoS 2 without will [3.1.2-11]": connect(flags=0x12),
    "will retain without will [3.1.2-13]": connect(flags=0x22),
    "will QoS 3 [3.1.2-12]": connect(flags=0x1E, rest=b"\0" + field(b"w") + field(b"x")),
    "will flag, nothing in the payload [3.1.2-9]": connect(flags=0x06),
    "will flag, no will payload [3.1.2-9]": connect(flags=0x06, rest=b"\0" + field(b"w")),
    "will flag, no will properties [3.1.2-9]": connect(flags=0x06, rest=field(b"w") + field(b"x")),
    "user name without flag [3.1.2-16]": connect(rest=field(b"u")),
    "user name flag, no user name [3.1.2-17]": connect(flags=0x82),
    "password without flag [3.1.2-18]": connect(flags=0x82, rest=field(b"u") + field(b"p")),
    "password flag, no password [3.1.2-19]": connect(flags=0xC2, rest=field(b"u")),
    "no client id [3.1.3-3]": packet(0x10, field(b"MQTT") + hexa("05 02 0000 00")),
    "client id cut off [3.1.3-3]": packet(0x10, field(b"MQTT") + hexa("05 02 0000 00 0005 61")),
    "client id not UTF-8 [3.1.3-4]": connect(b"\xc3\x28"),
    "client id with U+0000 [3.1.3-4]": connect(b"a\0b"),
    "will topic not UTF-8 [3.1.3-11]": connect(flags=0x06, rest=b"\0" + field(b"\xff") + field(b"x")),
    "user name not UTF-8 [3.1.3-12]": connect(flags=0x82, rest=field(b"\xed\xa0\x80")),
    "bytes after the last field": connect(rest=b"\0"),
    "ends in the protocol name": hexa("10 04 0004 4d51"),
    "ends before the flags": packet(0x10, field(b"MQTT") + b"\x05"),
    "ends in the keep alive": packet(0x10, field(b"MQTT") + hexa("05 02 00")),
    "ends before the properties": packet(0x10, field(b"MQTT") + hexa("05 02 0000")),
    "properties longer than the packet": packet(0x10, field(b"MQTT") + hexa("05 02 0000 7f 11")),
    "property of another packet": connect(properties=props((MESSAGE_EXPIRY, 1))),
    "will delay outside the will": connect(properties=props((WILL_DELAY, 1))),
    "unknown property": connect(properties=block(hexa("50 00"))),
    "session expiry in the will": connect(flags=0x06, rest=props((SESSION_EXPIRY, 1)) + field(b"w") + field(b"x")),
    "fixed header flags": connect(first=0x11),
}


@clause(
    "5.0",
    "MQTT-3.1.4-1", "MQTT-3.1.2-3", "MQTT-3.1.2-9", "MQTT-3.1.2-11", "MQTT-3.1.2-12", "MQTT-3.1.2-13",
    "MQTT-3.1.2-16", "MQTT-3.1.2-17", "MQTT-3.1.2-18", "MQTT-3.1.2-19",
    "MQTT-3.1.3-3", "MQTT-3.1.3-4", "MQTT-3.1.3-11", "MQTT-3.1.3-12", "MQTT-3.2.2-7",
)  # fmt: skip
@pytest.mark.parametrize("data", MALFORMED_CONNECTS.values(), ids=MALFORMED_CONNECTS.keys())
def test_mqtt5_3_1_4_1_malformed_connect(harness: BrokerHarness, data: bytes) -> None:
    """A CONNECT of the wrong form is refused with 0x81, or closed without a word."""
    client = harness.raw()
    client.send(data)
    assert refused_with(client) in {None, 0x81}
    assert not harness.broker.sessions


WRONG_CONNECTS = {
    "receive maximum 0": connect(properties=props((RECEIVE_MAX, 0))),
    "maximum packet size 0": connect(properties=props((MAX_PACKET, 0))),
    "request response information 2": connect(properties=props((REQUEST_RESPONSE, 2))),
    "request problem information 2": connect(properties=props((REQUEST_PROBLEM, 2))),
    "authentication data without a method": connect(properties=props((AUTH_DATA, b"x"))),
    "session expiry twice": connect(properties=props((SESSION_EXPIRY, 1), (SESSION_EXPIRY, 1))),
    "receive maximum twice": connect(properties=props((RECEIVE_MAX, 1), (RECEIVE_MAX, 1))),
    "topic alias maximum twice": connect(properties=props((TOPIC_ALIAS_MAX, 1), (TOPIC_ALIAS_MAX, 1))),
    "will delay twice": connect(flags=0x06, rest=props((WILL_DELAY, 1), (WILL_DELAY, 1)) + field(b"w") + field(b"x")),
}


@clause("5.0", "MQTT-3.1.4-1", "MQTT-4.13.1-1", "MQTT-3.2.2-8")
@pytest.mark.parametrize("data", WRONG_CONNECTS.values(), ids=WRONG_CONNECTS.keys())
def test_mqtt5_3_1_4_1_protocol_error_in_connect(harness: BrokerHarness, data: bytes) -> None:
    """A CONNECT with values that are not allowed is refused with 0x82, or closed without a word."""
    client = harness.raw()
    client.send(data)
    assert refused_with(client) in {None, 0x82}
    assert not harness.broker.sessions


@clause("5.0", "MQTT-3.1.2-3")
def test_mqtt5_3_1_2_3_reserved_connect_flag(harness: BrokerHarness) -> None:
    """Bit 0 of the connect flags must be 0; everything else about this CONNECT is right."""
    client = harness.raw()
    client.send(hexa("10 0e 0004 4d515454 05 03 0000 00 0001 63"))
    assert client.closed
    client = harness.raw()
    client.send(hexa("10 0e 0004 4d515454 05 02 0000 00 0001 63"))
    assert client.expect(Connack).reason == 0


@clause("5.0", "MQTT-3.1.3-1")
def test_mqtt5_3_1_3_1_payload_order(make_harness: MakeHarness) -> None:
    """Client id, will properties, topic and payload, user name, password: read in that order."""
    gate = PasswordGate({"user": b"secret"})
    harness = make_harness(gate=gate)
    watcher = harness.client("watcher", username="user", password=b"secret")
    watcher.subscribe(b"will/topic")
    client = harness.raw()
    rest = b"\0" + field(b"will/topic") + field(b"gone") + field(b"user") + field(b"secret")
    client.send(connect(b"me", flags=0xC6, rest=rest))
    assert client.expect(Connack).reason == 0
    assert "me" in harness.broker.sessions
    client.drop()
    assert watcher.payloads() == [b"gone"]


@clause("5.0", "MQTT-3.1.2-18", "MQTT-3.1.2-16")
def test_mqtt5_3_1_2_18_password_without_user_name(make_harness: MakeHarness) -> None:
    """MQTT 5 lets a client send a password alone, for example a token."""
    seen = PasswordGate({"": b"token"})
    harness = make_harness(gate=seen)
    client = harness.raw()
    client.send(connect(flags=0x42, rest=field(b"token")))
    assert client.expect(Connack).reason == 0


@clause("5.0", "MQTT-3.1.3-5")
@pytest.mark.parametrize("client_id", ["a", "0", "Z" * 23, string.digits + "abcdefghijklm", "A1b2C3"])
def test_mqtt5_3_1_3_5_usual_client_ids(harness: BrokerHarness, client_id: str) -> None:
    """1 to 23 letters and digits are always accepted."""
    client = harness.client(client_id)
    assert client_id in harness.broker.sessions
    assert client.connack.properties.assigned_client_id is None


@pytest.mark.parametrize("client_id", ["x" * 200, "käse/µ-1", "with blank", "{json}", "a" * 65_000])
def test_unusual_client_ids(harness: BrokerHarness, client_id: str) -> None:
    """Longer ids and other characters are accepted too, as most brokers do."""
    if harness.feeding == "bytes" and len(client_id) > 1000:
        pytest.skip("65,535 single bytes prove nothing that 200 do not")
    harness.client(client_id)
    assert client_id in harness.broker.sessions


@clause("5.0", "MQTT-3.1.3-6", "MQTT-3.1.3-7", "MQTT-3.2.2-16")
def test_mqtt5_3_1_3_6_assigned_client_id(harness: BrokerHarness) -> None:
    """An empty client id gets one that nobody has, is told it, and can come back with it."""
    first = harness.client("", session_expiry_s=60)
    second = harness.client("")
    names = {first.connack.properties.assigned_client_id, second.connack.properties.assigned_client_id}
    assert None not in names
    assert len(names) == 2
    assert set(harness.broker.sessions) == names
    first.drop()
    again = harness.client(first.client_id, clean_start=False)
    assert again.connack.session_present


@clause("5.0", "MQTT-3.1.3-6")
def test_mqtt5_3_1_3_6_empty_client_id_without_clean_start(harness: BrokerHarness) -> None:
    """MQTT 5 allows an empty id also with Clean Start 0: there is no session to resume yet."""
    client = harness.client("", clean_start=False)
    assert client.connack.properties.assigned_client_id
    assert not client.connack.session_present


@clause("5.0", "MQTT-3.1.3-8", "MQTT-3.2.2-7", "MQTT-3.1.4-2")
def test_mqtt5_3_1_3_8_client_id_refused(make_harness: MakeHarness) -> None:
    """Whoever refuses a client id says 0x85 and closes."""
    gate = PasswordGate({"user": b"secret"}, refuse=0x85)
    harness = make_harness(gate=gate)
    client = harness.raw()
    client.send(connect(b"bad"))
    assert refused_with(client) == 0x85


@clause("5.0", "MQTT-3.1.4-2", "MQTT-3.2.2-6", "MQTT-3.2.2-7", "MQTT-4.13.2-1")
@pytest.mark.parametrize("reason", [0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x97, 0x9C, 0x9D, 0x9F])
def test_mqtt5_3_1_4_2_gate_refuses(make_harness: MakeHarness, reason: int) -> None:
    """A refusal tells its reason code, Session Present 0, and closes; no session is made."""
    harness = make_harness(gate=PasswordGate({}, refuse=reason))
    client = harness.raw()
    client.send(connect(b"c", flags=0x00))
    assert refused_with(client) == reason
    assert not harness.broker.sessions


@clause("5.0", "MQTT-3.2.2-6", "MQTT-3.1.4-2")
def test_mqtt5_3_2_2_6_refusal_leaves_the_session(make_harness: MakeHarness) -> None:
    """A refused CONNECT neither resumes nor ends nor takes over the session of that client id."""
    harness = make_harness(gate=PasswordGate({"user": b"right"}))
    owner = harness.client("c", username="user", password=b"right", session_expiry_s=60)
    thief = harness.connect(Connect(5, "c", True, username="user", password=b"wrong"))
    assert refused_with(thief) in {0x86, 0x87}
    owner.ping()
    owner.drop()
    again = harness.client("c", clean_start=False, username="user", password=b"right")
    assert again.connack.session_present


@clause("5.0", "MQTT-3.1.4-6")
def test_mqtt5_3_1_4_6_data_after_refusal(make_harness: MakeHarness) -> None:
    """What a refused client sent behind its CONNECT is not processed."""
    harness = make_harness(gate=PasswordGate({"user": b"right"}))
    watcher = harness.client("watcher", username="user", password=b"right")
    watcher.subscribe(b"#")
    client = harness.raw()
    client.send(connect(b"c") + publish(b"a", b"x") + subscribe(1, (b"#", 0)))
    assert refused_with(client) in {0x86, 0x87}
    assert watcher.messages() == []


@clause("5.0", "MQTT-3.1.4-5", "MQTT-3.2.0-1", "MQTT-3.2.0-2")
def test_mqtt5_3_1_4_5_packets_behind_connect(harness: BrokerHarness) -> None:
    """A client need not wait for CONNACK: what follows is processed, and answered after it."""
    client = harness.raw()
    client.send(connect(b"c") + PINGREQ + subscribe(1, (b"a", 0)) + publish(b"a", b"x"))
    names = [type(one).__name__ for one in client.received()]
    assert names == ["Connack", "Pingresp", "Suback", "Publish"]


@clause("5.0", "MQTT-3.1.4-3")
def test_mqtt5_3_1_4_3_takeover(harness: BrokerHarness) -> None:
    """The older connection with the same client id gets DISCONNECT 0x8E and is closed; the newer one works."""
    old = harness.client("c")
    new = harness.client("c")
    assert closed_with(old) == 0x8E
    assert new.connack.reason == 0
    new.ping()
    assert len(harness.broker.sessions) == 1


@clause("5.0", "MQTT-3.1.4-3", "MQTT-3.1.2-5")
def test_mqtt5_3_1_4_3_takeover_keeps_the_session(harness: BrokerHarness) -> None:
    """With Clean Start 0 the newer connection goes on where the older one was."""
    old = harness.client("c", session_expiry_s=60)
    old.subscribe(b"a", qos=1)
    new = harness.client("c", clean_start=False, session_expiry_s=60)
    assert new.connack.session_present
    harness.client("p").publish(b"a", b"x")
    assert new.payloads() == [b"x"]


@clause("5.0", "MQTT-3.1.4-4", "MQTT-3.1.2-4", "MQTT-3.2.2-2")
def test_mqtt5_3_1_2_4_clean_start_discards(harness: BrokerHarness) -> None:
    """Clean Start 1: subscriptions, queue and unfinished QoS 2 of the old session are gone; Session Present is 0."""
    old = harness.client("c", session_expiry_s=60)
    old.subscribe(b"a", qos=1)
    old.send(publish(b"b", qos=2, pid=9))
    old.drop()
    harness.client("p").publish(b"a", b"queued", qos=1)
    new = harness.client("c", clean_start=True, session_expiry_s=60)
    assert not new.connack.session_present
    harness.client("p").publish(b"a", b"fresh", qos=1)
    assert new.messages() == []
    watcher = harness.client("w")
    watcher.subscribe(b"b")
    new.send(publish(b"b", b"new message", qos=2, pid=9))
    assert watcher.payloads() == [b"new message"]


@clause("5.0", "MQTT-3.1.2-5", "MQTT-3.2.2-3", "MQTT-3.1.3-2", "MQTT-3.1.2-23")
def test_mqtt5_3_1_2_5_session_resumed(harness: BrokerHarness) -> None:
    """Clean Start 0 with a session: Session Present 1, and its subscriptions and queue are there."""
    old = harness.client("c", session_expiry_s=60)
    old.subscribe(b"a", qos=1)
    old.drop()
    publisher = harness.client("p")
    assert publisher.publish(b"a", b"while away", qos=1) == 0
    other = harness.client("other", clean_start=False)
    assert not other.connack.session_present, "another client id is another session"
    new = harness.client("c", clean_start=False, session_expiry_s=60)
    assert new.connack.session_present
    assert new.connack.reason == 0
    assert [message.payload for message in new.consume()] == [b"while away"]


@clause("5.0", "MQTT-3.1.2-6", "MQTT-3.2.2-3")
def test_mqtt5_3_1_2_6_no_session_to_resume(harness: BrokerHarness) -> None:
    """Clean Start 0 without a session makes one and says Session Present 0."""
    client = harness.client("c", clean_start=False)
    assert not client.connack.session_present
    assert client.connack.reason == 0
    client.ping()


@clause("5.0", "MQTT-3.1.2-22")
def test_mqtt5_3_1_2_22_keep_alive(harness: BrokerHarness) -> None:
    """After one and a half keep alives of silence: DISCONNECT 0x8D, closed, will published."""
    watcher = harness.client("w")
    watcher.subscribe(b"will")
    client = harness.client("c", keep_alive_s=10, will=Will(b"will", b"silent"))
    harness.advance(14_800)
    assert not client.closed
    assert watcher.messages() == []
    harness.advance(700)
    assert closed_with(client) == 0x8D
    assert watcher.payloads() == [b"silent"]


@clause("5.0", "MQTT-3.1.2-22")
@pytest.mark.parametrize(
    "data",
    [PINGREQ, publish(b"a", b"x"), subscribe(1, (b"a", 0)), ack(0x40, 77)],
    ids=["PINGREQ", "PUBLISH", "SUBSCRIBE", "PUBACK"],
)
def test_mqtt5_3_1_2_22_any_packet_counts(harness: BrokerHarness, data: bytes) -> None:
    """Every packet keeps the connection alive, not only PINGREQ."""
    client = harness.client("c", keep_alive_s=10)
    for _ in range(4):
        harness.advance(10_000)
        client.send(data)
        assert not client.closed
    harness.advance(16_000)
    assert client.closed


@clause("5.0", "MQTT-3.1.2-22")
def test_mqtt5_3_1_2_22_keep_alive_zero(harness: BrokerHarness) -> None:
    """Keep alive 0 turns the timeout off."""
    client = harness.client("c", keep_alive_s=0)
    harness.advance(7 * 86_400_000)
    client.ping()


@clause("5.0", "MQTT-3.1.2-22")
@pytest.mark.parametrize("size", [100, 100_000], ids=["small", "large"])
def test_mqtt5_3_1_2_22_bytes_are_no_packet(harness: BrokerHarness, size: int) -> None:
    """A packet that trickles in keeps no client alive: whole packets count."""
    client = harness.client("c", keep_alive_s=10)
    packet = publish(b"a", bytes(size))
    for at in range(14):
        client.send(packet[at : at + 1])
        harness.advance(1_000)
    assert not client.closed
    client.send(packet[14:15])
    harness.advance(1_500)
    assert closed_with(client) == 0x8D


def test_a_packet_that_has_begun_ends_or_its_connection_does(make_harness: MakeHarness) -> None:
    """Also without a keep alive: 30 seconds, and what its bytes take at the slowest rate."""
    harness = make_harness(limits=Limits(packet_bytes_per_s_min=1_000))
    clients = [harness.client(f"c{number}", keep_alive_s=0) for number in range(4)]
    small, large, honest, resting = clients
    packet = publish(b"a", bytes(19_990))
    harness.advance(3_600_000)
    small.send(PINGREQ[:1])
    for client in (large, honest):
        client.send(packet[:10])
    for at in range(10, 30):
        large.send(packet[at : at + 1])
        harness.advance(1_000)
    assert not any(client.closed for client in clients)
    harness.advance(10_500)
    assert closed_with(small) == 0x8D
    assert not large.closed
    honest.send(packet[10:])
    honest.send(packet[:10])
    harness.advance(20_000)
    assert closed_with(large) == 0x8D
    honest.send(packet[10:])
    harness.advance(3_600_000)
    assert harness.broker.stats.packet_timeouts == 2
    assert harness.broker.node.timers.count <= 2, "none of the packets' timers is left"
    honest.ping()
    resting.ping()


@pytest.mark.parametrize("rate", [0, 1])
def test_packets_may_take_as_long_as_the_listener_says(make_harness: MakeHarness, rate: int) -> None:
    """0 is no limit."""
    harness = make_harness(limits=Limits(packet_bytes_per_s_min=rate))
    client = harness.client("c", keep_alive_s=0)
    packet = publish(b"a", bytes(5_000))
    for _ in range(5):
        client.send(packet[:4_000])
        harness.advance(1_000_000)
        client.send(packet[4_000:])
        client.ping()


@clause("5.0", "MQTT-3.2.2-22")
def test_mqtt5_3_2_2_22_client_keep_alive_holds(harness: BrokerHarness) -> None:
    """Without a Server Keep Alive the client's value is used."""
    client = harness.client("c", keep_alive_s=100)
    assert client.connack.properties.server_keep_alive_s is None
    harness.advance(140_000)
    assert not client.closed
    harness.advance(11_000)
    assert client.closed


@pytest.mark.parametrize(("asked_s", "told_s"), [(0, 30), (100, 30), (30, None), (20, None)])
def test_server_keep_alive(make_harness: MakeHarness, asked_s: int, told_s: int | None) -> None:
    """Where the listener grants less, MQTT 5 clients are told by Server Keep Alive, and it is enforced."""
    harness = make_harness(limits=Limits(keep_alive_s_max=30))
    client = harness.client("c", keep_alive_s=asked_s)
    assert client.connack.properties.server_keep_alive_s == told_s
    kept_s = told_s if told_s is not None else asked_s
    harness.advance(kept_s * 1500 - 300)
    assert not client.closed
    harness.advance(800)
    assert closed_with(client) == 0x8D


@clause("5.0", "MQTT-3.2.2-1", "MQTT-3.2.2-2")
def test_mqtt5_3_2_2_1_connack_bytes(harness: BrokerHarness) -> None:
    """The CONNACK begins with 20, its length, acknowledge flags 0 or 1, and reason code 0."""
    client = harness.raw()
    client.send(connect(b"c", properties=props((SESSION_EXPIRY, 60))))
    out = client.received_bytes()
    assert out[0] == 0x20
    assert out[1] == len(out) - 2
    assert out[2:4] == b"\x00\x00"
    again = harness.raw()
    again.send(connect(b"c", flags=0))
    assert again.received_bytes()[2:4] == b"\x01\x00"


@clause("5.0", "MQTT-3.2.2-9", "MQTT-3.2.2-10", "MQTT-3.2.2-12", "MQTT-3.2.2-13")
def test_mqtt5_3_2_2_9_everything_is_supported(harness: BrokerHarness) -> None:
    """All QoS, retained messages, wildcards, identifiers and shared subscriptions are there: nothing says otherwise."""
    client = harness.client("c", will=Will(b"w", b"x", 2, True))
    told = client.connack.properties
    assert told.maximum_qos is None
    for available in (
        told.retain_available,
        told.wildcard_subscription_available,
        told.subscription_identifiers_available,
        told.shared_subscription_available,
    ):
        assert available in {None, 1}
    assert [client.subscribe(b"a", qos=qos) for qos in (0, 1, 2)] == [0, 1, 2]


def test_connack_tells_the_limits(make_harness: MakeHarness) -> None:
    """What the listener allows is told: receive maximum, packet size, topic aliases."""
    harness = make_harness(limits=Limits(receive_max=17, packet_bytes_max=5_000, topic_aliases_max=3))
    told = harness.client("c").connack.properties
    assert told.receive_maximum == 17
    assert told.maximum_packet_size == 5_000
    assert told.topic_alias_maximum == 3


def test_session_expiry_is_capped_and_told(make_harness: MakeHarness) -> None:
    """A session can't be kept longer than the broker allows; the client is told the interval it gets."""
    harness = make_harness(BrokerSettings(session_expiry_s_max=100))
    told = harness.client("long", session_expiry_s=0xFFFFFFFF).connack.properties
    assert told.session_expiry_s == 100
    told = harness.client("short", session_expiry_s=99).connack.properties
    assert told.session_expiry_s in {None, 99}


@clause("5.0", "MQTT-3.1.2-28")
@pytest.mark.parametrize("asked", [None, 0])
def test_mqtt5_3_1_2_28_no_response_information(harness: BrokerHarness, asked: int | None) -> None:
    """Response Information is not sent to a client that did not ask for it."""
    client = harness.client("c", properties=make_properties(request_response_information=asked))
    assert client.connack.properties.response_information is None


def test_response_information(make_harness: MakeHarness) -> None:
    """A client that asks for it gets a topic prefix of its own."""
    harness = make_harness(BrokerSettings(response_information="answers/"))
    client = harness.client("c", properties=make_properties(request_response_information=1))
    assert client.connack.properties.response_information == "answers/c"


@clause("5.0", "MQTT-3.2.2-19", "MQTT-3.2.2-20", "MQTT-3.1.2-24")
def test_mqtt5_3_2_2_19_small_connack(make_harness: MakeHarness) -> None:
    """A reason string that would make the CONNACK larger than the client takes is left out."""
    harness = make_harness(gate=PasswordGate({}, refuse=0x87, text="x" * 400))
    small = harness.raw()
    small.send(connect(b"c", properties=props((MAX_PACKET, 64))))
    out = small.received_bytes()
    assert out[0] == 0x20
    assert out[3] == 0x87
    assert len(out) <= 64
    large = harness.raw()
    large.send(connect(b"c"))
    answer = large.expect(Connack)
    assert answer.reason == 0x87
    assert answer.properties.reason_string is not None


def test_connect_with_user_properties(harness: BrokerHarness) -> None:
    """User properties on CONNECT are taken and ignored."""
    client = harness.raw()
    client.send(connect(b"c", properties=props((USER_PROPERTY, (b"a", b"b")), (USER_PROPERTY, (b"a", b"b")))))
    assert client.expect(Connack).reason == 0
    client.send(PINGREQ)
    client.expect(Pingresp)


def test_will_topic_must_be_a_topic_name(harness: BrokerHarness) -> None:
    """A will to a filter, or to nothing, could never be published."""
    for topic in (b"a/#", b"+", b""):
        client = harness.raw()
        client.send(connect(flags=0x06, rest=b"\0" + field(topic) + field(b"x")))
        assert refused_with(client) in {None, 0x81, 0x82, 0x90}


def test_keep_alive_is_two_bytes(harness: BrokerHarness) -> None:
    """The longest keep alive, 65,535 seconds, is honoured."""
    client = harness.raw()
    client.send(connect(b"c", keep_alive=65_535))
    client.expect(Connack)
    harness.advance(65_535 * 1500 - 300_000)
    early = client.closed
    harness.advance(600_000)
    assert (early, client.closed) == (False, True)


# --- one clause, one test: what a CONNECT must not be ---


def refuse(harness: BrokerHarness, data: bytes) -> None:
    """The CONNECT is refused with 0x81 or closed without a word, and leaves nothing behind."""
    client = harness.raw()
    client.send(data)
    assert refused_with(client) in {None, 0x81}
    assert not harness.broker.sessions


@clause("5.0", "MQTT-3.1.2-9")
@pytest.mark.parametrize("rest", [b"", b"\0", b"\0" + field(b"w"), field(b"w") + field(b"x")])
def test_mqtt5_3_1_2_9_will_flag_without_will(harness: BrokerHarness, rest: bytes) -> None:
    """The will flag promises will properties, topic and payload."""
    refuse(harness, connect(flags=0x06, rest=rest))


@clause("5.0", "MQTT-3.1.2-11")
@pytest.mark.parametrize("flags", [0x0A, 0x12, 0x1A])
def test_mqtt5_3_1_2_11_will_qos_without_will(harness: BrokerHarness, flags: int) -> None:
    """No will, no will QoS."""
    refuse(harness, connect(flags=flags))


@clause("5.0", "MQTT-3.1.2-12")
@pytest.mark.parametrize("qos", [0, 1, 2, 3])
def test_mqtt5_3_1_2_12_will_qos(harness: BrokerHarness, qos: int) -> None:
    """Will QoS 0, 1 and 2 are accepted, 3 is not."""
    data = connect(flags=0x06 | qos << 3, rest=b"\0" + field(b"w") + field(b"x"))
    if qos == 3:
        refuse(harness, data)
    else:
        client = harness.raw()
        client.send(data)
        assert client.expect(Connack).reason == 0


@clause("5.0", "MQTT-3.1.2-13")
def test_mqtt5_3_1_2_13_will_retain_without_will(harness: BrokerHarness) -> None:
    """No will, no will retain."""
    refuse(harness, connect(flags=0x22))


@clause("5.0", "MQTT-3.1.2-16")
def test_mqtt5_3_1_2_16_user_name_without_flag(harness: BrokerHarness) -> None:
    """A user name that no flag announced is too much."""
    refuse(harness, connect(rest=field(b"u")))


@clause("5.0", "MQTT-3.1.2-17")
def test_mqtt5_3_1_2_17_user_name_missing(harness: BrokerHarness) -> None:
    """A user name that a flag announced must be there; it may be empty."""
    refuse(harness, connect(flags=0x82))
    client = harness.raw()
    client.send(connect(flags=0x82, rest=field(b"")))
    assert client.expect(Connack).reason == 0


@clause("5.0", "MQTT-3.1.2-19")
def test_mqtt5_3_1_2_19_password_missing(harness: BrokerHarness) -> None:
    """A password that a flag announced must be there."""
    refuse(harness, connect(flags=0xC2, rest=field(b"u")))


@clause("5.0", "MQTT-3.1.3-2")
def test_mqtt5_3_1_3_2_client_id_is_the_session(harness: BrokerHarness) -> None:
    """Two client ids are two sessions, one client id is one."""
    for client_id in ("a", "A"):
        harness.client(client_id, session_expiry_s=60).drop()
    assert set(harness.broker.sessions) == {"a", "A"}
    assert harness.client("a", clean_start=False).connack.session_present
    assert not harness.client("b", clean_start=False).connack.session_present


@clause("5.0", "MQTT-3.1.3-3")
def test_mqtt5_3_1_3_3_client_id_missing(harness: BrokerHarness) -> None:
    """A CONNECT without even an empty client id."""
    refuse(harness, packet(0x10, field(b"MQTT") + hexa("05 02 0000 00")))
    refuse(harness, packet(0x10, field(b"MQTT") + hexa("05 02 0000 00 00")))


@clause("5.0", "MQTT-3.1.3-4")
@pytest.mark.parametrize("client_id", [b"\xff", b"a\0", b"\xed\xa0\x80"])
def test_mqtt5_3_1_3_4_client_id_is_utf8(harness: BrokerHarness, client_id: bytes) -> None:
    """The client id is a valid string."""
    refuse(harness, connect(client_id))


@clause("5.0", "MQTT-3.1.3-7")
def test_mqtt5_3_1_3_7_assigned_client_id_works(harness: BrokerHarness) -> None:
    """The assigned client id is told, and is the one the session has."""
    client = harness.client("")
    assert list(harness.broker.sessions) == [client.connack.properties.assigned_client_id]
    client.subscribe(b"a", no_local=True)
    client.publish(b"a", b"x")
    assert client.messages() == []


@clause("5.0", "MQTT-3.1.3-11")
@pytest.mark.parametrize("topic", [b"\xff", b"a\0", b"\xed\xa0\x80"])
def test_mqtt5_3_1_3_11_will_topic_is_utf8(harness: BrokerHarness, topic: bytes) -> None:
    """The will topic is a valid string."""
    refuse(harness, connect(flags=0x06, rest=b"\0" + field(topic) + field(b"x")))


@clause("5.0", "MQTT-3.1.3-12")
@pytest.mark.parametrize("name", [b"\xff", b"a\0", b"\xed\xa0\x80"])
def test_mqtt5_3_1_3_12_user_name_is_utf8(harness: BrokerHarness, name: bytes) -> None:
    """The user name is a valid string; a password may be any bytes."""
    refuse(harness, connect(flags=0x82, rest=field(name)))
    client = harness.raw()
    client.send(connect(flags=0xC2, rest=field(b"u") + field(name)))
    assert client.expect(Connack).reason == 0


@clause("5.0", "MQTT-3.1.4-4")
@pytest.mark.parametrize("clean", [True, False])
def test_mqtt5_3_1_4_4_clean_start_is_processed_first(harness: BrokerHarness, clean: bool) -> None:
    """By the time of the CONNACK the session is new or resumed, as asked."""
    old = harness.client("c", session_expiry_s=60)
    old.subscribe(b"a")
    old.drop()
    client = harness.client("c", clean_start=clean, session_expiry_s=60)
    assert client.connack.session_present is not clean
    client.publish(b"a", b"x")
    assert client.payloads() == ([] if clean else [b"x"])


# --- one clause, one test: what a CONNACK must be ---


@clause("5.0", "MQTT-3.2.0-1")
def test_mqtt5_3_2_0_1_connack_before_anything(harness: BrokerHarness) -> None:
    """A resumed session has much to send; the CONNACK goes first."""
    old = harness.client("c", session_expiry_s=60)
    old.subscribe(b"a", qos=2)
    publisher = harness.client("p")
    for qos in (1, 2):
        publisher.publish(b"a", b"x", qos=qos)
    old.drop()
    again = harness.raw()
    again.send(connect(b"c", flags=0))
    names = [type(one).__name__ for one in again.received()]
    assert names == ["Connack", "Publish", "Publish"]


@clause("5.0", "MQTT-3.2.0-2")
def test_mqtt5_3_2_0_2_one_connack(harness: BrokerHarness) -> None:
    """Whatever a client does, there is one CONNACK."""
    client = harness.raw()
    client.send(connect(b"c") + connect(b"c"))
    names = [type(one).__name__ for one in client.received()]
    assert names == ["Connack", "Disconnect"]


@clause("5.0", "MQTT-3.2.2-2")
def test_mqtt5_3_2_2_2_session_present_0(harness: BrokerHarness) -> None:
    """Clean Start 1: Session Present 0, whether or not there was a session."""
    for _ in range(2):
        client = harness.client("c", clean_start=True, session_expiry_s=60)
        assert (client.connack.session_present, client.connack.reason) == (False, 0)
        client.drop()


@clause("5.0", "MQTT-3.2.2-3")
def test_mqtt5_3_2_2_3_session_present_tells(harness: BrokerHarness) -> None:
    """Clean Start 0: Session Present says whether there was a session."""
    seen = []
    for _ in range(3):
        client = harness.client("c", clean_start=False, session_expiry_s=60)
        seen.append(client.connack.session_present)
        client.drop()
    assert seen == [False, True, True]


@clause("5.0", "MQTT-3.2.2-7")
def test_mqtt5_3_2_2_7_refusal_closes(make_harness: MakeHarness) -> None:
    """A CONNACK of 0x80 and above is the last thing on its connection."""
    harness = make_harness(gate=PasswordGate({}, refuse=0x87))
    client = harness.raw()
    client.send(connect(b"c") + PINGREQ)
    assert client.expect(Connack).reason == 0x87
    client.expect_nothing()
    assert client.closed


@clause("5.0", "MQTT-3.2.2-8")
def test_mqtt5_3_2_2_8_connack_codes(make_harness: MakeHarness) -> None:
    """All the ways not to get in are told by codes that CONNACK has; the decoder knows no others."""
    harness = make_harness(BrokerSettings(sessions_max=1))
    harness.client("first")
    harness.broker.bans.add("client", "banned", 0, "for a reason", harness.now)
    codes = [
        harness.connect(Connect(5, name, properties=properties)).expect(Connack).reason
        for name, properties in (
            ("second", None),
            ("banned", None),
            ("third", make_properties(authentication_method="none")),
        )
    ]
    assert codes == [0x97, 0x8A, 0x8C]
    harness.shutdown()
    late = harness.connect(Connect(5, "late"))
    assert all(isinstance(one, Connack) for one in late.received())
    assert late.closed


@clause("5.0", "MQTT-3.2.2-10")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt5_3_2_2_10_subscribe_with_any_qos(harness: BrokerHarness, qos: int) -> None:
    """Every requested QoS is accepted, and granted."""
    assert harness.client("c").subscribe(b"a", qos=qos) == qos


@clause("5.0", "MQTT-3.2.2-12")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt5_3_2_2_12_will_with_any_qos(harness: BrokerHarness, qos: int) -> None:
    """Every will QoS is within what the server can do."""
    client = harness.client("c", will=Will(b"w", b"x", qos))
    assert client.connack.properties.maximum_qos is None


@clause("5.0", "MQTT-3.2.2-13")
def test_mqtt5_3_2_2_13_retained_will(harness: BrokerHarness) -> None:
    """Retained wills are accepted, for retaining is supported."""
    client = harness.client("c", will=Will(b"w", b"x", 0, True))
    assert client.connack.properties.retain_available in {None, 1}


@clause("5.0", "MQTT-3.2.2-16")
def test_mqtt5_3_2_2_16_assigned_ids_differ(harness: BrokerHarness) -> None:
    """No two clients are given the same id."""
    names = {harness.client("").connack.properties.assigned_client_id for _ in range(50)}
    assert len(names) == 50
    assert None not in names


@clause("5.0", "MQTT-3.2.2-20")
def test_mqtt5_3_2_2_20_no_user_properties(harness: BrokerHarness) -> None:
    """The CONNACK has no user properties, so they can't make it too large."""
    properties = make_properties(user=[("k", "v")], maximum_packet_size=100)
    assert harness.client("c", properties=properties).connack.properties.user == []
