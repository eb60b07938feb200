"""Which node owns a client id, and the subscriptions and positions of its persistent session.

```
 SESSION entries --> records: client -> SessionRecord  (session_record.py)   encode() --> checkpoint
                     marks: owner -> its last MARK                           filters --> publishing nodes
 leader: orphans(), expired() --> ORPHAN, EXPIRE                             least_positions() --> retention
                     wills: (client, epoch) -> KeptWill  (session_wills.py)  due() --> FIRING, FIRED
```
Part of the state of a partition (``machine.py``), so made of committed entries alone and the same on all replicas. Time
is that of the log. A statement about a (client, epoch) is void unless the record has exactly this epoch.

| statement | effect |
| --- | --- |
| CLAIM with the nonce of the record | none: the claim was said twice |
| CLAIM with SAME_EPOCH, and the record has another epoch or is gone | none |
| CLAIM, and the record was claimed behind ``seen`` | none: the client has connected elsewhere since |
| CLAIM with REGISTERS, and the record is connected to another node | none: that client stays |
| CLAIM, the record is another user's and CHECKS_USER is set | refused: ``refusals[nonce]`` |
| CLAIM of a new client, the table is full; or with a will, and there is no room | refused: ``refusals[nonce]`` |
| CLAIM of a new persistent session, its namespace or user has as many here as it may | refused: ``refusals[nonce]`` |
| CLAIM, otherwise | granted: epoch = max(proposed, record's + 1, ``epoch_floor`` + 1) |
| ... CLEAN_START, or the record's expiry is 0 or over | no session present; all but ``touched`` goes |
| ... otherwise | positions that are certain are kept with the record; session present if there was a record |
| ... SAME_EPOCH, the record's expiry is 0, its connection went on with a session | as otherwise |
| SUBSCRIBE | stores or replaces; a replaced subscription keeps its older starts. Void when there is no room |
| UNSUBSCRIBE | removes |
| DETACH | positions move forwards, the session's time begins to run; an expiry of 0: the record goes |
| END | the record goes |
| MARK | replaces that of the same owner, unless of an older boot, or of the same boot and covering less |
| ORPHAN | connected records of that owner: as a DETACH at the positions that are certain; the owner's mark goes |
| EXPIRE | the record goes if it has no connection and its time is over |
| ADVANCE | positions move forwards, unless the session is connected or has a subscription behind ``covers`` |
| TOUCH | notes partitions with their stamp. Void when these would be too many |
| UNTOUCH | forgets partitions whose stamp is not higher |
| SENT2 | lists QoS 2 messages under way to the client, moves positions. Void when it is not new, or lists too many |
| ABANDON | the record, if it has such a nonce and is connected: its time begins to run, its positions stay |

| statement | the will of its (client, epoch), unless FIRING took it before |
| --- | --- |
| CLAIM with a will | kept under the epoch that is granted |
| CLAIM, the former will: SAME_EPOCH | goes on under the new epoch |
| ... it is due already | stays |
| ... it has a delay, and the session goes on | void |
| ... otherwise | due |
| DETACH, END with ``voids_will``; ABANDON; REVOKE | void, also of an older epoch (ABANDON: the present one only) |
| DETACH, ORPHAN | its delay begins to run |
| the record goes (END, EXPIRE, an expiry of 0) | due |
| FIRING | taken, if due: no other statement but FIRED ends it |
| FIRED | gone |

A mark holds for connected records of its owner and boot whose claim it covers. It is kept while its owner has any.
A record that goes raises ``epoch_floor`` to its epoch, so that epochs of a client never repeat.
"""

from __future__ import annotations

import heapq
from itertools import islice
from typing import Final, NamedTuple

from flockmq.durable.machine.session_bodies import (
    CHECKS_USER,
    CLEAN_START,
    REGISTERS,
    SAME_EPOCH,
    AbandonStatement,
    AdvanceStatement,
    CheckStatement,
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
    StoredSubscription,
    SubscribeStatement,
    TouchStatement,
    UnsubscribeStatement,
    UntouchStatement,
    read_mark,
    read_session_body,
)
from flockmq.durable.machine.session_counts import SessionCounts
from flockmq.durable.machine.session_filters import SessionFilters
from flockmq.durable.machine.session_record import RECORD_BYTES_LEAST, SessionRecord, read_record
from flockmq.durable.machine.session_wills import SessionWills
from flockmq.peering.fields import U32, U64, Reader, large, malformed

