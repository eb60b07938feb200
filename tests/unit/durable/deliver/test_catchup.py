"""Where a session stands: which of its subscriptions gets which record."""

from __future__ import annotations

import random

from flockmq.durable.deliver.catchup import NEVER, UNKNOWN, Catchup
from flockmq.routing.subscription import Subscription
from flockmq.routing.table import SubscriptionTable
from flockmq.session.session import Session
from routing_cases import session_of, subscription_of


class Case:
    def __init__(self, *filters: bytes) -> None:
        self.table = SubscriptionTable(100, "random", random.Random(1))
        self.session: Session = session_of("one")
        self.catchup = Catchup(self.session)
        self.subscriptions = [self.add(one) for one in filters]

    def add(self, topic_filter: bytes, qos: int = 1) -> Subscription:
        subscription = subscription_of(self.session, topic_filter, qos=qos, identifier=len(self.table.filters()) + 1)
        self.table.add(subscription)
        return subscription

    def identifiers(self, offset: int, topic: bytes = b"a") -> tuple[int, ...]:
        target = self.catchup.target(self.table, 5, topic, offset)
        return target.identifiers if target is not None else ()


def test_a_slow_session_goes_on_with_all_its_subscriptions() -> None:
    case = Case(b"a", b"#")
    case.catchup.lag(5, 10)
    assert case.catchup.positions == {5: 10}
    assert case.identifiers(10) == (1, 2)
    assert case.identifiers(10, b"b") == (2,)
    assert case.catchup.cut(5, 10, 99) == 99


def test_history_is_for_the_subscription_that_asked_for_it() -> None:
    case = Case(b"#")
    asking = case.add(b"a")
    case.catchup.pause(asking, 5, 20)
    assert case.catchup.positions == {5: UNKNOWN}
    assert case.catchup.is_waiting(5)
    case.catchup.start(asking, 5, 3)
    assert case.catchup.positions == {5: 3}
    assert not case.catchup.is_waiting(5)
    assert [case.identifiers(offset) for offset in (2, 3, 19, 20)] == [(), (2,), (2,), (1, 2)]
    assert case.catchup.cut(5, 3, 99) == 20
    assert case.catchup.cut(5, 20, 99) == 99


def test_a_second_wish_goes_back_for_itself_alone() -> None:
    case = Case(b"a", b"+")
    first, second = case.subscriptions
    case.catchup.pause(first, 5, 20)
    case.catchup.start(first, 5, 5)
    case.catchup.positions[5] = 12
    case.catchup.pause(second, 5, 20)
    assert case.catchup.positions == {5: 12}
    case.catchup.start(second, 5, 8)
    assert case.catchup.positions == {5: 8}
    assert [case.identifiers(offset) for offset in (7, 8, 11, 12)] == [(), (2,), (2,), (1, 2)]


def test_while_a_start_is_unknown_its_subscription_gets_nothing() -> None:
    case = Case(b"#")
    case.catchup.lag(5, 10)
    asking = case.add(b"a")
    case.catchup.pause(asking, 5, 30)
    assert case.catchup.start_of(asking, 5) == NEVER
    assert case.identifiers(15) == (1,)


def test_who_joins_meanwhile_gets_what_is_new() -> None:
    case = Case(b"#")
    case.catchup.lag(5, 10)
    case.catchup.join(case.add(b"a"), 5, 30)
    assert [case.identifiers(offset) for offset in (29, 30)] == [(1,), (1, 2)]
    assert case.catchup.cut(5, 10, 99) == 30


def test_a_replacement_takes_over_the_start() -> None:
    case = Case(b"a")
    case.catchup.pause(case.subscriptions[0], 5, 20)
    case.catchup.start(case.subscriptions[0], 5, 3)
    other = case.add(b"a", qos=2)
    case.catchup.replace(case.subscriptions[0], other)
    assert case.catchup.start_of(other, 5) == 3
    case.catchup.forget(other)
    assert case.catchup.start_of(other, 5) == 20


def test_without_anybody_waiting_it_goes_on_where_it_was_live() -> None:
    case = Case(b"a")
    case.catchup.pause(case.subscriptions[0], 5, 20)
    case.catchup.pause(case.subscriptions[0], 6, UNKNOWN)
    case.catchup.pause(case.subscriptions[0], 7, UNKNOWN)
    case.catchup.stream_known(7, 4)
    case.catchup.forget(case.subscriptions[0])
    for group in (5, 6, 7):
        case.catchup.unpause(group)
    assert case.catchup.positions == {5: 20, 7: 4}


def test_a_start_that_comes_too_late_changes_nothing() -> None:
    case = Case(b"a")
    case.catchup.pause(case.subscriptions[0], 5, 20)
    case.catchup.drop(5)
    case.catchup.start(case.subscriptions[0], 5, 3)
    assert case.catchup.positions == {}


def test_what_is_level_is_forgotten() -> None:
    case = Case(b"a")
    case.catchup.pause(case.subscriptions[0], 5, 20)
    case.catchup.start(case.subscriptions[0], 5, 3)
    case.catchup.drop(5)
    assert case.catchup.positions == {}
    assert case.catchup.start_of(case.subscriptions[0], 5) == 0
