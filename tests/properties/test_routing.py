"""Routing against the obvious: trees equal brute force, kept plans equal plans made afresh, stores equal dicts."""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from flockmq.mqtt.topics import matches
from flockmq.mqtt.varint import encode_varint
from flockmq.routing.entry import FilterEntry
from flockmq.routing.names import Named, NameTree
from flockmq.routing.plan import RoutePlan, Target
from flockmq.routing.retained import RetainedStore
from flockmq.routing.retained_usage import message_bytes
from flockmq.routing.shared import STRATEGIES, ShareGroup, strategy_number
from flockmq.routing.subscription import Subscription
from flockmq.routing.table import SubscriptionTable
from flockmq.routing.trie import FilterTrie
from routing_cases import FILTER, NAME, WILDCARD_FILTER, connect, disconnect, run_of, session_of, subscription_of

# --- trees ---


@given(st.sets(WILDCARD_FILTER, max_size=30), st.sets(WILDCARD_FILTER, max_size=10), st.lists(NAME, max_size=10))
def test_the_trie_equals_brute_force(added: set[bytes], removed: set[bytes], names: list[bytes]) -> None:
    trie = FilterTrie()
    for topic_filter in added:
        trie.add(FilterEntry(topic_filter))
    for topic_filter in removed:
        assert trie.remove(topic_filter) == (topic_filter in added)
    left = added - removed
    assert trie.count == len(left)
    for name in names:
        found = [entry.topic_filter for entry in trie.match(name)]
        assert sorted(found) == sorted(topic_filter for topic_filter in left if matches(topic_filter, name))
    for topic_filter in left:
        assert trie.remove(topic_filter)
    assert trie._root.is_empty()


@given(st.lists(st.tuples(st.booleans(), NAME), max_size=30), st.lists(FILTER, max_size=10), st.integers(0, 20))
def test_the_tree_of_names_equals_brute_force(
    changes: list[tuple[bool, bytes]], filters: list[bytes], steps_max: int
) -> None:
    tree: NameTree[Named] = NameTree()
    model: dict[bytes, Named] = {}
    for adds, name in changes:
        if adds:
            model[name] = Named(name)
            tree.set(model[name])
        else:
            assert tree.remove(name) == (model.pop(name, None) is not None)
        assert tree.count == len(model)
        assert tree.get(name) is model.get(name)
    for topic_filter in filters:
        expected = sorted(name for name in model if matches(topic_filter, name))
        assert sorted(value.topic for value in tree.match(topic_filter)) == expected
        within = tree.match_within(topic_filter, steps_max)
        assert within is None or sorted(value.topic for value in within) == expected
    for name in model:
        assert tree.remove(name)
    assert not tree._root.children


# --- plans ---

SESSIONS = 4
GROUP = st.sampled_from([b"", b"", b"g", b"h"])


class Subscribe(NamedTuple):
    session: int
    topic_filter: bytes
    group: bytes
    qos: int
    no_local: bool
    retain_as_published: bool
    identifier: int


class Unsubscribe(NamedTuple):
    number: int


class Publish(NamedTuple):
    topic: bytes


SUBSCRIBE = st.builds(
    Subscribe,
    session=st.integers(0, SESSIONS - 1),
    topic_filter=FILTER,
    group=GROUP,
    qos=st.integers(0, 2),
    no_local=st.booleans(),
    retain_as_published=st.booleans(),
    identifier=st.sampled_from([0, 0, 1, 2, 200, 20_000, 268_435_455]),
)
UNSUBSCRIBE = st.builds(Unsubscribe, st.integers(0, 50))
PUBLISH = st.builds(Publish, NAME)
CHANGES = st.lists(st.one_of(SUBSCRIBE, UNSUBSCRIBE, PUBLISH, PUBLISH), max_size=40)

Merged = tuple[int, bool, tuple[int, ...], bytes]
Expected = tuple[Merged, bool, Merged | None]


def expected_merge(subscriptions: list[Subscription]) -> Merged:
    identifiers = tuple(one.identifier for one in subscriptions if one.identifier)
    return (
        max(one.qos for one in subscriptions),
        any(one.retain_as_published for one in subscriptions),
        identifiers,
        b"".join(b"\x0b" + encode_varint(identifier) for identifier in identifiers),
    )


