"""Claims of client ids in the log: one for each client that connects, unless its node is alone.

```
 claim --> hidden topics there? else made, and known to all live nodes --> CLAIM --> granted: epoch and record
                                                                             |-> refused: another user's, full
                                                                             |-> late: once more, while its client waits
                                                                             `-> not known: ABANDON, until it is
```
A client whose session ends with its connection is let in without a record where the log can't be asked; it is
registered later (``reclaiming.py``).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.durable.machine.session_bodies import (
    CHECKS_USER,
    CLEAN_START,
    AbandonStatement,
    ClaimStatement,
)
from flockmq.durable.machine.session_record import read_record
from flockmq.durable.sessions.repeating import RETRY_MS, Unsaid
from flockmq.durable.sessions.submitting import (
    DONE,
    REFUSED_FULL,
    REFUSED_NAMESPACE,
    REFUSED_SAME_USER,
    REFUSED_USER,
    VOID,
    StatementResult,
)
from flockmq.durable.sessions.waits import Waits
from flockmq.mqtt import reasons
from flockmq.node.ports import Claimed
from flockmq.peering.fields import Reader
from flockmq.routing.capture import NEVER
from flockmq.session.connection import AUTHENTICATING
from flockmq.tasks import Sleep, within

if TYPE_CHECKING:
    import random

    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.sessions.hidden import HiddenTopics
    from flockmq.durable.sessions.membership import Membership
    from flockmq.durable.sessions.repeating import Repeating
    from flockmq.durable.sessions.submitting import SessionLog
    from flockmq.durable.state.meta import Meta
    from flockmq.node.state import NodeState
    from flockmq.session.connection import Connection
    from flockmq.tasks import Promise, Task

CLEAN_WAIT_MS: Final = 1_000
"""Longest wait of a client whose session ends with its connection: then it connects without a record.

