from __future__ import annotations

import pytest

from flockmq.errors import FlockError
from flockmq.mqtt.packets import Connack, Connect
from flockmq.node.ports import AuthRequest, OpenGate, Verdict
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.testing.harness import FEEDINGS, BrokerHarness


def test_the_example_of_the_module() -> None:
    harness = BrokerHarness()
    sensor = harness.client("sensor")
    screen = harness.client("screen", version=4)
    screen.subscribe(b"plant/+/temperature", qos=1)
    sensor.publish(b"plant/7/temperature", b"21.5", qos=1)
    assert [message.payload for message in screen.consume()] == [b"21.5"]


@pytest.mark.parametrize("feeding", FEEDINGS)
def test_feeding_changes_nothing_but_the_pieces(feeding: str) -> None:
    harness = BrokerHarness(3, feeding=feeding)
    pieces = harness.pieces(b"0123456789")
    assert b"".join(pieces) == b"0123456789"
    assert (len(pieces) == 10) == (feeding == "bytes")
    client = harness.client("c")
    client.subscribe(b"a", qos=2)
    client.publish(b"a", b"x" * 500, qos=2)
    assert [message.payload for message in client.consume()] == [b"x" * 500]


def test_unknown_feeding_is_named() -> None:
    with pytest.raises(FlockError, match="use one of whole, bytes, random"):
        BrokerHarness(feeding="spoon")


def test_the_same_seed_does_the_same() -> None:
    def assigned(seed: int) -> str:
        return BrokerHarness(seed).client("").client_id

    assert assigned(1) == assigned(1) != assigned(2)


def test_time_passes_only_when_told() -> None:
    harness = BrokerHarness()
    client = harness.client("c", keep_alive_s=10)
    before = harness.now
    client.ping()
    assert harness.now == before
    harness.advance(16_000)
    assert harness.now == before + 16_000
    assert client.closed


def test_a_year_takes_no_more_steps_than_a_minute() -> None:
    harness = BrokerHarness(settings=BrokerSettings(sys_interval_ms=0))
    start = harness.now
    harness.advance(365 * 86_400_000)
    assert harness.now == start + 365 * 86_400_000


def test_a_refusal_is_a_failed_test_or_a_packet() -> None:
    harness = BrokerHarness(settings=BrokerSettings(sessions_max=1))
    harness.client("first")
    with pytest.raises(AssertionError, match="refused client 'second'"):
        harness.client("second")
    assert harness.connect(Connect(5, "second")).expect(Connack).reason == 0x97


@pytest.mark.parametrize(("version", "code"), [(5, 0x9F), (4, 3)])
def test_a_listener_without_room(version: int, code: int) -> None:
    client = BrokerHarness().connect(Connect(version, "c"), refuse_code=0x9F)
    assert client.expect(Connack).reason == code
    assert client.closed


def test_from_where_a_client_comes() -> None:
    seen: list[AuthRequest] = []

    class CuriousGate(OpenGate):
        def authenticate(self, request: AuthRequest) -> Verdict | None:
            seen.append(request)
            return super().authenticate(request)

    harness = BrokerHarness(gate=CuriousGate())
    limits = Limits(receive_max=9)
    client = harness.client("c", listener="tls", peer="10.1.1.1", certificate_name="device", limits=limits)
    (request,) = seen
    assert (request.listener, request.peer, request.certificate_name) == ("tls", "10.1.1.1", "device")
    assert client.connack.properties.receive_maximum == 9


def test_shutdown_reaches_everybody() -> None:
    harness = BrokerHarness()
    clients = [harness.client("a"), harness.client("b", version=4), harness.raw()]
    harness.shutdown()
    assert all(client.closed for client in clients)
