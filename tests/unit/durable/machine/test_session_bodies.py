"""What logs say about sessions: read as it was written, and nothing believed that can't be."""

from __future__ import annotations

import pytest

from flockmq.durable.machine.session_bodies import (
    CHECKS_USER,
    CLEAN_START,
    FORMAT,
    NO_LOCAL,
    STATEMENTS_MAX,
    ClaimStatement,
    DetachStatement,
    EndStatement,
    ExpireStatement,
    MarkStatement,
    OrphanStatement,
    SentStatement,
    SessionStatement,
    SlowSession,
    StoredSubscription,
    SubscribeStatement,
    TouchStatement,
    UnsubscribeStatement,
    UntouchStatement,
    encode_statements,
    read_session_body,
    read_statements,
    session_body,
    wall_ms_of,
)
from flockmq.durable.machine.session_sent import SentChange
from flockmq.errors import RemoteProtocolError
from flockmq.peering.fields import NUMBER_MAX, U32, Reader, large

EVERY: list[SessionStatement] = [
    ClaimStatement(b"c", 2**64 - 1, 7, 11, 12, b"ann", 60, 5, CLEAN_START | CHECKS_USER),
    ClaimStatement(b"c", 1, 0, 11, 12, None, 0, 4, 0),
    SubscribeStatement(
        b"c", 7, [StoredSubscription(b"a/#", 1, NO_LOCAL | 8, 9, {3: 5}), StoredSubscription(b"b", 0, 0, 0, {})]
    ),
    UnsubscribeStatement(b"c", 7, [b"a/#", b"b"]),
    DetachStatement(b"c", 7, 0xFFFFFFFF, {3: 5, 2: 0}),
    EndStatement(b"c", 7),
    MarkStatement(11, 12, 40, {3: 9}, {b"d": SlowSession(8, {3: 1}), b"e": SlowSession(9, {})}),
    OrphanStatement(11, 0),
    OrphanStatement(11, 3, [(b"c", 7), (b"d", 9)]),
    ExpireStatement([(b"c", 7), (b"d", 8)]),
    TouchStatement(b"c", 7, 3, [9, 4]),
    UntouchStatement(b"c", 7, 3, []),
    SentStatement(b"c", 7, SentChange(3)),
]


def read_one(statement: SessionStatement) -> SessionStatement:
    return read_statements(Reader(encode_statements([statement])))[0]


@pytest.mark.parametrize("statement", EVERY, ids=lambda statement: type(statement).__name__)
def test_a_statement_is_read_as_it_was_written(statement: SessionStatement) -> None:
    found = read_one(statement)
    assert type(found) is type(statement)
    assert found.what == statement.what
    assert found.encode() == statement.encode()


def test_a_claim_has_all_its_fields() -> None:
    claim = read_one(EVERY[0])
    assert isinstance(claim, ClaimStatement)
    assert (claim.client, claim.nonce, claim.epoch, claim.owner, claim.boot) == (b"c", 2**64 - 1, 7, 11, 12)
    assert (claim.user, claim.expiry_s, claim.version, claim.flags) == (b"ann", 60, 5, CLEAN_START | CHECKS_USER)


def test_an_empty_user_is_not_the_same_as_none() -> None:
    users = []
    for user in (b"", None):
        claim = read_one(ClaimStatement(b"c", 1, 0, 1, 1, user, 0, 5, 0))
        assert isinstance(claim, ClaimStatement)
        users.append(claim.user)
    assert users == [b"", None]


def test_a_mark_has_all_its_fields() -> None:
    mark = read_one(EVERY[6])
    assert isinstance(mark, MarkStatement)
    assert (mark.owner, mark.boot, mark.covers, mark.positions) == (11, 12, 40, {3: 9})
    assert {client: (slow.epoch, slow.positions) for client, slow in mark.slow.items()} == {
        b"d": (8, {3: 1}),
        b"e": (9, {}),
    }


