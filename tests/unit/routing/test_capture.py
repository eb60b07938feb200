from __future__ import annotations

import random

from flockmq.routing.capture import NEVER, Capture
from flockmq.routing.durable import DurableTopic
from flockmq.routing.table import SubscriptionTable
from routing_cases import session_of, subscription_of


def table_of() -> SubscriptionTable:
    return SubscriptionTable(100, "round_robin", random.Random(1))


def matches(capture: Capture, topic: bytes) -> bool:
    return capture.matches(topic, topic.split(b"/"))


def test_a_filter_counts_until_the_last_shard_takes_it_back() -> None:
    capture = Capture()
    for topic_filter, topic in ((b"a/#", b"a/b"), (b"x/y", b"x/y")):
        assert capture.put(0, topic_filter)
        assert not capture.put(3, topic_filter)
        assert not capture.put(3, topic_filter)
        assert not capture.remove(0, topic_filter)
        assert not capture.remove(0, topic_filter)
        assert matches(capture, topic)
        assert capture.remove(3, topic_filter)
        assert not matches(capture, topic)
    assert len(capture) == 0


def test_a_shard_announces_all_its_filters_anew() -> None:
    capture = Capture()
    for topic_filter in (b"old/#", b"both", b"shared/+"):
        capture.put(1, topic_filter)
    capture.put(2, b"shared/+")
    announced = [b"both", b"new/+"]
    assert capture.put_all(1, announced) == [b"new/+"]
    assert capture.remove_all(1, capture.differing(1, announced)) == [b"old/#"]
    assert capture.filters() == [b"both", b"new/+", b"shared/+"]
    assert matches(capture, b"shared/x")
    assert not matches(capture, b"old/x")


def test_wildcards_at_the_beginning_leave_names_with_a_dollar_alone() -> None:  # [MQTT-4.7.2-1]
    capture = Capture()
    capture.put(0, b"#")
    assert matches(capture, b"a")
    assert not matches(capture, b"$SYS/a")
    capture.put(0, b"$SYS/#")
    assert matches(capture, b"$SYS/a")


def test_a_node_without_the_hidden_topic_needs_no_lease() -> None:
    table = table_of()
    assert table.capture.lapses_at == NEVER
    topic = DurableTopic(b"default", b"$capture", [], [5, 6])
    table.capture_in(topic)
    assert table.capture.lapses_at == 0, "it knows of no filter yet"
    assert table.capture.groups == {5, 6}
    table.capture.lapses_at = 99
    table.capture_in(topic)
    assert table.capture.lapses_at == 99, "the topic has changed, what is known of filters stays"


def test_plans_follow_the_filters() -> None:
    table = table_of()
    topic = DurableTopic(b"default", b"$capture", [], [5])
    table.add(subscription_of(session_of("c"), b"a/b"))
    assert table.plan(b"a/b").captured is None
    assert table.plan(b"a/b").captured is None
    table.capture_in(topic)
    assert table.plan(b"a/b").captured is None
    table.capture.put(0, b"a/+")
    table.topics_changed([b"a/+"])
    assert table.plan(b"a/b").captured is topic
    table.capture.remove(0, b"a/+")
    table.topics_changed([b"a/+"])
    assert table.plan(b"a/b").captured is None


def test_a_declared_topic_keeps_its_messages_itself() -> None:
    table = table_of()
    table.capture_in(DurableTopic(b"default", b"$capture", [], [5]))
    table.capture.put(0, b"#")
    declared = DurableTopic(b"default", b"a", [b"a/#"], [6])
    table.topics.put(declared)
    table.topics_changed(declared.filters)
    assert table.plan(b"a/b").captured is None
    assert table.plan(b"a/b").durable is declared
    assert table.plan(b"b").captured is not None
