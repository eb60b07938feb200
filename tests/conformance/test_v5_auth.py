"""MQTT 5, sections 3.15 and 4.12: enhanced authentication, with a gate that asks one question."""

from __future__ import annotations

import pytest

from conformance.checks import closed_with, refused_with
from conformance.clauses import clause
from conformance.conftest import MakeHarness
from conformance.gates import LateGate, StepGate
from conformance.wire import (
    AUTH_DATA,
    AUTH_METHOD,
    MAX_PACKET,
    PINGREQ,
    REASON_STRING,
    USER_PROPERTY,
    connect,
    hexa,
    packet,
    props,
    publish,
    subscribe,
)
from flockmq.mqtt.packets import Auth, Connack, Publish
from flockmq.node.ports import Accept, AuthRequest, Identity, Refuse, Verdict
from flockmq.testing.harness import BrokerHarness, HarnessClient


def method(name: bytes = b"two-step", data: bytes = b"me") -> bytes:
    """The properties of a CONNECT or AUTH."""
    return props((AUTH_METHOD, name), (AUTH_DATA, data))


def auth(reason: int, data: bytes, name: bytes = b"two-step") -> bytes:
    """An AUTH packet."""
    return packet(0xF0, bytes([reason]) + method(name, data))


def begun(harness: BrokerHarness) -> HarnessClient:
    """A client that was asked its question."""
    client = harness.raw()
    client.send(connect(b"c", properties=method()))
    client.expect(Auth)
    return client


def inside(harness: BrokerHarness) -> HarnessClient:
    """A client that answered it."""
    client = begun(harness)
    client.send(auth(0x18, b"answer"))
    assert client.expect(Connack).reason == 0
    return client


@pytest.fixture
def harness(make_harness: MakeHarness) -> BrokerHarness:
    return make_harness(gate=StepGate())


@clause("5.0", "MQTT-4.12.0-2", "MQTT-4.12.0-5", "MQTT-3.15.2-1", "MQTT-3.15.2-2", "MQTT-3.15.2-3")
def test_mqtt5_4_12_0_2_continue(harness: BrokerHarness) -> None:
    """The question comes as AUTH 0x18 with the method and data, byte for byte, and nothing else."""
    client = harness.raw()
    client.send(connect(b"c", properties=method()))
    assert client.received_bytes() == auth(0x18, b"question")
    assert not harness.broker.sessions


@clause("5.0", "MQTT-4.12.0-3", "MQTT-4.12.0-5", "MQTT-3.2.0-1")
def test_mqtt5_4_12_0_5_success(harness: BrokerHarness) -> None:
    """The right answer is followed by CONNACK 0x00 with the method and the gate's last data."""
    client = begun(harness)
    client.send(auth(0x18, b"answer"))
    answer = client.expect(Connack)
    assert answer.reason == 0
    assert answer.properties.authentication_method == "two-step"
    assert answer.properties.authentication_data == b"welcome"
    client.send(PINGREQ)
    assert client.received_bytes() == hexa("d0 00")


@clause("5.0", "MQTT-4.12.0-5")
def test_mqtt5_4_12_0_5_success_at_once(harness: BrokerHarness) -> None:
    """A gate that needs no question: CONNACK, still with the method."""
    client = harness.raw()
    client.send(connect(b"c", properties=method(data=b"at once")))
    answer = client.expect(Connack)
    assert answer.properties.authentication_method == "two-step"
    assert answer.properties.authentication_data == b"welcome"


def test_many_steps(harness: BrokerHarness) -> None:
    """As many questions as the gate likes."""
    client = begun(harness)
    for _ in range(5):
        client.send(auth(0x18, b"more"))
        assert client.received_bytes() == auth(0x18, b"another question")
    client.send(auth(0x18, b"answer"))
    assert client.expect(Connack).reason == 0


