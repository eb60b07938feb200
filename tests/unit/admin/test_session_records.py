"""What the leader of a shard tells of sessions that no node has."""

from __future__ import annotations

from typing import Any

import pytest

from flockmq.admin import model
from flockmq.admin.node_listings import CONNECTIONS, SESSIONS, SUBSCRIPTIONS, ask_page, read_page
from flockmq.admin.session_records import SUBSCRIPTIONS_PER_STEP
from flockmq.durable.sessions.lag import Lag
from flockmq.errors import CURSOR_EXPIRED, ApiError, RemoteProtocolError
from flockmq.testing.harness import BrokerHarness
from unit.admin.session_shards import BOOT, Shards

GROUP = 101


@pytest.fixture
def shards() -> Shards:
    found = Shards(BrokerHarness())
    found.add("plant-1", b"a/+", b"$share/g/a/b", user=b"ada")
    found.add("plant-2", b"b")
    found.add("$ns/acme/plant-3", b"$ns/acme/a/b", user=b"acme/bob")
    return found


def ask(shards: Shards, what: str, query: Any) -> model.Page[Any]:
    """As it travels between nodes."""
    found = read_page(what, shards.records.answer(GROUP, ask_page(what, query)))
    assert found is not None
    return found


def sessions(shards: Shards, **query: Any) -> list[str]:
    return [one.client_id for one in ask(shards, SESSIONS, model.SessionQuery(**query)).items]


def subscriptions(shards: Shards, **query: Any) -> list[tuple[str, str]]:
    found = ask(shards, SUBSCRIPTIONS, model.SubscriptionQuery(**query)).items
    return [(one.client_id, one.filter) for one in found]


