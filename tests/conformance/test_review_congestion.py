"""Publishers wait for slow subscribers: every way in which the waiting begins has its end, and no burst is lost."""

from __future__ import annotations

from conformance.conftest import MakeHarness
from conformance.wire import DISCONNECT, publish, publish3
from flockmq.mqtt.packets import Will
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.testing.harness import BrokerHarness, HarnessClient


def crowd(harness: BrokerHarness, publisher: HarnessClient, count: int = 12) -> None:
    """More than half of 20,000 bytes for a subscriber that does not read."""
    for _ in range(count):
        publisher.send(publish(b"a", b"x" * 1_000))
    assert is_paused(publisher)


def is_paused(client: HarnessClient) -> bool:
    """Whether the broker does not read from it now."""
    return client.connection.reading_paused


def small_buffers(make_harness: MakeHarness, grace_ms: int = 1_000, **limits: int) -> BrokerHarness:
    """Subscribers are crowded with 10,000 bytes."""
    return make_harness(
        BrokerSettings(limits=Limits(write_bytes_max=20_000, **limits), congestion_grace_ms=grace_ms, sys_interval_ms=0)
    )


def test_a_reader_that_recovered_has_its_grace_again(make_harness: MakeHarness) -> None:
    """The end of a grace that was not used up means nothing to one that began later."""
    harness = small_buffers(make_harness)
    slow = harness.client("slow")
    slow.subscribe(b"a")
    publisher = harness.client("p")
    slow.block()
    crowd(harness, publisher)
    harness.advance(100)
    slow.unblock()
    assert not is_paused(publisher)
    harness.advance(700)
    slow.block()
    crowd(harness, publisher)
    harness.advance(500)  # 1,300 after the first time, 500 after the second
    assert is_paused(publisher)
    harness.advance(600)
    assert not is_paused(publisher)
    assert slow.connection.out_of_grace


def test_a_reader_that_recovered_is_not_out_of_grace(make_harness: MakeHarness) -> None:
    """Once it has read everything, the time that it took is forgotten."""
    harness = small_buffers(make_harness)
    slow = harness.client("slow")
    slow.subscribe(b"a")
    publisher = harness.client("p")
    slow.block()
    crowd(harness, publisher)
    slow.unblock()
    harness.advance(5_000)
    assert not slow.connection.out_of_grace
    assert len(slow.messages()) == 12


def test_a_buffer_that_is_written_at_once_is_no_congestion(make_harness: MakeHarness) -> None:
    """A transport that takes everything never says that it was full: publishers go on in the next loop turn."""
    harness = small_buffers(make_harness)
    reader = harness.client("reader")
    reader.subscribe(b"a")
    publisher = harness.client("p")
    for _ in range(10):
        publisher.send(b"".join(publish(b"a", b"x" * 1_000) for _ in range(15)))
        assert not is_paused(publisher)
    harness.advance(5_000)
    assert not reader.connection.out_of_grace
    assert len(reader.messages()) == 150
    assert harness.broker.stats.dropped_slow == 0


def test_out_of_grace_ends_when_all_is_read(make_harness: MakeHarness) -> None:
    """Who reads again is waited for again."""
    harness = small_buffers(make_harness)
    slow = harness.client("slow")
    slow.subscribe(b"a")
    publisher = harness.client("p")
    slow.block()
    crowd(harness, publisher)
    harness.advance(1_200)
    publisher.send(b"".join(publish(b"a", b"x" * 1_000) for _ in range(40)))
    assert harness.broker.stats.dropped_slow > 0
    slow.unblock()
    assert not slow.connection.out_of_grace