@clause("5.0", "MQTT-4.12.0-4", "MQTT-4.13.2-1")
def test_mqtt5_4_12_0_4_wrong_answer(harness: BrokerHarness) -> None:
    """A wrong answer is refused by CONNACK and close, without a session."""
    client = begun(harness)
    client.send(auth(0x18, b"wrong"))
    assert refused_with(client) == 0x87
    assert not harness.broker.sessions


@clause("5.0", "MQTT-4.12.0-1")
def test_mqtt5_4_12_0_1_unknown_method(harness: BrokerHarness, make_harness: MakeHarness) -> None:
    """A method that nobody here speaks: 0x8C and close, also where no method is spoken at all."""
    for broker in (harness, make_harness()):
        client = broker.raw()
        client.send(connect(b"c", properties=method(b"unheard of")))
        assert refused_with(client) == 0x8C


@clause("5.0", "MQTT-3.1.2-30")
@pytest.mark.parametrize(
    "data",
    [publish(b"a", b"x"), publish(b"a", b"x", qos=1, pid=1), subscribe(1, (b"a", 0)), PINGREQ, connect(b"c")],
    ids=["PUBLISH", "PUBLISH QoS 1", "SUBSCRIBE", "PINGREQ", "CONNECT"],
)
def test_mqtt5_3_1_2_30_only_auth_before_connack(harness: BrokerHarness, data: bytes) -> None:
    """During the exchange anything but AUTH and DISCONNECT ends it, unprocessed."""
    watcher = harness.client("w")
    watcher.subscribe(b"#")
    client = begun(harness)
    client.send(data)
    assert refused_with(client) in {None, 0x82}
    assert watcher.messages() == []


@clause("5.0", "MQTT-3.1.2-30")
def test_mqtt5_3_1_2_30_disconnect_during_the_exchange(harness: BrokerHarness) -> None:
    """DISCONNECT is allowed and closes."""
    client = begun(harness)
    client.send(hexa("e0 00"))
    assert client.closed
    assert client.received_bytes() == b""


WRONG_AUTH = {
    "another method": auth(0x18, b"answer", b"three-step"),
    "no method": packet(0xF0, b"\x18" + props((AUTH_DATA, b"answer"))),
    "no properties": hexa("f0 01 18"),
    "empty": hexa("f0 00"),
    "success is for servers": auth(0x00, b"answer"),
    "re-authentication before CONNACK": auth(0x19, b"me"),
    "unknown reason code": auth(0x20, b"answer"),
    "method twice": packet(0xF0, b"\x18" + props((AUTH_METHOD, b"two-step"), (AUTH_METHOD, b"two-step"))),
}


@clause("5.0", "MQTT-4.12.0-3", "MQTT-4.12.0-5", "MQTT-3.15.2-1")
@pytest.mark.parametrize("data", WRONG_AUTH.values(), ids=WRONG_AUTH.keys())
def test_mqtt5_4_12_0_3_wrong_auth(harness: BrokerHarness, data: bytes) -> None:
    """Another method, another reason code or none: the exchange ends."""
    client = begun(harness)
    client.send(data)
    assert refused_with(client) in {None, 0x81, 0x82, 0x8C}
    assert not harness.broker.sessions


@clause("5.0", "MQTT-3.15.1-1")
@pytest.mark.parametrize("first", [0xF1, 0xF2, 0xFF])
def test_mqtt5_3_15_1_1_reserved_flags(harness: BrokerHarness, first: int) -> None:
    """AUTH with other flags than 0 is malformed, before and after CONNACK."""
    client = begun(harness)
    client.send(bytes([first]) + auth(0x18, b"answer")[1:])
    assert refused_with(client) in {None, 0x81}
    client = inside(harness)
    client.send(bytes([first]) + auth(0x19, b"me")[1:])
    assert closed_with(client) == 0x81


