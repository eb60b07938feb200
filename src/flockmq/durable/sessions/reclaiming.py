"""A node claims its sessions again when the log may record another owner: one claim each, a bounded number at once.

| session | claim | void |
| --- | --- | --- |
| persistent, or with a will: this node was held dead, or CHECK differs | SAME_EPOCH: a new epoch | 0x8E |
| clean: the same | REGISTERS | another node has the client: 0x8E |
| clean, let in while the log could not be asked; or older than the second node of the cluster | REGISTERS | 0x8E |

A claim is repeated until its result is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.machine.session_bodies import CHECKS_USER, CLEAN_START, REGISTERS, SAME_EPOCH, ClaimStatement
from flockmq.durable.machine.session_record import read_record
from flockmq.durable.sessions.repeating import RETRY_MS
from flockmq.durable.sessions.submitting import DONE, REFUSED_FULL
from flockmq.mqtt import reasons
from flockmq.node.lifecycle import disconnect
from flockmq.peering.fields import Reader
from flockmq.tasks import Sleep

if TYPE_CHECKING:
    import random

    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.sessions.claims import SessionClaims, Uncertain
    from flockmq.durable.sessions.membership import Membership
    from flockmq.durable.sessions.submitting import SessionLog, StatementResult
    from flockmq.node.state import NodeState
    from flockmq.session.session import Session
    from flockmq.tasks import Task

RECLAIMS: Final = 500
"""Sessions that a node reclaims at once."""
WHY_GONE: Final = "The session went on at another node, or was over, while this node was cut off; connect again"
WHY_ELSEWHERE: Final = "A client with this id is connected to another node"


class Reclaiming:
    """See the module."""

    def __init__(
        self,
        node: NodeState,
        boot: int,
        rng: random.Random,
        calls: PartitionCalls,
        log: SessionLog,
        claims: SessionClaims,
        uncertain: Uncertain,
        members: Membership,
    ) -> None:
        self._node = node
        self._node_id = calls.me
        self._boot = boot
        self._rng = rng
        self._calls = calls
        self._log = log
        self._claims = claims
        self._uncertain = uncertain
        self._members = members
        self._was_alone = True
        self._unregistered: dict[Session, None] = {}
        self._registering = 0

    def reclaim_all(self) -> None:
        """Reclaim all sessions of this node, because the cluster held the node dead for a while."""
        self._calls.tasks.start("sessions of a node that was held dead", self._reclaim_all())

    def _reclaim_all(self) -> Task[None]:
        for number, session in enumerate(list(self._node.sessions.values())):
            if session.has_record and session.connection is not None:
                self.reclaim(session)
            if number % RECLAIMS == RECLAIMS - 1:
                yield Sleep(RETRY_MS)

    def reclaim(self, session: Session) -> None:
        """Claim a session of this node again."""
        if session.is_logged or session.is_will_logged:
            self._calls.tasks.start("a session to make sure of", self._reclaim(session))
        else:
            session.has_record = False
            self.register(session)

    def _reclaim(self, session: Session) -> Task[None]:
        """Continue under a new epoch. If another node has the session or it ended, disconnect the client."""
        client = session.client_id.encode()
        epoch = session.record_epoch
        statement = self._claim_of(session, epoch, SAME_EPOCH)
        nonce = statement.nonce
        self._uncertain.unknown[client] = nonce
        result = None
        while result is None and session.connection is not None and session.record_epoch == epoch:
            result = yield from self._log.say(client, statement)
            if result is None:
                yield Sleep(RETRY_MS)
        connection = session.connection
        if result is None or connection is None or session.record_epoch != epoch:
            self._claims.abandon(client, nonce)
            return
        self._uncertain.unknown.pop(client, None)
        if result.code == DONE and result.record:
            session.record_epoch = read_record(Reader(result.record)).epoch
            return
        disconnect(self._node, connection, reasons.SESSION_TAKEN_OVER, WHY_GONE, self._node.now)

    def _claim_of(self, session: Session, epoch: int, flags: int) -> ClaimStatement:
        client = session.client_id.encode()
        user = None if session.username is None else session.username.encode()
        nonce = self._rng.getrandbits(63) | 1
        return ClaimStatement(
            client, nonce, epoch, self._node_id, self._boot, user, session.expiry_s, session.version, flags
        )

    # Clean sessions that the log does not know.

    def register(self, session: Session) -> None:
        """Enter a clean session of this node into the log, at a later tick."""
        self._unregistered[session] = None

    def register_unknown(self, session: Session) -> bool:
        """Register a session unless it has a record or this node is alone; whether it will be registered."""
        is_unknown = not session.has_record and not self._members.is_alone()
        if is_unknown:
            self.register(session)
        return is_unknown

    def tick(self, now: int) -> None:  # noqa: ARG002
        """Enter waiting clean sessions into the log, a bounded number at once."""
        is_alone = self._members.is_alone()
        if self._was_alone and not is_alone:
            for session in self._node.sessions.values():
                if not session.has_record and session.connection is not None:
                    self.register(session)
        self._was_alone = is_alone
        if is_alone:
            for session in self._unregistered:
                session.is_unregistered = False
            self._unregistered.clear()
        while self._unregistered and self._registering < RECLAIMS:
            session = next(iter(self._unregistered))
            del self._unregistered[session]
            if self._is_unknown(session):
                self._registering += 1
                self._calls.tasks.start("a session to be registered", self._register(session))

    def _is_unknown(self, session: Session) -> bool:
        is_here = self._node.sessions.get(session.client_id) is session
        return is_here and not session.has_record and session.connection is not None

    def _register(self, session: Session) -> Task[None]:
        flags = REGISTERS | CLEAN_START | (0 if self._node.gate_is_open else CHECKS_USER)
        statement = self._claim_of(session, 0, flags)
        try:
            result = None
            while self._is_unknown(session) and (result is None or result.code == REFUSED_FULL):
                if (yield from self._claims.make_topics(self._calls.now + RETRY_MS, False)):
                    # A claim that this node gave up may have been granted, and have brought the will of this client.
                    yield from self._claims.until_said(statement.client)
                    result = yield from self._log.say(statement.client, statement)
                if result is None or result.code == REFUSED_FULL:
                    yield Sleep(RETRY_MS)
        finally:
            self._registering -= 1
        self._was_said(session, statement, result)

    def _was_said(self, session: Session, statement: ClaimStatement, result: StatementResult | None) -> None:
        connection = session.connection
        if connection is None or not self._is_unknown(session):
            self._claims.abandon(statement.client, statement.nonce)
        elif result is not None and result.code == DONE and result.record:
            session.has_record = True
            session.is_unregistered = False
            session.record_epoch = read_record(Reader(result.record)).epoch
        elif result is not None and result.code != DONE:
            disconnect(self._node, connection, reasons.SESSION_TAKEN_OVER, WHY_ELSEWHERE, self._node.now)