FORMAT: Final = 1
SESSIONS_MAX: Final = 1_000_000
REFUSALS_MAX: Final = 10_000
DISPLACED_MAX: Final = 10_000
"""The leader tells no more former owners than this; the others learn it from CHECK."""
REFUSED_USER: Final = 1
"""The session is another user's."""
REFUSED_FULL: Final = 2
"""The table has no room for another session."""
REFUSED_NAMESPACE: Final = 3
"""The namespace has all persistent sessions that it may."""
REFUSED_SAME_USER: Final = 4
"""The user has all persistent sessions that it may."""
_DEADLINES_SLACK: Final = 1_024


class Displaced(NamedTuple):
    """A session that another node claimed, with its former owner and epoch."""

    owner: int
    client: bytes
    epoch: int


class SessionTable:
    """See the module."""

    def __init__(self) -> None:
        self.records: dict[bytes, SessionRecord] = {}
        self.marks: dict[int, MarkStatement] = {}
        self.wills = SessionWills()
        self.epoch_floor = 0
        """The highest epoch of any record that was removed."""
        self.sessions_max = SESSIONS_MAX
        """The bound must be the same on all replicas, or their states would differ."""
        self.by_owner: dict[int, dict[bytes, SessionRecord]] = {}
        """Connected records by the node that owns them."""
        self.boots: dict[tuple[int, int], int] = {}
        """(owner, boot) -> how many connected records have it."""
        self.connected = 0
        self.counts = SessionCounts()
        self.clean = 0
        """Connected records of sessions that end with their connections."""
        self.captured = SessionFilters()
        self.filters = self.captured.counts
        """Filters of captured subscriptions -> how many there are."""
        self.bytes = 0
        """About how much memory all records take."""
        self.refusals: dict[int, int] = {}
        """Nonce -> why its claim was refused, the oldest first; not replicated."""
        self.displaced: list[Displaced] = []
        """Sessions that another node has claimed, until ``take_displaced``; not replicated."""
        self.unreadable = 0
        """Batches that this version can't read; not replicated."""
        self._deadlines: list[tuple[int, bytes, int]] = []
        """A heap of (deadline, client, epoch); some entries are outdated."""

    def is_empty(self) -> bool:
        """Whether a checkpoint needs no table, because this partition never had a session."""
        return not self.records and not self.epoch_floor

    def apply(self, body: bytes, index: int, clock_ms: int) -> None:
        """An entry of kind SESSION is committed: ``index`` is its own, ``clock_ms`` the time of the log."""
        statements = read_session_body(body)
        if statements is None:
            self.unreadable += 1
            return
        for statement in statements:
            self._follow(statement, index, clock_ms)

    def _follow(self, statement: SessionStatement, index: int, clock_ms: int) -> None:
        if isinstance(statement, ClaimStatement):
            self._claim(statement, index, clock_ms)
        elif isinstance(statement, SubscribeStatement):
            self._subscribe(statement, index)
        elif isinstance(statement, UnsubscribeStatement):
            self._unsubscribe(statement, index)
        elif isinstance(statement, DetachStatement):
            self._detach(statement, index, clock_ms)
        elif isinstance(statement, EndStatement):
            self._end(statement, index, clock_ms)
        elif isinstance(statement, MarkStatement):
            self._mark(statement, index)
        elif isinstance(statement, OrphanStatement):
            self._orphan(statement, index, clock_ms)
        elif isinstance(statement, ExpireStatement):
            self._expire(statement, index, clock_ms)
        elif isinstance(statement, AbandonStatement):
            self._abandon(statement, index, clock_ms)
        elif isinstance(statement, AdvanceStatement):
            self._advance(statement)
        elif isinstance(statement, TouchStatement | UntouchStatement):
            self._touch(statement)
        elif isinstance(statement, SentStatement):
            self._send(statement)
        elif isinstance(statement, FiringStatement):
            self.wills.take(statement.target, statement.wills, index, clock_ms)
        elif isinstance(statement, FiredStatement):
            self.wills.published(statement.target, statement.sequence)
        elif isinstance(statement, RevokeStatement):
            self.wills.void(statement.client, statement.epoch)

    # What nodes ask.

    @property
    def filters_version(self) -> int:
        """Index of the last entry that changed the set of filters; after a checkpoint, the index of the checkpoint."""
        return self.captured.version

    def changes_since(self, version: int) -> list[tuple[bytes, bool]] | None:
        """Filters that were added (True) or removed (False), in order; None: too long ago, the whole set is needed."""
        return self.captured.changes_since(version)

    def current(self, client: bytes, epoch: int) -> SessionRecord | None:
        """The record of a client if it has exactly this epoch."""
        record = self.records.get(client)
        return record if record is not None and record.epoch == epoch else None

    def is_late(self, claim: ClaimStatement) -> bool:
        """Whether another claim of the client was granted after its owner made this one."""
        record = self.records.get(claim.client)
        return record is not None and record.claimed_index > claim.seen and record.nonce != claim.nonce

    def differing(self, owner: int, check: CheckStatement) -> list[tuple[bytes, int]]:
        """Of a node's sessions (client, epoch): those without a connected record, and copies under another epoch."""
        found: list[tuple[bytes, int]] = []
        for client, epoch in check.sessions:
            record = self.current(client, epoch)
            if record is None or not record.is_connected or record.owner != owner:
                found.append((client, epoch))
        return found + [(client, epoch) for client, epoch in check.away if self.current(client, epoch) is None]

    def take_displaced(self) -> list[Displaced]:
        """Sessions that were claimed by another node than the one that had them, since the last call."""
        displaced, self.displaced = self.displaced, []
        return displaced

    def has_room(self, record: SessionRecord, statement: SubscribeStatement) -> bool:
        """Whether a SUBSCRIBE fits into the record; otherwise the statement would be void."""
        return record.has_room(statement)

    def position_of(self, record: SessionRecord, group: int) -> int:
        """The first offset of a group that the session may not have acknowledged; -1: not known."""
        return record.position(group, self._mark_of(record))

    def least_positions(self, groups: list[int]) -> dict[int, int]:
        """Group -> the least offset that a captured session may still need; groups that none needs are left out."""
        least: dict[int, int] = {}
        for record in self.records.values():
            self.lessen(least, record, groups)
        return least

    def lessen(self, least: dict[int, int], record: SessionRecord, groups: list[int]) -> None:
        """Include one record in ``least_positions``, with the messages that a next owner would have to send again."""
        for group, offset in record.sent.needed().items():
            if group in groups:
                least[group] = min(offset, least.get(group, offset))
        if not record.captured:
            return
        mark = self._mark_of(record)
        positions = record.positions
        starts: dict[int, int] | None = None
        for group in groups:
            offset = record.position(group, mark) if mark is not None else positions.get(group, -1)
            if offset < 0:
                starts = record.least_starts() if starts is None else starts  # it takes time
                offset = starts.get(group, -1)
            if offset >= 0:
                least[group] = min(offset, least.get(group, offset))

    def orphans(self, alive: set[int], boots: dict[int, int]) -> list[tuple[int, int]]:
        """(owner, boot) of ORPHAN statements that are due: owners that do not live (boot 0), or have started again."""
        due: dict[int, int] = {}
        for owner, boot in self.boots:
            if owner not in alive:
                due[owner] = 0
            elif boot < boots.get(owner, 0):
                due[owner] = boots[owner]
        return list(due.items())

    def orphaned(self, owner: int, boot: int, limit: int) -> list[tuple[bytes, int]]:
        """(client, epoch) of some sessions that an ORPHAN is about."""
        owned = self.by_owner.get(owner, {}).values()
        lost = ((record.client, record.epoch) for record in owned if not boot or record.boot < boot)
        return list(islice(lost, limit))

    def expired(self, clock_ms: int, limit: int) -> list[tuple[bytes, int]]:
        """(client, epoch) of sessions whose time is over, those that expired first first; they stay until EXPIRE."""
        found: dict[tuple[bytes, int], int] = {}
        while self._deadlines and self._deadlines[0][0] <= clock_ms and len(found) < limit:
            deadline_ms, client, epoch = heapq.heappop(self._deadlines)
            record = self.current(client, epoch)
            if record is not None and record.deadline_ms() == deadline_ms:
                found[client, epoch] = deadline_ms
        for (client, epoch), deadline_ms in found.items():
            heapq.heappush(self._deadlines, (deadline_ms, client, epoch))
        return list(found)

    # Claims.

    def _claim(self, claim: ClaimStatement, index: int, clock_ms: int) -> None:
        record = self.records.get(claim.client)
        if record is not None and record.nonce == claim.nonce:
            return
        if record is not None and record.has_expired(clock_ms):
            self._remove(record, index, clock_ms)
            record = None
        if claim.flags & SAME_EPOCH and (record is None or record.epoch != claim.epoch):
            return
        if self.is_late(claim) or (claim.flags & REGISTERS and self._is_elsewhere(claim, record)):
            return
        reason = self._refusal(claim, record)
        if reason:
            self._refuse(claim.nonce, reason)
        else:
            self.refusals.pop(claim.nonce, None)
            self._grant(claim, record, index, clock_ms)

    def _is_elsewhere(self, claim: ClaimStatement, record: SessionRecord | None) -> bool:
        return record is not None and record.is_connected and record.owner != claim.owner

    def _refusal(self, claim: ClaimStatement, record: SessionRecord | None) -> int:
        if claim.will and not self.wills.has_room(claim.will):
            return REFUSED_FULL
        if record is None and len(self.records) >= self.sessions_max:
            return REFUSED_FULL
        if record is not None and claim.flags & CHECKS_USER and claim.user != record.user:
            return REFUSED_USER
        if claim.expiry_s and (record is None or not record.is_counted):
            if self.counts.is_namespace_full(claim.client, claim.room):
                return REFUSED_NAMESPACE
            if self.counts.is_user_full(claim.user, claim.room):
                return REFUSED_SAME_USER
        return 0

    def _refuse(self, nonce: int, reason: int) -> None:
        self.refusals.pop(nonce, None)
        self.refusals[nonce] = reason
        if len(self.refusals) > REFUSALS_MAX:
            del self.refusals[next(iter(self.refusals))]

    def _grant(self, claim: ClaimStatement, record: SessionRecord | None, index: int, clock_ms: int) -> None:
        epoch = max(claim.epoch, self.epoch_floor + 1)
        had_session = False
        if record is None:
            record = SessionRecord(claim.client)
            self.records[claim.client] = record
        else:
            if record.owner != claim.owner and len(self.displaced) < DISPLACED_MAX:
                self.displaced.append(Displaced(record.owner, record.client, record.epoch))
            epoch = max(epoch, record.epoch + 1)
            had_session = _lasts(record, claim) and not claim.flags & CLEAN_START
            if claim.flags & SAME_EPOCH:
                self.wills.carry(record.client, record.epoch, epoch)
            else:
                self.wills.taken_over(record.client, record.epoch, had_session, clock_ms)
            self._settle(record, index)
            self._unlist(record)
            self._uncount_session(record)  # its user may change
        if claim.will and not claim.flags & SAME_EPOCH:
            self.wills.add(claim.client, epoch, claim.user, claim.will)
        if not had_session:
            self._clear(record, index)
        record.take(claim, epoch, index, had_session)
        self._list(record)
        self._changed(record)

    # Subscriptions.

    def _subscribe(self, statement: SubscribeStatement, index: int) -> None:
        record = self.current(statement.client, statement.epoch)
        if record is None or not record.has_room(statement):
            return
        mark = self._mark_of(record)
        if mark is not None and record.replaces(statement):
            # A replaced subscription gets another index: keep the mark's positions for the former one.
            self._settle(record, mark.covers)
        for subscription in statement.subscriptions:
            old = record.put(subscription, index)
            if subscription.is_captured():
                self.captured.add(subscription.full_filter, index)
            self._uncount(old, index)
        self._changed(record)

    def _unsubscribe(self, statement: UnsubscribeStatement, index: int) -> None:
        record = self.current(statement.client, statement.epoch)
        if record is not None:
            for full_filter in statement.full_filters:
                self._uncount(record.discard(full_filter), index)
            self._changed(record)

    def _uncount(self, old: StoredSubscription | None, index: int) -> None:
        if old is not None and old.is_captured():
            self.captured.remove(old.full_filter, index)

    def _clear(self, record: SessionRecord, index: int) -> None:
        for full_filter in list(record.subscriptions):
            self._uncount(record.discard(full_filter), index)
        record.forget_positions()

    # QoS 2 of clients.

    def _touch(self, statement: TouchStatement | UntouchStatement) -> None:
        record = self.current(statement.client, statement.epoch)
        if record is None:
            return
        if isinstance(statement, TouchStatement):
            record.touch(statement)
        else:
            record.untouch(statement)
        self._changed(record)

    def _send(self, statement: SentStatement) -> None:
        record = self.current(statement.client, statement.epoch)
        if record is not None and record.send(statement):
            self._changed(record)

    # Sessions without a connection.

    def _detach(self, statement: DetachStatement, index: int, clock_ms: int) -> None:
        if statement.voids_will:
            self._void_will(statement.client, statement.epoch)
        record = self.current(statement.client, statement.epoch)
        if record is None:
            return
        for group, offset in statement.positions.items():
            record.advance(group, offset)
        record.pass_sent()
        record.drop_starts(index)
        self._disconnect(record, statement.expiry_s, index, clock_ms)

    def _void_will(self, client: bytes, epoch: int) -> None:
        """A client said goodbye; its connection may go on under a later epoch by now."""
        record = self.records.get(client)
        if record is not None and record.goes_on and record.before == epoch:
            epoch = record.epoch
        self.wills.void(client, epoch)

    def _advance(self, statement: AdvanceStatement) -> None:
        record = self.current(statement.client, statement.epoch)
        if record is None or record.is_connected:
            return
        if any(one.index > statement.covers for one in record.subscriptions.values()):
            return  # the leader did not know of this subscription
        for group, offset in statement.positions.items():
            record.advance(group, offset)
        record.drop_starts(statement.covers)
        self._changed(record)

    def _abandon(self, statement: AbandonStatement, index: int, clock_ms: int) -> None:
        record = self.records.get(statement.client)
        if record is not None and record.nonce in statement.nonces and record.is_connected:
            if not record.goes_on:
                self.wills.void(record.client, record.epoch)  # no client had a CONNACK yet, or its node has the will
            self._disconnect(record, record.expiry_s, index, clock_ms)

    def _orphan(self, statement: OrphanStatement, index: int, clock_ms: int) -> None:
        owned = self.by_owner.get(statement.owner, {})
        named = [client for client, epoch in statement.sessions or () if self.current(client, epoch) is not None]
        for client in list(owned) if statement.sessions is None else named:
            record = owned.get(client)
            if record is not None and (not statement.boot or record.boot < statement.boot):
                self._settle(record, index)
                self._disconnect(record, record.expiry_s, index, clock_ms)
        mark = self.marks.get(statement.owner)
        if mark is not None and (statement.owner, mark.boot) not in self.boots:
            del self.marks[statement.owner]  # no session has it any more

    def _disconnect(self, record: SessionRecord, expiry_s: int, index: int, clock_ms: int) -> None:
        if record.is_connected:
            self._unlist(record)
            record.is_connected = False
            record.detached_ms = clock_ms
        record.expiry_s = expiry_s
        self.wills.start(record.client, record.epoch, record.expiry_s, clock_ms)
        if record.expiry_s:
            self._await_expiry(record)
            self._changed(record)
        else:
            self._remove(record, index, clock_ms)

    def _end(self, statement: EndStatement, index: int, clock_ms: int) -> None:
        if statement.voids_will:
            self._void_will(statement.client, statement.epoch)
        record = self.current(statement.client, statement.epoch)
        if record is not None:
            self._remove(record, index, clock_ms)

    def _expire(self, statement: ExpireStatement, index: int, clock_ms: int) -> None:
        for client, epoch in statement.sessions:
            record = self.current(client, epoch)
            if record is not None and record.has_expired(clock_ms):
                self._remove(record, index, clock_ms)

    def _remove(self, record: SessionRecord, index: int, clock_ms: int) -> None:
        self.wills.end(record.client, record.epoch, clock_ms)
        self._unlist(record)
        self._uncount_session(record)
        self._clear(record, index)
        self.bytes -= record.cost_bytes
        self.epoch_floor = max(self.epoch_floor, record.epoch)
        del self.records[record.client]

    def _await_expiry(self, record: SessionRecord) -> None:
        deadline_ms = record.deadline_ms()
        if deadline_ms < 0:
            return
        heapq.heappush(self._deadlines, (deadline_ms, record.client, record.epoch))
        if len(self._deadlines) > 2 * (len(self.records) - self.connected) + _DEADLINES_SLACK:
            self._find_deadlines()

    def _find_deadlines(self) -> None:
        waiting = [record for record in self.records.values() if record.deadline_ms() >= 0]
        self._deadlines = [(record.deadline_ms(), record.client, record.epoch) for record in waiting]
        heapq.heapify(self._deadlines)

    # Marks.

    def _mark(self, statement: MarkStatement, index: int) -> None:
        statement.covers = min(statement.covers, index - 1)  # no node has applied later entries
        known = self.marks.get(statement.owner)
        is_older = known is not None and (statement.boot, statement.covers) < (known.boot, known.covers)
        if not is_older and statement.owner in self.by_owner:
            self.marks[statement.owner] = statement

    def _mark_of(self, record: SessionRecord) -> MarkStatement | None:
        """The mark that holds for a record, if any does."""
        mark = self.marks.get(record.owner) if record.is_connected else None
        if mark is None or mark.boot != record.boot or mark.covers < record.claimed_index:
            return None
        return mark

    def _settle(self, record: SessionRecord, covers: int) -> None:
        """Copy the owner's mark into a record while the mark holds; starts up to ``covers`` may go then."""
        mark = self._mark_of(record)
        if mark is not None:
            record.materialize(mark)
        record.drop_starts(covers)

    # Lists.

    def _list(self, record: SessionRecord) -> None:
        """Enter a connected record into the lists by owner."""
        self.connected += 1
        self.clean += not record.expiry_s
        self.by_owner.setdefault(record.owner, {})[record.client] = record
        key = (record.owner, record.boot)
        self.boots[key] = self.boots.get(key, 0) + 1

    def _unlist(self, record: SessionRecord) -> None:
        """Take a record off the lists by owner, if it is connected; with the last one the owner's mark goes."""
        if not record.is_connected:
            return
        self.connected -= 1
        self.clean -= not record.expiry_s
        owned = self.by_owner[record.owner]
        del owned[record.client]
        if not owned:
            del self.by_owner[record.owner]
            self.marks.pop(record.owner, None)
        key = (record.owner, record.boot)
        self.boots[key] -= 1
        if not self.boots[key]:
            del self.boots[key]

    def _uncount_session(self, record: SessionRecord) -> None:
        if record.is_counted:
            record.is_counted = False
            self.counts.add(record.client, record.user, -1)

    def _changed(self, record: SessionRecord) -> None:
        if record.expiry_s and not record.is_counted:
            record.is_counted = True
            self.counts.add(record.client, record.user, 1)
        record.encoded = b""
        if not record.is_connected:
            record.pack()
        cost_bytes = record.cost()
        self.bytes += cost_bytes - record.cost_bytes
        record.cost_bytes = cost_bytes

    # Checkpoints.

    def encode(self) -> bytes:
        """For a checkpoint: the same bytes on every replica."""
        parts = [bytes((FORMAT,)), U64.pack(self.epoch_floor), U32.pack(len(self.marks))]
        parts += [large(mark.content()) for mark in self.marks.values()]
        parts.append(U32.pack(len(self.records)))
        parts += [record.encode() for record in self.records.values()]
        parts.append(self.wills.encode())
        return b"".join(parts)

    def restore(self, record: SessionRecord, index: int) -> None:
        """A record of a checkpoint."""
        self.records[record.client] = record
        for subscription in record.subscriptions.values():
            if subscription.is_captured():
                self.captured.add(subscription.full_filter, index)
        if record.is_connected:
            self._list(record)
        self._changed(record)

    def restored(self, index: int) -> None:
        """All records of the checkpoint at ``index`` are there."""
        self.captured.restart(index)
        self._find_deadlines()


def _lasts(record: SessionRecord, claim: ClaimStatement) -> bool:
    """Whether a session outlives the connection that it has, or that connection goes on with it."""
    return record.expiry_s > 0 or (claim.flags & SAME_EPOCH > 0 and record.had_session)


def decode_sessions(content: bytes, applied_index: int) -> SessionTable:
    """Read ``SessionTable.encode``; RemoteProtocolError for other bytes."""
    table = SessionTable()
    reader = Reader(content)
    if reader.u8() != FORMAT:
        raise malformed("a table of sessions in another format")
    table.epoch_floor = reader.u64()
    for _ in range(reader.count(SESSIONS_MAX, 4)):
        mark = read_mark(Reader(reader.large(reader.end)))
        table.marks[mark.owner] = mark
    for _ in range(reader.count(SESSIONS_MAX, RECORD_BYTES_LEAST)):
        table.restore(read_record(reader), applied_index)
    table.wills.restore(reader)
    reader.finish()
    table.restored(applied_index)
    return table