def test_a_record_as_people_see_it(shards: Shards) -> None:
    assert ask(shards, SESSIONS, model.SessionQuery()).items[0] == model.Session(
        client_id="plant-1",
        namespace="default",
        username="ada",
        connected=False,
        protocol_version="5.0",
        created_at=None,
        disconnected_at="2026-03-01T12:00:00.000Z",
        expiry_s=60,
        subscriptions=2,
        queued_messages=None,
        queued_bytes=None,
        inflight_messages=None,
        messages_dropped=None,
        state="away",
        node="n9@host",
        lag=0,
        gap=0,
    )
    assert ask(shards, SUBSCRIPTIONS, model.SubscriptionQuery()).items[1] == model.Subscription(
        client_id="plant-1",
        namespace="default",
        filter="$share/g/a/b",
        share_group="g",
        qos=1,
        no_local=False,
        retain_as_published=False,
        retain_handling=1,
        identifier=7,
        node="n9@host",
        away=True,
    )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["plant-1", "plant-2", "plant-3"]),
        ({"client_id": "plant-"}, ["plant-1", "plant-2", "plant-3"]),
        ({"client_id": "plant-2"}, ["plant-2"]),
        ({"namespace": "acme"}, ["plant-3"]),
        ({"connected": False}, ["plant-1", "plant-2", "plant-3"]),
        ({"connected": True}, []),
        ({"username": "ada"}, ["plant-1"]),
        ({"username": "bob"}, ["plant-3"]),
        ({"username": "bob", "namespace": "default"}, []),
    ],
)
def test_sessions(shards: Shards, query: dict[str, Any], expected: list[str]) -> None:
    assert sessions(shards, **query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, [("plant-1", "a/+"), ("plant-1", "$share/g/a/b"), ("plant-2", "b"), ("plant-3", "a/b")]),
        ({"client_id": "plant-2"}, [("plant-2", "b")]),
        ({"client_id": "plant-3"}, []),
        ({"client_id": "plant-3", "namespace": "acme"}, [("plant-3", "a/b")]),
        ({"match": "a/b"}, [("plant-1", "a/+"), ("plant-1", "$share/g/a/b")]),
        ({"match": "a/b", "namespace": "acme"}, [("plant-3", "a/b")]),
        ({"filter": "$share/g/a/b"}, [("plant-1", "$share/g/a/b")]),
        ({"filter": "a/b"}, []),
    ],
)
def test_subscriptions(shards: Shards, query: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert subscriptions(shards, **query) == expected


def test_sessions_by_what_waits_for_them(shards: Shards) -> None:
    shards.lags = {"plant-1": Lag(10, 0), "plant-2": Lag(11, 3), "$ns/acme/plant-3": None}
    found = ask(shards, SESSIONS, model.SessionQuery()).items
    assert [(one.lag, one.gap) for one in found] == [(10, 0), (11, 3), (None, None)]
    assert sessions(shards, lag_min=10) == ["plant-1", "plant-2", "plant-3"]
    assert sessions(shards, lag_min=11) == ["plant-2", "plant-3"], "what is not known is not left out"


def test_sessions_by_how_long_their_clients_are_away(shards: Shards) -> None:
    shards.add("lost", b"a", connected=True)
    shards.later_ms = 59_999
    assert sessions(shards, disconnected_s_min=60) == []
    shards.later_ms = 60_000
    assert sessions(shards, disconnected_s_min=60) == ["plant-1", "plant-2", "plant-3"]


def test_counting_what_waits_for_many_subscriptions_costs_more_steps() -> None:
    shards = Shards(BrokerHarness(), scan_max=3)
    shards.add("many", *[b"a/%d" % number for number in range(8 * SUBSCRIPTIONS_PER_STEP)])
    page = ask(shards, SESSIONS, model.SessionQuery())
    assert (page.items, page.next is None) == ([], False)
    for _ in range(2):
        page = ask(shards, SESSIONS, model.SessionQuery(after=page.next))
    assert [one.client_id for one in page.items] == ["many"]


def test_sessions_that_are_connected_on_a_live_node_are_left_out() -> None:
    shards = Shards(BrokerHarness())
    shards.add("connected", b"a", owner=3, connected=True)
    assert sessions(shards) == ["connected"]
    shards.boots = {3: BOOT}
    assert sessions(shards) == []
    assert subscriptions(shards) == []
    shards.boots = {3: BOOT + 1}  # the node was started again, and has lost its memory
    assert sessions(shards) == ["connected"]


def test_sessions_of_the_leader_itself_are_left_out() -> None:
    harness = BrokerHarness()
    shards = Shards(harness)
    for name in ("here", "nowhere"):
        shards.add(name, b"a", owner=1)
    harness.client("here", session_expiry_s=60).drop()
    shards.boots = {1: BOOT}
    assert sessions(shards) == ["nowhere"]


def test_pages_are_bounded_and_go_on_where_they_stopped() -> None:
    shards = Shards(BrokerHarness(), scan_max=3)
    for number in range(10):
        shards.add(f"c{number}", b"a")
    found: list[str] = []
    page = ask(shards, SESSIONS, model.SessionQuery(limit=2))
    pages = 1
    while page.next is not None:
        found += [one.client_id for one in page.items]
        page = ask(shards, SESSIONS, model.SessionQuery(limit=2, after=page.next))
        pages += 1
    assert found == [f"c{number}" for number in range(10)]
    assert pages == 6
    last = ask(shards, SESSIONS, model.SessionQuery(client_id="c9", limit=2))
    assert (last.items, last.next is None) == ([], False)
    with pytest.raises(ApiError) as refused:
        ask(shards, SESSIONS, model.SessionQuery(after="unknown.1"))
    assert refused.value.kind is CURSOR_EXPIRED


def test_records_know_nothing_of_connections_and_nonsense_is_refused(shards: Shards) -> None:
    assert ask(shards, CONNECTIONS, model.ConnectionQuery()).items == []
    with pytest.raises(RemoteProtocolError):
        shards.records.answer(GROUP, b"nonsense")
