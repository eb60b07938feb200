"""Wills in the table of sessions: each statement, before and after a will is due, taken and published."""

from __future__ import annotations

import pytest

from flockmq.durable.machine.session_bodies import (
    CLEAN_START,
    SAME_EPOCH,
    AbandonStatement,
    ClaimStatement,
    DetachStatement,
    EndStatement,
    ExpireStatement,
    FiredStatement,
    FiringStatement,
    OrphanStatement,
    RevokeStatement,
    SessionStatement,
    session_body,
)
from flockmq.durable.machine.session_record import SessionRecord
from flockmq.durable.machine.session_table import REFUSED_FULL, SessionTable, decode_sessions
from flockmq.durable.machine.session_wills import StoredWill, read_will
from flockmq.errors import RemoteProtocolError

NODE, OTHER = 11, 22
TARGET = 7


def will_of(delay_s: int = 0, payload: bytes = b"gone") -> bytes:
    return StoredWill(b"w", payload, 1, True, 5, delay_s, 9, b"").encode()


class Log:
    """A table, and entries for it."""

    def __init__(self) -> None:
        self.table = SessionTable()
        self.index = 0
        self.now_ms = 1_000
        self.nonce = 0

    def say(self, *statements: SessionStatement) -> int:
        """One entry; a table that is read from a checkpoint goes on in its place."""
        self.index += 1
        self.table.apply(session_body(self.now_ms, list(statements)), self.index, self.now_ms)
        again = decode_sessions(self.table.encode(), self.index)
        assert again.encode() == self.table.encode()
        assert again.wills.bytes == self.table.wills.bytes
        assert not self.table.unreadable
        self.table = again
        return self.index

    def claim(
        self, will: bytes = b"", expiry_s: int = 60, flags: int = 0, owner: int = NODE, epoch: int = 0
    ) -> SessionRecord:
        self.nonce += 1
        self.say(ClaimStatement(b"c", self.nonce, epoch, owner, 1, b"ann", expiry_s, 5, flags, will))
        return self.table.records[b"c"]

    def due(self, after_ms: int = 0) -> list[int]:
        """Epochs of wills that are due."""
        return [known.epoch for known in self.table.wills.due(self.now_ms + after_ms, 10)]

    def kept(self) -> list[int]:
        """Epochs of all wills."""
        return [known.epoch for known in self.table.wills.kept.values()]


def test_a_will_is_kept_while_its_client_is_connected() -> None:
    log = Log()
    record = log.claim(will_of())
    known = log.table.wills.kept[b"c", record.epoch]
    assert (known.will.topic, known.will.payload, known.will.qos, known.will.retain) == (b"w", b"gone", 1, True)
    assert (known.will.delay_s, known.will.expiry_s, known.user) == (0, 9, b"ann")
    assert log.due(10**9) == []


def test_a_client_that_takes_its_leave_has_no_will() -> None:
    log = Log()
    record = log.claim(will_of())
    log.say(DetachStatement(b"c", record.epoch, 60, {}, True))
    assert log.kept() == []


def test_the_goodbye_of_an_older_epoch_voids_its_will() -> None:
    log = Log()
    first = log.claim(will_of()).epoch
    log.claim(will_of(), owner=OTHER)
    assert log.due() == [first]
    log.say(DetachStatement(b"c", first, 60, {}, True))
    assert log.due() == []


@pytest.mark.parametrize(("delay_s", "expiry_s", "after_ms"), [(0, 60, 0), (5, 60, 5_000), (90, 60, 60_000)])
def test_the_delay_begins_with_the_end_of_the_connection(delay_s: int, expiry_s: int, after_ms: int) -> None:
    for statement in ("detach", "orphan"):
        log = Log()
        record = log.claim(will_of(delay_s), expiry_s)
        log.now_ms += 700
        if statement == "detach":
            log.say(DetachStatement(b"c", record.epoch, expiry_s, {}))
        else:
            log.say(OrphanStatement(NODE, 0))
        assert log.due(after_ms) == [record.epoch]
        assert after_ms == 0 or log.due(after_ms - 1) == []


def test_the_end_of_a_session_makes_its_will_due() -> None:
    for statement in ("end", "detach", "expire"):
        log = Log()
        record = log.claim(will_of(50))
        if statement == "end":
            log.say(EndStatement(b"c", record.epoch))
        elif statement == "detach":
            log.say(DetachStatement(b"c", record.epoch, 0, {}))
        else:
            log.say(DetachStatement(b"c", record.epoch, 1, {}))
            log.now_ms += 1_000
            log.say(ExpireStatement([(b"c", record.epoch)]))
        assert b"c" not in log.table.records
        assert log.due() == [record.epoch]


@pytest.mark.parametrize("is_away", [False, True])
@pytest.mark.parametrize(
    ("delay_s", "flags", "is_due"), [(0, 0, True), (5, 0, False), (0, CLEAN_START, True), (5, CLEAN_START, True)]
)
def test_a_takeover(delay_s: int, flags: int, is_due: bool, is_away: bool) -> None:
    log = Log()
    first = log.claim(will_of(delay_s)).epoch
    if is_away:
        log.say(DetachStatement(b"c", first, 60, {}))
    second = log.claim(will_of(), flags=flags, owner=OTHER).epoch
    assert log.due() == ([first] if is_due else [])
    assert log.kept() == ([first, second] if is_due else [second])


