"""The table of sessions, statement by statement: each rule of its module is a test here."""

from __future__ import annotations

import pytest

from flockmq.durable.machine.machine import PartitionMachine
from flockmq.durable.machine.session_bodies import (
    CHECKS_USER,
    CLEAN_START,
    REGISTERS,
    SAME_EPOCH,
    TOUCHED_MAX,
    AdvanceStatement,
    CheckStatement,
    ClaimStatement,
    DetachStatement,
    EndStatement,
    ExpireStatement,
    MarkStatement,
    OrphanStatement,
    SessionStatement,
    SlowSession,
    StoredSubscription,
    SubscribeStatement,
    TouchStatement,
    UnsubscribeStatement,
    UntouchStatement,
    session_body,
)
from flockmq.durable.machine.session_record import NEVER_EXPIRES, SessionRecord
from flockmq.durable.machine.session_table import (
    REFUSALS_MAX,
    REFUSED_FULL,
    REFUSED_USER,
    Displaced,
    SessionTable,
    decode_sessions,
)
from flockmq.errors import RemoteProtocolError
from flockmq.log.batch import SESSION, control_batch, stamp
from flockmq.raft.entry import entry_of

NODE, OTHER = 11, 22
BOOT = 5


class Log:
    """A table, and entries for it."""

    def __init__(self) -> None:
        self.table = SessionTable()
        self.index = 0
        self.now_ms = 1_000
        self.nonce = 0

    def say(self, *statements: SessionStatement) -> int:
        """One entry; its index."""
        self.index += 1
        self.table.apply(session_body(self.now_ms, list(statements)), self.index, self.now_ms)
        return self.index

    def claim(
        self,
        client: bytes = b"c",
        owner: int = NODE,
        boot: int = BOOT,
        user: bytes | None = b"ann",
        expiry_s: int = 60,
        flags: int = 0,
        epoch: int = 0,
    ) -> SessionRecord:
        self.nonce += 1
        self.say(ClaimStatement(client, self.nonce, epoch, owner, boot, user, expiry_s, 5, flags))
        return self.table.records[client]

    def claim_seen(self, owner: int, seen: int) -> ClaimStatement:
        """Say a claim of a node that has heard of the log up to an index."""
        self.nonce += 1
        claim = ClaimStatement(b"c", self.nonce, 0, owner, BOOT, b"ann", 60, 5, 0)
        claim.seen = seen
        self.say(claim)
        return claim

    def subscribe(
        self, record: SessionRecord, full_filter: bytes, starts: dict[int, int] | None = None, qos: int = 1
    ) -> int:
        stored = StoredSubscription(full_filter, qos, 0, 0, starts or {})
        return self.say(SubscribeStatement(record.client, record.epoch, [stored]))

    def mark(
        self,
        positions: dict[int, int],
        covers: int | None = None,
        owner: int = NODE,
        boot: int = BOOT,
        slow: dict[bytes, SlowSession] | None = None,
    ) -> None:
        self.say(MarkStatement(owner, boot, self.index if covers is None else covers, positions, slow or {}))

    def detach(self, record: SessionRecord, positions: dict[int, int] | None = None, expiry_s: int = 60) -> None:
        self.say(DetachStatement(record.client, record.epoch, expiry_s, positions or {}))

    def reopened(self) -> SessionTable:
        """The same table after a checkpoint."""
        return decode_sessions(self.table.encode(), self.index)


# Claims.


def test_a_session_that_is_to_end_with_its_connection_goes_on_when_its_node_makes_sure_of_it() -> None:
    log = Log()
    log.subscribe(log.claim(), b"a/#")
    last = log.claim(expiry_s=0)
    assert last.had_session
    assert last.outlives_connections()
    sure = log.claim(flags=SAME_EPOCH, epoch=last.epoch, expiry_s=0)
    assert sure.outlives_connections()
    assert list(sure.subscriptions) == [b"a/#"]


def test_a_session_that_ends_with_its_connection_is_none_for_the_next_one() -> None:
    log = Log()
    log.subscribe(log.claim(), b"a/#")
    log.claim(expiry_s=0)
    following = log.claim(owner=OTHER)
    assert not following.had_session
    assert not following.subscriptions


