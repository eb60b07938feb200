from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.client.load.plan import (
    Load,
    Target,
    expected,
    filters_of_subscriber,
    topic_name,
    topics_of_publisher,
    topics_of_subscriber,
)
from flockmq.errors import FlockError


def matches(topic_filter: str, name: str) -> bool:
    """Brute force, level by level."""
    levels, names = topic_filter.split("/"), name.split("/")
    for at, level in enumerate(levels):
        if level == "#":
            return True
        if at >= len(names) or level not in {"+", names[at]}:
            return False
    return len(levels) == len(names)


@given(
    st.integers(1, 6),
    st.integers(0, 6),
    st.integers(1, 12),
    st.sampled_from(["each", "plus", "wild", "share"]),
    st.lists(st.integers(0, 50), min_size=6, max_size=6),
)
def test_expected_is_what_matching_every_filter_by_hand_gives(
    publishers: int, subscribers: int, topics: int, kind: str, sent: list[int]
) -> None:
    load = Load(publishers=publishers, subscribers=subscribers, topics=topics, filter=kind)
    total = 0
    for publisher in range(publishers):
        names = [topic_name(load, topic) for topic in topics_of_publisher(load, publisher)]
        for index in range(sent[publisher]):
            name = names[index % len(names)]
            if kind == "share":
                total += subscribers > 0
                continue
            for subscriber in range(subscribers):
                total += sum(matches(one, name) for one in filters_of_subscriber(load, subscriber))
    assert expected(load, sent[:publishers]) == total


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 300))
def test_every_topic_has_a_publisher_and_a_subscriber(publishers: int, subscribers: int, topics: int) -> None:
    load = Load(publishers=publishers, subscribers=subscribers, topics=topics)
    published = Counter(topic for index in range(publishers) for topic in topics_of_publisher(load, index))
    heard = Counter(topic for index in range(subscribers) for topic in topics_of_subscriber(load, index))
    assert set(published) == set(heard) == set(range(topics))


@given(st.integers(1, 5000), st.booleans())
def test_all_names_of_a_load_have_one_length(topics: int, fresh: bool) -> None:
    load = Load(topics=topics, filter="plus", fresh_names=fresh)
    assert len(topic_name(load, 0)) == len(topic_name(load, topics - 1))


def test_more_subscriptions_than_topics_are_shared_out_and_change_nothing_that_is_expected() -> None:
    load = Load(subscribers=3, topics=4, filter="plus", subscriptions=1000)
    filters = [one for index in range(3) for one in filters_of_subscriber(load, index)]
    assert len(set(filters)) == 1000
    assert expected(load, [8]) == 8


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"qos": 3}, "QoS 3"),
        ({"version": 3}, "Protocol level 3"),
        ({"publishers": 0, "subscribers": 0}, "Nothing to do"),
        ({"topic_alias": True}, "need MQTT 5"),
        ({"user_properties": 1}, "need MQTT 5"),
        ({"rate": 10, "payload_bytes": 4}, "at least 8 bytes"),
        ({"fresh_names": True}, "Fresh names"),
        ({"fresh_names": True, "filter": "wild", "topic_alias": True, "version": 5}, "aliases"),
        ({"messages": 0, "seconds": 0}, "when to end"),
        ({"window": 0}, "window"),
        ({"subscriptions": 5}, "filter plus"),
        ({"subscriptions": 5, "topics": 6, "filter": "plus"}, "filter plus"),
        ({"topics": 60_000}, "add publishers"),
        ({"prefix": "a/#"}, "prefix"),
        ({"filter": "some"}, "unknown"),
    ],
)
def test_contradictions_are_refused_with_a_reason(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(FlockError, match=words):
        Load(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("wrong", "words"), [({"port": 0}, "Port 0"), ({"transport": "udp"}, "udp")])
def test_a_target_that_can_not_be_is_refused(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(FlockError, match=words):
        Target(**wrong)  # type: ignore[arg-type]
