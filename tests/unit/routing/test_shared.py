"""Each strategy does exactly what its line in the module's table says."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from flockmq.errors import ConfigError
from flockmq.node.settings import SHARED_STRATEGIES
from flockmq.routing.shared import STRATEGIES, ShareGroup, strategy_number
from flockmq.routing.spreading import spread
from routing_cases import connect, disconnect, session_of, subscription_of


def group_of(strategy: str, count: int, seed: int = 1) -> ShareGroup:
    group = ShareGroup(b"g", b"a/+", strategy_number(strategy), random.Random(seed))
    for number in range(count):
        group.add(subscription_of(session_of(str(number)), b"a/+", b"g"))
    return group


def picks(group: ShareGroup, count: int, publisher: str = "p", topic: bytes = b"a/b") -> list[str]:
    chosen = [group.pick(publisher, topic) for _ in range(count)]
    return [subscription.session.client_id for subscription in chosen if subscription is not None]


def leave(group: ShareGroup, *numbers: int) -> None:
    for number in numbers:
        disconnect(group.members[number].session)


def test_the_strategies_are_those_that_can_be_configured() -> None:
    assert STRATEGIES == SHARED_STRATEGIES


def test_an_unknown_strategy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'fair'.*round_robin"):
        strategy_number("fair")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_empty_group_picks_nobody(strategy: str) -> None:
    assert group_of(strategy, 0).pick("p", b"a/b") is None


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_only_member_gets_everything(strategy: str) -> None:
    assert picks(group_of(strategy, 1), 3) == ["0", "0", "0"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_connected_members_come_first(strategy: str) -> None:
    group = group_of(strategy, 10)
    leave(group, 0, 1, 2, 3, 4, 5, 7, 8, 9)
    for number in range(20):
        assert picks(group, 1, f"publisher {number}", b"a/%d" % number) == ["6"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_when_all_are_away_one_of_them_is_chosen(strategy: str) -> None:
    group = group_of(strategy, 3)
    leave(group, 0, 1, 2)
    assert set(picks(group, 5)) <= {"0", "1", "2"}
    assert len(picks(group, 5)) == 5


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_choice_holds_for_a_run_unless_messages_are_spread(strategy: str) -> None:
    assert group_of(strategy, 3).spreads == (strategy in {"random", "round_robin"})


def test_random_draws_from_the_given_generator() -> None:
    rng = random.Random(5)
    expected = [str(int(rng.random() * 4)) for _ in range(50)]
    assert picks(group_of("random", 4, seed=5), 50) == expected


def test_random_is_even_also_when_some_are_away() -> None:
    group = group_of("random", 4)
    leave(group, 1)
    counts = Counter(picks(group, 3_000))
    assert set(counts) == {"0", "2", "3"}
    assert min(counts.values()) > 900  # of 1,000 expected each; the seed makes it the same every time


def test_round_robin_takes_turns() -> None:
    assert picks(group_of("round_robin", 3), 7) == ["0", "1", "2", "0", "1", "2", "0"]


def test_round_robin_passes_over_who_is_away() -> None:
    group = group_of("round_robin", 4)
    leave(group, 1, 2)
    assert picks(group, 4) == ["0", "3", "0", "3"]
    connect(group.members[1].session)
    assert picks(group, 4) == ["0", "1", "3", "0"]


def test_round_robin_takes_turns_also_when_all_are_away() -> None:
    group = group_of("round_robin", 3)
    leave(group, 0, 1, 2)
    assert picks(group, 4) == ["0", "1", "2", "0"]


@pytest.mark.parametrize(("leaver", "expected"), [(0, ["2", "3", "1"]), (1, ["2", "3", "0"]), (2, ["3", "0", "1"])])
def test_nobody_misses_a_turn_when_another_leaves_the_group(leaver: int, expected: list[str]) -> None:
    group = group_of("round_robin", 4)
    assert picks(group, 2) == ["0", "1"]
    assert group.remove(group.members[leaver].session)
    assert picks(group, 3) == expected


def test_the_last_in_turn_may_leave() -> None:
    group = group_of("round_robin", 3)
    picks(group, 2)
    group.remove(group.members[2].session)
    assert picks(group, 3) == ["0", "1", "0"]


def test_a_replacement_keeps_its_turn() -> None:
    group = group_of("round_robin", 3)
    picks(group, 1)
    newer = subscription_of(group.members[1].session, b"a/+", b"g", qos=2)
    old = group.members[1]
    assert group.add(newer) is old
    assert group.pick("p", b"a/b") is newer
    assert picks(group, 2) == ["2", "0"]


def test_sticky_keeps_its_choice_until_that_member_is_away() -> None:
    group = group_of("sticky", 5)
    first = picks(group, 1)[0]
    assert picks(group, 20, "another publisher", b"a/other") == [first] * 20
    leave(group, int(first))
    second = picks(group, 1)[0]
    assert second != first
    connect(group.members[int(first)].session)
    assert picks(group, 20) == [second] * 20


def test_sticky_chooses_anew_when_its_member_leaves_the_group() -> None:
    group = group_of("sticky", 5)
    first = picks(group, 1)[0]
    group.remove(group.members[int(first)].session)
    second = picks(group, 1)[0]
    assert second != first
    assert picks(group, 5) == [second] * 5


def test_sticky_stays_with_a_replaced_subscription() -> None:
    group = group_of("sticky", 5)
    first = int(picks(group, 1)[0])
    newer = subscription_of(group.members[first].session, b"a/+", b"g", qos=1)
    group.add(newer)
    assert group.pick("p", b"a/b") is newer


def test_sticky_holds_on_to_a_member_when_all_are_away() -> None:
    group = group_of("sticky", 5)
    first = picks(group, 1)[0]
    leave(group, 0, 1, 2, 3, 4)
    assert picks(group, 5) == [first] * 5


@pytest.mark.parametrize(("strategy", "by_topic"), [("hash_client", False), ("hash_topic", True)])
def test_the_hash_decides(strategy: str, by_topic: bool) -> None:
    group = group_of(strategy, 7)
    for number in range(50):
        publisher, topic = f"publisher {number}", b"a/%d" % (number * 31)
        expected = spread(topic if by_topic else publisher.encode()) % 7
        assert picks(group, 3, publisher, topic) == [str(expected)] * 3


@pytest.mark.parametrize("strategy", ["hash_client", "hash_topic"])
def test_a_hash_reaches_all_members(strategy: str) -> None:
    group = group_of(strategy, 7)
    chosen = {picks(group, 1, f"publisher {number}", b"a/%d" % number)[0] for number in range(100)}
    assert chosen == {"0", "1", "2", "3", "4", "5", "6"}


@pytest.mark.parametrize("strategy", ["hash_client", "hash_topic"])
def test_only_those_whose_member_is_away_are_moved(strategy: str) -> None:
    group = group_of(strategy, 5)
    sources = [(f"publisher {number}", b"a/%d" % number) for number in range(100)]
    before = [picks(group, 1, *source)[0] for source in sources]
    leave(group, 2)
    after = [picks(group, 1, *source)[0] for source in sources]
    moved = {old for old, new in zip(before, after, strict=True) if old != new}
    assert moved == {"2"}
    assert "2" not in after
    assert len({new for old, new in zip(before, after, strict=True) if old == "2"}) > 1  # not all to one neighbour
    assert after == [picks(group, 1, *source)[0] for source in sources]


def test_leaving_twice_is_no_member() -> None:
    group = group_of("random", 2)
    session = group.members[0].session
    assert group.remove(session)
    assert not group.remove(session)
    assert picks(group, 3) == ["1", "1", "1"]