def test_a_claim_makes_a_record() -> None:
    log = Log()
    record = log.claim(epoch=40)
    assert (record.epoch, record.owner, record.boot, record.user, record.expiry_s) == (40, NODE, BOOT, b"ann", 60)
    assert (record.version, record.nonce, record.claimed_index) == (5, 1, 1)
    assert record.is_connected
    assert not record.had_session
    assert log.table.by_owner == {NODE: {b"c": record}}


def test_another_claim_takes_the_session_over_with_a_higher_epoch() -> None:
    log = Log()
    first = log.claim(epoch=40).epoch
    log.subscribe(log.table.records[b"c"], b"a")
    record = log.claim(owner=OTHER, expiry_s=70)
    assert record.epoch == first + 1
    assert (record.owner, record.expiry_s, record.claimed_index) == (OTHER, 70, 3)
    assert record.had_session
    assert list(record.subscriptions) == [b"a"]
    assert list(log.table.by_owner) == [OTHER]


def test_a_claim_that_is_said_twice_changes_nothing() -> None:
    log = Log()
    record = log.claim()
    log.detach(record)
    before = log.table.encode()
    log.say(ClaimStatement(b"c", record.nonce, 99, OTHER, BOOT, None, 0, 4, CLEAN_START))
    assert log.table.encode() == before


def test_another_users_session_refuses_where_users_are_checked() -> None:
    log = Log()
    log.claim()
    before = log.table.encode()
    for user in (b"bob", None):
        log.claim(user=user, flags=CHECKS_USER)
        assert log.table.refusals[log.nonce] == REFUSED_USER
    assert log.table.encode() == before
    assert log.claim(user=b"ann", flags=CHECKS_USER).had_session
    assert log.claim(user=b"bob").user == b"bob"


def test_refusals_are_bounded_and_go_when_the_claim_is_granted_after_all() -> None:
    log = Log()
    record = log.claim()
    for _ in range(REFUSALS_MAX + 1):
        log.claim(user=b"bob", flags=CHECKS_USER)
    assert len(log.table.refusals) == REFUSALS_MAX
    assert 2 not in log.table.refusals
    log.say(EndStatement(b"c", record.epoch))
    log.nonce -= 1
    log.claim(user=b"bob", flags=CHECKS_USER)
    assert log.nonce not in log.table.refusals


def test_a_full_table_refuses_new_clients_only() -> None:
    log = Log()
    log.table.sessions_max = 1
    log.claim()
    log.say(ClaimStatement(b"d", 77, 0, NODE, BOOT, None, 60, 5, 0))
    assert log.table.refusals == {77: REFUSED_FULL}
    assert list(log.table.records) == [b"c"]
    assert log.claim().had_session


def test_a_clean_start_drops_what_was_there() -> None:
    log = Log()
    record = log.claim()
    log.subscribe(record, b"a", {1: 5})
    log.detach(record, {1: 9})
    record = log.claim(flags=CLEAN_START)
    assert (record.subscriptions, record.positions, record.had_session) == ({}, {}, False)
    assert log.table.filters == {}


def test_a_session_without_expiry_ends_with_its_connection() -> None:
    log = Log()
    record = log.claim(expiry_s=0)
    log.subscribe(record, b"a")
    record = log.claim(expiry_s=0)
    assert (record.subscriptions, record.had_session) == ({}, False), "taken over: its connection is closed"
    log.detach(record, expiry_s=0)
    assert not log.table.records


def test_a_claim_that_comes_too_late_begins_anew() -> None:
    log = Log()
    record = log.claim()
    log.subscribe(record, b"a")
    log.detach(record)
    log.now_ms += 59_999
    record = log.claim(user=b"ann", flags=CHECKS_USER)
    assert record.had_session
    log.detach(record)
    log.now_ms += 60_000
    late = log.claim(user=b"bob", flags=CHECKS_USER)
    assert (late.had_session, late.subscriptions, late.user) == (False, {}, b"bob")
    assert late.epoch > record.epoch


