"""One session: how far it certainly is, how large it is, and when its time is over."""

from __future__ import annotations

import pytest

from flockmq.durable.machine.session_bodies import (
    ANY_EPOCH,
    POSITIONS_MAX,
    ClaimStatement,
    MarkStatement,
    SlowSession,
    StoredSubscription,
    SubscribeStatement,
)
from flockmq.durable.machine.session_record import (
    NEVER_EXPIRES,
    SUBSCRIPTION_BYTES_MAX,
    SessionRecord,
    read_record,
)
from flockmq.peering.fields import Reader


def session() -> SessionRecord:
    record = SessionRecord(b"c")
    record.take(ClaimStatement(b"c", 1, 0, 11, 1, b"ann", 60, 5, 0), 5, 10, False)
    return record


def subscription(full_filter: bytes = b"a", starts: dict[int, int] | None = None, qos: int = 1) -> StoredSubscription:
    return StoredSubscription(full_filter, qos, 0, 0, starts or {})


def mark(covers: int, positions: dict[int, int], slow: dict[bytes, SlowSession] | None = None) -> MarkStatement:
    return MarkStatement(11, 1, covers, positions, slow or {})


def test_without_a_mark_the_own_position_counts() -> None:
    record = session()
    assert record.position(1, None) == -1
    record.advance(1, 0)
    assert record.position(1, None) == 0


@pytest.mark.parametrize(
    ("slow", "expected"),
    [
        ({}, {1: 80, 2: 70, 3: -1}),
        ({b"c": SlowSession(5, {1: 60})}, {1: 60, 2: 70, 3: -1}),
        ({b"c": SlowSession(5, {1: 60, 3: 7})}, {1: 60, 2: 70, 3: 7}),
        ({b"c": SlowSession(5, {})}, {1: 40, 2: 50, 3: -1}),
        ({b"c": SlowSession(ANY_EPOCH, {})}, {1: 40, 2: 50, 3: -1}),
        ({b"c": SlowSession(4, {1: 60})}, {1: 80, 2: 70, 3: -1}),
        ({b"d": SlowSession(5, {1: 60})}, {1: 80, 2: 70, 3: -1}),
    ],
    ids=[
        "not slow",
        "slow in one group",
        "slow in a group of its own",
        "uncertain",
        "of no known epoch",
        "slow in another epoch",
        "another is slow",
    ],
)
def test_a_mark_says_how_far_all_are_but_the_slow(slow: dict[bytes, SlowSession], expected: dict[int, int]) -> None:
    record = session()
    record.advance(1, 40)
    record.advance(2, 50)
    said = mark(10, {1: 80, 2: 70, 9: 5}, slow)
    assert {group: record.position(group, said) for group in (1, 2, 3)} == expected
    record.materialize(said)
    known = {group: offset for group, offset in expected.items() if offset >= 0}
    assert record.positions == known, "partitions that the session has nothing to do with are left out"


def test_positions_never_go_back() -> None:
    record = session()
    record.advance(1, 90)
    record.advance(1, 80)
    said = mark(10, {1: 80}, {b"c": SlowSession(5, {1: 10})})
    assert record.position(1, said) == 90
    record.materialize(said)
    assert record.positions == {1: 90}


def test_a_mark_does_not_pass_the_start_of_a_subscription_that_it_does_not_cover() -> None:
    record = session()
    record.put(subscription(b"a", {1: 20}), 10)
    record.put(subscription(b"b", {1: 70, 2: 5}), 12)
    said = mark(11, {1: 80, 2: 4})
    assert (record.position(1, said), record.position(2, said)) == (70, 4)
    assert record.position(1, mark(12, {1: 80})) == 80


def test_a_mark_may_be_taken_twice_while_a_subscription_is_not_covered() -> None:
    record = session()
    record.put(subscription(b"a", {1: 70}), 12)
    said = mark(11, {1: 80})
    for _ in range(2):
        record.materialize(said)
        record.drop_starts(said.covers)
        assert record.positions == {1: 70}
    assert record.subscriptions[b"a"].starts == {1: 70}


def test_starts_go_when_they_are_passed() -> None:
    record = session()
    record.put(subscription(b"a", {1: 70, 2: 30, 3: 5}), 12)
    record.advance(1, 70)
    record.advance(2, 29)
    record.drop_starts(11)
    assert len(record.subscriptions[b"a"].starts) == 3
    before = record.subscription_bytes
    record.drop_starts(12)
    assert record.subscription_bytes == before - 16
    assert record.subscriptions[b"a"].starts == {2: 30, 3: 5}
    assert record.least_starts()[2] == 30
    assert record.least_starts().get(1) is None


def test_only_captured_subscriptions_have_a_least_start() -> None:
    record = session()
    record.put(subscription(b"a", {1: 7}, qos=0), 1)
    record.put(subscription(b"$share/g/a", {1: 8}), 1)
    assert (record.least_starts(), record.captured) == ({}, 0)
    record.put(subscription(b"b", {1: 9}), 1)
    assert (record.least_starts()[1], record.captured) == (9, 1)


