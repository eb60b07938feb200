"""How many persistent sessions a namespace and a user may have in a shard: all replicas decide alike."""

from __future__ import annotations

import pytest

from flockmq.durable.machine.session_bodies import (
    CLEAN_START,
    ClaimStatement,
    DetachStatement,
    EndStatement,
    read_session_body,
    session_body,
)
from flockmq.durable.machine.session_counts import NO_LIMIT, Room, namespace_of
from flockmq.durable.machine.session_record import SessionRecord
from flockmq.durable.machine.session_table import (
    REFUSED_NAMESPACE,
    REFUSED_SAME_USER,
    SessionTable,
    decode_sessions,
)

ACME = b"$ns/acme/"


class Claims:
    """A table, and claims for it."""

    def __init__(self) -> None:
        self.table = SessionTable()
        self.index = 0

    def claim(
        self, client: bytes, user: bytes | None, room: Room, expiry_s: int = 60, flags: int = 0
    ) -> SessionRecord | int:
        """The record, or why the claim was refused."""
        self.index += 1
        claim = ClaimStatement(client, self.index, 0, 1, 1, user, expiry_s, 5, flags)
        claim.room = room
        self.table.apply(session_body(0, [claim]), self.index, 0)
        record = self.table.records.get(client)
        return record if record is not None and record.nonce == claim.nonce else self.table.refusals[claim.nonce]


@pytest.mark.parametrize("room", [Room(), Room(3), Room(NO_LIMIT, 0), Room(5, 6)])
def test_the_room_comes_with_a_claim(room: Room) -> None:
    claim = ClaimStatement(b"c", 1, 0, 1, 1, None, 60, 5, 0)
    claim.room = room
    statements = read_session_body(session_body(0, [claim]))
    assert statements is not None
    read = statements[0]
    assert isinstance(read, ClaimStatement)
    assert (read.room.of_namespace, read.room.of_user) == (room.of_namespace, room.of_user)


def test_a_namespace_has_as_many_sessions_as_it_may() -> None:
    claims = Claims()
    room = Room(2)
    for name in (b"a", b"b"):
        assert isinstance(claims.claim(ACME + name, None, room), SessionRecord)
    assert claims.claim(ACME + b"c", None, room) == REFUSED_NAMESPACE
    assert isinstance(claims.claim(b"c", None, room), SessionRecord), "another namespace"
    assert isinstance(claims.claim(ACME + b"c", None, room, 0), SessionRecord), "it ends with its connection"
    assert isinstance(claims.claim(ACME + b"a", None, Room(0)), SessionRecord), "a session that is there goes on"
    assert isinstance(claims.claim(ACME + b"a", None, Room(0), 60, CLEAN_START), SessionRecord)
    assert claims.table.counts.by_namespace == {b"acme": 2, b"default": 1}


def test_a_user_has_as_many_sessions_as_it_may() -> None:
    claims = Claims()
    room = Room(NO_LIMIT, 1)
    assert isinstance(claims.claim(b"a", b"ann", room), SessionRecord)
    assert claims.claim(b"b", b"ann", room) == REFUSED_SAME_USER
    assert isinstance(claims.claim(b"b", b"bob", room), SessionRecord)
    assert isinstance(claims.claim(b"d", None, room), SessionRecord), "a client without a user"
    assert isinstance(claims.claim(b"e", None, room), SessionRecord)
    assert isinstance(claims.claim(b"a", b"cid", room), SessionRecord), "users are not checked here: it changes hands"
    assert claims.table.counts.by_user == {b"bob": 1, b"cid": 1}


def test_a_session_that_ends_makes_room() -> None:
    claims = Claims()
    room = Room(1, 1)
    for ends in (EndStatement, lambda client, epoch: DetachStatement(client, epoch, 0, {})):
        record = claims.claim(b"a", b"ann", room)
        assert isinstance(record, SessionRecord)
        assert claims.claim(b"b", b"ann", room) == REFUSED_NAMESPACE
        claims.table.apply(session_body(0, [DetachStatement(b"a", record.epoch, 60, {})]), claims.index, 0)
        assert claims.claim(b"b", b"ann", room) == REFUSED_NAMESPACE, "it is away, and still there"
        claims.table.apply(session_body(0, [ends(b"a", record.epoch)]), claims.index, 0)
        assert (claims.table.counts.by_namespace, claims.table.counts.by_user) == ({}, {})


def test_a_checkpoint_counts_the_same() -> None:
    claims = Claims()
    for client, user, expiry_s in ((b"a", b"ann", 60), (ACME + b"b", b"acme/bob", 60), (b"c", b"ann", 0)):
        claims.claim(client, user, Room(), expiry_s)
    reopened = decode_sessions(claims.table.encode(), claims.index)
    assert reopened.counts.by_namespace == claims.table.counts.by_namespace == {b"default": 1, b"acme": 1}
    assert reopened.counts.by_user == claims.table.counts.by_user == {b"ann": 1, b"acme/bob": 1}


def test_the_namespace_of_a_client() -> None:
    assert [namespace_of(client) for client in (b"c", ACME + b"x/y", b"$nsc")] == [b"default", b"acme", b"default"]