def test_epochs_never_repeat_after_a_record_is_gone() -> None:
    log = Log()
    record = log.claim(epoch=40)
    log.say(EndStatement(b"c", record.epoch))
    assert log.table.epoch_floor == 40
    assert log.claim().epoch == 41


# Statements of a session.


@pytest.mark.parametrize("epoch", [39, 41])
def test_statements_of_another_epoch_or_client_are_void(epoch: int) -> None:
    log = Log()
    record = log.claim(epoch=40)
    log.say(TouchStatement(b"c", 40, 1, [1]))
    log.subscribe(record, b"a")
    log.detach(record)
    log.now_ms += 10**9
    before = log.table.encode()
    for client, said in ((b"c", epoch), (b"x", 40)):
        log.say(
            SubscribeStatement(client, said, [StoredSubscription(b"b", 1, 0, 0, {})]),
            UnsubscribeStatement(client, said, [b"a"]),
            DetachStatement(client, said, 0, {1: 1}),
            EndStatement(client, said),
            ExpireStatement([(client, said)]),
            TouchStatement(client, said, 2, [7]),
            UntouchStatement(client, said, 9, [1]),
        )
    assert log.table.encode() == before


def test_subscriptions_are_stored_replaced_and_removed() -> None:
    log = Log()
    record = log.claim()
    log.subscribe(record, b"a", {1: 5, 2: 6})
    index = log.subscribe(record, b"a", {2: 7, 3: 8}, qos=2)
    stored = record.subscriptions[b"a"]
    assert (stored.qos, stored.index, stored.starts) == (2, index, {1: 5, 2: 6})
    log.say(UnsubscribeStatement(b"c", record.epoch, [b"a", b"b"]))
    assert record.subscriptions == {}


def test_a_subscribe_without_room_is_void() -> None:
    log = Log()
    record = log.claim()
    large = [StoredSubscription(b"%02d" % number + b"x" * 65_000, 1, 0, 0, {}) for number in range(13)]
    statement = SubscribeStatement(b"c", record.epoch, large)
    assert not log.table.has_room(record, statement)
    log.say(statement)
    assert not record.subscriptions


def test_a_detached_session_keeps_exact_positions_and_waits() -> None:
    log = Log()
    record = log.claim()
    log.subscribe(record, b"a", {1: 5, 2: 6})
    log.detach(record, {1: 9, 2: 3}, expiry_s=30)
    assert (record.is_connected, record.detached_ms, record.expiry_s) == (False, log.now_ms, 30)
    assert record.positions == {1: 9, 2: 3}
    assert record.subscriptions[b"a"].starts == {2: 6}
    assert log.table.by_owner == {}


def test_a_detach_that_is_said_twice_neither_goes_back_nor_lengthens_the_wait() -> None:
    log = Log()
    record = log.claim()
    log.detach(record, {1: 9})
    log.now_ms += 500
    log.detach(record, {1: 8, 2: 1})
    assert record.positions == {1: 9, 2: 1}
    assert record.detached_ms == 1_000
    assert log.table.expired(61_000, 10) == [(b"c", record.epoch)]


def test_an_ended_session_is_gone() -> None:
    log = Log()
    record = log.claim()
    log.subscribe(record, b"a")
    log.say(EndStatement(b"c", record.epoch))
    table = log.table
    assert (table.records, table.by_owner, table.boots, table.filters, table.bytes) == ({}, {}, {}, {}, 0)
    assert not table.is_empty()


# QoS 2 of clients.


def test_partitions_that_a_session_touches_stay_until_it_untouches_them() -> None:
    log = Log()
    record = log.claim(epoch=40)
    log.say(TouchStatement(b"c", 40, 1, [5, 6]), TouchStatement(b"c", 40, 2, [6]))
    assert record.touched == {5: 1, 6: 2}
    log.say(UntouchStatement(b"c", 40, 1, [5, 6, 7]))
    assert record.touched == {6: 2}, "touched since: an UNTOUCH that is said again late changes nothing"
    assert log.reopened().records[b"c"].touched == {6: 2}


