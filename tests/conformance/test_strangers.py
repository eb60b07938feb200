"""Before a client is known it may cost little: bytes, properties and half-sent CONNECTs are bounded before decoding."""

from __future__ import annotations

import pytest

from conformance.checks import closed_silently, closed_with, refused_with
from conformance.conftest import MakeHarness
from conformance.gates import LateGate
from conformance.wire import USER_PROPERTY, connect, hexa, props, publish, subscribe, unsubscribe
from flockmq.mqtt.packets import Connack, Connect, Publish
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.testing.harness import BrokerHarness

EMPTY = (USER_PROPERTY, (b"", b""))
MEGABYTE_HEAD = hexa("10 ff ff 3f")


@pytest.mark.parametrize("version", [5, 6])
def test_a_large_connect_is_refused_when_it_is_announced(harness: BrokerHarness, version: int) -> None:
    client = harness.raw()
    client.send(MEGABYTE_HEAD + b"\x00\x04MQTT" + bytes((version, 2, 0)))
    assert refused_with(client) == 0x95
    assert harness.broker.node.strangers.held_bytes == 0


def test_a_large_connect_of_an_older_client_ends_the_connection(harness: BrokerHarness) -> None:
    client = harness.raw(4)
    client.send(MEGABYTE_HEAD + b"\x00\x04MQTT\x04\x02\x00")
    assert client.received_bytes() == hexa("20 02 00 03")
    assert client.closed


def test_something_large_that_is_no_connect(harness: BrokerHarness) -> None:
    client = harness.raw()
    client.send(MEGABYTE_HEAD + b"GET / HTTP/1.1")
    closed_silently(client)


def test_larger_packets_are_taken_from_who_is_in(harness: BrokerHarness) -> None:
    client = harness.client("c")
    client.subscribe(b"a")
    client.send(publish(b"a", b"x" * 100_000))
    assert len(client.expect(Publish).payload) == 100_000


def test_properties_of_a_connect_are_counted(make_harness: MakeHarness) -> None:
    harness = make_harness(limits=Limits(connect_properties_max=3))
    client = harness.raw()
    client.send(connect(properties=props(*[EMPTY] * 3)))
    assert client.expect(Connack).reason == 0
    client = harness.raw()
    client.send(connect(properties=props(*[EMPTY] * 4)))
    assert refused_with(client) == 0x97


@pytest.mark.parametrize("count", [3, 4])
def test_properties_of_later_packets_are_counted(make_harness: MakeHarness, count: int) -> None:
    harness = make_harness(limits=Limits(properties_max=3))
    found = props(*[EMPTY] * count)
    for packet in (publish(b"a", b"x", properties=found), subscribe(1, (b"a", 0), properties=found)):
        client = harness.client("c")
        client.send(packet)
        if count > 3:
            assert closed_with(client) == 0x97
        else:
            client.received()
            client.ping()


def test_filters_of_a_packet_are_counted(make_harness: MakeHarness) -> None:
    harness = make_harness(limits=Limits(filters_max=2))
    two, three = (b"a", b"b"), (b"a", b"b", b"c")
    for taken, refused in (
        (subscribe(1, *[(one, 0) for one in two]), subscribe(2, *[(one, 0) for one in three])),
        (unsubscribe(1, *two), unsubscribe(2, *three)),
    ):
        client = harness.client("c")
        client.send(taken)
        client.received()
        client.ping()
        client.send(refused)
        assert closed_with(client) == 0x97


def test_half_sent_connects_share_a_budget(make_harness: MakeHarness) -> None:
    """The one that has held bytes for the longest time goes first, however many came since."""
    harness = make_harness(BrokerSettings(strangers_bytes_max=1_100))
    half = connect(b"c" * 600)[:400]
    clients = [harness.raw() for _ in range(4)]
    for client in clients[1:]:
        client.send(half)
    assert [client.closed for client in clients] == [False, True, False, False]
    assert harness.broker.node.strangers.held_bytes == 800
    assert harness.broker.stats.strangers_closed == 1
    clients[2].send(connect(b"c" * 600)[400:])
    assert clients[2].expect(Connack).reason == 0
    assert harness.broker.node.strangers.held_bytes == 400
    clients[3].drop()
    assert (harness.broker.node.strangers.held_bytes, harness.broker.node.strangers.count) == (0, 1)


def test_connects_that_are_being_judged_count_as_well(make_harness: MakeHarness) -> None:
    harness = make_harness(BrokerSettings(strangers_bytes_max=1_000), gate=LateGate())
    first, second = harness.raw(), harness.raw()
    first.send(connect(b"c" * 600))
    second.send(connect(b"d" * 600))
    assert refused_with(first) == 0x89
    assert not second.closed


def test_too_many_strangers(make_harness: MakeHarness) -> None:
    harness = make_harness(BrokerSettings(strangers_max=2))
    known = harness.client("known")
    clients = [harness.raw() for _ in range(3)]
    assert [client.closed for client in clients] == [True, False, False]
    known.ping()
    harness.client("later")
    assert not clients[2].closed


def test_a_banned_address_is_not_read(make_harness: MakeHarness) -> None:
    """What it says in its CONNECT does not matter, so it is not waited for."""
    harness = make_harness()
    harness.broker.bans.add("address", "10.0.0.1", 0, "misbehaved", harness.now)
    client = harness.raw(peer="10.0.0.1")
    client.send(connect(b"c" * 600)[:20])
    assert refused_with(client) == 0x8A
    assert refused_with(harness.connect(Connect(5, "d"), peer="10.0.0.1")) == 0x8A
