"""MQTT 3.1.1, sections 3.1, 3.2 and 4.1: CONNECT, CONNACK, sessions and wills."""

from __future__ import annotations

import pytest

from conformance.checks import closed_silently
from conformance.clauses import clause
from conformance.conftest import MakeHarness
from conformance.gates import PasswordGate, TopicGate
from conformance.wire import DISCONNECT, PINGREQ, PINGRESP, ack, connect, field, hexa, packet, publish3, subscribe3
from flockmq.mqtt.packets import Connack, Connect, Will
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.testing.harness import BrokerHarness, HarnessClient

ACCEPTED = hexa("20 02 00 00")
RESUMED = hexa("20 02 01 00")


def connect3(client_id: bytes = b"c", **options: object) -> bytes:
    """CONNECT of 3.1.1."""
    return connect(client_id, version=4, **options)  # type: ignore[arg-type]


def watch(harness: BrokerHarness) -> HarnessClient:
    """Somebody who hears everything."""
    watcher = harness.client("watcher", version=4)
    watcher.subscribe(b"#", qos=2)
    return watcher


@clause("3.1.1", "MQTT-3.1.0-1")
@pytest.mark.parametrize(
    "data",
    [publish3(b"a", b"x"), subscribe3(1, (b"a", 0)), PINGREQ, DISCONNECT, ack(0x40, 1), ACCEPTED],
    ids=["PUBLISH", "SUBSCRIBE", "PINGREQ", "DISCONNECT", "PUBACK", "CONNACK"],
)
def test_mqtt311_3_1_0_1_first_packet_is_connect(harness: BrokerHarness, data: bytes) -> None:
    """Anything else first is closed without an answer."""
    client = harness.raw(4)
    client.send(data)
    closed_silently(client)


@clause("3.1.1", "MQTT-3.1.0-2", "MQTT-4.8.0-1")
def test_mqtt311_3_1_0_2_second_connect(harness: BrokerHarness) -> None:
    """A second CONNECT disconnects."""
    client = harness.client("c", version=4)
    client.send(connect3())
    closed_silently(client)


@clause("3.1.1", "MQTT-3.1.4-4", "MQTT-3.2.0-1", "MQTT-3.2.2-1", "MQTT-7.0.0-2")
def test_mqtt311_3_1_4_4_accepted(harness: BrokerHarness) -> None:
    """CONNACK 20 02 00 00 is the first packet and four bytes long; pipelined packets are answered behind it."""
    client = harness.raw(4)
    client.send(connect3() + PINGREQ)
    assert client.received_bytes() == ACCEPTED + PINGRESP


@clause("3.1.1", "MQTT-3.1.2-1")
@pytest.mark.parametrize("name", [b"mqtt", b"MQTX", b"MQT", b""])
def test_mqtt311_3_1_2_1_protocol_name(harness: BrokerHarness, name: bytes) -> None:
    """Another protocol name is not processed as MQTT."""
    client = harness.raw(4)
    client.send(connect3(name=name))
    assert client.closed
    assert not harness.broker.sessions


@clause("3.1.1", "MQTT-3.1.2-2")
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_mqtt311_3_1_2_2_protocol_level(harness: BrokerHarness, level: int) -> None:
    """A level that is not supported: CONNACK 0x01, close."""
    client = harness.raw(4)
    client.send(connect(version=level))
    assert client.received_bytes() == hexa("20 02 00 01")
    assert client.closed