def test_another_owner_knows_what_was_touched_and_may_untouch_it() -> None:
    log = Log()
    log.claim(epoch=40)
    log.say(TouchStatement(b"c", 40, 1_000, [5]))
    record = log.claim(owner=OTHER)
    assert (record.touched, record.began) == ({5: 0}, 40)
    log.say(UntouchStatement(b"c", record.epoch, 1, [5]))
    assert record.touched == {}


def test_a_session_that_begins_anew_says_so_and_still_knows_what_was_touched() -> None:
    log = Log()
    log.claim(epoch=40)
    log.say(TouchStatement(b"c", 40, 1, [5]))
    record = log.claim(flags=CLEAN_START)
    assert (record.touched, record.began) == ({5: 0}, record.epoch)
    assert log.reopened().encode() == log.table.encode()


def test_a_session_touches_no_more_partitions_than_it_may() -> None:
    log = Log()
    record = log.claim(epoch=40)
    log.say(TouchStatement(b"c", 40, 1, list(range(TOUCHED_MAX))))
    log.say(TouchStatement(b"c", 40, 2, [TOUCHED_MAX, 3]))
    assert len(record.touched) == TOUCHED_MAX
    assert record.touched[3] == 1


# Marks.


def test_a_mark_holds_for_records_whose_claim_it_covers() -> None:
    log = Log()
    early = log.claim(b"c")
    log.mark({1: 80})
    late = log.claim(b"d")
    elsewhere = log.claim(b"e", owner=OTHER)
    before = log.claim(b"f", boot=BOOT - 1)
    found = [log.table.position_of(record, 1) for record in (early, late, elsewhere, before)]
    assert found == [80, -1, -1, -1]
    log.mark({1: 90})
    assert [log.table.position_of(record, 1) for record in (early, late)] == [90, 90]


def test_a_mark_never_covers_what_comes_after_it() -> None:
    log = Log()
    log.claim(b"c")
    log.mark({1: 80}, covers=1_000)
    assert log.table.position_of(log.claim(b"d"), 1) == -1
    log.say(ClaimStatement(b"e", 77, 0, NODE, BOOT, None, 60, 5, 0), MarkStatement(NODE, BOOT, 1_000, {1: 80}, {}))
    assert log.table.position_of(log.table.records[b"e"], 1) == -1


def test_older_marks_are_void() -> None:
    log = Log()
    record = log.claim()
    log.claim(b"d", boot=BOOT + 1)
    log.mark({1: 80}, covers=2)
    log.mark({1: 70}, covers=1)
    assert log.table.position_of(record, 1) == 80
    log.mark({1: 85}, covers=2)
    assert log.table.position_of(record, 1) == 85
    log.mark({1: 5}, covers=2, boot=BOOT + 1)
    log.mark({1: 99}, covers=3, boot=BOOT)
    assert log.table.marks[NODE].positions == {1: 5}


def test_a_mark_of_a_node_without_sessions_is_not_kept() -> None:
    log = Log()
    log.mark({1: 80})
    assert log.table.marks == {}
    record = log.claim()
    log.mark({1: 80})
    log.detach(record)
    assert log.table.marks == {}


def test_what_a_mark_said_stays_when_another_owner_comes() -> None:
    log = Log()
    record = log.claim()
    log.subscribe(record, b"a", {1: 5, 2: 6})
    log.mark({1: 80})
    log.subscribe(record, b"b", {1: 70})
    log.claim(owner=OTHER)
    assert record.positions == {1: 70}
    assert record.subscriptions[b"a"].starts == {2: 6}
    assert record.subscriptions[b"b"].starts == {}


def test_slow_sessions_are_where_the_mark_says() -> None:
    log = Log()
    record, other = log.claim(b"c"), log.claim(b"d")
    log.mark({1: 80}, slow={b"c": SlowSession(record.epoch, {1: 10}), b"d": SlowSession(other.epoch + 1, {1: 10})})
    assert [log.table.position_of(found, 1) for found in (record, other)] == [10, 80]