A client with a will waits as long as a client with a persistent session; after that its node alone has the will.
"""
CLAIM_MS: Final = 3_000
CLAIM_BYTES: Final = 64
"""Approximate size of a claim without a will."""
UNKNOWN_MAX: Final = 100_000
"""Claims without a result; beyond it clients are refused with Server busy."""
NONCES_MAX: Final = 64
CATCH_UP_MS: Final = 20
AGAIN_MS: Final = 1_000
"""A late claim is repeated only within this time: later, the client may have connected to another node."""
WHY_UNAVAILABLE: Final = "No majority of nodes keeps persistent sessions now; connect later, or with a clean start"
WHY_USER: Final = "The client id belongs to another user"
WHY_FULL: Final = "The cluster holds all persistent sessions that it may"
WHY_NAMESPACE: Final = (
    "The namespace has all persistent sessions that it may: end some, raise its limit persistent_sessions, or connect "
    "with a session that ends with its connection"
)
WHY_SAME_USER: Final = (
    "This user has all persistent sessions that it may: end some, raise the limit sessions_per_user of the namespace, "
    "or connect with a session that ends with its connection"
)
QUOTAS: Final = {REFUSED_FULL: WHY_FULL, REFUSED_NAMESPACE: WHY_NAMESPACE, REFUSED_SAME_USER: WHY_SAME_USER}


class Uncertain:
    """Sessions that a MARK must not cover: they are not on this node yet, or have left it."""

    def __init__(self) -> None:
        self.pending: dict[bytes, int] = {}
        """Clients whose claim is granted, and that have no session here yet, with the epoch of each."""
        self.leaving: dict[bytes, int] = {}
        """Clients whose DETACH is not known to be applied, with the epoch of each."""
        self.unknown: dict[bytes, int] = {}
        """Clients whose claim is under way or has no known result, with the nonce of each. Clean sessions are not
        listed: a MARK does not cover them."""
        self.granted: dict[bytes, int] = {}
        """Clients that wait for their CONNACK, with the epoch of each. A client that another connection overtook
        is removed."""


class SessionClaims:
    """See the module."""

    def __init__(
        self,
        node: NodeState,
        boot: int,
        rng: random.Random,
        calls: PartitionCalls,
        meta: Meta,
        hidden: HiddenTopics,
        log: SessionLog,
        repeating: Repeating,
        uncertain: Uncertain,
        members: Membership,
    ) -> None:
        self._node = node
        self._node_id = calls.me
        self._boot = boot
        self._rng = rng
        self._calls = calls
        self._meta = meta
        self._hidden = hidden
        self._log = log
        self._repeating = repeating
        self._uncertain = uncertain
        self._members = members
        self._abandoning: dict[bytes, list[int]] = {}
        """Clients with claims that no connection waits for, with the nonces of these."""
        self.count = 0
        self.waits = Waits()
        """How long clients waited for their claims."""

    def are_needed(self, expiry_s: int, has_will: bool) -> bool:
        """Whether the log must have the claim of a client, or may hold a record that the claim ends."""
        return expiry_s > 0 or has_will or bool(self._log.groups()) or not self._members.is_alone()

    def claim(
        self,
        connection: Connection,
        client_id: str,
        username: str | None,
        expiry_s: int,
        clean_start: bool,
        will: bytes,
    ) -> Promise[Claimed]:
        """Claim the client id in the log, and the session of its record."""
        flags = (CLEAN_START if clean_start else 0) | (0 if self._node.gate_is_open else CHECKS_USER)
        user = None if username is None else username.encode()
        client = client_id.encode()
        nonce = self._rng.getrandbits(63) | 1
        statement = ClaimStatement(
            client, nonce, 0, self._node_id, self._boot, user, expiry_s, connection.version, flags, will
        )
        statement.seen = self._log.known(client)
        self.count += 1
        claimed = self._calls.tasks.start("claim of a session", self._claim(connection, client, statement))
        claimed.then(partial(self._took, self._calls.now))
        return claimed

    def _took(self, since: int, claimed: Claimed) -> None:  # noqa: ARG002
        self.waits.note(self._calls.now - since)

    def _claim(self, connection: Connection, client: bytes, statement: ClaimStatement) -> Task[Claimed]:
        began_at = self._calls.now
        must_write = statement.expiry_s > 0 or len(statement.will) > 0
        due_at = self._calls.now + (CLAIM_MS if must_write else CLEAN_WAIT_MS)
        if len(self._uncertain.unknown) >= UNKNOWN_MAX:
            return Claimed(reasons.SERVER_BUSY, WHY_UNAVAILABLE)
        is_needed = must_write or not self._members.is_alone()
        if is_needed and not (yield from self.make_topics(due_at, must_write)):
            return _unreachable(statement)
        if must_write:
            due_at = max(due_at, self._calls.now + CLEAN_WAIT_MS)  # to make the topics may have taken long
        result = yield from self._say(connection, client, statement, due_at)
        if result is not None and result.code == VOID and self._calls.now - began_at < AGAIN_MS:
            # Most likely this node had not heard of the client's claim at the node that it came from.
            statement.seen = result.index
            statement.nonce = self._rng.getrandbits(63) | 1
            result = yield from self._say(connection, client, statement, due_at)
        if result is None:
            self.abandon(client, statement.nonce)
        elif self._uncertain.unknown.get(client) == statement.nonce:
            del self._uncertain.unknown[client]
        if result is None:
            return _unreachable(statement)
        if result.code == REFUSED_USER:
            return Claimed(reasons.CLIENT_IDENTIFIER_NOT_VALID, WHY_USER)
        if result.code != DONE:
            why = QUOTAS.get(result.code, "")
            return Claimed(reasons.QUOTA_EXCEEDED if why else reasons.SERVER_BUSY, why)
        if not result.record:
            return Claimed(reasons.SUCCESS, "")
        record = read_record(Reader(result.record))
        self._uncertain.granted[client] = record.epoch
        if record.expiry_s or record.had_session:
            self._uncertain.pending[client] = record.epoch
        while self._meta.state.index < result.state_index and self._calls.now < due_at:
            yield Sleep(CATCH_UP_MS)  # the record may name partitions that this node does not know yet
        return Claimed(reasons.SUCCESS, "", record, keeps_will=len(statement.will) > 0)

    def make_topics(self, due_at: int, must_write: bool) -> Task[bool]:
        """Make the hidden topics. A client whose session ends with its connection waits no longer than ``due_at``."""
        if self._hidden.are_made():
            return True
        made = self._calls.tasks.start("hidden topics", self._hidden.make(due_at))
        if must_write:
            return (yield from made)
        return bool((yield from within(made, due_at - self._calls.now)))

    def _say(
        self, connection: Connection, client: bytes, statement: ClaimStatement, due_at: int
    ) -> Task[StatementResult | None]:
        """Say a claim until its result is known, while its client waits."""
        if statement.expiry_s or not statement.flags & CLEAN_START:
            self._uncertain.unknown[client] = statement.nonce  # it may be applied before its result is here
        yield from within(self.until_said(client), due_at - self._calls.now)
        result = None
        while result is None and self._calls.now < due_at and connection.phase == AUTHENTICATING:
            said = self._log.say(client, statement, CLAIM_BYTES + len(statement.will))
            result = yield from within(said, due_at - self._calls.now)
            if result is None:
                yield Sleep(max(min(RETRY_MS, due_at - self._calls.now), 0))
        return result

    def until_said(self, client: bytes) -> Promise[None]:
        """Wait until the goodbyes of earlier connections of a client, and claims that were given up, are in the log."""
        return self._repeating.until_said(client)

    def abandon(self, client: bytes, nonce: int) -> None:
        """No client waits for this claim any more. If the claim is granted later, its session counts as away."""
        nonces = self._abandoning.get(client)
        if nonces is None:
            self._abandoning[client] = [nonce]
            self._say_abandon(client)
        else:
            nonces.append(nonce)  # said when the earlier ones have their result
            del nonces[:-NONCES_MAX]

    def _say_abandon(self, client: bytes) -> None:
        nonces = list(self._abandoning[client])
        told = partial(self._was_abandoned, client, nonces)
        self._repeating.say(Unsaid(client, AbandonStatement(client, nonces), NEVER, told, None))

    def _was_abandoned(self, client: bytes, nonces: list[int], result: StatementResult | None) -> None:  # noqa: ARG002
        if self._abandoning[client] != nonces:
            self._say_abandon(client)
            return
        del self._abandoning[client]
        if self._uncertain.unknown.get(client) in nonces:
            del self._uncertain.unknown[client]


def _unreachable(statement: ClaimStatement) -> Claimed:
    """The result when no shard could be asked: a client connects only if it has no session or will to keep."""
    if not statement.expiry_s:
        return Claimed(reasons.SUCCESS, "", is_certain=False)
    return Claimed(reasons.SERVER_UNAVAILABLE, WHY_UNAVAILABLE)
