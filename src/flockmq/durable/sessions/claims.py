"""Claims of persistent sessions in the log: that of a client that connects, and those of a node that was held dead.

```
 claim --> hidden topics there? else made, and known to all live nodes --> CLAIM --> granted: epoch and record
                                                                             |-> refused: another user's, full
                                                                             |-> late: once more, while its client waits
                                                                             `-> not known: ABANDON, until it is
 reclaim --> CLAIM with SAME_EPOCH --> a new epoch, or the client has to come again
```
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.cluster.commands import CreateHidden
from flockmq.cluster.model import CAPTURE_TOPIC, DEFAULT_NAMESPACE, SESSIONS_TOPIC
from flockmq.cluster.tables import key_of
from flockmq.durable.machine.session_bodies import (
    CHECKS_USER,
    CLEAN_START,
    SAME_EPOCH,
    AbandonStatement,
    ClaimStatement,
)
from flockmq.durable.machine.session_record import read_record
from flockmq.durable.sessions.repeating import RETRY_MS, Unsaid
from flockmq.durable.sessions.submitting import DONE, REFUSED_FULL, REFUSED_USER, VOID, StatementResult
from flockmq.durable.sessions.waits import Waits
from flockmq.mqtt import reasons
from flockmq.node.lifecycle import disconnect
from flockmq.node.ports import Claimed
from flockmq.peering.fields import Reader
from flockmq.routing.capture import NEVER
from flockmq.session.connection import AUTHENTICATING
from flockmq.tasks import Sleep, within

if TYPE_CHECKING:
    import random

    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.sessions.repeating import Repeating
    from flockmq.durable.sessions.submitting import SessionLog
    from flockmq.durable.state.barrier import AppliedBarrier
    from flockmq.durable.state.meta import Meta
    from flockmq.node.state import NodeState
    from flockmq.session.connection import Connection
    from flockmq.session.session import Session
    from flockmq.tasks import Promise, Task

CLEAN_WAIT_MS: Final = 1_000
"""After this a client whose session ends with its connection is let in, though no shard could be asked for a record.

