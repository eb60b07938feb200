"""Retained messages reach a new subscriber completely, in pieces that it can take."""

from __future__ import annotations

from flockmq.mqtt.packets import Publish, Subscribe, SubscribeEntry
from flockmq.node.retained_feed import FEED_BYTES
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.testing.harness import BrokerHarness, HarnessClient

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
