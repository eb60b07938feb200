"""MQTT 5, will messages: sections 3.1.2.5 to 3.1.2.7, 3.1.3.2 to 3.1.3.4 and 3.14.4."""

from __future__ import annotations

import pytest

from conformance.checks import closed_with
from conformance.clauses import clause
from conformance.conftest import MakeHarness
from conformance.gates import TopicGate
from conformance.wire import DISCONNECT, connect, hexa
from flockmq.mqtt.packets import Connack, Connect, Will
from flockmq.testing.harness import BrokerHarness, HarnessClient, make_properties


def watch(harness: BrokerHarness, topic_filter: bytes = b"will/#", qos: int = 2) -> HarnessClient:
    """Somebody who wants to know."""
    watcher = harness.client("watcher")
    watcher.subscribe(topic_filter, qos=qos, retain_as_published=True)
    return watcher


def will(qos: int = 0, retain: bool = False, delay_s: int | None = None) -> Will:
    """A will to will/c."""
    return Will(b"will/c", b"gone", qos, retain, make_properties(will_delay_s=delay_s))


@clause("5.0", "MQTT-3.1.2-7", "MQTT-3.1.2-8")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt5_3_1_2_8_published_when_the_connection_is_lost(harness: BrokerHarness, qos: int) -> None:
    """A lost connection publishes the will with its QoS."""
    watcher = watch(harness)
    client = harness.client("c", will=will(qos))
    assert watcher.messages() == []
    client.drop()
    (message,) = watcher.consume()
    assert (message.topic, message.payload, message.qos, message.retain) == (b"will/c", b"gone", qos, False)


@clause("5.0", "MQTT-3.1.2-8")
@pytest.mark.parametrize(
    "end",
    ["protocol error", "keep alive", "takeover", "kick", "disconnect 0x04", "shutdown"],
)
def test_mqtt5_3_1_2_8_all_other_ends(harness: BrokerHarness, end: str) -> None:
    """Every end but DISCONNECT 0x00 publishes the will."""
    watcher = watch(harness)
    client = harness.client("c", keep_alive_s=5, will=will())
    if end == "protocol error":
        client.send(hexa("00 00"))
    elif end == "keep alive":
        harness.advance(8_000)
    elif end == "takeover":
        harness.client("c")
    elif end == "kick":
        assert harness.broker.kick("c", harness.now)
        harness.flush()
        assert closed_with(client) == 0x98
    elif end == "disconnect 0x04":
        client.disconnect(reason=0x04)
    else:
        harness.shutdown()
        assert closed_with(client) == 0x8B
    assert watcher.payloads() == [b"gone"]


@clause("5.0", "MQTT-3.14.4-3", "MQTT-3.1.2-10", "MQTT-3.1.2-8")
@pytest.mark.parametrize("data", [DISCONNECT, hexa("e0 01 00"), hexa("e0 02 00 00")])
def test_mqtt5_3_14_4_3_normal_disconnect_deletes_the_will(harness: BrokerHarness, data: bytes) -> None:
    """DISCONNECT 0x00, in any of its forms, deletes the will; it does not come later either."""
    watcher = watch(harness)
    client = harness.client("c", session_expiry_s=30, will=will(delay_s=5))
    client.send(data)
    assert client.closed
    harness.advance(60_000)
    assert watcher.messages() == []


@pytest.mark.parametrize("reason", [0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99])
def test_disconnect_with_an_error_publishes_the_will(harness: BrokerHarness, reason: int) -> None:
    """A client that leaves because of an error of ours keeps its will."""
    watcher = watch(harness)
    harness.client("c", will=will()).disconnect(reason=reason)
    assert watcher.payloads() == [b"gone"]


@clause("5.0", "MQTT-3.1.2-10")
def test_mqtt5_3_1_2_10_published_once(harness: BrokerHarness) -> None:
    """Once published the will is forgotten: the end of the session does not publish it again."""
    watcher = watch(harness)
    client = harness.client("c", session_expiry_s=10, will=will())
    client.drop()
    assert watcher.payloads() == [b"gone"]
    harness.advance(20_000)
    assert "c" not in harness.broker.sessions
    assert watcher.messages() == []