MALFORMED_CONNECTS = {
    "reserved flag [3.1.2-3]": connect3(flags=0x03),
    "will QoS without will [3.1.2-13]": connect3(flags=0x0A),
    "will retain without will [3.1.2-15]": connect3(flags=0x22),
    "will fields without will [3.1.2-11]": connect3(flags=0x02, rest=field(b"w") + field(b"x")),
    "will QoS 3 [3.1.2-14]": connect3(flags=0x1E, rest=field(b"w") + field(b"x")),
    "will flag, no will topic [3.1.2-9]": connect3(flags=0x06),
    "will flag, no will payload [3.1.2-9]": connect3(flags=0x06, rest=field(b"w")),
    "user name without flag [3.1.2-18]": connect3(rest=field(b"u")),
    "user name flag, no user name [3.1.2-19]": connect3(flags=0x82),
    "password without flag [3.1.2-20]": connect3(flags=0x82, rest=field(b"u") + field(b"p")),
    "password flag, no password [3.1.2-21]": connect3(flags=0xC2, rest=field(b"u")),
    "password flag without user name flag [3.1.2-22]": connect3(flags=0x42, rest=field(b"p")),
    "no client id [3.1.3-3]": packet(0x10, field(b"MQTT") + hexa("04 02 0000")),
    "client id not UTF-8 [3.1.3-4]": connect3(b"\xed\xa0\x80"),
    "will topic not UTF-8 [3.1.3-10]": connect3(flags=0x06, rest=field(b"\xff") + field(b"x")),
    "user name not UTF-8 [3.1.3-11]": connect3(flags=0x82, rest=field(b"\xc0\x80")),
    "client id with U+0000": connect3(b"a\0b"),
    "bytes after the last field": connect3(rest=b"\0"),
    "fixed header flags": connect3(first=0x18),
    "ends in the keep alive": packet(0x10, field(b"MQTT") + hexa("04 02 00")),
}


@clause(
    "3.1.1",
    "MQTT-3.1.4-1", "MQTT-3.2.2-6", "MQTT-3.1.2-3", "MQTT-3.1.2-9", "MQTT-3.1.2-11", "MQTT-3.1.2-13",
    "MQTT-3.1.2-14", "MQTT-3.1.2-15", "MQTT-3.1.2-18", "MQTT-3.1.2-19", "MQTT-3.1.2-20", "MQTT-3.1.2-21",
    "MQTT-3.1.2-22", "MQTT-3.1.3-3", "MQTT-3.1.3-4", "MQTT-3.1.3-10", "MQTT-3.1.3-11",
)  # fmt: skip
@pytest.mark.parametrize("data", MALFORMED_CONNECTS.values(), ids=MALFORMED_CONNECTS.keys())
def test_mqtt311_3_1_4_1_malformed_connect(harness: BrokerHarness, data: bytes) -> None:
    """A CONNECT of the wrong form closes the connection without a CONNACK."""
    client = harness.raw(4)
    client.send(data)
    closed_silently(client)
    assert not harness.broker.sessions


@clause("3.1.1", "MQTT-3.1.3-1", "MQTT-3.1.2-8", "MQTT-3.1.2-19", "MQTT-3.1.2-21")
def test_mqtt311_3_1_3_1_payload_order(make_harness: MakeHarness) -> None:
    """Client id, will topic, will payload, user name, password, in that order."""
    harness = make_harness(gate=PasswordGate({"user": b"secret"}))
    watcher = harness.client("w", version=4, username="user", password=b"secret")
    watcher.subscribe(b"will/topic")
    client = harness.raw(4)
    rest = field(b"will/topic") + field(b"gone") + field(b"user") + field(b"secret")
    client.send(connect3(b"me", flags=0xC6, rest=rest))
    assert client.received_bytes() == ACCEPTED
    assert "me" in harness.broker.sessions
    client.drop()
    assert watcher.payloads() == [b"gone"]


@clause("3.1.1", "MQTT-3.1.3-5")
@pytest.mark.parametrize("client_id", ["a", "0123456789abcdefghijklm", "NOPQRSTUVWXYZ", "Z" * 23])
def test_mqtt311_3_1_3_5_usual_client_ids(harness: BrokerHarness, client_id: str) -> None:
    """1 to 23 letters and digits are accepted."""
    harness.client(client_id, version=4)
    assert client_id in harness.broker.sessions


