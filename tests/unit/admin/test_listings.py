from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.admin import listings, model
from flockmq.admin.moments import Moments
from flockmq.durable.sessions.lag import NO_LAG, Lag
from flockmq.mqtt.topics import matches
from flockmq.testing.harness import BrokerHarness, make_properties

T = TypeVar("T")
FILTERS = [b"a", b"a/b", b"a/+", b"+/b", b"#", b"a/#", b"$share/g/a/+", b"$share/h/a/b", b"$SYS/#"]


def entries(walk: Iterable[T | None]) -> list[T]:
    return [entry for entry in walk if entry is not None]


def moments_of(harness: BrokerHarness) -> Moments:
    return Moments(lambda: harness.now, lambda: harness.now)


def client_ids(found: Iterable[model.Connection | model.Session]) -> list[str]:
    return [one.client_id for one in found]


@pytest.fixture
def harness() -> BrokerHarness:
    harness = BrokerHarness()
    harness.client("plant-1", username="ada", peer="192.0.2.1")
    harness.client("plant-2", username="bob", peer="192.0.2.2", version=4)
    harness.client("office-1", username="ada", peer="192.0.2.2")
    harness.raw()
    harness.client("away", session_expiry_s=600).drop()
    return harness


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (model.ConnectionQuery(), ["plant-1", "plant-2", "office-1"]),
        (model.ConnectionQuery(client_id="plant-"), ["plant-1", "plant-2"]),
        (model.ConnectionQuery(username="ada"), ["plant-1", "office-1"]),
        (model.ConnectionQuery(peer="192.0.2.2"), ["plant-2", "office-1"]),
        (model.ConnectionQuery(username="ada", peer="192.0.2.2"), ["office-1"]),
        (model.ConnectionQuery(username=""), []),
        (model.ConnectionQuery(client_id="away"), []),
    ],
)
def test_connections(harness: BrokerHarness, query: model.ConnectionQuery, expected: list[str]) -> None:
    assert client_ids(entries(listings.connections(harness.broker, query, moments_of(harness)))) == expected


def test_sessions_by_how_long_their_clients_are_away(harness: BrokerHarness) -> None:
    query = model.SessionQuery(disconnected_s_min=10)
    for waited_ms, expected in ((9_999, []), (1, ["away"])):
        harness.advance(waited_ms)
        walk = listings.sessions(harness.broker, query, moments_of(harness), lambda _: NO_LAG)
        assert client_ids(entries(walk)) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (model.SessionQuery(), ["plant-1", "plant-2", "office-1", "away"]),
        (model.SessionQuery(connected=True), ["plant-1", "plant-2", "office-1"]),
        (model.SessionQuery(connected=False), ["away"]),
        (model.SessionQuery(client_id="o"), ["office-1"]),
        (model.SessionQuery(lag_min=7), ["plant-1", "away"]),
        (model.SessionQuery(lag_min=8), ["away"]),
        (model.SessionQuery(username="ada"), ["plant-1", "office-1"]),
        (model.SessionQuery(disconnected_s_min=1), []),
    ],
)
def test_sessions(harness: BrokerHarness, query: model.SessionQuery, expected: list[str]) -> None:
    lags = {"plant-1": Lag(7, 0), "away": Lag(8, 0)}
    walk = listings.sessions(
        harness.broker, query, moments_of(harness), lambda session: lags.get(session.client_id, NO_LAG)
    )
    assert client_ids(entries(walk)) == expected


def test_who_leaves_during_a_walk_is_passed_over(harness: BrokerHarness) -> None:
    walk = listings.connections(harness.broker, model.ConnectionQuery(), moments_of(harness))
    first = next(walk)
    harness.broker.kick("plant-2", harness.now)
    assert first is not None
    assert client_ids([first, *entries(walk)]) == ["plant-1", "office-1"]


def test_a_session_that_ends_during_a_walk_is_passed_over(harness: BrokerHarness) -> None:
    walk = listings.sessions(harness.broker, model.SessionQuery(), moments_of(harness), lambda _: NO_LAG)
    next(walk)
    harness.broker.end_session("away", harness.now)
    assert "away" not in client_ids(entries(walk))


def subscribed() -> BrokerHarness:
    harness = BrokerHarness()
    for number in range(3):
        client = harness.client(f"c{number}", session_expiry_s=60)
        for topic_filter in FILTERS[number:]:
            client.subscribe(topic_filter, qos=number)
    return harness


def subscriptions(harness: BrokerHarness, **filters: str) -> set[tuple[str, str]]:
    found = entries(listings.subscriptions(harness.broker, msgspec.convert(filters, model.SubscriptionQuery)))
    keys = [(one.client_id, one.filter) for one in found]
    assert len(set(keys)) == len(keys)
    return set(keys)


ALL = {(f"c{number}", topic_filter.decode()) for number in range(3) for topic_filter in FILTERS[number:]}


def bare(topic_filter: str) -> bytes:
    return (topic_filter.split("/", 2)[2] if topic_filter.startswith("$share/") else topic_filter).encode()


def test_subscriptions_of_all() -> None:
    assert subscriptions(subscribed()) == ALL


