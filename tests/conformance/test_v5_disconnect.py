"""MQTT 5, sections 3.12 to 3.14: PINGREQ, DISCONNECT, and the reasons the server gives for leaving."""

from __future__ import annotations

import pytest

from conformance.checks import closed_with
from conformance.clauses import clause
from conformance.wire import DISCONNECT, PINGREQ, PINGRESP, REASON_STRING, USER_PROPERTY, hexa, packet, props, publish
from flockmq.mqtt.packets import Disconnect, Will
from flockmq.testing.harness import BrokerHarness, make_properties


@clause("5.0", "MQTT-3.12.4-1")
def test_mqtt5_3_12_4_1_ping(harness: BrokerHarness) -> None:
    """Every PINGREQ gets a PINGRESP, in its place among other answers."""
    client = harness.client("c")
    client.send(PINGREQ)
    assert client.received_bytes() == PINGRESP
    client.send(PINGREQ * 3 + publish(b"a", qos=1, pid=1) + PINGREQ)
    assert client.received_bytes() == PINGRESP * 3 + hexa("40 03 0001 10") + PINGRESP


@clause("5.0", "MQTT-3.14.1-1")
@pytest.mark.parametrize("first", [0xE1, 0xE2, 0xE4, 0xE8, 0xEF])
def test_mqtt5_3_14_1_1_reserved_flags(harness: BrokerHarness, first: int) -> None:
    """DISCONNECT with other flags than 0 is malformed, and then the will is published."""
    client = harness.client("c")
    client.send(bytes([first, 0]))
    assert closed_with(client) == 0x81


FORMS = {
    "no reason code": DISCONNECT,
    "reason code": hexa("e0 01 00"),
    "no properties": hexa("e0 02 00 00"),
    "with will": hexa("e0 01 04"),
    "reason string": packet(0xE0, b"\x80" + props((REASON_STRING, b"because"))),
    "user properties": packet(0xE0, b"\0" + props((USER_PROPERTY, (b"a", b"b")), (USER_PROPERTY, (b"a", b"b")))),
}


@clause("5.0", "MQTT-3.14.4-1", "MQTT-3.14.4-2")
@pytest.mark.parametrize("data", FORMS.values(), ids=FORMS.keys())
def test_mqtt5_3_14_4_1_client_leaves(harness: BrokerHarness, data: bytes) -> None:
    """A client's DISCONNECT is not answered; the connection is closed and nothing more is sent on it."""
    client = harness.client("c")
    client.subscribe(b"a")
    client.send(data)
    assert client.closed
    harness.client("p").publish(b"a", b"x")
    assert client.received_bytes() == b""
    assert "c" not in harness.broker.sessions


@clause("5.0", "MQTT-3.14.0-1")
def test_mqtt5_3_14_0_1_not_before_connack(harness: BrokerHarness) -> None:
    """A connection without CONNACK is closed without DISCONNECT: by time, by shutdown, by an error."""
    slow = harness.raw()
    harness.advance(20_000)
    assert slow.closed
    assert slow.received_bytes() == b""
    waiting = harness.raw()
    harness.shutdown()
    assert waiting.closed
    assert waiting.received_bytes() == b""


@clause("5.0", "MQTT-3.14.2-1", "MQTT-3.14.4-1", "MQTT-3.14.4-2", "MQTT-4.13.2-1")
def test_mqtt5_3_14_2_1_reasons_of_the_server(harness: BrokerHarness) -> None:
    """Each reason to leave has its code: taken over, kicked, keep alive, shutdown."""
    taken = harness.client("a")
    harness.client("a")
    assert closed_with(taken) == 0x8E
    kicked = harness.client("b")
    harness.broker.kick("b", harness.now)
    harness.flush()
    assert closed_with(kicked) == 0x98
    silent = harness.client("c", keep_alive_s=1)
    harness.advance(2_000)
    assert closed_with(silent) == 0x8D
    stays = harness.client("d")
    harness.shutdown()
    assert closed_with(stays) == 0x8B


@clause("5.0", "MQTT-3.14.4-1")
def test_mqtt5_3_14_4_1_nothing_after_the_servers_disconnect(harness: BrokerHarness) -> None:
    """Once DISCONNECT is out, messages that match are not sent behind it."""
    client = harness.client("c", session_expiry_s=60)
    client.subscribe(b"a", qos=1)
    client.block()
    harness.broker.kick("c", harness.now)
    harness.client("p").publish(b"a", b"late", qos=1)
    harness.client("p").publish(b"a", b"late")
    client.unblock()
    packets = client.received()
    assert isinstance(packets[-1], Disconnect)
    assert len(packets) == 1


@clause("5.0", "MQTT-3.1.2-29", "MQTT-3.14.2-3")
def test_mqtt5_3_1_2_29_reason_strings(harness: BrokerHarness) -> None:
    """Who wants them gets sentences; they are valid strings and say something."""
    client = harness.client("c", properties=make_properties(request_problem_information=1))
    client.send(hexa("82 03 0001 00"))
    farewell = client.expect(Disconnect)
    assert farewell.properties is not None
    assert farewell.properties.reason_string


def test_server_reference_from_a_client(harness: BrokerHarness) -> None:
    """A server reference is for servers only: from a client it is an error, though one that ends the same way."""
    client = harness.client("c")
    client.send(packet(0xE0, b"\0" + b"\x04\x1c\x00\x01a"))
    assert client.closed


@pytest.mark.parametrize("version", [4, 5])
def test_shutdown_publishes_all_wills_before_anybody_is_gone(harness: BrokerHarness, version: int) -> None:
    """Who connected first hears the wills as well; so do those of clients that are away and had a delay."""
    watcher = harness.client("watcher", version=version)
    watcher.subscribe(b"will/#", qos=1)
    delayed = Will(b"will/away", b"gone", 1, properties=make_properties(will_delay_s=60))
    harness.client("away", session_expiry_s=600, will=delayed).drop()
    harness.client("c", will=Will(b"will/c", b"gone", 1))
    harness.shutdown()
    assert sorted(message.topic for message in watcher.consume()) == [b"will/away", b"will/c"]
    assert watcher.closed


def test_shutdown_queues_wills(harness: BrokerHarness) -> None:
    """Shutting down publishes wills; sessions that are away would get them."""
    away = harness.client("away", session_expiry_s=600)
    away.subscribe(b"will", qos=1)
    away.drop()
    session = harness.broker.sessions["away"]
    client = harness.client("c", will=Will(b"will", b"gone", 1))
    harness.shutdown()
    assert closed_with(client) == 0x8B
    assert session.outbound is not None
    assert session.outbound.queued == 1
