"""Which durable topics somebody here may get something of."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.durable.deliver import interest as module
from flockmq.durable.deliver.interest import Interest, could_match
from flockmq.mqtt.topics import matches
from flockmq.routing.durable import DurableTopic, TopicMap
from flockmq.routing.table import SubscriptionTable
from routing_cases import FILTER, NAME, session_of, subscription_of


def topic_of(name: str, *filters: bytes) -> DurableTopic:
    return DurableTopic(b"default", name.encode(), list(filters) or [f"{name}/#".encode()], [5])


def watching(*topics: DurableTopic) -> Interest:
    table = SubscriptionTable(100, "random", random.Random(1))
    table.topics = TopicMap(1, list(topics))
    found = Interest(table)
    found.follow()
    return found


def subscribe(interest: Interest, topic_filter: bytes, group: bytes = b"") -> None:
    interest.table.add(subscription_of(session_of("one"), topic_filter, group))
    interest.note(topic_filter)


def wanted(interest: Interest) -> list[bytes]:
    return [topic.name for topic in interest.topics.values() if interest.is_wanted(topic)]


@pytest.mark.parametrize(
    ("topic_filter", "expected"),
    [
        (b"plant/a", [b"plant"]),
        (b"plant/#", [b"plant"]),
        (b"plant", [b"plant"]),
        (b"+/a", [b"plant", b"farm"]),
        (b"#", [b"plant", b"farm"]),
        (b"other/#", []),
        (b"other", []),
    ],
)
def test_a_filter_wants_the_topics_it_overlaps(topic_filter: bytes, expected: list[bytes]) -> None:
    interest = watching(topic_of("plant"), topic_of("farm", b"farm/+", b"yard/#"))
    subscribe(interest, topic_filter)
    assert wanted(interest) == expected


def test_topics_that_begin_with_a_wildcard_are_found() -> None:
    interest = watching(topic_of("any", b"+/temperature"))
    subscribe(interest, b"plant/temperature")
    assert wanted(interest) == [b"any"]
    other = watching(topic_of("any", b"+/temperature"))
    subscribe(other, b"plant/+")
    assert wanted(other) == [b"any"]


def test_shared_subscriptions_do_not_count() -> None:
    interest = watching(topic_of("plant"))
    subscribe(interest, b"plant/#", b"group")
    assert wanted(interest) == []


def test_the_last_one_to_leave_ends_it() -> None:
    interest = watching(topic_of("plant"))
    one, other = session_of("one"), session_of("other")
    for session, topic_filter in ((one, b"plant/#"), (other, b"plant/a")):
        interest.table.add(subscription_of(session, topic_filter))
        interest.note(topic_filter)
    interest.table.remove(one, b"", b"plant/#")
    interest.note(b"plant/#")
    assert wanted(interest) == [b"plant"]
    interest.table.remove(other, b"", b"plant/a")
    interest.note(b"plant/a")
    assert wanted(interest) == []


def test_topics_that_come_change_and_go() -> None:
    interest = watching()
    subscribe(interest, b"plant/#")
    plant = topic_of("plant")
    interest.table.topics = TopicMap(2, [plant])
    assert interest.follow() == ([plant], [])
    assert wanted(interest) == [b"plant"]
    elsewhere = topic_of("plant", b"elsewhere/#")
    interest.table.topics = TopicMap(3, [elsewhere])
    assert interest.follow() == ([elsewhere], [])
    assert wanted(interest) == []
    interest.table.topics = TopicMap(4, [])
    assert interest.follow() == ([], [elsewhere])
    assert interest.overlapping(b"elsewhere/#") == []


def test_among_very_many_filters_a_new_topic_counts_as_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILTERS_MAX", 1)
    interest = watching()
    subscribe(interest, b"a")
    subscribe(interest, b"b")
    interest.table.topics = TopicMap(2, [topic_of("plant")])
    interest.follow()
    assert wanted(interest) == [b"plant"]


@given(st.lists(FILTER, min_size=1, max_size=3), FILTER, NAME)
def test_no_topic_is_missed(captured: list[bytes], topic_filter: bytes, name: bytes) -> None:
    topic = topic_of("any", *captured)
    if matches(topic_filter, name) and any(matches(one, name) for one in captured):
        assert could_match(topic, topic_filter)
        assert watching(topic).overlapping(topic_filter) == [topic]


def test_a_topic_without_filters_is_wanted_by_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILTERS_MAX", 1)
    hidden = DurableTopic(b"default", b"$capture", [], [5, 6])
    interest = watching()
    subscribe(interest, b"#")
    subscribe(interest, b"plant/#")
    interest.table.topics = TopicMap(2, [hidden, topic_of("plant")])
    assert interest.follow() == ([hidden, interest.topics[b"default/plant"]], [])
    assert wanted(interest) == [b"plant"]
    assert interest.overlapping(b"#") == [interest.topics[b"default/plant"]]
    interest.table.topics = TopicMap(3, [])
    assert interest.follow()[1][0] is hidden