@clause("5.0", "MQTT-4.12.0-6", "MQTT-4.12.0-7")
def test_mqtt5_4_12_0_6_without_a_method(harness: BrokerHarness) -> None:
    """No method in CONNECT: no AUTH and no method from the server, and an AUTH of the client is an error."""
    client = harness.client("c")
    assert client.connack.properties.authentication_method is None
    assert client.connack.properties.authentication_data is None
    client.send(auth(0x19, b"me"))
    assert closed_with(client) == 0x82


@clause("5.0", "MQTT-4.12.1-1")
def test_mqtt5_4_12_1_1_re_authentication(harness: BrokerHarness) -> None:
    """AUTH 0x19 begins anew; the right answer is followed by AUTH 0x00; the client is served all along."""
    client = inside(harness)
    client.send(subscribe(1, (b"a", 0)))
    client.received()
    client.send(auth(0x19, b"me"))
    assert client.received_bytes() == auth(0x18, b"question")
    harness.client("p").publish(b"a", b"meanwhile")
    assert client.expect(Publish).payload == b"meanwhile"
    client.send(publish(b"a", b"own"))
    assert client.expect(Publish).payload == b"own"
    client.send(auth(0x18, b"answer"))
    assert client.received_bytes() == auth(0x00, b"welcome")
    client.send(auth(0x19, b"me"))
    assert client.received_bytes() == auth(0x18, b"question"), "and again whenever it likes"


@clause("5.0", "MQTT-4.12.1-1")
@pytest.mark.parametrize(
    "data",
    [auth(0x19, b"me", b"three-step"), auth(0x18, b"answer"), auth(0x00, b"answer")],
    ids=["another method", "continue without a beginning", "success"],
)
def test_mqtt5_4_12_1_1_wrong_re_authentication(harness: BrokerHarness, data: bytes) -> None:
    """Another method than that of CONNECT, or a step that does not fit, is a protocol error."""
    client = inside(harness)
    client.send(data)
    assert closed_with(client) == 0x82


@clause("5.0", "MQTT-4.12.1-2")
def test_mqtt5_4_12_1_2_failed_re_authentication(harness: BrokerHarness) -> None:
    """A wrong answer: DISCONNECT with the gate's reason, and close."""
    client = inside(harness)
    client.send(auth(0x19, b"me"))
    client.received()
    client.send(auth(0x18, b"wrong"))
    assert closed_with(client) == 0x87


def test_auth_with_reason_string(harness: BrokerHarness) -> None:
    """A client may say more in its AUTH; it is read over."""
    client = begun(harness)
    more = props((AUTH_METHOD, b"two-step"), (AUTH_DATA, b"answer"), (REASON_STRING, b"here it is"))
    client.send(packet(0xF0, b"\x18" + more))
    assert client.expect(Connack).reason == 0


def test_exchange_has_a_deadline(harness: BrokerHarness) -> None:
    """Who does not answer is closed by the connect timeout."""
    client = begun(harness)
    harness.advance(11_000)
    assert client.closed


# --- a gate that takes its time ---


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(
    ("verdict", "code"),
    [(Accept(Identity("c")), 0), (Refuse(0x86, "no"), 0x86)],
    ids=["accepted", "refused"],
)
def test_late_verdict(make_harness: MakeHarness, version: int, verdict: Verdict, code: int) -> None:
    """Nothing is answered or processed until the gate has decided; then what was sent meanwhile is, if accepted."""
    gate = LateGate()
    broker = make_harness(gate=gate)
    client = broker.raw(version)
    client.send(connect(b"c", version=version) + PINGREQ)
    client.expect_nothing()
    assert len(gate.requests) == 1
    assert not broker.broker.sessions
    broker.broker.auth_result(gate.requests[0], verdict, broker.now)
    broker.flush()
    answer = client.expect(Connack)
    if code:
        assert answer.reason == (code if version == 5 else 4)
        assert client.closed
        client.expect_nothing()
    else:
        assert answer.reason == 0
        assert client.received_bytes() == hexa("d0 00")


