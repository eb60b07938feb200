"""Durable topics of a namespace: stored with its prefix, given to its clients without."""

from __future__ import annotations

import pytest

from delivery_world import World, ask
from durable_broker import DurableBroker
from flockmq.mqtt import reasons
from flockmq.mqtt.packets import Will

INSIDE = b"$ns/acme/plant/a"


def world_of_acme(size: int = 1) -> World:
    world = World(size)
    world.create("plant", 5, filters=(b"$ns/acme/plant/#",))
    for number in range(1, size + 1):
        world[number].broker.set_listener_namespace("acme", "acme")
    return world


@pytest.mark.parametrize("key", [0, 1])
def test_what_is_published_inside_is_stored_with_its_prefix(key: int) -> None:
    broker = DurableBroker()
    broker.broker.set_listener_namespace("acme", "acme")
    topic = broker.topic(b"$ns/acme/plant", key=key)
    publisher = broker.client("p", listener="acme", will=Will(b"plant/will", b"3", 1))
    outsider = broker.client("p")
    packet = b"".join(b"\x32\x0d\x00\x07plant/a\x00" + bytes([pid]) + b"\x00" + b"%d" % pid for pid in (1, 2))
    publisher.send(packet)
    outsider.publish(b"plant/a", b"not in there", qos=1)
    broker.settle()
    publisher.drop()
    broker.settle()
    found = [(record.topic, record.client, record.payload) for record in broker.records(topic)]
    assert found[:2] == [(INSIDE, b"$ns/acme/p", b"1"), (INSIDE, b"$ns/acme/p", b"2")]
    assert [(one[0], one[2]) for one in found[2:]] == [(b"$ns/acme/plant/will", b"3")]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_committed_reaches_the_clients_of_the_namespace(version: int, qos: int) -> None:
    world = world_of_acme(2)
    inside = [world[1].client("w", version, listener="acme"), world[2].client("w2", version, listener="acme")]
    outside = world[1].client("w", version)
    for client in (*inside, outside):
        client.subscribe(b"#", qos)
        world.settle()
    world.commit(5, (INSIDE, b"1"), (INSIDE, b"2"), qos=qos)
    world.settle()
    for client in inside:
        assert [(one.topic, one.payload) for one in client.consume()] == [(b"plant/a", b"1"), (b"plant/a", b"2")]
    assert outside.consume() == []


def test_history_of_a_namespace_is_for_its_clients() -> None:
    world = world_of_acme()
    world.commit(5, (INSIDE, b"1"), (INSIDE, b"2"))
    inside = world[1].client("w", listener="acme")
    ask(inside, b"$replay/earliest/plant/#")
    world.settle()
    assert [(one.topic, one.payload) for one in inside.consume()] == [(b"plant/a", b"1"), (b"plant/a", b"2")]
    assert inside.unsubscribe(b"$replay/earliest/plant/#") == 0
    outside = world[1].client("o")
    answer = ask(outside, b"$replay/earliest/$ns/acme/plant/#")
    assert answer.reasons == [reasons.NOT_AUTHORIZED]