@clause("5.0", "MQTT-3.1.2-10")
def test_mqtt5_3_1_2_10_a_new_connect_brings_its_own_will(harness: BrokerHarness) -> None:
    """A session resumed without a will has none; one resumed with another has that."""
    watcher = watch(harness)
    harness.client("c", session_expiry_s=60, will=will(delay_s=30)).drop()
    harness.client("c", clean_start=False, session_expiry_s=60).drop()
    harness.advance(40_000)
    assert watcher.messages() == []
    harness.client("c", clean_start=False, will=Will(b"will/c", b"other")).drop()
    assert watcher.payloads() == [b"other"]


@clause("5.0", "MQTT-3.1.2-14")
def test_mqtt5_3_1_2_14_not_retained(harness: BrokerHarness) -> None:
    """Will retain 0: a later subscriber does not get it."""
    watcher = watch(harness)
    harness.client("c", will=will(retain=False)).drop()
    assert [message.retain for message in watcher.messages()] == [False]
    late = harness.client("late")
    late.subscribe(b"will/c")
    assert late.messages() == []


@clause("5.0", "MQTT-3.1.2-15")
def test_mqtt5_3_1_2_15_retained(harness: BrokerHarness) -> None:
    """Will retain 1: it is stored as the topic's retained message."""
    watcher = watch(harness)
    harness.client("c", will=will(qos=1, retain=True)).drop()
    assert [message.retain for message in watcher.consume()] == [True]
    late = harness.client("late")
    late.subscribe(b"will/c", qos=1)
    (message,) = late.messages()
    assert (message.payload, message.retain, message.qos) == (b"gone", True, 1)


@clause("5.0", "MQTT-3.1.2-8")
def test_mqtt5_3_1_2_8_delay(harness: BrokerHarness) -> None:
    """The will waits for its delay, not shorter, and at most a tick longer."""
    watcher = watch(harness)
    harness.client("c", session_expiry_s=60, will=will(delay_s=10)).drop()
    harness.advance(9_800)
    assert watcher.messages() == []
    harness.advance(400)
    assert watcher.payloads() == [b"gone"]


@clause("5.0", "MQTT-3.1.2-8")
@pytest.mark.parametrize(("expiry_s", "delay_s"), [(0, 10), (5, 10), (5, 0xFFFFFFFF)])
def test_mqtt5_3_1_2_8_session_ends_before_the_delay(harness: BrokerHarness, expiry_s: int, delay_s: int) -> None:
    """The end of the session publishes the will even if its delay is not over."""
    watcher = watch(harness)
    harness.client("c", session_expiry_s=expiry_s, will=will(delay_s=delay_s)).drop()
    if expiry_s:
        assert watcher.messages() == []
        harness.advance(expiry_s * 1000 + 300)
    assert watcher.payloads() == [b"gone"]
    assert "c" not in harness.broker.sessions


@clause("5.0", "MQTT-3.1.2-8")
def test_mqtt5_3_1_2_8_clean_start_ends_the_session(harness: BrokerHarness) -> None:
    """Coming back with Clean Start 1 ends the old session, and with it the wait of its will."""
    watcher = watch(harness)
    harness.client("c", session_expiry_s=60, will=will(delay_s=30)).drop()
    harness.client("c", clean_start=True)
    assert watcher.payloads() == [b"gone"]


@clause("5.0", "MQTT-3.1.3-9")
def test_mqtt5_3_1_3_9_back_in_time(harness: BrokerHarness) -> None:
    """Coming back to the session before the delay is over cancels the will."""
    watcher = watch(harness)
    harness.client("c", session_expiry_s=60, will=will(delay_s=10)).drop()
    harness.advance(9_000)
    back = harness.client("c", clean_start=False, session_expiry_s=60)
    assert back.connack.session_present
    harness.advance(60_000)
    assert watcher.messages() == []