def test_subscriptions_of_one_client() -> None:
    assert subscriptions(subscribed(), client_id="c1") == {one for one in ALL if one[0] == "c1"}
    assert subscriptions(subscribed(), client_id="c") == set()


@pytest.mark.parametrize("topic_filter", [b"a", b"#", b"$share/g/a/+", b"a/+", b"nobody"])
def test_subscriptions_to_one_filter(topic_filter: bytes) -> None:
    expected = {one for one in ALL if one[1] == topic_filter.decode()}
    assert subscriptions(subscribed(), filter=topic_filter.decode()) == expected


@pytest.mark.parametrize("topic", ["a", "a/b", "a/b/c", "x/b", "$SYS/a", "x"])
def test_subscriptions_that_a_topic_reaches(topic: str) -> None:
    expected = {one for one in ALL if matches(bare(one[1]), topic.encode())}
    assert subscriptions(subscribed(), match=topic) == expected


def test_filters_of_a_query_add_up() -> None:
    found = subscriptions(subscribed(), client_id="c2", match="a/b")
    assert found == {one for one in ALL if one[0] == "c2" and matches(bare(one[1]), b"a/b")}
    assert subscriptions(subscribed(), filter="a/+", match="x/b") == set()


@pytest.mark.parametrize(
    "query",
    [
        model.SubscriptionQuery(),
        model.SubscriptionQuery(client_id="c0"),
        model.SubscriptionQuery(match="a/b"),
        model.SubscriptionQuery(filter="a/+"),
    ],
)
def test_a_subscription_that_ends_during_a_walk_is_passed_over(query: model.SubscriptionQuery) -> None:
    harness = subscribed()
    walk = listings.subscriptions(harness.broker, query)
    next(walk)
    for client_id in ("c0", "c1", "c2"):
        harness.broker.end_session(client_id, harness.now)
    assert entries(walk) == []


def test_a_subscription_that_changes_during_a_walk_is_shown_as_it_is_now() -> None:
    harness = BrokerHarness()
    client = harness.client("c")
    client.subscribe(b"a", qos=0)
    walk = listings.subscriptions(harness.broker, model.SubscriptionQuery(filter="a"))
    next(walk)
    client.subscribe(b"a", qos=2)
    assert [one.qos for one in entries(walk)] == [2]


def test_sessions_without_subscriptions_cost_a_step_each() -> None:
    harness = BrokerHarness()
    for number in range(5):
        harness.client(f"c{number}")
    assert list(listings.subscriptions(harness.broker, model.SubscriptionQuery())) == [None] * 5


def retained(harness: BrokerHarness, topic_filter: str | None = None) -> list[str]:
    query = model.RetainedQuery(filter=topic_filter)
    return [one.topic for one in entries(listings.retained(harness.broker, query, moments_of(harness)))]


def test_retained_messages_without_the_brokers_own() -> None:
    harness = BrokerHarness()
    client = harness.client("c")
    for topic in (b"b", b"a/1", b"a/2", b"$data/x"):
        client.publish(topic, b"x", retain=True)
    harness.broker.publish_sys(harness.now)
    assert sorted(retained(harness)) == ["$data/x", "a/1", "a/2", "b"]
    assert sorted(retained(harness, "a/+")) == ["a/1", "a/2"]
    assert sorted(retained(harness, "#")) == ["a/1", "a/2", "b"]
    assert retained(harness, "$SYS/#") == []


@given(
    topics=st.lists(st.text("ab/$", min_size=1, max_size=5), max_size=12),
    topic_filter=st.sampled_from(["#", "+", "a/#", "+/a", "a", "$a/#", "a/+/b", "/+"]),
    steps_max=st.integers(0, 5),
)
def test_narrow_and_wide_filters_find_the_same(topics: list[str], topic_filter: str, steps_max: int) -> None:
    harness = BrokerHarness()
    client = harness.client("c")
    for topic in topics:
        client.publish(topic.encode(), b"x", retain=True)
    kept = {topic for topic in topics if not topic.startswith("$SYS/")}
    expected = {topic for topic in kept if matches(topic_filter.encode(), topic.encode())}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listings, "RETAINED_STEPS_MAX", steps_max)
        assert set(retained(harness, topic_filter)) == expected


def test_an_expired_message_is_not_listed() -> None:
    harness = BrokerHarness()
    client = harness.client("c")
    client.publish(b"a", b"x", retain=True, properties=make_properties(message_expiry_s=1))
    walk = listings.retained(harness.broker, model.RetainedQuery(), moments_of(harness))
    harness.now += 1_000
    assert entries(walk) == []


def test_bans_in_force() -> None:
    harness = BrokerHarness()
    harness.broker.bans.add("client", "a", 0, "why", harness.now)
    harness.broker.bans.add("address", "192.0.2.1", harness.now + 10, "", harness.now)
    harness.broker.bans.add("username", "u", harness.now + 1_000, "", harness.now)
    harness.now += 10
    moments = moments_of(harness)
    assert [one.value for one in entries(listings.bans(harness.broker, model.BanQuery(), moments))] == ["a", "u"]
    assert [one.value for one in entries(listings.bans(harness.broker, model.BanQuery(kind="username"), moments))] == [
        "u"
    ]
