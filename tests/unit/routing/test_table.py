from __future__ import annotations

import random

import pytest

from flockmq.errors import ConfigError
from flockmq.routing.plan import RoutePlan
from flockmq.routing.table import SubscriptionTable
from flockmq.session.session import Session
from routing_cases import session_of, subscription_of


def table_of(plan_cache_max: int = 100) -> SubscriptionTable:
    return SubscriptionTable(plan_cache_max, "round_robin", random.Random(1))


def keep(table: SubscriptionTable, topic: bytes) -> RoutePlan:
    """Ask until the plan is kept: from the second time on, but for names that share their place with others."""
    for _ in range(4):
        plan = table.plan(topic)
        if plan.current:
            return plan
    raise AssertionError(f"The plan of {topic!r} is never kept")


def receivers(table: SubscriptionTable, topic: bytes) -> list[str]:
    return [target.session.client_id for target in table.plan(topic).targets]


def test_a_cache_without_room_is_refused() -> None:
    with pytest.raises(ConfigError, match="plan_cache_max"):
        table_of(0)


def test_nobody_gets_what_nobody_wants() -> None:
    plan = table_of().plan(b"a/b")
    assert (plan.topic, plan.targets, plan.groups) == (b"a/b", [], [])


def test_exact_and_wildcard_filters_both_count() -> None:
    table = table_of()
    for client_id, topic_filter in (("exact", b"a/b"), ("plus", b"a/+"), ("hash", b"#"), ("other", b"a/c")):
        assert table.add(subscription_of(session_of(client_id), topic_filter))
    assert sorted(receivers(table, b"a/b")) == ["exact", "hash", "plus"]
    assert table.count == 4


def test_one_session_gets_one_copy_with_identifiers_in_order_of_subscribing() -> None:
    table = table_of()
    session = session_of("a")
    for identifier, topic_filter in ((9, b"#"), (4, b"a/b"), (7, b"a/+")):
        table.add(subscription_of(session, topic_filter, identifier=identifier))
    (target,) = table.plan(b"a/b").targets
    assert target.identifiers == (9, 4, 7)


def test_a_replacement_keeps_its_place_in_the_order() -> None:
    table = table_of()
    session = session_of("a")
    for identifier, topic_filter in ((9, b"#"), (4, b"a/b")):
        table.add(subscription_of(session, topic_filter, identifier=identifier))
    assert not table.add(subscription_of(session, b"#", identifier=5))
    assert table.count == 2
    (target,) = table.plan(b"a/b").targets
    assert target.identifiers == (5, 4)


def test_group_and_filter_make_a_shared_subscription() -> None:
    table = table_of()
    session = session_of("a")
    for group, topic_filter in ((b"g", b"a/+"), (b"g", b"a/b"), (b"h", b"a/b"), (b"", b"a/b")):
        assert table.add(subscription_of(session, topic_filter, group))
    plan = table.plan(b"a/b")
    assert [(group.name, group.topic_filter) for group in plan.groups] == [
        (b"g", b"a/+"),
        (b"g", b"a/b"),
        (b"h", b"a/b"),
    ]
    assert len(plan.targets) == 1
    assert (table.count, table.count_shared) == (4, 3)
    assert table.remove(session, b"g", b"a/b")
    assert (table.count, table.count_shared) == (3, 2)
    assert [(group.name, group.topic_filter) for group in table.plan(b"a/b").groups] == [(b"g", b"a/+"), (b"h", b"a/b")]


def test_plans_of_a_filter_share_whose_turn_it_is() -> None:
    table = table_of()
    for number in range(3):
        table.add(subscription_of(session_of(str(number)), b"a/+", b"g"))
    chosen = []
    for number in range(6):
        topic = b"a/%d" % number
        member = table.plan(topic).groups[0].pick("p", topic)
        assert member is not None
        chosen.append(member.session.client_id)
    assert chosen == ["0", "1", "2", "0", "1", "2"]


def test_removing_what_is_not_there_changes_nothing() -> None:
    table = table_of()
    session = session_of("a")
    table.add(subscription_of(session, b"a/+"))
    assert not table.remove(session, b"", b"a/b")
    assert not table.remove(session, b"g", b"a/+")
    assert not table.remove(session_of("b"), b"", b"a/+")
    assert receivers(table, b"a/b") == ["a"]
    assert table.count == 1


def test_filters_and_entries_can_be_listed() -> None:
    table = table_of()
    sessions = [session_of("a"), session_of("b")]
    for session in sessions:
        table.add(subscription_of(session, b"a/+"))
    table.add(subscription_of(sessions[0], b"a/b", b"g"))
    assert sorted(table.filters()) == [b"a/+", b"a/b"]
    entry = table.entry(b"a/+")
    assert entry is not None
    assert [subscription.session for subscription in entry.subscriptions()] == sessions
    assert sorted(found.topic_filter for found in table.matching(b"a/b")) == [b"a/+", b"a/b"]
    assert table.entry(b"a/#") is None
    table.remove(sessions[0], b"g", b"a/b")
    assert table.filters() == [b"a/+"]


def test_a_plan_is_kept_from_the_second_time_on() -> None:
    table = table_of()
    assert not table.plan(b"a/b").current
    assert b"a/b" not in table.plans
    plan = keep(table, b"a/b")
    assert table.plan(b"a/b") is plan
    assert table.plans[b"a/b"] is plan