@clause("3.1.1", "MQTT-3.1.3-6")
def test_mqtt311_3_1_3_6_empty_client_id(harness: BrokerHarness) -> None:
    """An empty id with clean session gets a name of its own; two such clients do not meet."""
    first = harness.client("", version=4)
    second = harness.client("", version=4)
    assert len(harness.broker.sessions) == 2
    first.ping()
    second.ping()


@clause("3.1.1", "MQTT-3.1.3-8", "MQTT-3.2.2-4", "MQTT-3.2.2-5")
def test_mqtt311_3_1_3_8_empty_client_id_without_clean_session(harness: BrokerHarness) -> None:
    """An empty id without clean session: CONNACK 0x02, close."""
    client = harness.raw(4)
    client.send(connect3(b"", flags=0x00))
    assert client.received_bytes() == hexa("20 02 00 02")
    assert client.closed


@clause("3.1.1", "MQTT-3.1.3-9", "MQTT-3.2.2-4", "MQTT-3.2.2-5")
@pytest.mark.parametrize(
    ("reason", "code"),
    [(0x85, 2), (0x86, 4), (0x87, 5), (0x88, 3), (0x89, 3), (0x8A, 5), (0x97, 3), (0x9F, 3)],
)
def test_mqtt311_3_1_3_9_refusals(make_harness: MakeHarness, reason: int, code: int) -> None:
    """What MQTT 5 has many reason codes for is told by the nearest of the five return codes, then closed."""
    harness = make_harness(gate=PasswordGate({}, refuse=reason))
    client = harness.raw(4)
    client.send(connect3(flags=0x00))
    assert client.received_bytes() == bytes([0x20, 2, 0, code])
    assert client.closed
    assert not harness.broker.sessions


@clause("3.1.1", "MQTT-3.1.4-5")
def test_mqtt311_3_1_4_5_data_after_refusal(make_harness: MakeHarness) -> None:
    """What follows a refused CONNECT is not processed."""
    harness = make_harness(gate=PasswordGate({"user": b"right"}))
    watcher = harness.client("w", version=4, username="user", password=b"right")
    watcher.subscribe(b"#")
    client = harness.raw(4)
    client.send(connect3() + publish3(b"a", b"x"))
    assert client.received_bytes() == hexa("20 02 00 04")
    assert client.closed
    assert watcher.messages() == []


@clause("3.1.1", "MQTT-3.1.4-2")
def test_mqtt311_3_1_4_2_takeover(harness: BrokerHarness) -> None:
    """The same client id again closes the older connection, across versions too."""
    first = harness.client("c", version=4)
    second = harness.client("c", version=4)
    closed_silently(first)
    third = harness.client("c", version=5)
    closed_silently(second)
    harness.client("c", version=4)
    assert third.closed
    assert third.received_bytes()[:1] == b"\xe0"


@clause("3.1.1", "MQTT-3.1.2-4", "MQTT-3.1.2-5", "MQTT-3.2.2-2", "MQTT-3.2.2-3", "MQTT-3.1.3-2", "MQTT-3.1.4-3")
def test_mqtt311_3_1_2_4_session_is_kept(harness: BrokerHarness) -> None:
    """Clean session 0: Session Present 0 at first, 1 when coming back; subscriptions and QoS 1 and 2 were kept."""
    client = harness.raw(4)
    client.send(connect3(flags=0x00))
    assert client.received_bytes() == ACCEPTED
    client.send(subscribe3(1, (b"a", 2)))
    client.send(DISCONNECT)
    assert client.closed
    publisher = harness.client("p", version=4)
    for qos in (0, 1, 2):
        publisher.publish(b"a", b"%d" % qos, qos=qos)
    again = harness.raw(4)
    again.send(connect3(flags=0x00))
    assert again.received_bytes()[:4] == RESUMED
    again.drop()
    once_more = harness.client("c", version=4, clean_start=False)
    assert [message.payload for message in once_more.consume()] == [b"1", b"2"]
    publisher.publish(b"a", b"now")
    assert once_more.payloads() == [b"now"]


