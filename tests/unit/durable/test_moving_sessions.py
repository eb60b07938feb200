"""Sessions take their places in logs along when they move to another node: nothing is lost, nothing comes twice."""

from __future__ import annotations

import pytest

from delivery_world import Node, World, ask, got, numbered
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.peering.session_codec import decode_session, encode_session
from flockmq.session.places import POSITION
from flockmq.session.session import Session
from flockmq.testing.harness import HarnessClient, make_properties

A = b"plant/a"
B = b"plant/b"


def plant(size: int = 2, on: tuple[int, ...] = (1, 2), queue: int = 1_000) -> World:
    world = World(size, BrokerSettings(limits=Limits(queue_messages_max=queue)))
    world.create("plant", 5, on=on)
    world.run(700)
    return world


def persistent(node: Node, window: int = 100) -> HarnessClient:
    properties = make_properties(receive_maximum=window)
    return node.client("c", session_expiry_s=600, properties=properties)


def leave(node: Node) -> Session:
    """What the old owner does: the session is not its own any more, though the table knows it still."""
    session = node.broker.sessions.pop("c")
    node.delivery.replay.leaving(session)
    return session


def arrive(world: World, node: Node, session: Session) -> None:
    """What the new owner does with what it was sent."""
    moved = decode_session("c", encode_session(session, -1, -1, world.now), world.now, 1_000, 1_000_000).session
    node.broker.sessions["c"] = moved
    for subscription in moved.subscriptions.values():
        node.broker.node.table.add(subscription)
    node.delivery.replay.arrived(moved, world.now)
    world.settle()


def forget(node: Node, session: Session) -> None:
    for subscription in session.subscriptions.values():
        node.broker.node.table.remove(session, b"", subscription.topic_filter)
    session.subscriptions = {}
    node.world.settle()


def move(world: World, source: int, target: int) -> HarnessClient:
    session = leave(world[source])
    world.commit(5, (A, b"on the way"))
    arrive(world, world[target], session)
    world.commit(5, (A, b"at both"))
    forget(world[source], session)
    assert world[source].delivery.readers.catching == {}
    return world[target].client("c", clean_start=False, session_expiry_s=600)


@pytest.mark.parametrize("on", [(1, 2), (1,), (2,)])
def test_a_session_that_is_live_goes_on_at_the_same_offset(on: tuple[int, ...]) -> None:
    world = plant(on=on)
    client = persistent(world[1])
    ask(client, b"plant/#")
    world.commit(5, (A, b"1"))
    assert got(client.consume()) == [b"1"]
    client.drop()
    world.commit(5, (A, b"2"))
    back = move(world, 1, 2)
    world.commit(5, (A, b"3"))
    world.run(700)
    assert got(back.consume()) == [b"2", b"on the way", b"at both", b"3"]
    assert world[2].delivery.readers.catching == {}


def test_a_session_that_is_slow_takes_its_backlog_along() -> None:
    world = plant(queue=4)
    client = persistent(world[1], window=1)
    ask(client, b"plant/#")
    client.drop()
    world.commit(5, *numbered(A, 50))
    back = move(world, 1, 2)
    assert got(back.consume()) == [*[b"%d" % number for number in range(50)], b"on the way", b"at both"]


def test_a_replay_goes_on_for_the_subscription_that_asked_for_it() -> None:
    world = plant(queue=4)
    world.commit(5, *[record for number in range(20) for record in ((A, b"a%d" % number), (B, b"b%d" % number))])
    client = persistent(world[1], window=1)
    ask(client, B)
    ask(client, A, start="earliest")
    client.drop()
    back = move(world, 1, 2)
    world.commit(5, (B, b"new"))
    expected = [*[b"a%d" % number for number in range(20)], b"on the way", b"at both", b"new"]
    assert got(back.consume()) == expected


def test_a_node_that_is_behind_delivers_nothing_twice() -> None:
    world = plant()
    client = persistent(world[1])
    ask(client, b"plant/#")
    keeper = world[2].client("keeper")  # the stream of node 2 is there, and will be behind
    ask(keeper, b"plant/#")
    world.commit(5, *numbered(A, 3), apply=False)
    world.apply(1, 5)
    seen = got(client.consume())
    client.drop()
    session = leave(world[1])
    arrive(world, world[2], session)
    forget(world[1], session)
    back = world[2].client("c", clean_start=False, session_expiry_s=600)
    world.apply(2, 5)
    world.commit(5, (A, b"new"))
    assert seen + got(back.consume()) == [b"0", b"1", b"2", b"new"]


def test_a_session_that_stays_after_all_goes_on() -> None:
    world = plant()
    client = persistent(world[1])
    ask(client, b"plant/#")
    client.drop()
    session = leave(world[1])
    assert [(place.kind, place.group, place.offset) for place in session.places or []] == [(POSITION, 5, 0)]
    world.commit(5, *numbered(A, 3))
    world[1].broker.sessions["c"] = session
    world[1].delivery.replay.stayed(session)
    back = world[1].client("c", clean_start=False, session_expiry_s=600)
    assert got(back.consume()) == [b"0", b"1", b"2"]


def test_sessions_without_durable_topics_carry_nothing() -> None:
    world = plant()
    client = persistent(world[1])
    ask(client, b"elsewhere/#")
    client.drop()
    assert leave(world[1]).places is None
    assert world[1].delivery.readers.catching == {}