def test_a_subscription_that_is_replaced_does_not_fall_behind_the_mark() -> None:
    log = Log()
    record = log.claim()
    log.subscribe(record, b"a", {1: 5})
    log.mark({1: 80})
    log.subscribe(record, b"a")
    assert log.table.position_of(record, 1) == 80
    log.subscribe(record, b"b", {1: 90})
    log.mark({1: 100}, covers=3)
    log.subscribe(record, b"a")
    log.subscribe(record, b"a")
    assert log.table.position_of(record, 1) == 90, "the mark does not cover b, however often it is taken"


# Nodes that are gone.


def test_orphans_are_detached_where_they_certainly_were() -> None:
    log = Log()
    record = log.claim()
    log.claim(b"short", expiry_s=0)
    log.claim(b"elsewhere", owner=OTHER)
    log.subscribe(record, b"a", {1: 5})
    log.mark({1: 80})
    log.now_ms += 7
    log.say(OrphanStatement(NODE, 0))
    assert list(log.table.records) == [b"c", b"elsewhere"]
    assert (record.is_connected, record.detached_ms, record.positions) == (False, log.now_ms, {1: 80})
    assert record.subscriptions[b"a"].starts == {}
    assert (log.table.marks, list(log.table.by_owner)) == ({}, [OTHER])


def test_orphans_of_a_node_that_started_again_are_those_of_earlier_boots() -> None:
    log = Log()
    before = log.claim(b"c")
    before.advance(1, 40)
    log.mark({1: 80})
    after = log.claim(b"d", boot=BOOT + 1)
    log.say(OrphanStatement(NODE, BOOT + 1))
    assert (before.is_connected, after.is_connected) == (False, True)
    assert before.positions == {1: 80}
    assert log.table.marks == {}


def test_sessions_of_a_lost_node_are_told_of_some_at_a_time() -> None:
    log = Log()
    for number in range(5):
        log.subscribe(log.claim(b"%d" % number), b"a", {1: 5})
    log.mark({1: 80})
    table = log.table
    for count in (3, 1):
        named = table.orphaned(NODE, 0, 2)
        assert len(named) == 2
        log.say(OrphanStatement(NODE, 0, named))
        assert len(table.by_owner[NODE]) == count
        assert table.orphans(set(), {}) == [(NODE, 0)]
        assert list(table.marks) == [NODE], "it still holds for the others"
    log.say(OrphanStatement(NODE, 0, table.orphaned(NODE, 0, 2)))
    assert (table.orphans(set(), {}), table.marks) == ([], {})
    assert all(record.positions == {1: 80} for record in table.records.values())


def test_a_session_that_was_claimed_since_it_was_named_stays() -> None:
    log = Log()
    log.claim()
    named = log.table.orphaned(NODE, 0, 9)
    assert log.claim().is_connected
    log.say(OrphanStatement(NODE, 0, named))
    assert log.table.records[b"c"].is_connected


def test_the_mark_of_the_present_boot_stays() -> None:
    log = Log()
    log.claim(b"c")
    log.claim(b"d", boot=BOOT + 1)
    log.mark({1: 80}, boot=BOOT + 1)
    log.say(OrphanStatement(NODE, BOOT + 1))
    assert list(log.table.marks) == [NODE]


def test_orphan_statements_are_due_for_owners_that_are_gone_or_started_again() -> None:
    log = Log()
    log.claim(b"c")
    log.claim(b"d")
    log.claim(b"e", owner=OTHER)
    table = log.table
    assert table.orphans({NODE, OTHER}, {NODE: BOOT, OTHER: BOOT}) == []
    assert table.orphans({NODE}, {NODE: BOOT + 1}) == [(NODE, BOOT + 1), (OTHER, 0)]
    for owner, boot in table.orphans({NODE}, {NODE: BOOT + 1}):
        log.say(OrphanStatement(owner, boot))
    assert table.orphans(set(), {}) == []


# Expiry.