def expected_target(subscriptions: list[Subscription]) -> Expected:
    local = [one for one in subscriptions if not one.no_local]
    has_no_local = len(local) < len(subscriptions)
    return expected_merge(subscriptions), has_no_local, expected_merge(local) if has_no_local and local else None


def merged(target: Target) -> Merged:
    return target.qos, target.retain_as_published, target.identifiers, target.identifier_properties


def check_plan(plan: RoutePlan, subscriptions: list[Subscription]) -> None:
    """Hold a plan against all subscriptions, given in order of subscribing."""
    matching = [one for one in subscriptions if matches(one.topic_filter, plan.topic)]
    by_session: dict[str, list[Subscription]] = {}
    groups: dict[tuple[bytes, bytes], list[Subscription]] = {}
    for one in matching:
        if one.group:
            groups.setdefault((one.group, one.topic_filter), []).append(one)
        else:
            by_session.setdefault(one.session.client_id, []).append(one)
    targets = {
        target.session.client_id: (merged(target), target.has_no_local, merged(target.own) if target.own else None)
        for target in plan.targets
    }
    assert len(targets) == len(plan.targets)
    assert targets == {client_id: expected_target(own) for client_id, own in by_session.items()}
    assert len(plan.groups) == len(groups)
    assert {(group.name, group.topic_filter): group.members for group in plan.groups} == groups


@given(CHANGES, st.sampled_from([1, 2, 5, 1_000]))
def test_plans_equal_those_made_afresh(changes: list[Subscribe | Unsubscribe | Publish], plan_cache_max: int) -> None:
    table = SubscriptionTable(plan_cache_max, "round_robin", random.Random(1))
    sessions = [session_of(str(number)) for number in range(SESSIONS)]
    model: dict[tuple[int, bytes, bytes], Subscription] = {}
    for change in changes:
        if isinstance(change, Subscribe):
            subscription = subscription_of(
                sessions[change.session],
                change.topic_filter,
                change.group,
                qos=change.qos,
                no_local=change.no_local and not change.group,
                retain_as_published=change.retain_as_published,
                identifier=change.identifier,
            )
            key = (change.session, change.group, change.topic_filter)
            assert table.add(subscription) == (key not in model)
            model[key] = subscription
        elif isinstance(change, Publish):
            for _ in range(2):  # the second time it is kept
                plan = table.plan(change.topic)
                assert plan.topic == change.topic
                check_plan(plan, list(model.values()))
            found = [entry.topic_filter for entry in table.matching(change.topic)]
            assert sorted(found) == sorted(name for name in table.filters() if matches(name, change.topic))
        elif model:
            number, group, topic_filter = list(model)[change.number % len(model)]
            assert table.remove(sessions[number], group, topic_filter)
            assert not table.remove(sessions[number], group, topic_filter)
            del model[number, group, topic_filter]
        assert table.count == len(model)
        assert table.count_shared == sum(bool(group) for _, group, _ in model)
        assert set(table.filters()) == {topic_filter for _, _, topic_filter in model}
        assert len(table.plans) <= plan_cache_max
        for topic, plan in table.plans.items():
            assert plan.current
            assert plan.topic == topic
            check_plan(plan, list(model.values()))


# --- shared subscriptions ---

MEMBER_CHANGE = st.tuples(st.sampled_from(["join", "leave", "on", "off"]), st.integers(0, 5))


