"""Retained messages reach a new subscriber completely, in pieces that it can take."""

from __future__ import annotations

from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.packets import Publish, Subscribe, SubscribeEntry
from flockmq.node.retained_feed import FEED_BYTES, RetainedFeed
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.node.turns import TURN
from flockmq.testing.harness import BrokerHarness, HarnessClient, make_properties

SIZE = 2_000


def filled(count: int, qos: int, limits: Limits | None = None) -> BrokerHarness:
    harness = BrokerHarness(settings=BrokerSettings(limits=limits or Limits()))
    publisher = harness.client("publisher", version=4)
    for number in range(count):
        publisher.publish(b"kept/%05d" % number, bytes(SIZE), qos=qos, retain=True)
    return harness


def payload_topics(client: HarnessClient) -> list[bytes]:
    return [packet.topic for packet in client.received() if isinstance(packet, Publish)]


def test_more_than_a_buffer_holds_arrives_completely() -> None:
    limits = Limits(write_bytes_max=2 * FEED_BYTES)
    harness = filled(1_000, 0, limits)
    client = harness.client("subscriber", version=4)
    client.subscribe(b"kept/#", qos=0)
    got = payload_topics(client)
    for _ in range(100):
        harness.advance(100)
        got += payload_topics(client)
    assert sorted(got) == [b"kept/%05d" % number for number in range(1_000)]
    assert harness.broker.stats.dropped_slow == 0


def test_more_than_a_queue_holds_arrives_completely() -> None:
    harness = filled(2_500, 1, Limits(queue_messages_max=1_200, inflight_max=10))
    client = harness.client("subscriber", version=5)
    client.subscribe(b"kept/#", qos=1)
    got = [message.topic for message in client.consume()]
    for _ in range(600):
        if len(got) == 2_500:
            break
        harness.advance(100)
        got += [message.topic for message in client.consume()]
    assert sorted(got) == [b"kept/%05d" % number for number in range(2_500)]
    assert harness.broker.stats.dropped_queue == 0


def test_turns_that_are_always_over_starve_none() -> None:
    harness = filled(5, 0)
    clients = [harness.client(f"subscriber{number}") for number in range(3)]
    for client in clients:
        harness.broker.receive(
            client.connection, encode_packet(Subscribe(1, [SubscribeEntry(b"kept/#")]), 5), harness.now
        )
    for left in (2, 1, 0):
        harness.broker.begin_turn()
        harness.broker.node.turns.work = TURN
        for connection in harness.broker.take_marked():
            connection.take()
        assert sum(client.connection.backlog is not None for client in clients) == left


def test_a_client_that_does_not_read_holds_a_bounded_amount() -> None:
    harness = filled(1_000, 0)
    client = harness.client("subscriber", version=4)
    client.block()
    for _ in range(50):
        client.send(Subscribe(1, [SubscribeEntry(b"kept/#")]))
    connection = harness.broker.sessions["subscriber"].connection
    assert connection is not None
    assert connection.out_bytes <= FEED_BYTES + SIZE + 100


def test_what_was_deleted_meanwhile_is_left_out() -> None:
    harness = filled(400, 0)
    client = harness.client("subscriber", version=4)
    client.block()
    client.send(Subscribe(1, [SubscribeEntry(b"kept/#")]))
    for number in range(400):
        harness.broker.publish(b"kept/%05d" % number, b"", 0, True, harness.now)
    client.unblock()
    harness.advance(1_000)
    packets = [packet for packet in client.received() if isinstance(packet, Publish)]
    deleted: set[bytes] = set()
    for packet in packets:
        assert not packet.retain or packet.topic not in deleted
        if not packet.payload:
            deleted.add(packet.topic)
    assert len(deleted) == 400


def test_small_bounds_hold_the_feed_back_and_lose_nothing() -> None:
    for qos in (0, 1, 2):
        harness = filled(60, qos, Limits(write_bytes_max=20_000, queue_messages_max=3, inflight_max=2))
        client = harness.client("subscriber", version=5)
        client.subscribe(b"kept/#", qos=qos)
        assert sorted(message.topic for message in client.consume()) == [b"kept/%05d" % number for number in range(60)]
        assert harness.broker.stats.dropped_slow + harness.broker.stats.dropped_queue == 0


def test_large_messages_wait_for_acknowledgements() -> None:
    harness = filled(60, 1, Limits(queue_bytes_max=20_000))
    client = harness.client("subscriber", version=5)
    client.subscribe(b"kept/#", qos=1)
    assert sorted(message.topic for message in client.consume()) == [b"kept/%05d" % number for number in range(60)]
    assert harness.broker.stats.dropped_queue == 0


def test_many_subscriptions_in_one_read_share_one_turn() -> None:
    harness = BrokerHarness()
    for number in range(600):
        harness.broker.publish(b"%d/kept" % number, b"x", 0, True, harness.now)
    client = harness.client("subscriber")
    packets = [Subscribe(1, [SubscribeEntry(b"+/none/%d" % number)]) for number in range(500)]
    harness.broker.receive(client.connection, b"".join(encode_packet(one, 5) for one in packets), harness.now)
    harness.broker.take_dirty()
    feed = client.connection.backlog
    assert isinstance(feed, RetainedFeed)
    assert 400 < len(feed.waiting) < 500
    for _ in range(20):
        client.drain()
        harness.flush()
    assert client.connection.backlog is None


def test_messages_that_are_too_large_take_their_time_as_well() -> None:
    harness = BrokerHarness()
    for number in range(8_000):
        harness.broker.publish(b"%d" % number, bytes(50), 0, True, harness.now)
    client = harness.client("subscriber", properties=make_properties(maximum_packet_size=50))
    harness.broker.receive(client.connection, encode_packet(Subscribe(1, [SubscribeEntry(b"#")]), 5), harness.now)
    harness.broker.take_dirty()
    assert client.connection.backlog is not None, "others have their turn"
    client.drain()
    harness.flush()
    assert client.connection.backlog is None
    assert client.messages() == []