@clause("3.1.1", "MQTT-3.1.2-6", "MQTT-3.2.2-1")
def test_mqtt311_3_1_2_6_clean_session(harness: BrokerHarness) -> None:
    """Clean session 1 discards the old session, and its own ends with its connection."""
    harness_client = harness.client("c", version=4, clean_start=False)
    harness_client.subscribe(b"a", qos=1)
    harness_client.drop()
    client = harness.raw(4)
    client.send(connect3(flags=0x02))
    assert client.received_bytes() == ACCEPTED
    harness.client("p", version=4).publish(b"a", b"x", qos=1)
    assert client.received_bytes() == b""
    client.send(subscribe3(1, (b"a", 1)))
    client.drop()
    assert "c" not in harness.broker.sessions
    assert not harness.client("c", version=4, clean_start=False).connack.session_present


@clause("3.1.1", "MQTT-4.1.0-1", "MQTT-4.1.0-2")
def test_mqtt311_4_1_0_2_session_lasts_with_its_connection(make_harness: MakeHarness) -> None:
    """While connected a session does not end; afterwards it is kept as long as the broker keeps sessions."""
    harness = make_harness(BrokerSettings(session_expiry_s_max=100))
    client = harness.client("c", version=4, clean_start=False)
    client.subscribe(b"a")
    harness.advance(1_000_000)
    harness.client("p", version=4).publish(b"a", b"x")
    assert client.payloads() == [b"x"]
    client.drop()
    harness.advance(99_000)
    assert "c" in harness.broker.sessions
    harness.advance(2_000)
    assert "c" not in harness.broker.sessions


@clause("3.1.1", "MQTT-3.1.2-7")
def test_mqtt311_3_1_2_7_retained_outlive_sessions(harness: BrokerHarness) -> None:
    """Retained messages are not part of a session."""
    client = harness.client("c", version=4)
    client.publish(b"a", b"x", retain=True)
    client.drop()
    late = harness.client("late", version=4)
    late.subscribe(b"a")
    assert late.payloads() == [b"x"]


@clause("3.1.1", "MQTT-3.1.2-8", "MQTT-3.1.2-10")
@pytest.mark.parametrize("end", ["lost", "protocol error", "keep alive", "takeover", "DISCONNECT with wrong flags"])
def test_mqtt311_3_1_2_8_will(harness: BrokerHarness, end: str) -> None:
    """The will is published, once, at every end of the connection but DISCONNECT."""
    watcher = watch(harness)
    client = harness.client("c", version=4, keep_alive_s=4, clean_start=False, will=Will(b"will", b"gone", 1))
    if end == "lost":
        client.drop()
    elif end == "protocol error":
        client.send(hexa("00 00"))
    elif end == "keep alive":
        harness.advance(7_000)
    elif end == "takeover":
        harness.client("c", version=4, clean_start=False)
    else:
        client.send(hexa("e1 00"))
    (message,) = watcher.consume()
    assert (message.topic, message.payload, message.qos, message.retain) == (b"will", b"gone", 1, False)
    harness.advance(60_000)
    assert watcher.messages() == []


@clause("3.1.1", "MQTT-3.1.2-10", "MQTT-3.14.4-3")
def test_mqtt311_3_14_4_3_disconnect_deletes_the_will(harness: BrokerHarness) -> None:
    """DISCONNECT deletes the will; the connection is closed."""
    watcher = watch(harness)
    client = harness.client("c", version=4, will=Will(b"will", b"gone"))
    client.send(DISCONNECT)
    closed_silently(client)
    assert watcher.messages() == []


@clause("3.1.1", "MQTT-3.1.2-12")
def test_mqtt311_3_1_2_12_no_will(harness: BrokerHarness) -> None:
    """Without a will nothing is published, also when the connection before this one had one."""
    watcher = watch(harness)
    harness.client("c", version=4, clean_start=False, will=Will(b"will", b"gone")).disconnect()
    harness.client("c", version=4, clean_start=False).drop()
    assert watcher.messages() == []