def test_sessions_expire_by_the_time_of_the_log() -> None:
    log = Log()
    for client, expiry_s in ((b"c", 60), (b"never", NEVER_EXPIRES), (b"d", 30), (b"here", 1)):
        record = log.claim(client, expiry_s=expiry_s)
        if client != b"here":
            log.detach(record, expiry_s=expiry_s)
    named = [(record.client, record.epoch) for record in log.table.records.values()]
    log.now_ms += 30_000
    assert log.table.expired(log.now_ms, 10) == [(b"d", 1)]
    log.say(ExpireStatement(named))
    assert list(log.table.records) == [b"c", b"never", b"here"]
    log.now_ms += 30_000
    log.say(ExpireStatement(named))
    assert list(log.table.records) == [b"never", b"here"]
    assert log.table.expired(10**15, 10) == []


def test_expired_sessions_are_named_until_they_are_gone_a_few_at_a_time() -> None:
    log = Log()
    for number in range(5):
        log.detach(log.claim(b"%d" % number), expiry_s=5 - number)
    for _ in range(2):
        assert [client for client, _ in log.table.expired(10_000, 2)] == [b"4", b"3"]
    assert len(log.table.expired(10_000, 10)) == 5
    assert len(log.reopened().expired(10_000, 10)) == 5
    log.claim(b"4")
    assert [client for client, _ in log.table.expired(10_000, 2)] == [b"3", b"2"]


def test_a_session_that_comes_and_goes_leaves_no_heap_of_deadlines() -> None:
    log = Log()
    for _ in range(3_000):
        log.now_ms += 1
        log.detach(log.claim())
    assert len(log.table._deadlines) < 2_000
    assert log.table.expired(10**9, 10) == [(b"c", log.table.records[b"c"].epoch)]


# Filters.


def test_captured_filters_are_counted() -> None:
    log = Log()
    first, second = log.claim(b"c"), log.claim(b"d")
    index = log.subscribe(first, b"a")
    log.subscribe(second, b"a")
    log.subscribe(first, b"$share/g/b")
    log.subscribe(first, b"live", qos=0)
    assert (log.table.filters, log.table.filters_version) == ({b"a": 2}, index)
    log.subscribe(first, b"a", qos=2)
    log.subscribe(second, b"a", qos=0)
    assert (log.table.filters, log.table.filters_version) == ({b"a": 1}, index)
    log.subscribe(first, b"live")
    log.say(EndStatement(b"c", first.epoch))
    assert (log.table.filters, log.table.filters_version) == ({}, log.index)
    assert log.table.changes_since(index) == [(b"live", True), (b"a", False), (b"live", False)]


def test_after_a_checkpoint_the_set_is_the_same_and_its_history_unknown() -> None:
    log = Log()
    log.subscribe(log.claim(), b"a")
    log.claim(b"d")
    table = log.reopened()
    assert (table.filters, table.filters_version) == ({b"a": 1}, log.index)
    assert table.changes_since(log.index - 1) is None
    assert table.changes_since(log.index) == []


def test_the_least_position_is_that_of_the_session_that_needs_most() -> None:
    log = Log()
    first, second = log.claim(b"c"), log.claim(b"d")
    shared = log.claim(b"e")
    log.subscribe(first, b"a", {1: 50, 2: 7})
    log.subscribe(second, b"b", {1: 40})
    log.subscribe(shared, b"$share/g/a", {1: 1})
    assert log.table.least_positions([1, 2, 3]) == {1: 40, 2: 7}
    log.mark({1: 60})
    assert log.table.least_positions([1, 2, 3]) == {1: 60, 2: 7}
    log.detach(first, {1: 55, 2: 9})
    assert log.table.least_positions([1, 2, 3]) == {1: 55, 2: 9}


# Checkpoints.


def test_a_table_is_the_same_after_a_checkpoint() -> None:
    log = Log()
    assert log.table.is_empty()
    record = log.claim()
    log.subscribe(record, b"a", {1: 5})
    log.say(TouchStatement(b"c", record.epoch, 3, [9, 4]))
    log.detach(log.claim(b"d", user=None), {2: 3})
    log.say(EndStatement(b"e", log.claim(b"e", epoch=90).epoch))
    log.mark({1: 80}, slow={b"c": SlowSession(record.epoch, {1: 7})})
    table = log.reopened()
    assert table.encode() == log.table.encode()
    assert (table.epoch_floor, table.bytes, table.connected) == (90, log.table.bytes, 1)
    assert (table.boots, list(table.by_owner)) == (log.table.boots, [NODE])
    assert table.position_of(table.records[b"c"], 1) == 7
    assert table.records[b"d"].user is None
    assert (table.records[b"c"].touched, table.records[b"c"].began) == ({9: 3, 4: 3}, record.epoch)


