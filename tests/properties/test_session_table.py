"""The table of sessions under any statements: the same by replay and checkpoint, and as an obvious recount has it."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from flockmq.durable.machine.session_bodies import (
    CHECKS_USER,
    CLEAN_START,
    SAME_EPOCH,
    AbandonStatement,
    AdvanceStatement,
    ClaimStatement,
    DetachStatement,
    EndStatement,
    ExpireStatement,
    FiredStatement,
    FiringStatement,
    MarkStatement,
    OrphanStatement,
    RevokeStatement,
    SentStatement,
    SessionStatement,
    SlowSession,
    StoredSubscription,
    SubscribeStatement,
    UnsubscribeStatement,
    read_session_body,
    session_body,
)
from flockmq.durable.machine.session_record import NEVER_EXPIRES, SessionRecord
from flockmq.durable.machine.session_sent import SentChange, SentMessage
from flockmq.durable.machine.session_table import SessionTable, decode_sessions
from flockmq.durable.machine.session_wills import StoredWill

GROUPS: Final = (1, 2)
FAR: Final = 10**15

clients = st.sampled_from([b"a", b"b"])
owners = st.sampled_from([11, 22])
boots = st.sampled_from([1, 2])
epochs = st.integers(1, 8)
expiries = st.sampled_from([0, 1, 5, 100, NEVER_EXPIRES])
filters = st.sampled_from([b"x", b"y/#", b"$share/g/x"])
positions = st.dictionaries(st.sampled_from(GROUPS), st.integers(0, 20))
subscriptions = st.builds(
    StoredSubscription, filters, st.integers(0, 2), st.sampled_from([0, 1, 8]), st.integers(0, 3), positions
)
named = st.tuples(clients, epochs)
wills = st.builds(
    StoredWill,
    st.sampled_from([b"w", b"w/x"]),
    st.sampled_from([b"", b"gone"]),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from([4, 5]),
    st.sampled_from([0, 2, 50]),
    st.sampled_from([-1, 0, 9]),
    st.just(b""),
).map(lambda will: will.encode())

claims = st.builds(
    ClaimStatement,
    clients,
    st.integers(1, 200),
    st.integers(0, 3),
    owners,
    boots,
    st.sampled_from([None, b"", b"ann"]),
    expiries,
    st.sampled_from([4, 5]),
    st.sampled_from([0, 0, 0, CLEAN_START, CHECKS_USER, SAME_EPOCH]),
    st.one_of(st.just(b""), wills),
)
packet_ids = st.integers(1, 4)


def sent_change(stamp: int, sent: dict[int, tuple[int, int]], received: list[int], done: list[int]) -> SentChange:
    change = SentChange(stamp)
    change.sent = {packet_id: SentMessage(group, offset) for packet_id, (group, offset) in sent.items()}
    change.received = received
    change.done = done
    return change


changes = st.builds(
    sent_change,
    st.integers(1, 12),
    st.dictionaries(packet_ids, st.tuples(st.sampled_from(GROUPS), st.integers(0, 20)), max_size=2),
    st.lists(packet_ids, max_size=2),
    st.lists(packet_ids, max_size=2),
)


def with_floors(change: SentChange, floors: dict[int, int]) -> SentChange:
    change.floors = floors
    return change


sent = st.builds(SentStatement, clients, epochs, st.builds(with_floors, changes, positions))
marks = st.builds(
    MarkStatement,
    owners,
    boots,
    st.integers(0, 60),
    positions,
    st.dictionaries(clients, st.builds(SlowSession, epochs, positions), max_size=2),
)


class Step:
    """What happens next: statements about sessions get the epoch that is current, or another one."""

    def __init__(
        self, statements: list[SessionStatement], is_current: bool, passed_ms: int, reopens: bool, is_encoded: bool
    ) -> None:
        self.statements = statements
        self.is_current = is_current
        self.passed_ms = passed_ms
        self.reopens = reopens
        self.is_encoded = is_encoded

    def body(self, table: SessionTable, index: int, now_ms: int) -> bytes:
        """As a leader that knows ``table`` would write it."""
        if self.is_current:
            for statement in self.statements:
                _bring_up_to_date(statement, table, index)
        return session_body(now_ms, self.statements)


def _bring_up_to_date(statement: SessionStatement, table: SessionTable, index: int) -> None:
    about = (
        SubscribeStatement,
        UnsubscribeStatement,
        DetachStatement,
        EndStatement,
        AdvanceStatement,
        SentStatement,
    )
    if isinstance(statement, about):
        if statement.client in table.records:
            record = table.records[statement.client]
            statement.epoch = record.epoch
            if isinstance(statement, SentStatement) and statement.change.stamp % 4:
                statement.change.stamp = record.sent.stamp + 1
    elif isinstance(statement, ExpireStatement):
        statement.sessions = table.expired(FAR, 10)
    elif isinstance(statement, FiringStatement):
        statement.wills = [(known.client, known.epoch) for known in table.wills.due(FAR, 2)]
    elif isinstance(statement, FiredStatement) and table.wills.runs:
        statement.target, statement.sequence = next(iter(table.wills.runs))
    elif isinstance(statement, ClaimStatement) and statement.flags & SAME_EPOCH:
        statement.epoch = table.records[statement.client].epoch if statement.client in table.records else 0
    elif isinstance(statement, MarkStatement) and table.boots:
        statement.owner, statement.boot = list(table.boots)[statement.covers % len(table.boots)]
        statement.covers = max(index - statement.covers % 5, 0)
        for client, slow in statement.slow.items():
            if client in table.records:
                slow.epoch = table.records[client].epoch


statements = st.one_of(
    claims,
    claims,
    st.builds(SubscribeStatement, clients, epochs, st.lists(subscriptions, max_size=3)),
    st.builds(SubscribeStatement, clients, epochs, st.lists(subscriptions, min_size=1, max_size=1)),
    st.builds(SubscribeStatement, clients, epochs, st.lists(subscriptions, min_size=1, max_size=1)),
    st.builds(UnsubscribeStatement, clients, epochs, st.lists(filters, max_size=2)),
    st.builds(DetachStatement, clients, epochs, expiries, positions, st.booleans()),
    st.builds(EndStatement, clients, epochs, st.booleans()),
    st.builds(AdvanceStatement, clients, epochs, st.integers(0, 60), positions),
    st.builds(AdvanceStatement, clients, epochs, st.just(FAR), positions),
    st.builds(AbandonStatement, clients, st.lists(st.integers(1, 200), max_size=3)),
    st.builds(FiringStatement, st.sampled_from([0, 7, 8]), st.lists(named, max_size=2)),
    st.builds(FiredStatement, st.sampled_from([0, 7]), st.integers(0, 60)),
    st.builds(RevokeStatement, clients, epochs),
    sent,
    sent,
    marks,
    marks,
    marks,
    st.builds(OrphanStatement, owners, st.sampled_from([0, 1, 2])),
    st.builds(ExpireStatement, st.lists(named, max_size=3)),
)
steps = st.lists(
    st.builds(
        Step,
        st.lists(statements, min_size=1, max_size=3),
        st.sampled_from([True, True, True, False]),
        st.sampled_from([0, 1, 1_000, 6_000]),
        st.booleans(),
        st.booleans(),
    ),
    max_size=40,
)

captured = st.builds(
    StoredSubscription, st.sampled_from([b"x", b"y/#"]), st.integers(1, 2), st.just(0), st.just(0), positions
)
subscribes = st.builds(
    SubscribeStatement,
    st.just(b"a"),
    epochs,
    st.lists(captured, min_size=1, max_size=2, unique_by=lambda one: one.full_filter),
)
"""An owner names each filter once in a statement."""
busy = st.lists(
    st.one_of(subscribes, marks, marks).map(lambda statement: Step([statement], True, 0, False, False)), max_size=20
)
"""Steps of a session that stays connected."""


def connected() -> Step:
    """A session begins."""
    return Step([ClaimStatement(b"a", 1_000, 0, 11, 1, None, 100, 5, CLEAN_START)], True, 0, False, False)


class Replay:
    """A table that gets one entry after the other."""

    def __init__(self) -> None:
        self.table = SessionTable()
        self.index = 0
        self.now_ms = 0

    def apply(self, step: Step) -> bytes:
        """The body of the entry."""
        self.index += 1
        self.now_ms += step.passed_ms
        body = step.body(self.table, self.index, self.now_ms)
        self.table.apply(body, self.index, self.now_ms)
        return body


def facts(table: SessionTable) -> object:
    """What a table derives from its records."""
    return (
        table.filters,
        table.boots,
        table.connected,
        table.bytes,
        {owner: set(owned) for owner, owned in table.by_owner.items()},
        set(table.expired(FAR, 100)),
        {(known.client, known.epoch) for known in table.wills.due(FAR, 100)},
        {run: {(known.client, known.epoch) for known in wills} for run, wills in table.wills.runs.items()},
        table.wills.bytes,
        table.least_positions(list(GROUPS)),
        [(record.subscription_bytes, record.captured, record.sent.offsets()) for record in table.records.values()],
    )


@given(steps)
def test_replay_and_checkpoint_lead_to_the_same_bytes(taken: list[Step]) -> None:
    replay = Replay()
    other = SessionTable()
    for step in taken:
        body = replay.apply(step)
        other.apply(body, replay.index, replay.now_ms)
        if step.reopens:
            other = decode_sessions(other.encode(), replay.index)
        assert facts(other) == facts(replay.table)
        if step.is_encoded:
            assert other.encode() == replay.table.encode()
    assert not replay.table.unreadable
    assert other.encode() == replay.table.encode()


@given(steps)
def test_epochs_of_a_client_strictly_increase_over_its_claims(taken: list[Step]) -> None:
    replay = Replay()
    last: dict[bytes, int] = {}
    for step in taken:
        for statement in step.statements:
            nonces = {client: record.nonce for client, record in replay.table.records.items()}
            replay.apply(Step([statement], step.is_current, step.passed_ms, False, False))
            record = replay.table.records.get(statement.client) if isinstance(statement, ClaimStatement) else None
            if record is not None and record.claimed_index == replay.index:
                assert record.nonce != nonces.get(record.client)
                assert record.epoch > last.get(record.client, 0)
                last[record.client] = record.epoch


@given(steps, clients, st.integers(1_000, 2_000))
def test_statements_of_no_epoch_that_is_current_change_nothing(taken: list[Step], client: bytes, epoch: int) -> None:
    replay = Replay()
    for step in taken:
        replay.apply(step)
    before = replay.table.encode()
    void: list[SessionStatement] = [
        SubscribeStatement(client, epoch, [StoredSubscription(b"z", 1, 0, 0, {1: 1})]),
        UnsubscribeStatement(client, epoch, [b"x", b"y/#"]),
        DetachStatement(client, epoch, 0, {1: 99}),
        EndStatement(client, epoch),
        ExpireStatement([(client, epoch)]),
        FiringStatement(7, [(client, epoch)]),
        FiredStatement(7, epoch),
        RevokeStatement(client, epoch),
        SentStatement(client, epoch, sent_change(99, {1: (1, 1)}, [1], [1])),
    ]
    replay.table.apply(session_body(FAR, void), replay.index + 1, FAR)
    assert replay.table.encode() == before


@given(steps)
def test_filters_are_what_a_recount_finds_and_changes_lead_from_one_set_to_the_next(taken: list[Step]) -> None:
    replay = Replay()
    sets: list[set[bytes]] = [set()]
    for step in taken:
        before = replay.table.filters_version
        replay.apply(step)
        assert replay.table.filters == recount(replay.table)
        sets.append(set(replay.table.filters))
        if sets[-1] != sets[-2]:
            assert replay.table.filters_version == replay.index
        else:
            assert replay.table.filters_version in (before, replay.index)
    for version, known in enumerate(sets):
        changes = replay.table.changes_since(version)
        assert changes is not None
        for topic_filter, is_added in changes:
            (known.add if is_added else known.remove)(topic_filter)
        assert known == sets[-1]


def recount(table: SessionTable) -> dict[bytes, int]:
    """Filters of all subscriptions that have to be captured."""
    counts: dict[bytes, int] = {}
    for record in table.records.values():
        for full_filter, stored in record.subscriptions.items():
            if stored.qos and not full_filter.startswith(b"$share/"):
                counts[full_filter] = counts.get(full_filter, 0) + 1
    return counts


def holding_mark(table: SessionTable, record: SessionRecord) -> MarkStatement | None:
    """The mark that says something of a record."""
    mark = table.marks.get(record.owner)
    holds = mark is not None and record.is_connected and mark.boot == record.boot
    return mark if mark is not None and holds and mark.covers >= record.claimed_index else None


@given(steps, busy)
def test_no_position_passes_a_start_that_the_mark_does_not_cover(taken: list[Step], then: list[Step]) -> None:
    replay = Replay()
    for step in [*taken, connected(), *then]:
        replay.apply(step)
        for record in replay.table.records.values():
            check_positions(replay.table, record)


def check_positions(table: SessionTable, record: SessionRecord) -> None:
    """A mark moves positions forwards, up to the first start that it does not cover."""
    mark = holding_mark(table, record)
    for group in GROUPS:
        own = record.positions.get(group, -1)
        moved = table.position_of(record, group)
        assert moved >= own
        if moved > own:
            assert mark is not None
            stored = [one for one in record.subscriptions.values() if one.index > mark.covers and group in one.starts]
            assert all(moved <= one.starts[group] for one in stored)


@given(busy)
def test_the_position_of_a_session_is_behind_no_start_that_is_news_to_its_owner(then: list[Step]) -> None:
    """As an owner has it that remembers every start: nothing that begins behind the last mark has been acknowledged.

    A filter that comes again is no news: its older subscription got the same messages.
    """
    replay = Replay()
    replay.apply(connected())
    record = replay.table.records[b"a"]
    news: list[tuple[int, int, int]] = []
    known: set[bytes] = set()
    certain: dict[int, int] = {}
    for step in then:
        replay.apply(step)
        said = step.statements[0]
        if isinstance(said, SubscribeStatement):
            fresh = [one for one in said.subscriptions if one.full_filter not in known]
            known.update(one.full_filter for one in fresh)
            news += [(replay.index, group, start) for one in fresh for group, start in one.starts.items()]
        for group in GROUPS:
            moved = replay.table.position_of(record, group)
            if moved > certain.get(group, -1):
                mark = holding_mark(replay.table, record)
                assert mark is not None
                assert all(moved <= start for index, of, start in news if of == group and index > mark.covers)
                certain[group] = moved
    again = decode_sessions(replay.table.encode(), replay.index)
    assert facts(again) == facts(replay.table)


@given(steps)
def test_listed_messages_go_only_when_they_are_done_and_passed(taken: list[Step]) -> None:
    replay = Replay()
    for step in taken:
        for statement in step.statements:
            before = {
                (client, record.began): record.sent.copy()
                for client, record in replay.table.records.items()
                if record.sent.count()
            }
            replay.apply(Step([statement], step.is_current, step.passed_ms, False, False))
            for (client, began), old in before.items():
                record = replay.table.records.get(client)
                if record is None or record.began != began:
                    continue  # another session
                for group, offsets in old.offsets().items():
                    kept = record.sent.offsets().get(group, [])
                    gone = [offset for offset in offsets if offset not in kept]
                    assert all(offset < record.positions.get(group, 0) for offset in gone)
                for packet_id in old.by_id:
                    assert packet_id in record.sent.by_id or isinstance(statement, SentStatement)


@given(steps)
def test_an_orphan_keeps_every_position_that_was_certain(taken: list[Step]) -> None:
    replay = Replay()
    for step in taken:
        replay.apply(step)
    table = replay.table
    certain = {
        (client, group): table.position_of(record, group)
        for client, record in table.records.items()
        for group in set(record.positions).union(*[one.starts for one in record.subscriptions.values()])
    }
    for owner in list(table.by_owner):
        body = session_body(replay.now_ms, [OrphanStatement(owner, 0)])
        replay.index += 1
        table.apply(body, replay.index, replay.now_ms)
    assert not any(record.is_connected for record in table.records.values())
    for (client, group), offset in certain.items():
        if client in table.records:
            record = table.records[client]
            assert table.position_of(record, group) == record.positions.get(group, -1) == offset


@given(steps, st.data())
def test_damaged_bodies_never_raise(taken: list[Step], data: st.DataObject) -> None:
    replay = Replay()
    for step in taken[:5]:
        body = bytearray(replay.apply(step))
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        is_unreadable = read_session_body(bytes(body)) is None
        before = replay.table.unreadable
        replay.index += 1
        replay.table.apply(bytes(body), replay.index, replay.now_ms)
        assert replay.table.unreadable - before == is_unreadable
        assert decode_sessions(replay.table.encode(), 1).encode() == replay.table.encode()