def test_a_subscription_knows_its_size_and_whether_it_is_captured() -> None:
    subscription = StoredSubscription(b"a/#", 1, 0, 9, {3: 5, 4: 6})
    assert subscription.size() == len(subscription.encode())
    assert subscription.is_captured()
    assert not StoredSubscription(b"a/#", 0, 0, 9, {}).is_captured()
    assert not StoredSubscription(b"$share/g/a", 1, 0, 9, {}).is_captured()


def test_a_body_has_a_time_and_statements() -> None:
    body = session_body(123, EVERY)
    assert wall_ms_of(body) == 123
    found = read_session_body(body)
    assert found is not None
    assert [statement.encode() for statement in found] == [statement.encode() for statement in EVERY]
    assert wall_ms_of(session_body(-5, [])) == 0


def test_statements_of_later_versions_are_skipped() -> None:
    unknown = b"\x63" + large(b"whatever")
    found = read_statements(Reader(U32.pack(2) + unknown + EVERY[5].encode()))
    assert [statement.what for statement in found] == [EVERY[5].what]


def test_another_format_is_not_read() -> None:
    body = bytes((FORMAT + 1,)) + session_body(123, EVERY)[1:]
    assert wall_ms_of(body) == 0
    assert read_session_body(body) is None


@pytest.mark.parametrize("statement", EVERY, ids=lambda statement: type(statement).__name__)
def test_what_is_cut_off_or_goes_on_is_not_believed(statement: SessionStatement) -> None:
    content = statement.content()
    for wrong in (content + b"\0", *[content[:length] for length in range(len(content))]):
        with pytest.raises(RemoteProtocolError):
            read_statements(Reader(U32.pack(1) + bytes((statement.what,)) + large(wrong)))
    body = session_body(1, [statement])
    assert read_session_body(body + b"\0") is None
    assert all(read_session_body(body[:length]) is None for length in range(len(body)))


IMPOSSIBLE: list[SessionStatement] = [
    ClaimStatement(b"", 1, 0, 1, 1, None, 0, 5, 0),
    ClaimStatement(b"c", 1, NUMBER_MAX + 1, 1, 1, None, 0, 5, 0),
    ClaimStatement(b"c", 1, 0, 1, 1, None, 0, 6, 0),
    SubscribeStatement(b"c", 1, [StoredSubscription(b"", 1, 0, 0, {})]),
    SubscribeStatement(b"c", 1, [StoredSubscription(b"a", 3, 0, 0, {})]),
    SubscribeStatement(b"c", 1, [StoredSubscription(b"a", 1, 0b1100, 0, {})]),
    SubscribeStatement(b"c", 1, [StoredSubscription(b"a", 1, 0, 0, {1: NUMBER_MAX + 1})]),
    UnsubscribeStatement(b"c", 1, [b""]),
    EndStatement(b"c", NUMBER_MAX + 1),
    MarkStatement(1, 1, NUMBER_MAX + 1, {}, {}),
]


@pytest.mark.parametrize("number", range(len(IMPOSSIBLE)))
def test_what_can_not_be_is_not_believed(number: int) -> None:
    with pytest.raises(RemoteProtocolError):
        read_one(IMPOSSIBLE[number])


def test_too_many_statements_are_not_read() -> None:
    assert read_session_body(session_body(1, [EVERY[5]] * STATEMENTS_MAX)) is not None
    assert read_session_body(session_body(1, [EVERY[5]] * (STATEMENTS_MAX + 1))) is None


def test_a_claim_says_what_its_owner_had_seen() -> None:
    claim = ClaimStatement(b"c", 1, 0, 1, 1, None, 0, 5, 0)
    claim.seen = 77
    read = read_one(claim)
    assert isinstance(read, ClaimStatement)
    assert read.seen == 77
    claim.seen = NUMBER_MAX + 1
    with pytest.raises(RemoteProtocolError):
        read_statements(Reader(encode_statements([claim])))