@clause("5.0", "MQTT-3.1.3-9")
def test_mqtt5_3_1_3_9_takeover_with_delay(harness: BrokerHarness) -> None:
    """A takeover that resumes the session cancels a delayed will as well; without a delay it is published."""
    watcher = watch(harness)
    harness.client("c", session_expiry_s=60, will=will(delay_s=10))
    harness.client("c", clean_start=False, session_expiry_s=60, will=will(delay_s=0))
    harness.advance(20_000)
    assert watcher.messages() == []
    harness.client("c", clean_start=False, session_expiry_s=60)
    assert watcher.payloads() == [b"gone"]


@clause("5.0", "MQTT-3.1.3-10", "MQTT-3.1.2-9")
def test_mqtt5_3_1_3_10_will_properties(harness: BrokerHarness) -> None:
    """The will's properties are published with it, user properties in their order; the delay is not among them."""
    watcher = watch(harness)
    pairs = [("b", "1"), ("a", "2"), ("b", "1"), ("", "")]
    properties = make_properties(
        payload_format=1,
        message_expiry_s=100,
        content_type="text/plain",
        response_topic=b"answer/here",
        correlation_data=b"\x00\xff",
        will_delay_s=0,
        user=pairs,
    )
    harness.client("c", will=Will(b"will/c", b"gone", 1, False, properties)).drop()
    (message,) = watcher.consume()
    got = message.properties
    assert got is not None
    assert got.user == pairs
    assert (got.payload_format, got.content_type) == (1, "text/plain")
    assert (got.response_topic, got.correlation_data) == (b"answer/here", b"\x00\xff")
    assert got.message_expiry_s == 100
    assert got.will_delay_s is None


def test_expiry_of_a_delayed_will_begins_when_it_is_published(harness: BrokerHarness) -> None:
    """Message expiry is the lifetime from the moment of publishing."""
    watcher = watch(harness)
    last = Will(b"will/c", b"gone", 0, False, make_properties(will_delay_s=20, message_expiry_s=10))
    harness.client("c", session_expiry_s=60, will=last).drop()
    harness.advance(21_000)
    (message,) = watcher.messages()
    assert message.properties is not None
    assert message.properties.message_expiry_s == 10


def test_retained_will_without_payload_removes(harness: BrokerHarness) -> None:
    """A retained will without payload clears the topic, as a publish would."""
    harness.client("p").publish(b"will/c", b"online", retain=True)
    harness.client("c", will=Will(b"will/c", b"", 0, True)).drop()
    late = harness.client("late")
    late.subscribe(b"will/c")
    assert late.messages() == []


def test_will_is_checked_against_the_rules(make_harness: MakeHarness) -> None:
    """A will is a publish like any other: one that the client may not send refuses the CONNECT with 0x87."""
    harness = make_harness(gate=TopicGate())
    client = harness.connect(Connect(5, "c", will=Will(b"forbidden/c", b"x")))
    assert client.expect(Connack).reason == 0x87
    assert client.closed


def test_will_is_not_published_by_a_refused_connection(make_harness: MakeHarness) -> None:
    """No session, no will."""
    harness = make_harness(gate=TopicGate())
    watcher = watch(harness, b"#")
    client = harness.raw()
    client.send(connect(b"c", flags=0x06, rest=b"\0" + hexa("0009 666f7262696464656e 0001 78")))
    assert client.closed
    assert watcher.messages() == []


def test_no_local_does_not_concern_wills(harness: BrokerHarness) -> None:
    """A client that is back and subscribed without its own messages still hears of its former life."""
    harness.client("c", session_expiry_s=60, will=will(delay_s=1)).drop()
    other = harness.client("d")
    other.subscribe(b"will/c", no_local=True)
    harness.advance(2_000)
    assert other.payloads() == [b"gone"]


@clause("5.0", "MQTT-3.1.2-7")
def test_mqtt5_3_1_2_7_will_belongs_to_the_session(harness: BrokerHarness) -> None:
    """The will is kept with the session, byte for byte, until it is needed."""
    watcher = watch(harness, b"#")
    payload = bytes(range(256))
    client = harness.client("c", session_expiry_s=60, will=Will(b"will/c", payload, 2))
    harness.advance(3_600_000)
    assert watcher.messages() == []
    client.drop()
    assert [message.payload for message in watcher.consume()] == [payload]
