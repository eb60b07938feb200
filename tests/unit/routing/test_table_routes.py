"""The table of a node in a cluster: routes of other nodes beside the subscriptions of its own clients."""

from __future__ import annotations

import random

from flockmq.routing.table import SubscriptionTable
from routing_cases import peer_of, session_of, subscription_of


def table_of() -> SubscriptionTable:
    return SubscriptionTable(100, "round_robin", random.Random(1))


def remotes(table: SubscriptionTable, topic: bytes) -> list[int]:
    return [peer.node_id for peer in table.plan(topic).remotes]


def test_each_node_stands_once_in_a_plan_however_many_of_its_filters_match() -> None:
    table = table_of()
    one, two = peer_of(1), peer_of(2)
    for topic_filter, peer in ((b"t/#", two), (b"t/+", one), (b"t/a", two), (b"t/a", one), (b"x", one)):
        assert table.add_route(topic_filter, peer)
    assert not table.add_route(b"t/#", two)
    assert sorted(remotes(table, b"t/a")) == [1, 2]
    assert remotes(table, b"t/a/b") == [2]
    assert remotes(table, b"x") == [1]
    assert (table.count, table.count_shared) == (0, 0), "they are not this node's subscriptions"


def test_routes_change_kept_plans() -> None:
    table = table_of()
    peer = peer_of(1)
    for _ in range(3):
        assert remotes(table, b"t/a") == []
    table.add_route(b"t/+", peer)
    for _ in range(3):
        assert remotes(table, b"t/a") == [1]
    assert table.remove_route(b"t/+", peer)
    assert not table.remove_route(b"t/+", peer)
    assert remotes(table, b"t/a") == []
    assert table.filters() == []


def test_an_entry_lasts_while_anybody_wants_it() -> None:
    table = table_of()
    peer, session = peer_of(1), session_of("a")
    table.add(subscription_of(session, b"t/+"))
    table.add_route(b"t/+", peer)
    table.remove(session, b"", b"t/+")
    assert remotes(table, b"t/a") == [1]
    assert table.plan(b"t/a").targets == []
    table.add(subscription_of(session, b"t/+"))
    table.remove_route(b"t/+", peer)
    assert len(table.plan(b"t/a").targets) == 1
    table.remove(session, b"", b"t/+")
    assert table.filters() == []


def test_a_group_lasts_while_it_has_members_anywhere() -> None:
    table = table_of()
    peer, session = peer_of(1), session_of("a")
    assert table.set_share(b"g", b"t/+", peer, 2)
    assert not table.set_share(b"g", b"t/+", peer, 2)
    (group,) = table.plan(b"t/a").groups
    assert (group.remote_members, group.members) == ([2], [])
    assert remotes(table, b"t/a") == [], "a shared group is not a route for everybody"
    table.add(subscription_of(session, b"t/+", b"g"))
    assert table.plan(b"t/a").groups == [group]
    assert table.set_share(b"g", b"t/+", peer, 0)
    assert group.remote is None
    assert table.plan(b"t/a").groups == [group]
    table.remove(session, b"g", b"t/+")
    assert table.plan(b"t/a").groups == []
    assert table.filters() == []
    assert not table.set_share(b"g", b"t/+", peer, 0)


def test_all_routes_of_a_node_go_with_it() -> None:
    table = table_of()
    one, two = peer_of(1), peer_of(2)
    for peer in (one, two):
        table.add_route(b"t/#", peer)
        table.add_route(b"x", peer)
        table.set_share(b"g", b"y/+", peer, 3)
    table.remove_peer(one)
    assert remotes(table, b"t/a") == remotes(table, b"x") == [2]
    assert table.plan(b"y/z").groups[0].remote == [two]
    assert (one.routes, one.shares) == (set(), set())
    table.remove_peer(two)
    assert table.filters() == []


def test_what_came_or_went_is_noted_for_the_others_only_in_a_cluster() -> None:
    table = table_of()
    session = session_of("a")
    table.add(subscription_of(session, b"x"))
    assert table.touched is None
    table.touched = set()
    table.add(subscription_of(session, b"t/+"))
    table.add(subscription_of(session, b"t/+", b"g"))
    table.add(subscription_of(session, b"t/+", qos=1))
    table.remove(session, b"", b"x")
    table.add_route(b"other", peer_of(1))
    assert table.touched == {(b"", b"t/+"), (b"g", b"t/+"), (b"", b"x")}
    assert table.count_own(b"", b"t/+") == 1
    assert table.count_own(b"g", b"t/+") == 1
    assert table.count_own(b"", b"x") == table.count_own(b"", b"other") == table.count_own(b"h", b"t/+") == 0