@given(
    st.sampled_from(STRATEGIES),
    st.lists(
        st.one_of(st.integers(0, 5), st.tuples(st.sampled_from(["join", "leave", "on", "off"]), st.integers(0, 5)))
    ),
    st.integers(0, 9),
)
def test_a_group_picks_a_connected_member_whenever_there_is_one(
    strategy: str, changes: list[int | tuple[str, int]], seed: int
) -> None:
    group = ShareGroup(b"g", b"#", strategy_number(strategy), random.Random(seed))
    sessions = [session_of(str(number)) for number in range(6)]
    for change in changes:
        if isinstance(change, int):
            picked = group.pick(f"publisher {change}", b"topic/%d" % change)
            connected = [one for one in group.members if one.session.connection is not None]
            candidates = connected or group.members
            assert picked in candidates if candidates else picked is None
            continue
        what, number = change
        session = sessions[number]
        members = [one.session for one in group.members]
        if what == "join":
            assert (group.add(subscription_of(session, b"#", b"g")) is not None) == (session in members)
        elif what == "leave":
            assert group.remove(session) == (session in members)
        elif what == "on":
            connect(session)
        else:
            disconnect(session)


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.integers(0, 50))
def test_round_robin_is_fair_among_those_who_are_there(present: list[bool], count: int) -> None:
    group = ShareGroup(b"g", b"#", strategy_number("round_robin"), random.Random(1))
    for number, here in enumerate(present):
        group.add(subscription_of(session_of(str(number), here), b"#", b"g"))
    turns = Counter(one.session.client_id for _ in range(count) if (one := group.pick("p", b"t")) is not None)
    there = [str(number) for number, here in enumerate(present) if here or not any(present)]
    shares = [turns[client_id] for client_id in there]
    assert sum(shares) == count
    assert max(shares) - min(shares) <= 1


# --- retained messages ---

PUT = st.tuples(st.just("put"), NAME, st.integers(0, 40), st.sampled_from([0, 0, 5, 10, 50]))
DELETE = st.tuples(st.just("delete"), NAME)
MATCH = st.tuples(st.just("match"), FILTER)
SWEEP = st.tuples(st.just("sweep"), st.integers(0, 5))
WAIT = st.tuples(st.just("wait"), st.integers(1, 10))


@given(
    st.lists(st.one_of(PUT, PUT, DELETE, MATCH, SWEEP, WAIT), max_size=40),
    st.sampled_from([0, 1, 3]),
    st.sampled_from([0, 1_000, 2_000]),
)
def test_the_retained_store_equals_a_dict(changes: list[tuple[object, ...]], messages_max: int, bytes_max: int) -> None:
    store = RetainedStore(messages_max, bytes_max)
    model: dict[bytes, tuple[int, int]] = {}  # topic -> (bytes, expires at), expired ones left out
    now = 1
    for change in changes:
        model = {topic: kept for topic, kept in model.items() if not 0 < kept[1] <= now}
        match change:
            case ("put", bytes(topic), int(size), int(lifetime)):
                run = run_of(topic, bytes(size), now + lifetime if lifetime else 0)
                wanted = {**model, topic: (message_bytes(topic, run), run.expires_at)}
                fits = (not messages_max or len(wanted) <= messages_max) and (
                    not bytes_max or sum(kept[0] for kept in wanted.values()) <= bytes_max
                )
                # So few messages are all looked at before one is refused: expired ones never stand in the way.
                assert store.put(topic, run, now) == fits
                if fits:
                    model = wanted
            case ("delete", bytes(topic)):
                known = store.get(topic, now) is not None
                assert known == (topic in model)
                assert store.delete(topic, now) == known
                model.pop(topic, None)
            case ("match", bytes(topic_filter)):
                found = store.match(topic_filter, now)
                assert sorted(message.topic for message in found) == sorted(
                    topic for topic in model if matches(topic_filter, topic)
                )
                assert all(message_bytes(one.topic, one.run) == model[one.topic][0] for one in found)
            case ("sweep", int(budget)):
                assert 0 <= store.sweep(now, budget) <= budget
            case ("wait", int(duration)):
                now += duration
        assert store.usage.count >= len([1 for kept in model.values() if not 0 < kept[1] <= now])
        assert not messages_max or store.usage.count <= messages_max
        assert not bytes_max or store.usage.bytes <= bytes_max
    model = {topic: kept for topic, kept in model.items() if not 0 < kept[1] <= now}
    store.sweep(now, 1_000)  # the rest of a round that was under way
    store.sweep(now, 1_000)
    assert sorted(store.topics()) == sorted(model)
    assert store.usage.count == len(model)
    assert store.usage.bytes == sum(kept[0] for kept in model.values())