def test_late_verdict_after_the_client_left(make_harness: MakeHarness) -> None:
    """A verdict for a connection that is gone does nothing, also when the client has come back meanwhile."""
    gate = LateGate()
    broker = make_harness(gate=gate)
    first = broker.raw()
    first.send(connect(b"c"))
    first.drop()
    second = broker.raw()
    second.send(connect(b"c"))
    broker.broker.auth_result(gate.requests[0], Accept(Identity("c")), broker.now)
    broker.flush()
    assert not broker.broker.sessions
    second.expect_nothing()
    broker.broker.auth_result(gate.requests[1], Accept(Identity("c")), broker.now)
    broker.flush()
    assert second.expect(Connack).reason == 0


def test_expired_credentials_end_the_connection(make_harness: MakeHarness) -> None:
    """What a client proved itself with may run out; then it is told and closed."""

    class ShortGate(StepGate):
        def authenticate(self, request: AuthRequest) -> Verdict | None:
            return Accept(Identity(request.client_id), request.now_ms + 5_000)

    broker = make_harness(gate=ShortGate())
    client = broker.client("c")
    broker.advance(4_800)
    assert not client.closed
    broker.advance(400)
    assert closed_with(client) in {0x87, 0xA0}


# --- one clause, one test ---


@clause("5.0", "MQTT-3.15.2-1")
def test_mqtt5_3_15_2_1_reason_codes_of_auth(harness: BrokerHarness) -> None:
    """The server asks with 0x18 and ends a re-authentication with 0x00."""
    client = inside(harness)
    client.send(auth(0x19, b"me"))
    assert client.expect(Auth).reason == 0x18
    client.send(auth(0x18, b"answer"))
    assert client.expect(Auth).reason == 0x00


@clause("5.0", "MQTT-3.15.2-2", "MQTT-3.1.2-24")
def test_mqtt5_3_15_2_2_auth_fits_the_client(harness: BrokerHarness) -> None:
    """AUTH has no reason string; if even then it is too large it is not sent, and the exchange ends."""
    client = harness.raw()
    client.send(connect(b"c", properties=props((AUTH_METHOD, b"two-step"), (AUTH_DATA, b"me"), (MAX_PACKET, 100))))
    question = client.expect(Auth)
    assert question.properties.reason_string is None
    small = harness.raw()
    small.send(connect(b"d", properties=props((AUTH_METHOD, b"two-step"), (AUTH_DATA, b"me"), (MAX_PACKET, 12))))
    assert refused_with(small) == 0x95


@clause("5.0", "MQTT-3.15.2-3")
def test_mqtt5_3_15_2_3_auth_without_user_properties(harness: BrokerHarness) -> None:
    """AUTH does not return user properties."""
    client = harness.raw()
    pair = (USER_PROPERTY, (b"k", b"v"))
    client.send(connect(b"c", properties=props((AUTH_METHOD, b"two-step"), (AUTH_DATA, b"me"), pair)))
    assert client.expect(Auth).properties.user == []


@clause("5.0", "MQTT-4.12.0-7")
def test_mqtt5_4_12_0_7_auth_without_a_method(harness: BrokerHarness) -> None:
    """A client that connected without a method may not send AUTH."""
    for data in (hexa("f0 00"), auth(0x18, b"answer"), auth(0x19, b"me")):
        client = harness.client("c")
        client.send(data)
        assert closed_with(client) == 0x82


@clause("5.0", "MQTT-3.14.2-1", "MQTT-4.12.1-2")
def test_mqtt5_3_14_2_1_code_of_a_failed_re_authentication(make_harness: MakeHarness) -> None:
    """A gate's reason that only CONNACK has is told by one that DISCONNECT has."""

    class StrictGate(StepGate):
        def resume(self, request: AuthRequest, data: bytes) -> Verdict | None:
            return Refuse(0x86, "no") if data == b"wrong" else super().resume(request, data)

    client = inside(make_harness(gate=StrictGate()))
    client.send(auth(0x19, b"me"))
    client.received()
    client.send(auth(0x18, b"wrong"))
    assert closed_with(client) == 0x87