def test_bytes_that_are_no_table_are_refused() -> None:
    log = Log()
    log.subscribe(log.claim(), b"a", {1: 5})
    content = log.table.encode()
    for wrong in (b"\x09" + content[1:], content + b"\0", *[content[:length] for length in range(len(content))]):
        with pytest.raises(RemoteProtocolError):
            decode_sessions(wrong, 1)


def test_bodies_that_can_not_be_read_are_counted() -> None:
    log = Log()
    log.claim()
    before = log.table.encode()
    for body in (b"", b"\x09", session_body(1, [EndStatement(b"c", 1)])[:-1]):
        log.table.apply(body, 9, 9)
    assert log.table.unreadable == 3
    assert log.table.encode() == before


def test_a_partition_has_a_table_of_sessions() -> None:
    machine = PartitionMachine(1)
    claim = ClaimStatement(b"c", 1, 0, NODE, BOOT, None, 60, 5, 0)
    for index, statement in ((1, claim), (2, DetachStatement(b"c", 1, 60, {1: 5}))):
        batch = control_batch(SESSION, session_body(1_000 * index, [statement]))
        machine.apply(entry_of(stamp(batch, 1, index, 0)))
    assert machine.clock_ms == machine.sessions.records[b"c"].detached_ms == 2_000
    other = PartitionMachine(1)
    other.decode(machine.encode())
    assert other.encode() == machine.encode()
    assert other.sessions.records[b"c"].positions == {1: 5}
    assert other.sessions.filters_version == 2
    other.decode(b"")
    assert other.sessions.is_empty()


def test_a_claim_that_is_older_than_that_of_the_record_changes_nothing() -> None:
    log = Log()
    log.claim()
    seen = log.index
    granted = log.claim_seen(OTHER, seen)
    assert log.table.records[b"c"].nonce == granted.nonce
    before = log.table.encode()
    late = log.claim_seen(NODE, seen)
    assert log.table.is_late(late)
    assert log.table.encode() == before
    assert not log.table.is_late(granted), "said again, it is known"
    again = log.claim_seen(NODE, log.index)
    assert (log.table.records[b"c"].owner, log.table.records[b"c"].nonce) == (NODE, again.nonce)


def test_a_claim_of_a_client_without_a_record_is_never_late() -> None:
    log = Log()
    log.claim_seen(NODE, 0)
    assert log.table.records[b"c"].owner == NODE


# Sessions that are away pass what they do not match.


def test_a_session_that_is_away_is_advanced() -> None:
    log = Log()
    record = log.claim()
    log.subscribe(record, b"a/#", {7: 10, 8: 20})
    log.detach(record, {7: 15})
    log.say(AdvanceStatement(b"c", record.epoch, log.index, {7: 40, 8: 5, 9: 1}))
    assert record.positions == {7: 40, 8: 5, 9: 1}
    assert record.subscriptions[b"a/#"].starts == {8: 20}, "a start is kept until a position has passed it"
    log.say(AdvanceStatement(b"c", record.epoch, log.index, {7: 30, 8: 30}))
    assert record.positions == {7: 40, 8: 30, 9: 1}, "never back"
    assert log.reopened().encode() == log.table.encode()


def test_a_session_is_not_advanced_that_is_connected_or_another_one() -> None:
    log = Log()
    record = log.claim()
    log.subscribe(record, b"a/#", {7: 10})
    log.say(AdvanceStatement(b"c", record.epoch, log.index, {7: 40}))
    log.detach(record, {7: 15})
    log.say(AdvanceStatement(b"c", record.epoch - 1, log.index, {7: 40}))
    log.say(AdvanceStatement(b"x", record.epoch, log.index, {7: 40}))
    assert record.positions == {7: 15}
    before = record.epoch
    record = log.claim(owner=OTHER)
    log.detach(record)
    log.say(AdvanceStatement(b"c", before, log.index, {7: 40}))
    assert record.positions == {7: 15}