def test_a_will_whose_delay_is_over_is_not_void_when_its_client_comes_back() -> None:
    log = Log()
    first = log.claim(will_of(5)).epoch
    log.say(DetachStatement(b"c", first, 60, {}))
    log.now_ms += 5_000
    log.claim()
    assert log.due() == [first]


def test_a_node_that_makes_sure_of_its_session_keeps_the_will() -> None:
    log = Log()
    first = log.claim(will_of(5)).epoch
    log.say(OrphanStatement(NODE, 0))
    second = log.claim(flags=SAME_EPOCH, epoch=first).epoch
    assert log.kept() == [second]
    assert log.due(10**9) == []


@pytest.mark.parametrize("is_detached_first", [True, False])
def test_a_connection_that_ends_while_its_node_makes_sure_of_it_leaves_its_will(is_detached_first: bool) -> None:
    log = Log()
    first = log.claim(will_of()).epoch
    if is_detached_first:
        log.say(DetachStatement(b"c", first, 60, {}, False))
    second = log.claim(flags=SAME_EPOCH, epoch=first).epoch
    log.say(AbandonStatement(b"c", [log.nonce]))
    if not is_detached_first:
        log.say(DetachStatement(b"c", first, 60, {}, False))
    assert log.due() == [second]
    assert not log.table.records[b"c"].is_connected


@pytest.mark.parametrize("expiry_s", [60, 0])
@pytest.mark.parametrize("goodbye", [DetachStatement(b"c", 1, 60, {}, True), EndStatement(b"c", 1, True)])
def test_a_goodbye_counts_for_the_connection_that_goes_on_under_a_new_epoch(
    goodbye: DetachStatement | EndStatement, expiry_s: int
) -> None:
    log = Log()
    goodbye.epoch = log.claim(will_of(), expiry_s=expiry_s).epoch
    log.claim(flags=SAME_EPOCH, epoch=goodbye.epoch, expiry_s=expiry_s)
    log.say(goodbye)
    assert log.kept() == []


def test_a_will_that_comes_with_the_same_connection_again_is_counted_once() -> None:
    log = Log()
    first = log.claim(will_of(5)).epoch
    second = log.claim(will_of(5), flags=SAME_EPOCH, epoch=first).epoch
    assert log.kept() == [second]


def test_what_no_client_waits_for_has_no_will() -> None:
    log = Log()
    log.claim(will_of())
    log.say(AbandonStatement(b"c", [log.nonce]))
    assert log.kept() == []
    record = log.claim(will_of())
    log.say(RevokeStatement(b"c", record.epoch))
    assert log.kept() == []


def test_a_will_that_is_taken_is_ended_by_nothing_but_its_publication() -> None:
    log = Log()
    epoch = log.claim(will_of()).epoch
    log.say(DetachStatement(b"c", epoch, 60, {}))
    sequence = log.say(FiringStatement(TARGET, [(b"c", epoch)]))
    log.say(RevokeStatement(b"c", epoch), DetachStatement(b"c", epoch, 60, {}, True), EndStatement(b"c", epoch, True))
    log.claim()
    log.say(FiringStatement(TARGET, [(b"c", epoch)]))
    assert list(log.table.wills.runs) == [(TARGET, sequence)]
    assert log.due() == []
    log.say(FiredStatement(TARGET, sequence + 1), FiredStatement(TARGET + 1, sequence))
    assert log.kept() == [epoch]
    log.say(FiredStatement(TARGET, sequence))
    assert log.kept() == []
    assert log.table.wills.bytes == 0


def test_a_will_that_is_not_due_is_not_taken() -> None:
    log = Log()
    epoch = log.claim(will_of(5)).epoch
    log.say(FiringStatement(TARGET, [(b"c", epoch)]))
    log.say(DetachStatement(b"c", epoch, 60, {}))
    log.say(FiringStatement(TARGET, [(b"c", epoch), (b"c", epoch + 1)]))
    assert not log.table.wills.runs


def test_a_run_whose_target_is_gone_is_taken_for_another() -> None:
    log = Log()
    epoch = log.claim(will_of()).epoch
    log.say(EndStatement(b"c", epoch))
    log.say(FiringStatement(TARGET, [(b"c", epoch)]))
    sequence = log.say(FiringStatement(0, [(b"c", epoch)]))
    assert list(log.table.wills.runs) == [(0, sequence)]


def test_wills_of_all_clients_are_bounded() -> None:
    log = Log()
    log.table.wills.bytes_max = 3_000
    log.table.apply(
        session_body(1, [ClaimStatement(b"c", 1, 0, NODE, 1, None, 0, 5, 0, will_of(payload=b"x" * 4_000))]), 1, 1
    )
    assert log.table.refusals == {1: REFUSED_FULL}
    assert not log.table.records


@pytest.mark.parametrize("broken", [b"", will_of()[:-1], will_of() + b"x", b"\x03" + will_of()[1:], b"\xff" * 40])
def test_bytes_that_are_no_will(broken: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_will(broken)