@clause("3.1.1", "MQTT-3.1.2-16", "MQTT-3.1.2-17")
@pytest.mark.parametrize("retain", [False, True])
def test_mqtt311_3_1_2_17_will_retain(harness: BrokerHarness, retain: bool) -> None:
    """Will retain decides whether the will is stored."""
    harness.client("c", version=4, will=Will(b"will", b"gone", 0, retain)).drop()
    late = harness.client("late", version=4)
    late.subscribe(b"will")
    assert [(message.payload, message.retain) for message in late.messages()] == ([(b"gone", True)] if retain else [])


@clause("3.1.1", "MQTT-3.1.2-24")
def test_mqtt311_3_1_2_24_keep_alive(harness: BrokerHarness) -> None:
    """One and a half keep alives of silence close the connection; any packet counts; 0 turns it off."""
    client = harness.client("c", version=4, keep_alive_s=10)
    endless = harness.client("endless", version=4, keep_alive_s=0)
    for data in (PINGREQ, publish3(b"a", b"x"), subscribe3(1, (b"a", 0))):
        harness.advance(14_000)
        client.send(data)
    client.received()
    harness.advance(14_800)
    assert not client.closed
    harness.advance(700)
    closed_silently(client)
    harness.advance(86_400_000)
    endless.ping()


def test_keep_alive_is_capped_for_311_too(make_harness: MakeHarness) -> None:
    """A listener's longest keep alive holds for clients that can't be told."""
    harness = make_harness(limits=Limits(keep_alive_s_max=10))
    client = harness.client("c", version=4, keep_alive_s=0)
    harness.advance(16_000)
    closed_silently(client)


def test_will_that_is_not_allowed(make_harness: MakeHarness) -> None:
    """A will to a topic the client may not publish to: CONNACK 0x05."""
    harness = make_harness(gate=TopicGate())
    client = harness.connect(Connect(4, "c", will=Will(b"forbidden", b"x")))
    assert client.expect(Connack).reason == 5
    assert client.closed


def test_sessions_max_for_311(make_harness: MakeHarness) -> None:
    """No room for another session: CONNACK 0x03."""
    harness = make_harness(BrokerSettings(sessions_max=1))
    harness.client("a", version=4)
    client = harness.connect(Connect(4, "b"))
    assert client.received_bytes() == hexa("20 02 00 03")
    assert client.closed


@clause("3.1.1", "MQTT-3.1.2-2")
def test_mqtt311_3_1_2_2_mqtt_31(harness: BrokerHarness) -> None:
    """MQTT 3.1 (MQIsdp, level 3) is not spoken here, and is told so in words it understands."""
    client = harness.raw(4)
    client.send(connect(b"old", version=3, name=b"MQIsdp"))
    assert client.received_bytes() == hexa("20 02 00 01")
    assert client.closed


# --- one clause, one test: what a CONNECT must not be ---


def shut(harness: BrokerHarness, data: bytes) -> None:
    """Closed without a CONNACK, and nothing left behind."""
    client = harness.raw(4)
    client.send(data)
    closed_silently(client)
    assert not harness.broker.sessions


def let_in(harness: BrokerHarness, data: bytes) -> HarnessClient:
    """Accepted."""
    client = harness.raw(4)
    client.send(data)
    assert client.received_bytes() == ACCEPTED
    return client


@clause("3.1.1", "MQTT-3.1.2-3")
def test_mqtt311_3_1_2_3_reserved_connect_flag(harness: BrokerHarness) -> None:
    """Bit 0 of the connect flags must be 0."""
    shut(harness, connect3(flags=0x03))
    let_in(harness, connect3(flags=0x02))


