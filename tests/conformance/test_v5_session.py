"""MQTT 5, sections 3.1.2.11.2, 3.14.2.2.2 and 4.1: how long a session lives and what it holds."""

from __future__ import annotations

import pytest

from conformance.checks import closed_with
from conformance.clauses import clause
from conformance.conftest import MakeHarness
from conformance.wire import SESSION_EXPIRY, packet, props
from flockmq.mqtt.packets import Connack, Connect
from flockmq.node.settings import BrokerSettings
from flockmq.testing.harness import BrokerHarness, make_properties


@clause("5.0", "MQTT-3.1.2-23", "MQTT-4.1.0-2")
@pytest.mark.parametrize("expiry_s", [1, 10, 3600])
def test_mqtt5_3_1_2_23_session_expiry(harness: BrokerHarness, expiry_s: int) -> None:
    """The session outlives its connection by the expiry interval, and not longer."""
    harness.client("c", session_expiry_s=expiry_s).drop()
    harness.advance(expiry_s * 1000 - 500)
    client = harness.client("c", clean_start=False, session_expiry_s=expiry_s)
    assert client.connack.session_present
    client.drop()
    harness.advance(expiry_s * 1000 + 500)
    assert "c" not in harness.broker.sessions
    assert not harness.client("c", clean_start=False).connack.session_present


@clause("5.0", "MQTT-4.1.0-2")
@pytest.mark.parametrize("expiry_s", [None, 0])
def test_mqtt5_4_1_0_2_no_expiry_interval(harness: BrokerHarness, expiry_s: int | None) -> None:
    """Absent or 0: the session ends with its connection, subscriptions and all."""
    client = harness.client("c", session_expiry_s=expiry_s)
    client.subscribe(b"a", qos=1)
    client.drop()
    assert "c" not in harness.broker.sessions
    assert harness.client("p").publish(b"a", b"x", qos=1) == 0x10


@clause("5.0", "MQTT-4.1.0-1")
def test_mqtt5_4_1_0_1_kept_while_connected(harness: BrokerHarness) -> None:
    """The interval runs only while the client is away."""
    client = harness.client("c", session_expiry_s=5)
    client.subscribe(b"a")
    harness.advance(3_600_000)
    harness.client("p").publish(b"a", b"x")
    assert client.payloads() == [b"x"]


@clause("5.0", "MQTT-4.1.0-1", "MQTT-4.1.0-2")
def test_mqtt5_4_1_0_1_coming_back_stops_the_clock(harness: BrokerHarness) -> None:
    """A client that came back is not ended by the clock of its absence."""
    harness.client("c", session_expiry_s=10).drop()
    harness.advance(9_000)
    again = harness.client("c", clean_start=False, session_expiry_s=10)
    harness.advance(60_000)
    again.ping()
    assert "c" in harness.broker.sessions


@clause("5.0", "MQTT-3.1.2-23")
def test_mqtt5_3_1_2_23_for_ever(make_harness: MakeHarness) -> None:
    """0xFFFFFFFF does not expire, where the broker sets no limit."""
    harness = make_harness(BrokerSettings(session_expiry_s_max=0))
    harness.client("c", session_expiry_s=0xFFFFFFFF).drop()
    harness.advance(10 * 365 * 86_400_000)
    assert harness.client("c", clean_start=False).connack.session_present


@clause("5.0", "MQTT-3.1.2-23")
def test_mqtt5_3_1_2_23_the_newest_interval_counts(harness: BrokerHarness) -> None:
    """Each CONNECT sets the interval anew."""
    harness.client("c", session_expiry_s=1000).drop()
    harness.client("c", clean_start=False, session_expiry_s=2).drop()
    harness.advance(3_000)
    assert "c" not in harness.broker.sessions


@clause("5.0", "MQTT-3.1.2-23", "MQTT-4.1.0-2")
def test_mqtt5_3_1_2_23_changed_by_disconnect(harness: BrokerHarness) -> None:
    """DISCONNECT may change the interval, to nothing or to more."""
    harness.client("c", session_expiry_s=100).disconnect(session_expiry_s=0)
    assert "c" not in harness.broker.sessions
    harness.client("d", session_expiry_s=5).disconnect(session_expiry_s=50)
    harness.advance(40_000)
    assert "d" in harness.broker.sessions
    harness.advance(11_000)
    assert "d" not in harness.broker.sessions


def test_disconnect_cannot_revive_a_session(harness: BrokerHarness) -> None:
    """An interval on DISCONNECT when CONNECT had none is a protocol error."""
    client = harness.client("c")
    client.send(packet(0xE0, b"\0" + props((SESSION_EXPIRY, 10))))
    assert closed_with(client) == 0x82
    assert "c" not in harness.broker.sessions


@clause("5.0", "MQTT-3.1.2-23", "MQTT-4.5.0-1")
def test_mqtt5_3_1_2_23_everything_is_kept(harness: BrokerHarness) -> None:
    """Subscriptions with their options, unacknowledged messages, the queue, unreleased QoS 2: all of it is there."""
    client = harness.client("c", session_expiry_s=60, properties=make_properties(receive_maximum=1))
    client.subscribe(b"a", qos=1, identifier=4, retain_as_published=True)
    client.subscribe(b"$share/g/b", qos=2)
    publisher = harness.client("p")
    publisher.publish(b"a", b"sent", qos=1)
    publisher.publish(b"a", b"queued", qos=1)
    client.drop()
    publisher.publish(b"a", b"later", qos=2)
    publisher.publish(b"b", b"shared", qos=2)
    publisher.publish(b"a", b"qos 0 is not promised", qos=0)
    again = harness.client("c", clean_start=False, session_expiry_s=60)
    got = again.consume()
    assert [message.payload for message in got] == [b"sent", b"queued", b"later", b"shared"]
    assert [message.dup for message in got] == [True, False, False, False]
    publisher.publish(b"a", b"now", retain=True)
    (message,) = again.messages()
    assert message.retain
    assert message.properties is not None
    assert message.properties.subscription_identifiers == [4]


def test_sessions_are_limited(make_harness: MakeHarness) -> None:
    """A CONNECT beyond the limit is refused with 0x97; who has a session still gets in."""
    harness = make_harness(BrokerSettings(sessions_max=2))
    harness.client("a", session_expiry_s=60).drop()
    harness.client("b")
    client = harness.connect(Connect(5, "c"))
    assert client.expect(Connack).reason == 0x97
    assert client.closed
    assert harness.client("a", clean_start=False).connack.session_present
    assert len(harness.broker.sessions) == 2


def test_version_may_change_between_connections(harness: BrokerHarness) -> None:
    """A session made with one version can be resumed with the other; what waits is encoded anew."""
    harness_client = harness.client("c", version=5, session_expiry_s=60)
    harness_client.subscribe(b"a", qos=2, identifier=3)
    publisher = harness.client("p")
    publisher.publish(b"a", b"sent", qos=1, properties=make_properties(user=[("k", "v")]))
    assert len(harness_client.messages()) == 1
    harness_client.drop()
    publisher.publish(b"a", b"queued", qos=2, properties=make_properties(message_expiry_s=50))
    old = harness.client("c", version=4, clean_start=False)
    assert old.connack.session_present
    got = old.consume()
    assert [(message.payload, message.dup) for message in got] == [(b"sent", True), (b"queued", False)]
    old.drop()
    publisher.publish(b"a", b"back", qos=1)
    new = harness.client("c", version=5, clean_start=False, session_expiry_s=60)
    (message,) = new.consume()
    assert message.payload == b"back"
    assert message.properties is not None
    assert message.properties.subscription_identifiers == [3]