def test_a_burst_in_one_read_is_held_back(make_harness: MakeHarness) -> None:
    """What was read already waits as well: a subscriber that is slow for a moment loses nothing of it."""
    harness = small_buffers(make_harness, 5_000)
    slow = harness.client("slow")
    slow.subscribe(b"+")
    publisher = harness.client("p", version=4)
    slow.block()
    topics = [b"a", b"b"]
    publisher.send(b"".join(publish3(topics[number % 2], b"x" * 1_000 + b"%d" % number) for number in range(60)))
    got: list[int] = []
    for _ in range(20):
        slow.unblock()
        got += [int(message.payload[1_000:]) for message in slow.messages()]
        slow.block()
    assert got == list(range(60))
    assert harness.broker.stats.dropped_slow == 0
    assert not is_paused(publisher)


def test_a_burst_of_qos_1_reaches_a_subscriber_that_keeps_up(make_harness: MakeHarness) -> None:
    """Far more messages in one read than a queue may hold, all of them to one topic."""
    harness = make_harness(BrokerSettings(limits=Limits(queue_messages_max=4_000), congestion_grace_ms=60_000))
    reader = harness.client("reader", version=4)
    reader.subscribe(b"a", qos=1)
    publisher = harness.client("p", version=4)
    count = 9_000 if harness.feeding != "bytes" else 100
    publisher.send(b"".join(publish3(b"a", b"%d" % number, qos=1, pid=number + 1) for number in range(count)))
    assert [int(message.payload) for message in reader.consume()] == list(range(count))
    assert harness.broker.stats.dropped_queue == 0
    assert not is_paused(publisher)


def test_what_was_held_back_counts_when_the_connection_is_lost(make_harness: MakeHarness) -> None:
    """A DISCONNECT that was read but not looked at yet still voids the will; messages before it still arrive."""
    harness = small_buffers(make_harness, 60_000)
    slow = harness.client("slow")
    slow.subscribe(b"a")
    watcher = harness.client("watcher")
    watcher.subscribe(b"#")
    publisher = harness.client("p", will=Will(b"will", b"gone"))
    slow.block()
    burst = b"".join(publish(b"a", b"x" * 1_000) for _ in range(15))
    harness.broker.receive(publisher.connection, burst + publish(b"last") + DISCONNECT, harness.now)
    publisher.drop()
    assert watcher.topics() == [b"a"] * 15 + [b"last"]


def test_keep_alive_does_not_run_while_the_broker_does_not_read(make_harness: MakeHarness) -> None:
    """Nor does it end the connection in the moment in which the waiting ends."""
    harness = small_buffers(make_harness, 4_000)
    slow = harness.client("slow")
    slow.subscribe(b"a")
    slow.block()
    publisher = harness.client("p", keep_alive_s=1)
    crowd(harness, publisher)
    harness.advance(4_500)
    assert not publisher.closed
    publisher.ping()
    harness.advance(2_000)
    assert publisher.closed


def test_a_subscriber_that_leaves_lets_its_publishers_go(make_harness: MakeHarness) -> None:
    """By any way: lost, kicked, taken over."""
    harness = small_buffers(make_harness, 60_000)
    publisher = harness.client("p")
    for how in ("drop", "kick", "takeover"):
        slow = harness.client("slow")
        slow.subscribe(b"a")
        slow.block()
        crowd(harness, publisher)
        if how == "drop":
            slow.drop()
        elif how == "kick":
            harness.broker.kick("slow", harness.now)
            harness.flush()
        else:
            harness.client("slow")
        assert not is_paused(publisher), how
        publisher.ping()
        publisher.received()


def test_a_publisher_that_leaves_is_not_waited_on(make_harness: MakeHarness) -> None:
    """Its place in the list of those who wait harms nobody, and the next connection of the client starts afresh."""
    harness = small_buffers(make_harness)
    slow = harness.client("slow")
    slow.subscribe(b"a")
    slow.block()
    first = harness.client("p")
    crowd(harness, first)
    second = harness.client("p")
    assert not is_paused(second)
    second.ping()
    slow.unblock()
    second.ping()
    harness.advance(35_000)  # also those of packets that came in halves
    assert harness.broker.node.timers.count == 1, "only the sweep is left"