def test_a_session_is_not_advanced_past_a_subscription_that_its_leader_did_not_know() -> None:
    log = Log()
    record = log.claim()
    log.subscribe(record, b"a/#", {7: 10})
    covers = log.index
    log.detach(record, {7: 15})
    log.subscribe(record, b"b/#", {7: 20})
    log.say(AdvanceStatement(b"c", record.epoch, covers, {7: 40}))
    assert record.positions == {7: 15}


# Owners.


def test_a_claim_of_another_node_displaces_the_owner() -> None:
    log = Log()
    first = log.claim().epoch
    log.claim()
    assert log.table.take_displaced() == [], "the node itself knows"
    second = log.table.records[b"c"].epoch
    record = log.claim(owner=OTHER)
    assert log.table.take_displaced() == [Displaced(NODE, b"c", second)]
    assert log.table.take_displaced() == []
    assert (record.before, record.former) == (second, NODE)
    assert first < second < record.epoch
    assert log.reopened().records[b"c"].former == NODE


def test_a_session_that_begins_anew_has_no_former_owner() -> None:
    log = Log()
    log.claim()
    record = log.claim(owner=OTHER, flags=CLEAN_START)
    assert (record.before, record.former) == (0, 0)
    assert [one.owner for one in log.table.take_displaced()] == [NODE], "but its client is closed"


def test_a_client_that_was_let_in_without_the_log_loses_to_one_that_is_connected_elsewhere() -> None:
    log = Log()
    log.claim(expiry_s=0)
    record = log.claim(owner=OTHER, expiry_s=0, flags=REGISTERS)
    assert record.owner == NODE
    log.detach(record, expiry_s=0)
    assert b"c" not in log.table.records
    assert log.claim(owner=OTHER, expiry_s=0, flags=REGISTERS).owner == OTHER
    assert log.claim(owner=OTHER, expiry_s=0, flags=REGISTERS).nonce == log.nonce, "its own record is no obstacle"


def test_a_check_tells_sessions_from_copies() -> None:
    log = Log()
    record = log.claim()
    here, away = [(b"c", record.epoch)], [(b"c", record.epoch)]
    assert log.table.differing(NODE, CheckStatement(here, away)) == []
    assert log.table.differing(OTHER, CheckStatement(here, away)) == here
    log.detach(record)
    assert log.table.differing(NODE, CheckStatement(here, [])) == here
    assert log.table.differing(NODE, CheckStatement([], away)) == []
    log.claim(owner=OTHER)
    assert log.table.differing(NODE, CheckStatement([], away)) == away


def test_records_of_clean_sessions_share_what_they_do_not_have() -> None:
    log = Log()
    one, other = log.claim(b"a", expiry_s=0), log.claim(b"b", expiry_s=0)
    assert one.subscriptions is other.subscriptions
    assert one.positions is other.touched
    lasting = log.claim(b"c")
    log.subscribe(lasting, b"x", {1: 5})
    log.say(TouchStatement(b"c", lasting.epoch, 1, [7]))
    log.detach(lasting, {1: 9})
    assert (one.subscriptions, one.positions, one.touched) == ({}, {}, {})
    assert (lasting.positions, lasting.touched) == ({1: 9}, {7: 1})


def test_clean_sessions_are_counted_apart() -> None:
    log = Log()
    log.claim(b"a", expiry_s=0)
    lasting = log.claim(b"b")
    assert (log.table.connected, log.table.clean) == (2, 1)
    log.detach(lasting, expiry_s=0)
    assert (log.table.connected, log.table.clean) == (1, 1)
    log.claim(b"a")
    assert (log.table.connected, log.table.clean) == (1, 0)
    assert (log.reopened().connected, log.reopened().clean) == (1, 0)