With a will it waits as long as a persistent one; then its node alone has the will.
"""
CLAIM_MS: Final = 3_000
CLAIM_BYTES: Final = 64
"""About how large a claim without a will is."""
UNKNOWN_MAX: Final = 100_000
"""Claims without a result; beyond it clients are refused with Server busy."""
NONCES_MAX: Final = 64
CATCH_UP_MS: Final = 20
AGAIN_MS: Final = 1_000
"""A client that has waited longer may have connected elsewhere meanwhile: a claim that came late is not repeated."""
RECLAIMS: Final = 500
"""Sessions that a node makes sure of at once."""
WHY_GONE: Final = "The session went on at another node, or was over, while this node was cut off; connect again"
WHY_UNAVAILABLE: Final = "No majority of nodes keeps persistent sessions now; connect later, or with a clean start"
WHY_USER: Final = "The client id belongs to another user"
WHY_FULL: Final = "The cluster holds all persistent sessions that it may"


class Uncertain:
    """Sessions that a MARK must say nothing of: they are not here yet, or not any more."""

    def __init__(self) -> None:
        self.pending: dict[bytes, int] = {}
        """Clients whose claim is granted, and that have no session here yet, with the epoch of each."""
        self.leaving: dict[bytes, int] = {}
        """Clients whose DETACH is not known to be applied, with the epoch of each."""
        self.unknown: dict[bytes, int] = {}
        """Clients whose claim is under way, or may have been granted, with the nonce of each."""


class SessionClaims:
    """See the module."""

    def __init__(
        self,
        node: NodeState,
        boot: int,
        rng: random.Random,
        calls: PartitionCalls,
        meta: Meta,
        barrier: AppliedBarrier,
        log: SessionLog,
        repeating: Repeating,
        uncertain: Uncertain,
    ) -> None:
        self._node = node
        self._node_id = calls.me
        self._boot = boot
        self._rng = rng
        self._calls = calls
        self._meta = meta
        self._barrier = barrier
        self._log = log
        self._repeating = repeating
        self._uncertain = uncertain
        self._abandoning: dict[bytes, list[int]] = {}
        """Clients with claims that no connection waits for, with the nonces of these."""
        self.count = 0
        self.waits = Waits()
        """How long clients waited for their claims."""

    def claim(
        self,
        connection: Connection,
        client_id: str,
        username: str | None,
        epoch: int,
        expiry_s: int,
        version: int,
        clean_start: bool,
        will: bytes,
    ) -> Promise[Claimed]:
        """Have the session of a client; see ``RecordPort``."""
        flags = (CLEAN_START if clean_start else 0) | (0 if self._node.gate_is_open else CHECKS_USER)
        user = None if username is None else username.encode()
        client = client_id.encode()
        nonce = self._rng.getrandbits(63) | 1
        statement = ClaimStatement(
            client, nonce, epoch, self._node_id, self._boot, user, expiry_s, version, flags, will
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
            return Claimed(reasons.SERVER_BUSY, WHY_UNAVAILABLE, statement.epoch)
        if must_write and not (yield from self._make_topics(due_at)):
            if not statement.expiry_s:
                return Claimed(reasons.SUCCESS, "", statement.epoch, is_certain=False)
            return Claimed(reasons.SERVER_UNAVAILABLE, WHY_UNAVAILABLE, statement.epoch)
        result = yield from self._say(connection, client, statement, due_at)
        if result is not None and result.code == VOID and self._calls.now - began_at < AGAIN_MS:
            # Most likely this node had not heard of the claim that the client has left to come here.
            statement.seen = result.index
            statement.nonce = self._rng.getrandbits(63) | 1
            result = yield from self._say(connection, client, statement, due_at)
        if result is None:
            self._abandon(client, statement.nonce)
        elif self._uncertain.unknown.get(client) == statement.nonce:
            del self._uncertain.unknown[client]
        if result is None and not statement.expiry_s:
            return Claimed(reasons.SUCCESS, "", statement.epoch, is_certain=False)
        if result is None:
            return Claimed(reasons.SERVER_UNAVAILABLE, WHY_UNAVAILABLE, statement.epoch)
        if result.code == REFUSED_USER:
            return Claimed(reasons.CLIENT_IDENTIFIER_NOT_VALID, WHY_USER, statement.epoch)
        if result.code != DONE:
            full = result.code == REFUSED_FULL
            return Claimed(
                reasons.QUOTA_EXCEEDED if full else reasons.SERVER_BUSY, WHY_FULL if full else "", statement.epoch
            )
        if not result.record:
            return Claimed(reasons.SUCCESS, "", statement.epoch)
        record = read_record(Reader(result.record))
        self._uncertain.pending[client] = record.epoch
        while self._meta.state.index < result.state_index and self._calls.now < due_at:
            yield Sleep(CATCH_UP_MS)  # the record may name partitions that this node does not know yet
        return Claimed(reasons.SUCCESS, "", record.epoch, record, keeps_will=len(statement.will) > 0)

    def _say(
        self, connection: Connection, client: bytes, statement: ClaimStatement, due_at: int
    ) -> Task[StatementResult | None]:
        """Say a claim until its result is known, while its client waits."""
        self._uncertain.unknown[client] = statement.nonce  # it may be applied before its result is here
        result = None
        while result is None and self._calls.now < due_at and connection.phase == AUTHENTICATING:
            said = self._log.say(client, statement, CLAIM_BYTES + len(statement.will))
            result = yield from within(said, due_at - self._calls.now)
            if result is None:
                yield Sleep(max(min(RETRY_MS, due_at - self._calls.now), 0))
        return result

    def _abandon(self, client: bytes, nonce: int) -> None:
        """No client waits for a claim any more: if it is granted after all, its session is away."""
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

    def _make_topics(self, due_at: int) -> Task[bool]:
        """Make the hidden topics at first need, and wait until all live nodes know them; False: that takes too long."""
        is_new = False
        for name in (SESSIONS_TOPIC, CAPTURE_TOPIC):
            while key_of(DEFAULT_NAMESPACE, name) not in self._meta.state.topics:
                is_new = True
                if self._calls.now >= due_at:
                    return False
                yield from within(self._meta.submit(CreateHidden(name)), due_at - self._calls.now)
                if key_of(DEFAULT_NAMESPACE, name) not in self._meta.state.topics:
                    yield Sleep(CATCH_UP_MS)
        if is_new:
            yield from self._barrier.wait(self._meta.state.index, self._calls.now)
        return True

    # Making sure.

    def reclaim_all(self) -> None:
        """The cluster held this node dead for a while: make sure of the sessions that it has."""
        self._calls.tasks.start("sessions of a node that was held dead", self._reclaim_all())

    def _reclaim_all(self) -> Task[None]:
        for number, session in enumerate(list(self._node.sessions.values())):
            if session.has_record and session.connection is not None:
                self.reclaim(session)
            if number % RECLAIMS == RECLAIMS - 1:
                yield Sleep(RETRY_MS)

    def reclaim(self, session: Session) -> None:
        """Make sure of a session of this node."""
        self._calls.tasks.start("a session to make sure of", self._reclaim(session))

    def _reclaim(self, session: Session) -> Task[None]:
        """Go on under a new epoch; where another node has the session, or it is over, the client has to come again."""
        client = session.client_id.encode()
        epoch = session.record_epoch
        user = None if session.username is None else session.username.encode()
        nonce = self._rng.getrandbits(63) | 1
        statement = ClaimStatement(
            client, nonce, epoch, self._node_id, self._boot, user, session.expiry_s, session.version, SAME_EPOCH
        )
        self._uncertain.unknown[client] = nonce
        result = None
        while result is None and session.connection is not None and session.record_epoch == epoch:
            result = yield from self._log.say(client, statement)
            if result is None:
                yield Sleep(RETRY_MS)
        connection = session.connection
        if result is None or connection is None or session.record_epoch != epoch:
            self._abandon(client, nonce)
            return
        self._uncertain.unknown.pop(client, None)
        if result.code == DONE and result.record:
            session.record_epoch = read_record(Reader(result.record)).epoch
            return
        disconnect(self._node, connection, reasons.SESSION_TAKEN_OVER, WHY_GONE, self._node.now)