@clause("3.1.1", "MQTT-3.1.2-5")
def test_mqtt311_3_1_2_5_messages_are_kept(harness: BrokerHarness) -> None:
    """QoS 1 and 2 messages of a stored session are kept; QoS 0 need not be."""
    client = harness.client("c", version=4, clean_start=False)
    client.subscribe(b"a", qos=2)
    client.drop()
    publisher = harness.client("p", version=4)
    for qos in (1, 2, 1):
        publisher.publish(b"a", b"%d" % qos, qos=qos)
    got = harness.client("c", version=4, clean_start=False).consume()
    assert [(message.payload, message.qos) for message in got] == [(b"1", 1), (b"2", 2), (b"1", 1)]


@clause("3.1.1", "MQTT-3.1.2-9")
@pytest.mark.parametrize("rest", [b"", field(b"w")])
def test_mqtt311_3_1_2_9_will_flag_without_will(harness: BrokerHarness, rest: bytes) -> None:
    """The will flag promises will topic and payload."""
    shut(harness, connect3(flags=0x06, rest=rest))


@clause("3.1.1", "MQTT-3.1.2-10")
def test_mqtt311_3_1_2_10_will_is_forgotten(harness: BrokerHarness) -> None:
    """A published will is not published again, a deleted one not at all, although the session is kept."""
    watcher = watch(harness)
    harness.client("c", version=4, clean_start=False, will=Will(b"will", b"1")).drop()
    assert watcher.payloads() == [b"1"]
    harness.client("c", version=4, clean_start=False, will=Will(b"will", b"2")).disconnect()
    harness.client("c", version=4, clean_start=False).drop()
    assert watcher.messages() == []


@clause("3.1.1", "MQTT-3.1.2-11")
def test_mqtt311_3_1_2_11_will_fields_without_will(harness: BrokerHarness) -> None:
    """Without the will flag there are no will fields."""
    shut(harness, connect3(rest=field(b"w") + field(b"x")))


@clause("3.1.1", "MQTT-3.1.2-13")
@pytest.mark.parametrize("flags", [0x0A, 0x12, 0x1A])
def test_mqtt311_3_1_2_13_will_qos_without_will(harness: BrokerHarness, flags: int) -> None:
    """No will, no will QoS."""
    shut(harness, connect3(flags=flags))


@clause("3.1.1", "MQTT-3.1.2-14")
@pytest.mark.parametrize("qos", [0, 1, 2, 3])
def test_mqtt311_3_1_2_14_will_qos(harness: BrokerHarness, qos: int) -> None:
    """Will QoS 0, 1 and 2 are accepted, 3 is not."""
    data = connect3(flags=0x06 | qos << 3, rest=field(b"w") + field(b"x"))
    if qos == 3:
        shut(harness, data)
    else:
        let_in(harness, data)


@clause("3.1.1", "MQTT-3.1.2-15")
def test_mqtt311_3_1_2_15_will_retain_without_will(harness: BrokerHarness) -> None:
    """No will, no will retain."""
    shut(harness, connect3(flags=0x22))


@clause("3.1.1", "MQTT-3.1.2-16")
def test_mqtt311_3_1_2_16_will_is_not_retained(harness: BrokerHarness) -> None:
    """Will retain 0: an ordinary message, which a later subscriber does not get."""
    watcher = watch(harness)
    harness.client("c", version=4, will=Will(b"will", b"gone")).drop()
    assert [message.retain for message in watcher.messages()] == [False]
    assert harness.broker.retained.usage.count == 0


@clause("3.1.1", "MQTT-3.1.2-18")
def test_mqtt311_3_1_2_18_user_name_without_flag(harness: BrokerHarness) -> None:
    """A user name that no flag announced is too much."""
    shut(harness, connect3(rest=field(b"u")))


@clause("3.1.1", "MQTT-3.1.2-19")
def test_mqtt311_3_1_2_19_user_name_missing(harness: BrokerHarness) -> None:
    """A user name that a flag announced must be there; it may be empty."""
    shut(harness, connect3(flags=0x82))
    let_in(harness, connect3(flags=0x82, rest=field(b"")))


