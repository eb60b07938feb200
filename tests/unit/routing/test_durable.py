"""Durable topics: which one a name belongs to, and which partition a message."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.mqtt.topics import matches
from flockmq.routing.durable import BY_CLIENT, BY_PROPERTY, MANY_GROUPS, DurableTopic, TopicMap, shard_of
from flockmq.routing.table import SubscriptionTable
from routing_cases import FILTER, NAME, session_of, subscription_of


def topic_of(name: bytes, *filters: bytes, groups: tuple[int, ...] = (7,), key: int = 0) -> DurableTopic:
    return DurableTopic(b"default", name, list(filters) or [name + b"/#"], list(groups), key=key)


def table_of(*topics: DurableTopic) -> SubscriptionTable:
    table = SubscriptionTable(100, "round_robin", random.Random(1))
    table.topics = TopicMap(1, list(topics))
    return table


@given(st.lists(FILTER, max_size=6, unique=True), st.lists(NAME, min_size=1, max_size=6))
def test_a_name_belongs_to_the_topic_with_a_filter_that_matches(filters: list[bytes], names: list[bytes]) -> None:
    topics = [topic_of(b"%d" % number, topic_filter) for number, topic_filter in enumerate(filters)]
    found = TopicMap(1, topics)
    for name in names:
        matching = [topic for topic in topics if matches(topic.filters[0], name)]
        topic = found.find(name)
        assert (topic is None) == (not matching)
        assert topic is None or topic in matching


@given(st.lists(st.tuples(st.integers(0, 3), st.lists(FILTER, max_size=3)), max_size=12), NAME)
def test_topics_come_change_and_go(changes: list[tuple[int, list[bytes]]], name: bytes) -> None:
    """Only changes that cluster state would let through: no two topics with the same filter."""
    topics = TopicMap()
    held: dict[bytes, DurableTopic] = {}
    for number, filters in changes:
        identity = b"default/%d" % number
        taken = {topic_filter for key, topic in held.items() if key != identity for topic_filter in topic.filters}
        if filters:
            held[identity] = topic_of(b"%d" % number, *[one for one in filters if one not in taken])
            topics.put(held[identity])
        else:
            held.pop(identity, None)
            topics.remove(identity)
    assert topics.topics == held
    expected = [topic for topic in held.values() if any(matches(one, name) for one in topic.filters)]
    found = topics.find(name)
    assert (found in expected) if expected else found is None


@pytest.mark.parametrize(
    ("key", "shards", "shard"),
    [(b"", 3, 0), (b"a/b", 1, 0), (b"123456789", 1000, 643), ("größe/7".encode(), 65_536, 15_879)],
)
def test_shards_are_the_same_for_ever(key: bytes, shards: int, shard: int) -> None:
    assert shard_of(key, shards) == shard


PREFIXES = (
    b"plant/",
    b"gap/",
    b"device-",
    b"a",
    b"sensors/temperature/",
    b"plant/line-1/",
    b"robot/",
    b"t/",
    b"$ns/acme/plant/",
)


def counts_of(prefix: bytes, names: int, shards: int) -> list[int]:
    """How many of so many numbered names fall on each shard."""
    found = [shard_of(prefix + b"%d" % number, shards) for number in range(names)]
    return [found.count(shard) for shard in range(shards)]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("shards", [2, 3, 4, 6, 8, 12])
def test_a_thousand_numbered_names_are_spread_evenly(prefix: bytes, shards: int) -> None:
    mean = 1_000 / shards
    assert all(0.75 * mean <= count <= 1.25 * mean for count in counts_of(prefix, 1_000, shards))


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_dozen_numbered_names_leave_no_shard_empty(prefix: bytes) -> None:
    assert all(counts_of(prefix, 12, 4))


@pytest.mark.parametrize(("names", "shards"), [(12, 4), (10, 4), (12, 12), (64, 16), (1_000, 3), (1_000, 64)])
def test_numbered_names_are_spread_as_if_by_chance(names: int, shards: int) -> None:
    """The mean of chi-square over its degrees of freedom is 1 then; by the bare checksum it is 3 for few names."""
    prefixes = [b"%s%d/" % (word, number) for word in (b"plant", b"gap", b"$ns/acme/x") for number in range(40)]
    mean = names / shards
    total = 0.0
    for prefix in prefixes:
        total += sum((count - mean) ** 2 / mean for count in counts_of(prefix, names, shards)) / (shards - 1)
    assert 0.8 < total / len(prefixes) < 1.2


def test_a_plan_knows_the_partition_where_the_name_alone_decides() -> None:
    topic = topic_of(b"t", groups=(5, 6, 7))
    plan = table_of(topic).plan(b"t/a")
    assert plan.durable is topic
    assert plan.group == topic.group_of_key(b"t/a") == (5, 6, 7)[shard_of(b"t/a", 3)]


@pytest.mark.parametrize("key", [BY_CLIENT, BY_PROPERTY])
def test_a_plan_leaves_the_partition_open_where_it_depends_on_the_message(key: int) -> None:
    assert table_of(topic_of(b"t", groups=(5, 6), key=key)).plan(b"t/a").group == MANY_GROUPS
    assert table_of(topic_of(b"t", groups=(5,), key=key)).plan(b"t/a").group == 5


def test_other_names_have_no_partition() -> None:
    plan = table_of(topic_of(b"t")).plan(b"u")
    assert (plan.durable, plan.group) == (None, -1)


def test_plans_follow_the_topics() -> None:
    table = table_of()
    session = session_of("c")
    table.add(subscription_of(session, b"t/#"))
    for _ in range(3):
        assert table.plan(b"t/a").durable is None
        assert table.plan(b"u").durable is None
    assert set(table.plans) == {b"t/a", b"u"}
    topic = topic_of(b"t")
    table.topics.put(topic)
    table.topics_changed(topic.filters)
    assert table.plan(b"t/a").durable is topic
    assert [target.session for target in table.plan(b"t/a").targets] == [session]
    table.topics = TopicMap(2)
    assert table.plan(b"t/a").durable is None


def test_topics_that_shard_alike() -> None:
    topic = topic_of(b"t", groups=(1, 2))
    assert topic.shards_like(topic_of(b"t", b"other", groups=(1, 2)))
    assert not topic.shards_like(topic_of(b"t", groups=(1, 2, 3)))
    assert not topic.shards_like(topic_of(b"t", groups=(1, 2), key=BY_CLIENT))