@pytest.mark.parametrize(
    ("topic_filter", "others"),
    [
        (b"a/b", [b"a", b"a/b/c", b"a/c", b"b"]),
        (b"a/+", [b"a", b"a/b/c", b"b/b"]),
        (b"a/b/#", [b"a", b"a/c", b"a/c/b"]),
        (b"+/b", [b"$SYS/b", b"a", b"a/b/c", b"b"]),
        (b"#", [b"$SYS", b"$SYS/b", b"$SYS/a/b"]),
    ],
)
def test_a_subscription_drops_the_plans_it_matches_and_no_others(topic_filter: bytes, others: list[bytes]) -> None:
    table = table_of()
    matched = keep(table, b"a/b")
    kept = [keep(table, name) for name in others]
    session = session_of("a")
    table.add(subscription_of(session, topic_filter))
    assert not matched.current
    assert b"a/b" not in table.plans
    assert all(plan.current and table.plans[plan.topic] is plan for plan in kept)
    assert receivers(table, b"a/b") == ["a"]
    matched = keep(table, b"a/b")
    table.remove(session, b"", topic_filter)
    assert not matched.current
    assert all(plan.current for plan in kept)
    assert receivers(table, b"a/b") == []


def test_asking_for_the_same_again_drops_nothing() -> None:
    table = table_of()
    session = session_of("a")
    table.add(subscription_of(session, b"a/+", qos=1, identifier=3))
    plan = keep(table, b"a/b")
    assert not table.add(subscription_of(session, b"a/+", qos=1, identifier=3))
    assert plan.current
    table.remove(session, b"", b"a/+")
    assert not plan.current


@pytest.mark.parametrize("change", ["qos", "no_local", "retain_as_published", "identifier"])
def test_asking_for_something_else_drops_the_plans(change: str) -> None:
    table = table_of()
    session = session_of("a")
    table.add(subscription_of(session, b"a/+"))
    plan = keep(table, b"a/b")
    newer = subscription_of(
        session,
        b"a/+",
        qos=int(change == "qos"),
        no_local=change == "no_local",
        retain_as_published=change == "retain_as_published",
        identifier=int(change == "identifier"),
    )
    assert not table.add(newer)
    assert not plan.current
    assert table.plan(b"a/b").targets == [newer]


def test_where_most_plans_are_wrong_all_are_forgotten() -> None:
    table = table_of()
    plans = [keep(table, b"a/%d" % number) for number in range(9)] + [keep(table, b"b")]
    table.add(subscription_of(session_of("a"), b"a/#"))
    assert not any(plan.current for plan in plans)
    assert table.plans == {}


def test_the_oldest_plan_makes_room() -> None:
    table = table_of(3)
    plans = [keep(table, b"%d" % number) for number in range(5)]
    assert [plan.current for plan in plans] == [False, False, True, True, True]
    assert sorted(table.plans) == [b"2", b"3", b"4"]


def test_dropped_plans_leave_room_without_pushing_newer_ones_out_of_turn() -> None:
    table = table_of(3)
    for number in range(3):
        keep(table, b"%d" % number)
    table.add(subscription_of(session_of("a"), b"1"))
    keep(table, b"3")
    assert sorted(table.plans) == [b"2", b"3"]  # the hand stood at 0
    keep(table, b"4")
    assert sorted(table.plans) == [b"2", b"3", b"4"]


def test_the_oldest_makes_room_also_after_all_were_forgotten() -> None:
    table = table_of(3)
    for number in range(4):
        keep(table, b"a/%d" % number)
    session = session_of("a")
    table.add(subscription_of(session, b"#"))
    assert table.plans == {}
    plans = [keep(table, b"b/%d" % number) for number in range(4)]
    assert [plan.current for plan in plans] == [False, True, True, True]


def test_a_storm_of_names_stays_within_bounds() -> None:
    table = table_of(50)
    for number in range(1_000):
        table.plan(b"a/%d" % number)
        table.plan(b"a/%d" % number)
        assert len(table.plans) <= 50
    assert table._names.count == len(table.plans)


def test_a_storm_of_far_reaching_filters_does_not_walk_for_ever() -> None:
    table = table_of(1_000)
    for number in range(1_000):
        keep(table, b"%d/x/y" % number)
    steps = 0
    session = session_of("a")
    for number in range(1_000):
        if table.plans:
            table.add(subscription_of(session, b"+/%d/#" % number))
            steps += table._names.steps
    assert steps < 100_000  # without a bound: 1,000 filters x 1,000 names
    assert receivers(table, b"7/5/x") == ["a"]


def test_far_reaching_filters_in_ordinary_numbers_forget_nothing() -> None:
    table = table_of(1_000)
    plans = [keep(table, b"%d/x/y" % number) for number in range(1_000)]
    table.add(subscription_of(session_of("a"), b"+/nothing/#"))
    table.add(subscription_of(session_of("a"), b"+/nothing/here"))
    assert sum(plan.current for plan in plans) == len(table.plans) > 900


def test_a_plan_in_use_is_not_changed_under_its_reader() -> None:
    table = table_of()
    sessions: list[Session] = [session_of(str(number)) for number in range(5)]
    for session in sessions:
        table.add(subscription_of(session, b"a/+"))
    seen = []
    for target in table.plan(b"a/b").targets:
        table.remove(target.session, b"", b"a/+")
        seen.append(target.session)
    assert seen == sessions
    assert receivers(table, b"a/b") == []


def test_whoever_delivers_from_logs_is_told_of_filters_that_come_and_go() -> None:
    table = table_of()
    table.noticed = set()
    session = session_of("one")
    table.add(subscription_of(session, b"a/#"))
    table.add(subscription_of(session, b"b", b"group"))
    assert table.noticed == {b"a/#"}
    table.noticed.clear()
    table.add(subscription_of(session, b"a/#", qos=1))  # the same filter again
    assert table.noticed == set()
    table.remove(session, b"", b"a/#")
    assert table.noticed == {b"a/#"}