def test_a_replaced_subscription_keeps_older_starts() -> None:
    """Partition 3 is newer than the subscription, which gets all of it."""
    record = session()
    record.put(subscription(b"a", {1: 7, 2: 8}), 1)
    record.put(subscription(b"a", {2: 9, 3: 4}, qos=2), 2)
    stored = record.subscriptions[b"a"]
    assert (stored.qos, stored.index, stored.starts) == (2, 2, {1: 7, 2: 8})


def test_a_record_is_read_as_it_was_written() -> None:
    record = session()
    record.put(subscription(b"a", {1: 7}), 12)
    record.put(subscription(b"b"), 13)
    record.advance(4, 9)
    found = read_record(Reader(record.encode()))
    assert found.encode() == record.encode()
    assert (found.user, found.is_connected, found.had_session, found.epoch) == (b"ann", True, False, 5)
    for name in ("subscription_bytes", "captured", "newest_index", "positions"):
        assert getattr(found, name) == getattr(record, name)
    assert found.cost() == record.cost() > len(record.encode())


def test_a_packed_record_reads_and_changes_as_any_other() -> None:
    record = session()
    record.put(subscription(b"a", {2: 6}), 11)
    record.put(subscription(b"b", qos=0), 12)
    record.advance(1, 40)
    as_it_was, cost = record.encode(), record.cost()
    record.pack()
    packed_cost = record.cost()
    assert packed_cost < cost
    assert record.encode() == as_it_was
    record.subscriptions.clear()
    record.positions.clear()
    assert (list(record.subscriptions), record.positions) == ([b"a", b"b"], {1: 40}), "what was cleared are copies"
    assert (record.least_starts()[2], record.position(1, None)) == (6, 40)
    record.advance(1, 41)
    record.drop_starts(20)
    assert record.discard(b"b") is not None
    assert record.cost() > packed_cost, "a change unpacks it"
    assert (list(record.subscriptions), record.positions, record.captured) == ([b"a"], {1: 41}, 1)


def test_sizes_follow_what_is_stored() -> None:
    record = session()
    empty = len(record.encode())
    for full_filter, starts in ((b"a", {1: 7}), (b"a", {2: 7}), (b"bc", {})):
        record.put(subscription(full_filter, starts), 12)
        record.encoded = b""
        assert len(record.encode()) - empty == record.subscription_bytes
    record.drop_starts(12)
    record.discard(b"a")
    record.discard(b"bc")
    assert record.discard(b"bc") is None
    assert record.subscription_bytes == 0


def test_subscriptions_are_bounded_by_bytes() -> None:
    record = session()
    long = [subscription(b"%05d" % number + b"x" * 60_000) for number in range(14)]
    assert not record.has_room(SubscribeStatement(b"c", 5, long))
    fits = SUBSCRIPTION_BYTES_MAX // (8 + long[0].size())
    statement = SubscribeStatement(b"c", 5, long[:fits])
    assert record.has_room(statement)
    for one in statement.subscriptions:
        record.put(one, 1)
    assert not record.has_room(SubscribeStatement(b"c", 5, [subscription(b"y" * 60_000)]))
    assert record.has_room(statement), "what is there takes no more room when it is said again"
    grown = subscription(long[0].full_filter, dict.fromkeys(range(4_000), 1))
    assert not record.has_room(SubscribeStatement(b"c", 5, [grown]))


def test_positions_are_bounded() -> None:
    record = session()
    for group in range(POSITIONS_MAX + 1):
        record.advance(group, 1)
    record.advance(0, 2)
    assert len(record.positions) == POSITIONS_MAX
    assert record.positions[0] == 2


def test_the_time_of_a_session_runs_without_a_connection() -> None:
    record = session()
    record.detached_ms = 1_000
    assert not record.has_expired(10**15)
    record.is_connected = False
    assert not record.has_expired(60_999)
    assert record.has_expired(61_000)
    record.expiry_s = NEVER_EXPIRES
    assert not record.has_expired(10**15)


def test_a_subscription_that_is_replaced_begins_where_the_session_stands() -> None:
    """A start that the position has passed is forgotten: a later one would leave out all between the two."""
    record = session()
    record.put(subscription(starts={1: 20, 2: 5}), 11)
    record.advance(1, 30)
    record.drop_starts(11)
    record.put(subscription(starts={1: 485, 2: 90, 3: 7}), 12)
    assert record.subscriptions[b"a"].starts == {2: 5}
    assert record.positions == {1: 30}


def test_a_subscription_that_was_not_captured_begins_when_it_is() -> None:
    record = session()
    record.put(subscription(starts={1: 20}, qos=0), 11)
    record.put(subscription(starts={1: 485}), 12)
    assert record.subscriptions[b"a"].starts == {1: 485}
