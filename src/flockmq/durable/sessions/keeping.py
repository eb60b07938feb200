"""Persistent sessions of this node, kept in the log: what its clients do becomes statements before they are answered.

```
 CONNECT -----> claim ----------> CLAIM, applied: epoch, record --> CONNACK         (owning.py waits)
 SUBSCRIBE ---> hold -----------> SUBSCRIBE, applied, filters known --> SUBACK
 UNSUBSCRIBE -> hold_unsuback --> UNSUBSCRIBE, applied --> UNSUBACK
 gone --------> detached, ended -> DETACH with exact positions, END                 said again until applied
```
A persistent session is *logged* from its claim on: it gets messages of QoS 1 and 2 from logs alone. Once DETACH is
applied, the node forgets a session at rest, because the record has the whole session.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.durable.machine.session_bodies import (
    NO_LOCAL,
    POSITIONS_MAX,
    RETAIN_AS_PUBLISHED,
    DetachStatement,
    EndStatement,
    RevokeStatement,
    StoredSubscription,
    SubscribeStatement,
    UnsubscribeStatement,
)
from flockmq.durable.machine.session_record import SessionRecord
from flockmq.durable.machine.session_wills import WILL_BYTES_MAX, StoredWill
from flockmq.durable.sessions.repeating import Unsaid
from flockmq.durable.sessions.restoring import restore
from flockmq.durable.sessions.standing import Standing
from flockmq.durable.sessions.submitting import DONE, REFUSED_FULL, StatementResult
from flockmq.mqtt import reasons
from flockmq.mqtt.namespaces import split_client_id
from flockmq.node.lifecycle import disconnect, displace, drop_session
from flockmq.node.ports import Claimed
from flockmq.node.publishing import forwardable
from flockmq.node.subscribing import leave, problem_text, tell_routes
from flockmq.routing.capture import NEVER
from flockmq.tasks import promised

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.durable.deliver.delivery import Delivery
    from flockmq.durable.machine.session_bodies import SessionStatement
    from flockmq.durable.qos2.releases import Releases
    from flockmq.durable.sessions.claims import SessionClaims, Uncertain
    from flockmq.durable.sessions.positions import Positions
    from flockmq.durable.sessions.pruning import Pruning
    from flockmq.durable.sessions.reclaiming import Reclaiming
    from flockmq.durable.sessions.repeating import Repeating
    from flockmq.durable.sessions.sending import Sending
    from flockmq.mqtt.packets import Suback, Will
    from flockmq.node.state import NodeState
    from flockmq.routing.subscription import Subscription
    from flockmq.session.connection import Connection
    from flockmq.session.session import Session
    from flockmq.tasks import Promise

SUBSCRIBE_MS: Final = 30_000
"""Longest wait for the SUBACK or UNSUBACK of a persistent session."""
WHY_TAKEN_OVER: Final = "Another connection uses this client id"
WHY_NOT_TAKEN_BACK: Final = "The end of the subscription could not be stored; connect and unsubscribe again"
WHY_RECORD_FULL: Final = "The record of the session has no room for these subscriptions; end some of them first"
WHY_NOT_STORED: Final = "No majority of nodes could store the subscriptions; subscribe again later"
WHY_WILL_TOO_LARGE: Final = f"A will may have {WILL_BYTES_MAX:,} bytes with its topic and properties"
STATEMENT_BYTES: Final = 128 * 1_024
"""Approximate size at which a SUBSCRIBE statement is closed; the rest goes into another one."""


class SessionKeeper:
    """See the module. The broker's port ``sessions``, and the ``Records`` of claims."""

    def __init__(
        self,
        node: NodeState,
        delivery: Delivery,
        positions: Positions,
        claims: SessionClaims,
        repeating: Repeating,
        uncertain: Uncertain,
        releases: Releases,
        sending: Sending,
        reclaiming: Reclaiming,
        pruning: Pruning,
    ) -> None:
        self._node = node
        self._streams = delivery.streams
        self._readers = delivery.readers
        self._positions = positions
        self._claims = claims
        self._repeating = repeating
        self._uncertain = uncertain
        self._releases = releases
        self._sending = sending
        self._reclaiming = reclaiming
        self._pruning = pruning

    # CONNECT.

    def wants(self, expiry_s: int, has_will: bool) -> bool:
        """See ``SessionClaims.are_needed``."""
        return self._claims.are_needed(expiry_s, has_will)

    def claim(
        self,
        connection: Connection,
        client_id: str,
        username: str | None,
        expiry_s: int,
        clean_start: bool,
        will: Will | None,
    ) -> Promise[Claimed]:
        """Claim the client id in the log, and the session of its record."""
        encoded = b"" if will is None else stored_will(will, connection.version).encode()
        if len(encoded) > WILL_BYTES_MAX:
            return promised(Claimed(reasons.PACKET_TOO_LARGE, WHY_WILL_TOO_LARGE))
        return self._claims.claim(connection, client_id, username, expiry_s, clean_start, encoded)

    def abandoned(self, claimed: Claimed) -> None:
        """A client has left or was refused after its claim was granted: no connection gets the session."""
        record = claimed.record
        if isinstance(record, SessionRecord):
            self._uncertain.pending.pop(record.client, None)
            if self._uncertain.granted.get(record.client) == record.epoch:
                del self._uncertain.granted[record.client]
            self._uncertain.leaving[record.client] = record.epoch
            self._settle(record.client, DetachStatement(record.client, record.epoch, record.expiry_s, {}, True))
            self._replaced(record)

    def _replaced(self, record: SessionRecord) -> None:
        """A claim that came to nothing has replaced the connection that the client has here."""
        session = self._node.sessions.get(record.client.decode("utf-8", "replace"))
        if session is None or not session.has_record or session.record_epoch >= record.epoch:
            return
        if session.record_epoch != record.before:
            displace(self._node, session, self._node.now)
            return
        session.record_epoch = record.epoch  # where it stands exactly is said under the epoch of that claim
        if session.connection is not None:
            disconnect(self._node, session.connection, reasons.SESSION_TAKEN_OVER, WHY_TAKEN_OVER, self._node.now)

    def is_outdated(self, session: Session, claimed: Claimed) -> bool:
        """Whether this node's copy of a session is older than the record: another node had the session, or it ended."""
        record = claimed.record
        if not isinstance(record, SessionRecord):
            return session.has_record and claimed.is_certain
        return session.record_epoch != record.before

    def restore(self, client_id: str, claimed: Claimed, now: int) -> Session | None:
        """Make the session of a record whose copy is not on this node; None: the record had no session to continue."""
        record = claimed.record
        if not isinstance(record, SessionRecord) or not record.had_session:
            return None
        self._streams.want_capture(now)
        standing = claimed.standing if isinstance(claimed.standing, Standing) else None
        return restore(self._node, client_id, record, standing, self._streams.interest, now)

    def attached(self, session: Session, claimed: Claimed, now: int) -> None:
        """A client has its session, under the epoch of its claim."""
        record = claimed.record
        if not claimed.is_certain:  # a session with a record keeps the record until it ends
            session.is_unregistered = self._reclaiming.register_unknown(session)
            return
        session.has_record = isinstance(record, SessionRecord)
        session.is_logged = isinstance(record, SessionRecord) and record.outlives_connections()
        session.record_epoch = record.epoch if isinstance(record, SessionRecord) else 0
        session.is_will_logged = claimed.keeps_will
        if isinstance(record, SessionRecord):
            self._releases.attached(session, record)
            self._readers.advance(session, record.positions)
            self._sending.attached(session, record)
        if session.is_logged:
            self._streams.want_capture(now)
        self._reclaiming.register_unknown(session)  # a leader that knew of no other node wrote no record
        if session.has_record:
            self._uncertain.pending.pop(session.client_id.encode(), None)
            self._uncertain.leaving.pop(session.client_id.encode(), None)

    # SUBSCRIBE.

    def hold(
        self,
        connection: Connection,
        session: Session,
        suback: Suback,
        entered: list[Subscription],
        fresh: list[Subscription],
    ) -> bool:
        """Keep a SUBACK until the subscriptions are in the log; False: the session has no record.

        The client is not read meanwhile: one SUBACK of a client waits at a time.
        """
        if not session.is_logged or session.connection is not connection:
            return False
        if not all(one.group or self._positions.knows(one.topic_filter) for one in entered):
            # No leader could be asked. A subscription without its start would get records older than itself.
            self._refuse(session, suback, entered, False)
            tell_routes(self._node, connection, session, suback, [], [])
            return True
        names = {id(subscription): full_filter for full_filter, subscription in session.subscriptions.items()}
        stored = [self._stored(names[id(one)], one) for one in entered if id(one) in names]
        _wait(connection)
        told = partial(self._subscribed, connection, session, suback, entered, fresh)
        self._store(session, connection, stored, 0, told)
        return True

    def _store(
        self,
        session: Session,
        connection: Connection,
        stored: list[StoredSubscription],
        first: int,
        told: Callable[[StatementResult | None], None],
    ) -> None:
        """Put subscriptions into the log, as many at a time as fit into a statement."""
        if any(len(subscription.starts) > POSITIONS_MAX for subscription in stored):
            told(StatementResult(REFUSED_FULL))
            return
        size = 0
        last = first
        while last < len(stored) and (last == first or size + stored[last].size() <= STATEMENT_BYTES):
            size += stored[last].size()
            last += 1
        statement = SubscribeStatement(session.client_id.encode(), session.record_epoch, stored[first:last])
        heard = told
        if last < len(stored):
            heard = partial(self._stored_some, session, connection, stored, last, told)
        self._repeating.say(Unsaid(statement.client, statement, self._node.now + SUBSCRIBE_MS, heard, connection))

    def _stored_some(
        self,
        session: Session,
        connection: Connection,
        stored: list[StoredSubscription],
        first: int,
        told: Callable[[StatementResult | None], None],
        result: StatementResult | None,
    ) -> None:
        if result is None or result.code != DONE:
            told(result)
        else:
            self._store(session, connection, stored, first, told)

    def _subscribed(
        self,
        connection: Connection,
        session: Session,
        suback: Suback,
        entered: list[Subscription],
        fresh: list[Subscription],
        result: StatementResult | None,
    ) -> None:
        connection.waits_for -= 1
        if session.connection is not connection:
            return
        connection.start_reading_again()
        if result is not None and result.code == DONE:
            tell_routes(self._node, connection, session, suback, entered, fresh)
        elif result is None or result.code == REFUSED_FULL:
            self._refuse(session, suback, entered, result is not None)
            tell_routes(self._node, connection, session, suback, [], [])
        else:
            disconnect(self._node, connection, reasons.SESSION_TAKEN_OVER, WHY_TAKEN_OVER, self._node.now)

    def _refuse(self, session: Session, suback: Suback, entered: list[Subscription], is_full: bool) -> None:
        """Remove subscriptions that the log did not store. A subscription that the record had before stays."""
        code = reasons.QUOTA_EXCEEDED if is_full else reasons.UNSPECIFIED_ERROR
        if session.version != 5:
            code = reasons.UNSPECIFIED_ERROR
        suback.reasons = [one if one >= 0x80 else code for one in suback.reasons]
        if suback.properties is None and session.connection is not None:
            suback.properties = problem_text(session.connection, code, WHY_RECORD_FULL if is_full else WHY_NOT_STORED)
        for full_filter, subscription in list(session.subscriptions.items()):
            if subscription in entered and not subscription.replaces:
                leave(self._node, session, full_filter)
                client = session.client_id.encode()
                self._settle(client, UnsubscribeStatement(client, session.record_epoch, [full_filter]), session)

    def _stored(self, full_filter: bytes, subscription: Subscription) -> StoredSubscription:
        options = (
            (NO_LOCAL if subscription.no_local else 0)
            | (RETAIN_AS_PUBLISHED if subscription.retain_as_published else 0)
            | subscription.retain_handling << 2
        )
        starts = {} if subscription.group else self._positions.starts_of(subscription)
        self._sending.subscribed(subscription.session, starts)
        return StoredSubscription(full_filter, subscription.qos, options, subscription.identifier, starts)

    # UNSUBSCRIBE.

    def hold_unsuback(
        self, connection: Connection, session: Session, full_filters: list[bytes], unsuback: bytes
    ) -> bool:
        """Keep an UNSUBACK until the log has these subscriptions no more; False: the session has no record.

        The statement also names subscriptions that this node does not have: an earlier UNSUBSCRIBE may have been void
        because the client went to another node.
        """
        if not session.is_logged:
            return False
        _wait(connection)
        self._take_back(connection, session, full_filters, unsuback)
        return True

    def _take_back(self, connection: Connection, session: Session, full_filters: list[bytes], unsuback: bytes) -> None:
        """Put the end of subscriptions into the log, as many at a time as fit into a statement."""
        count = _fitting(full_filters)
        statement = UnsubscribeStatement(session.client_id.encode(), session.record_epoch, full_filters[:count])
        told = partial(self._unsubscribed, connection, session, statement, full_filters[count:], unsuback)
        self._repeating.say(Unsaid(statement.client, statement, self._node.now + SUBSCRIBE_MS, told, connection))

    def _unsubscribed(
        self,
        connection: Connection,
        session: Session,
        statement: UnsubscribeStatement,
        rest: list[bytes],
        unsuback: bytes,
        result: StatementResult | None,
    ) -> None:
        """Send the UNSUBACK. Without a result in time the node disconnects the client, and repeats the statement."""
        is_done = result is not None and result.code == DONE
        if is_done and rest and session.connection is connection:
            self._take_back(connection, session, rest, unsuback)
            return
        connection.waits_for -= 1
        if result is None:
            self._settle(statement.client, statement, session)
        if session.connection is not connection:
            return
        connection.start_reading_again()
        if is_done:
            connection.answer(unsuback)
        elif result is None:
            disconnect(self._node, connection, reasons.UNSPECIFIED_ERROR, WHY_NOT_TAKEN_BACK, self._node.now)
        else:
            disconnect(self._node, connection, reasons.SESSION_TAKEN_OVER, WHY_TAKEN_OVER, self._node.now)

    def revoked(self, session: Session, full_filters: list[bytes]) -> None:
        """Changed rules have ended subscriptions of a session."""
        if session.is_logged:
            client = session.client_id.encode()
            while full_filters:
                count = _fitting(full_filters)
                statement = UnsubscribeStatement(client, session.record_epoch, full_filters[:count])
                self._settle(client, statement, session)
                full_filters = full_filters[count:]

    def users_removed(self, users: frozenset[str]) -> None:
        """These users are no more: their sessions that no node has end, too."""
        self._pruning.removed(users)

    # The end of connections and sessions.

    def detached(self, session: Session) -> None:
        """A session has lost its connection."""
        if session.has_record:
            client = session.client_id.encode()
            epoch = session.record_epoch
            self._uncertain.leaving[client] = epoch
            self._releases.detached(session)
            self._sending.detached(session)
            positions = self._positions.of(session) if session.is_logged else {}
            self._settle(client, DetachStatement(client, epoch, session.expiry_s, positions, _voids_will(session)))

    def ended(self, session: Session) -> None:
        """A session is over."""
        if session.has_record:
            client = session.client_id.encode()
            self._settle(client, EndStatement(client, session.record_epoch, _voids_will(session)))

    def will_revoked(self, session: Session) -> None:
        """The will of a connected client must not be published."""
        client = session.client_id.encode()
        self._settle(client, RevokeStatement(client, session.record_epoch))

    def _settle(self, client: bytes, statement: SessionStatement, session: Session | None = None) -> None:
        """Repeat a statement until it is applied; no client waits. It ends the subscriptions of ``session``."""
        told = partial(self._settled, client, statement)
        unsaid = Unsaid(client, statement, NEVER, told, None)
        unsaid.session = session
        self._repeating.say(unsaid)

    def _settled(self, client: bytes, statement: SessionStatement, result: StatementResult | None) -> None:
        if isinstance(statement, DetachStatement) and self._uncertain.leaving.get(client) == statement.epoch:
            del self._uncertain.leaving[client]
            if result is not None and result.code == DONE:
                self._forget(client.decode(), statement.epoch)

    def _forget(self, client_id: str, epoch: int) -> None:
        """Forget an away session at rest: its record has the whole session."""
        session = self._node.sessions.get(client_id)
        if session is not None and session.record_epoch == epoch and _is_at_rest(self._node, session):
            drop_session(self._node, session, self._node.now)


