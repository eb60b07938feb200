from __future__ import annotations

import random

import pytest

from flockmq.routing.entry import FilterEntry
from flockmq.routing.shared import ROUND_ROBIN
from flockmq.routing.subscription import Subscription
from routing_cases import session_of, subscription_of

RNG = random.Random(1)


def enter(entry: FilterEntry, *subscriptions: Subscription) -> None:
    for subscription in subscriptions:
        entry.add(subscription, ROUND_ROBIN, RNG)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_subscribers_are_listed_in_order(count: int) -> None:
    entry = FilterEntry(b"a/+")
    subscriptions = [subscription_of(session_of(str(number)), b"a/+") for number in range(count)]
    enter(entry, *subscriptions)
    assert entry.subscriptions() == subscriptions
    assert entry.targets() == subscriptions


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_replacement_keeps_its_place(count: int) -> None:
    entry = FilterEntry(b"a/+")
    subscriptions = [subscription_of(session_of(str(number)), b"a/+") for number in range(count)]
    enter(entry, *subscriptions)
    newer = subscription_of(subscriptions[0].session, b"a/+", qos=1)
    assert entry.add(newer, ROUND_ROBIN, RNG) is subscriptions[0]
    assert entry.targets() == [newer, *subscriptions[1:]]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_an_entry_is_empty_when_all_have_left(count: int) -> None:
    entry = FilterEntry(b"a/+")
    sessions = [session_of(str(number)) for number in range(count)]
    enter(entry, *[subscription_of(session, b"a/+") for session in sessions])
    for session in sessions:
        assert not entry.is_empty()
        assert entry.remove(session, b"")
        assert not entry.remove(session, b"")
    assert entry.is_empty()
    assert entry.targets() == []


def test_a_list_of_targets_handed_out_never_changes() -> None:
    entry = FilterEntry(b"a")
    sessions = [session_of(str(number)) for number in range(3)]
    enter(entry, *[subscription_of(session, b"a") for session in sessions])
    before = entry.targets()
    entry.remove(sessions[1], b"")
    assert [target.session for target in before] == sessions
    assert [target.session for target in entry.targets()] == [sessions[0], sessions[2]]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_newcomer_is_a_target_at_once(count: int) -> None:
    entry = FilterEntry(b"a")
    enter(entry, *[subscription_of(session_of(str(number)), b"a") for number in range(count)])
    before = entry.targets()
    newcomer = subscription_of(session_of("new"), b"a")
    enter(entry, newcomer)
    assert entry.targets() == [*before, newcomer]


def test_many_plans_share_one_list() -> None:
    entry = FilterEntry(b"a/+")
    enter(entry, *[subscription_of(session_of(str(number)), b"a/+") for number in range(3)])
    assert entry.targets() is entry.targets()


def test_alone_and_in_groups_are_different_subscriptions() -> None:
    entry = FilterEntry(b"a")
    session = session_of("a")
    enter(entry, *[subscription_of(session, b"a", group) for group in (b"", b"g1", b"g2")])
    assert [subscription.group for subscription in entry.subscriptions()] == [b""]
    assert entry.groups is not None
    assert [(group.name, len(group.members)) for group in entry.groups.values()] == [(b"g1", 1), (b"g2", 1)]
    assert entry.remove(session, b"g1")
    assert not entry.remove(session, b"g1")
    assert entry.remove(session, b"")
    assert not entry.is_empty()
    assert entry.remove(session, b"g2")
    assert entry.is_empty()


@pytest.mark.parametrize("count", [1, 3])
def test_a_sessions_own_subscription_is_found(count: int) -> None:
    entry = FilterEntry(b"a")
    sessions = [session_of(str(number)) for number in range(count)]
    subscriptions = [subscription_of(session, b"a") for session in sessions]
    enter(entry, *subscriptions)
    assert [entry.of(session) for session in sessions] == subscriptions
    assert entry.of(session_of("other")) is None
