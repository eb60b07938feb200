"""Shared groups with members on several nodes: each strategy chooses nodes as the module's second table says."""

from __future__ import annotations

import random
from collections import Counter
from itertools import count as count_from

import pytest

from flockmq.routing.peer import Peer
from flockmq.routing.shared import STRATEGIES, ShareGroup, strategy_number
from flockmq.routing.spreading import spread
from routing_cases import disconnect, peer_of, session_of, subscription_of

OWN = 5
"""Id of this node: between those of its peers."""
LINKS = count_from(0)
"""Any link may have changed since the last choice, as far as these tests say."""


def group_of(strategy: str, here: int, elsewhere: dict[Peer, int], seed: int = 1) -> ShareGroup:
    group = ShareGroup(b"g", b"a/+", strategy_number(strategy), random.Random(seed))
    for number in range(here):
        group.add(subscription_of(session_of(str(number)), b"a/+", b"g"))
    for peer, members in elsewhere.items():
        group.set_remote(peer, members)
    return group


def chosen(
    group: ShareGroup, count: int = 1, publisher: str = "p", topic: bytes = b"a/b", local_first: bool = False
) -> list[tuple[int, int]]:
    choices = group.choose(count, publisher, topic, OWN, next(LINKS), local_first)
    return [(OWN if choice.peer is None else choice.peer.node_id, choice.count) for choice in choices]


def test_counts_of_other_nodes_come_and_go() -> None:
    group = group_of("random", 0, {})
    nine, two = peer_of(9), peer_of(2)
    assert group.set_remote(nine, 3)
    assert not group.set_remote(nine, 3)
    assert group.set_remote(two, 1)
    assert group.remote == [two, nine]
    assert group.remote_members == [1, 3]
    assert group.set_remote(two, 0)
    assert not group.set_remote(two, 0)
    assert group.set_remote(nine, 0)
    assert group.remote is None


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("count", [1, 7, 100])
def test_every_message_goes_to_one_node(strategy: str, count: int) -> None:
    group = group_of(strategy, 2, {peer_of(1): 3, peer_of(9): 4})
    for number in range(10):
        assert sum(many for _, many in chosen(group, count, f"p{number}", b"a/%d" % number)) == count


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9, 10, 23])
def test_round_robin_is_fair_however_long_runs_are(count: int) -> None:
    group = group_of("round_robin", 2, {peer_of(1): 3, peer_of(9): 4})
    tally: Counter[int] = Counter()
    for _ in range(9):
        for node, many in chosen(group, count):
            tally[node] += many
    assert tally == {1: 3 * count, OWN: 2 * count, 9: 4 * count}


def test_random_is_in_proportion() -> None:
    group = group_of("random", 1, {peer_of(1): 1, peer_of(9): 2})
    tally: Counter[int] = Counter()
    for _ in range(100):
        for node, many in chosen(group, 100):
            tally[node] += many
    assert all(abs(tally[node] / 10_000 - share) < 0.03 for node, share in ((1, 0.25), (OWN, 0.25), (9, 0.5)))


def test_hashes_are_places_in_the_row_of_all_members() -> None:
    row = [1, 1, 1, OWN, OWN, 9, 9, 9, 9]
    by_topic = group_of("hash_topic", 2, {peer_of(9): 4, peer_of(1): 3})
    by_client = group_of("hash_client", 2, {peer_of(9): 4, peer_of(1): 3})
    for number in range(50):
        topic = b"a/%d" % number
        assert chosen(by_topic, 3, "x", topic) == [(row[spread(topic) % 9], 3)]
        client = f"client {number}"
        assert chosen(by_client, 1, client) == [(row[spread(client.encode()) % 9], 1)]


def test_sticky_chooses_the_same_node_from_everywhere() -> None:
    seen: set[int] = set()
    for own in (1, 5, 9):
        group = ShareGroup(b"g", b"a/+", strategy_number("sticky"), random.Random(own))
        group.add(subscription_of(session_of("here"), b"a/+", b"g"))
        for other in (1, 5, 9):
            if other != own:
                group.set_remote(peer_of(other), other)
        (choice,) = group.choose(4, "p", b"a/b", own, 0, False)
        seen.add(own if choice.peer is None else choice.peer.node_id)
    assert len(seen) == 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_members_here_go_first_where_that_is_set(strategy: str) -> None:
    group = group_of(strategy, 1, {peer_of(1): 100, peer_of(9): 100})
    for number in range(20):
        assert chosen(group, 5, f"p{number}", b"a/%d" % number, local_first=True) == [(OWN, 5)]
    disconnect(group.members[0].session)
    assert OWN not in dict(chosen(group, 5, local_first=True))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nodes_without_a_link_and_members_that_are_away_are_passed_over(strategy: str) -> None:
    near = peer_of(9)
    group = group_of(strategy, 1, {peer_of(1, linked=False): 5, near: 1})
    disconnect(group.members[0].session)
    for number in range(20):
        assert chosen(group, 3, f"p{number}", b"a/%d" % number) == [(9, 3)]
    near.linked = False
    assert chosen(group, 3) == [(OWN, 3)], "it waits in the session of the member here"
    group.remove(group.members[0].session)
    assert {node for node, _ in chosen(group, 3)} <= {1, 9}, "it waits for the link"
    assert sum(count for _, count in chosen(group, 3)) == 3


def test_nobody_anywhere_means_no_choice() -> None:
    assert chosen(group_of("random", 0, {})) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_choices_follow_members_and_links_at_once(strategy: str) -> None:
    one, nine = peer_of(1), peer_of(9)
    group = group_of(strategy, 1, {one: 1, nine: 1})
    links = 0

    def nodes() -> set[int]:
        found: set[int] = set()
        for number in range(50):
            for choice in group.choose(2, f"p{number}", b"a/%d" % number, OWN, links, False):
                found.add(OWN if choice.peer is None else choice.peer.node_id)
        return found

    assert nodes() <= {1, OWN, 9}
    nine.linked = False
    links += 1
    assert nodes() <= {1, OWN}
    disconnect(group.members[0].session)
    assert nodes() == {1}
    group.set_remote(one, 0)
    assert nodes() == {OWN}
    group.remove(group.members[0].session)
    assert nodes() == {9}
    group.add(subscription_of(session_of("new"), b"a/+", b"g"))
    assert nodes() == {OWN}