def _is_at_rest(node: NodeState, session: Session) -> bool:
    """Whether a session is away, and its record says all of it: nothing is in flight, no will waits."""
    if session.connection is not None or session.will is not None or session.received or session.unsettled:
        return False
    space = node.spaces.find(split_client_id(session.client_id)[0])
    if space is not None and space.sessions_max:
        return False  # counted where they are
    outbound = session.outbound
    if outbound is not None and (outbound.inflight or outbound.queued):
        return False
    return not any(subscription.group for subscription in session.subscriptions.values())


def _voids_will(session: Session) -> bool:
    """Whether the log keeps a will that must not be published, because the client sent DISCONNECT."""
    return session.is_will_logged and session.will is None


def _fitting(full_filters: list[bytes]) -> int:
    """How many subscriptions fit into a statement."""
    size = 0
    count = 0
    while count < len(full_filters) and (not count or size + len(full_filters[count]) <= STATEMENT_BYTES):
        size += len(full_filters[count]) + 2
        count += 1
    return count


def stored_will(will: Will, version: int) -> StoredWill:
    """A will as the log keeps it."""
    properties = b""
    delay_s = 0
    expiry_s = -1
    if version == 5:
        properties = forwardable(will.properties)
        delay_s = will.properties.will_delay_s or 0
        if will.properties.message_expiry_s is not None:
            expiry_s = will.properties.message_expiry_s
    return StoredWill(will.topic, will.payload, will.qos, will.retain, version, delay_s, expiry_s, properties)


def _wait(connection: Connection) -> None:
    """Stop reading from a client until its answer is sent."""
    connection.waits_for += 1
    connection.reading_paused = True
    connection.mark()