@clause("3.1.1", "MQTT-3.1.2-20")
def test_mqtt311_3_1_2_20_password_without_flag(harness: BrokerHarness) -> None:
    """A password that no flag announced is too much."""
    shut(harness, connect3(flags=0x82, rest=field(b"u") + field(b"p")))


@clause("3.1.1", "MQTT-3.1.2-21")
def test_mqtt311_3_1_2_21_password_missing(harness: BrokerHarness) -> None:
    """A password that a flag announced must be there; any bytes will do."""
    shut(harness, connect3(flags=0xC2, rest=field(b"u")))
    let_in(harness, connect3(flags=0xC2, rest=field(b"u") + field(b"\xff\0")))


@clause("3.1.1", "MQTT-3.1.2-22")
def test_mqtt311_3_1_2_22_password_without_user_name(harness: BrokerHarness) -> None:
    """3.1.1 has no password without a user name."""
    shut(harness, connect3(flags=0x42, rest=field(b"p")))


@clause("3.1.1", "MQTT-3.1.3-2")
def test_mqtt311_3_1_3_2_client_id_is_the_session(harness: BrokerHarness) -> None:
    """Two client ids are two sessions, one client id is one."""
    for client_id in ("a", "A"):
        harness.client(client_id, version=4, clean_start=False).drop()
    assert set(harness.broker.sessions) == {"a", "A"}
    assert harness.client("a", version=4, clean_start=False).connack.session_present


@clause("3.1.1", "MQTT-3.1.3-3")
def test_mqtt311_3_1_3_3_client_id_missing(harness: BrokerHarness) -> None:
    """A CONNECT without even an empty client id."""
    shut(harness, packet(0x10, field(b"MQTT") + hexa("04 02 0000")))
    shut(harness, packet(0x10, field(b"MQTT") + hexa("04 02 0000 00")))


@clause("3.1.1", "MQTT-3.1.3-4")
@pytest.mark.parametrize("client_id", [b"\xff", b"a\0", b"\xed\xa0\x80"])
def test_mqtt311_3_1_3_4_client_id_is_utf8(harness: BrokerHarness, client_id: bytes) -> None:
    """The client id is a valid string."""
    shut(harness, connect3(client_id))


@clause("3.1.1", "MQTT-3.1.3-10")
@pytest.mark.parametrize("topic", [b"\xff", b"a\0", b"\xed\xa0\x80"])
def test_mqtt311_3_1_3_10_will_topic_is_utf8(harness: BrokerHarness, topic: bytes) -> None:
    """The will topic is a valid string."""
    shut(harness, connect3(flags=0x06, rest=field(topic) + field(b"x")))


@clause("3.1.1", "MQTT-3.1.3-11")
@pytest.mark.parametrize("name", [b"\xff", b"a\0", b"\xed\xa0\x80"])
def test_mqtt311_3_1_3_11_user_name_is_utf8(harness: BrokerHarness, name: bytes) -> None:
    """The user name is a valid string."""
    shut(harness, connect3(flags=0x82, rest=field(name)))


@clause("3.1.1", "MQTT-3.1.4-3")
@pytest.mark.parametrize("clean", [True, False])
def test_mqtt311_3_1_4_3_clean_session_is_processed_first(harness: BrokerHarness, clean: bool) -> None:
    """By the time of the CONNACK the session is new or resumed, as asked."""
    old = harness.client("c", version=4, clean_start=False)
    old.subscribe(b"a")
    old.drop()
    client = harness.client("c", version=4, clean_start=clean)
    assert client.connack.session_present is not clean
    client.publish(b"a", b"x")
    assert client.payloads() == ([] if clean else [b"x"])


# --- one clause, one test: what a CONNACK must be ---


@clause("3.1.1", "MQTT-3.2.0-1")
def test_mqtt311_3_2_0_1_connack_before_anything(harness: BrokerHarness) -> None:
    """A resumed session has much to send; the CONNACK goes first."""
    old = harness.client("c", version=4, clean_start=False)
    old.subscribe(b"a", qos=1)
    harness.client("p", version=4).publish(b"a", b"x", qos=1)
    old.drop()
    again = harness.raw(4)
    again.send(connect3(flags=0))
    assert [type(one).__name__ for one in again.received()] == ["Connack", "Publish"]


@clause("3.1.1", "MQTT-3.2.2-1")
def test_mqtt311_3_2_2_1_session_present_0(harness: BrokerHarness) -> None:
    """Clean session 1: Session Present 0, also when there was a session."""
    harness.client("c", version=4, clean_start=False).drop()
    let_in(harness, connect3(flags=0x02))


@clause("3.1.1", "MQTT-3.2.2-2")
def test_mqtt311_3_2_2_2_session_present_1(harness: BrokerHarness) -> None:
    """Clean session 0 with a session: Session Present 1."""
    harness.client("c", version=4, clean_start=False).drop()
    client = harness.raw(4)
    client.send(connect3(flags=0))
    assert client.received_bytes() == RESUMED


@clause("3.1.1", "MQTT-3.2.2-3")
def test_mqtt311_3_2_2_3_no_session(harness: BrokerHarness) -> None:
    """Clean session 0 without a session: Session Present 0."""
    let_in(harness, connect3(flags=0))


@clause("3.1.1", "MQTT-3.2.2-4")
def test_mqtt311_3_2_2_4_refusal_without_session_present(make_harness: MakeHarness) -> None:
    """A refusal has Session Present 0 although there is a session."""
    harness = make_harness(gate=PasswordGate({"user": b"right"}))
    harness.client("c", version=4, clean_start=False, username="user", password=b"right").drop()
    client = harness.raw(4)
    client.send(connect3(flags=0xC0, rest=field(b"user") + field(b"wrong")))
    assert client.received_bytes() == hexa("20 02 00 04")


@clause("3.1.1", "MQTT-3.2.2-5")
def test_mqtt311_3_2_2_5_refusal_closes(make_harness: MakeHarness) -> None:
    """A refusal is the last thing on its connection."""
    harness = make_harness(gate=PasswordGate({}, refuse=0x87))
    client = harness.raw(4)
    client.send(connect3() + PINGREQ)
    assert client.received_bytes() == hexa("20 02 00 05")
    assert client.closed


@clause("3.1.1", "MQTT-3.2.2-6")
def test_mqtt311_3_2_2_6_no_fitting_code(harness: BrokerHarness) -> None:
    """Where no return code fits, the connection is closed without CONNACK."""
    shut(harness, connect3(flags=0x06, rest=field(b"a/#") + field(b"x")))


@clause("3.1.1", "MQTT-4.1.0-1")
def test_mqtt311_4_1_0_1_session_state_is_kept(harness: BrokerHarness) -> None:
    """Subscriptions, messages on their way in both directions: kept as long as the session."""
    client = harness.client("c", version=4, clean_start=False)
    client.subscribe(b"a", qos=2)
    client.send(publish3(b"a", b"x", qos=2, pid=5))
    client.received()
    client.drop()
    harness.advance(3_600_000)
    again = harness.client("c", version=4, clean_start=False)
    assert [message.dup for message in again.messages()] == [True]
    again.send(publish3(b"a", b"x", qos=2, pid=5, dup=1))
    assert again.received_bytes() == hexa("50 02 0005")


@clause("3.1.1", "MQTT-7.0.0-2")
def test_mqtt311_7_0_0_2_nothing_more_is_needed(harness: BrokerHarness) -> None:
    """A client that knows nothing but 3.1.1 gets nothing but 3.1.1."""
    client = let_in(harness, connect3())
    client.send(subscribe3(1, (b"#", 2)) + publish3(b"a", b"x", qos=2, pid=1) + ack(0x62, 1))
    client.send(ack(0x50, 1) + ack(0x70, 1) + DISCONNECT)
    assert client.received_bytes() == (hexa("90 03 0001 02 34 06 0001 61 0001 78 50 02 0001 70 02 0001 62 02 0001"))
    assert client.closed
