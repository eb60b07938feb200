"""The record of one persistent session in a table, and the positions that its client has certainly acknowledged.

```
 positions  what DETACH said, or what was certain when another owner came    ----+
 mark       "all my sessions are at 80, but c is at 60", of the present owner ---+--> position(group, mark)
 starts     a subscription that the mark does not cover begins at 70 ------------+    never behind an own position
```
| group of the mark | position |
| --- | --- |
| the mark lists the session as slow, with its epoch or any | what the list says of this group, else the mark's |
| the list says nothing of any group | the own one |
| not listed | that of the mark |
| a subscription with an index behind ``covers`` starts before that | the start: the mark knew nothing of it |
| the own position is higher | the own one |

Most sessions of a large table are away. ``pack`` keeps the parts that only a return needs as bytes: a third of the
memory.
"""

from __future__ import annotations

import struct
from typing import Final

from flockmq.durable.machine.session_bodies import (
    ANY_EPOCH,
    POSITION_BYTES,
    POSITIONS_MAX,
    SAME_EPOCH,
    SUBSCRIPTIONS_MAX,
    TOUCHED_MAX,
    ClaimStatement,
    MarkStatement,
    SentStatement,
    StoredSubscription,
    SubscribeStatement,
    TouchStatement,
    UntouchStatement,
    encode_positions,
    read_positions,
    read_subscription,
)
from flockmq.durable.machine.session_sent import SentMessages, read_sent
from flockmq.peering.fields import U32, U64, Reader, sized

NEVER_EXPIRES: Final = 0xFFFFFFFF
RECORD_BYTES_MAX: Final = 1 << 20
"""Encoded."""
SUBSCRIPTION_BYTES_MAX: Final = RECORD_BYTES_MAX - (256 << 10)
"""Bytes of all subscriptions of a session; the rest of the record's bound is for client, user and positions."""

_CONNECTED: Final = 1
_HAD_SESSION: Final = 2
_HAS_USER: Final = 4
_GOES_ON: Final = 8
_RECORD: Final = struct.Struct("<QQQQIBBQQQQQ")
RECORD_BYTES_LEAST: Final = _RECORD.size + 32
_STORED_BYTES_LEAST: Final = 20
_RECORD_COST: Final = 600
_SUBSCRIPTION_COST: Final = 500
_PACKED_SUBSCRIPTION_COST: Final = 200
_POSITION_COST: Final = 100
_SENT_COST: Final = 200
"""About what Python takes for each, beside the bytes in it."""

_NO_SUBSCRIPTIONS: Final[dict[bytes, StoredSubscription]] = {}
_NO_OFFSETS: Final[dict[int, int]] = {}
_NOTHING_SENT: Final = SentMessages()
"""Shared by all records that have none or are packed, to keep records of clean sessions small. Never written to."""


class SessionRecord:
    """See the module. Without ``is_connected`` no connection has the session.

    A session that ends with its connection has a record without subscriptions and positions while it is connected.
    """

    def __init__(self, client: bytes) -> None:
        self.client = client
        self.epoch = 0
        self.nonce = 0
        self.owner = 0
        self.boot = 0
        self.user: bytes | None = None
        self.expiry_s = 0
        self.version = 0
        self.is_connected = False
        self.detached_ms = 0
        self.before = 0
        """The epoch before the last CLAIM: a node with a copy under it has the whole session. 0: none."""
        self.former = 0
        """The node that had the session before the last CLAIM, if the session continued; 0: none."""
        self.began = 0
        """The epoch of the claim that began this session: QoS 2 packet ids of older epochs are void."""
        self.claimed_index = 0
        """Entry of the last CLAIM that was granted."""
        self.had_session = False
        """"Session present": whether the last CLAIM found a session and kept it."""
        self.goes_on = False
        """The last CLAIM was made for the same connection, which had the session under ``before``."""
        self._subscriptions = _NO_SUBSCRIPTIONS
        self._positions = _NO_OFFSETS
        self._touched = _NO_OFFSETS
        self._packed = b""
        """Subscriptions, positions and touched partitions, encoded; empty while they are in their dicts."""
        self._sent: SentMessages | None = None
        # Derived from the fields above:
        self.subscription_bytes = 0
        self.is_counted = False
        """Whether the session counts for the limits of its namespace and user."""
        self.captured = 0
        """How many of the session's subscriptions are in the set of filters."""
        self.newest_index = 0
        """No subscription has a higher index."""
        self.cost_bytes = 0
        self.encoded = b""
        """The last result of ``encode``; empty when the record has changed since."""

    # Packed fields: on a packed record these return copies.

    @property
    def subscriptions(self) -> dict[bytes, StoredSubscription]:
        """By full filter."""
        return self._opened()._subscriptions

    @property
    def positions(self) -> dict[int, int]:
        """Group -> the first offset that the client may not have acknowledged, from statements other than marks."""
        return read_positions(Reader(self._packed), POSITIONS_MAX) if self._packed else self._positions

    @property
    def touched(self) -> dict[int, int]:
        """Partitions that may hold QoS 2 packet ids which its client has not released, each with the stamp of its last
        TOUCH; 0: an earlier owner touched it."""
        return self._opened()._touched

    @property
    def sent(self) -> SentMessages:
        """QoS 2 messages of logs on their way to the client. Never packed."""
        return _NOTHING_SENT if self._sent is None else self._sent

    def pack(self) -> None:
        """Keep what is in dicts as bytes, until the record changes."""
        if not self._packed:
            self._packed = self._encode_rest()
            self._subscriptions = _NO_SUBSCRIPTIONS
            self._positions = _NO_OFFSETS
            self._touched = _NO_OFFSETS

    def _unpack(self) -> None:
        """Before a change."""
        if self._packed:
            opened = self._opened()
            self._subscriptions = opened._subscriptions
            self._positions = opened._positions
            self._touched = opened._touched
            self._packed = b""

    def _opened(self) -> SessionRecord:
        """This record, or what is packed in it."""
        if not self._packed:
            return self
        opened = SessionRecord(self.client)
        opened.read_rest(Reader(self._packed))
        return opened

    # Claims.

    def outlives_connections(self) -> bool:
        """Whether the session has outlived a connection, or will: messages of QoS 1 and 2 come to it from logs alone.

        A client may go on with a session that is to end with this very connection.
        """
        return self.expiry_s > 0 or self.had_session

    def take(self, claim: ClaimStatement, epoch: int, index: int, had_session: bool) -> None:
        """A claim is granted."""
        self._unpack()
        self.before = self.epoch if had_session or claim.flags & SAME_EPOCH else 0
        self.former = self.owner if had_session else 0
        self.epoch = epoch
        if not had_session:
            self.began = epoch
        if self._touched:
            self._touched = dict.fromkeys(self._touched, 0)
        if self._sent is not None and not claim.flags & SAME_EPOCH:
            self._sent.stamp = 0  # another owner numbers its statements anew
            if not self._sent.count():
                self._sent = None
        self.nonce = claim.nonce
        self.owner = claim.owner
        self.boot = claim.boot
        self.user = claim.user
        self.expiry_s = claim.expiry_s
        self.version = claim.version
        self.is_connected = True
        self.detached_ms = 0
        self.claimed_index = index
        self.had_session = had_session
        self.goes_on = bool(claim.flags & SAME_EPOCH)

    # Subscriptions.

    def put(self, subscription: StoredSubscription, index: int) -> StoredSubscription | None:
        """Store a subscription; the one that it replaces, whose starts stay where they are older: nothing is missed.

        A partition without a start was passed by the position, or is newer than the subscription, which gets all of it.
        """
        self._unpack()
        old = self._subscriptions.get(subscription.full_filter)
        if old is not None:
            self._count(old, -1)
        if old is not None and old.is_captured():
            known = subscription.starts
            subscription.starts = {group: min(offset, known.get(group, offset)) for group, offset in old.starts.items()}
        if not self._subscriptions:
            self._subscriptions = {}
        subscription.index = index
        self.newest_index = max(self.newest_index, index)
        self._subscriptions[subscription.full_filter] = subscription
        self._count(subscription, 1)
        return old

    def discard(self, full_filter: bytes) -> StoredSubscription | None:
        """Remove a subscription; None when there is none."""
        self._unpack()
        old = self._subscriptions.pop(full_filter, None)
        if old is not None:
            self._count(old, -1)
        return old

    def forget_positions(self) -> None:
        """Another session begins, without positions and without messages under way to its client."""
        self._unpack()
        self._positions = _NO_OFFSETS
        self._sent = None
        self.newest_index = 0

    def _count(self, subscription: StoredSubscription, sign: int) -> None:
        self.subscription_bytes += sign * (8 + subscription.size())
        if subscription.is_captured():
            self.captured += sign

    def replaces(self, statement: SubscribeStatement) -> bool:
        """Whether a statement stores another subscription in the place of one that is here."""
        return any(subscription.full_filter in self.subscriptions for subscription in statement.subscriptions)

    def has_room(self, statement: SubscribeStatement) -> bool:
        """Whether the subscriptions of a statement fit into this record."""
        size = self.subscription_bytes
        for subscription in statement.subscriptions:
            old = self.subscriptions.get(subscription.full_filter)
            if old is None:
                size += 8 + subscription.size()
            else:
                size += POSITION_BYTES * len([group for group in subscription.starts if group not in old.starts])
        return size <= SUBSCRIPTION_BYTES_MAX

    # QoS 2 of its client.

    def touch(self, statement: TouchStatement) -> bool:
        """Note partitions; False: they would be too many, and none is noted."""
        self._unpack()
        if len({*self._touched, *statement.groups}) > TOUCHED_MAX:
            return False
        if not self._touched:
            self._touched = {}
        for group in statement.groups:
            self._touched[group] = max(statement.stamp, self._touched.get(group, 0))
        return True

    def untouch(self, statement: UntouchStatement) -> None:
        """Forget partitions that were not touched since."""
        self._unpack()
        for group in statement.groups:
            if self._touched.get(group, statement.stamp + 1) <= statement.stamp:
                del self._touched[group]

    # QoS 2 to its client.

    def send(self, statement: SentStatement) -> bool:
        """Apply a change of the messages under way; False: nothing has changed."""
        sent = self._sent if self._sent is not None else SentMessages()
        if not sent.apply(statement.change):
            return False
        self._sent = sent
        for group, offset in statement.change.floors.items():
            self.advance(group, offset)
        self.pass_sent()
        return True

    def take_sent(self, sent: SentMessages) -> None:
        """The messages under way, for a checkpoint."""
        self._sent = sent if sent.count() or sent.stamp else None

    def pass_sent(self) -> None:
        """Forget messages that are done and before the positions."""
        if self._sent is not None and self._sent.done:
            self._sent.pass_over(self.positions)

    # Positions.

    def position(self, group: int, mark: MarkStatement | None) -> int:
        """The first offset of a group that may not be acknowledged; -1: not known. ``mark`` holds for this record."""
        own = self.positions.get(group, -1)
        if mark is None:
            return own
        said = mark.positions.get(group, -1)
        slow = mark.slow.get(self.client)
        if slow is not None and slow.epoch in (self.epoch, ANY_EPOCH):
            said = slow.positions.get(group, said if slow.positions else -1)
        if said > own and mark.covers < self.newest_index:
            for subscription in self.subscriptions.values():
                if subscription.index > mark.covers:
                    said = min(said, subscription.starts.get(group, said))
        return max(own, said)

    def materialize(self, mark: MarkStatement) -> None:
        """Copy the positions of a mark into the record, while the mark holds."""
        groups = set(self.positions).union(*[subscription.starts for subscription in self.subscriptions.values()])
        slow = mark.slow.get(self.client)
        if slow is not None:
            groups.update(slow.positions)
        for group in sorted(groups):  # a mark names all partitions of its node; most are not this session's
            self.advance(group, self.position(group, mark))
        self.pass_sent()

    def advance(self, group: int, offset: int) -> None:
        """Move a position forwards; never back."""
        self._unpack()
        known = self._positions.get(group, -1)
        if offset > known and (known >= 0 or len(self._positions) < POSITIONS_MAX):
            if not self._positions:
                self._positions = {}
            self._positions[group] = offset

    def drop_starts(self, covers: int) -> None:
        """Forget starts that positions have passed, of subscriptions up to the index ``covers``."""
        self._unpack()
        for subscription in self._subscriptions.values():
            if subscription.starts and subscription.index <= covers:
                starts = subscription.starts
                subscription.starts = {
                    group: offset for group, offset in starts.items() if offset > self._positions.get(group, -1)
                }
                self.subscription_bytes -= POSITION_BYTES * (len(starts) - len(subscription.starts))

    def least_starts(self) -> dict[int, int]:
        """By group, where the first captured subscription starts that says so."""
        found: dict[int, int] = {}
        for subscription in self.subscriptions.values():
            if subscription.is_captured():
                for group, start in subscription.starts.items():
                    found[group] = min(start, found.get(group, start))
        return found

    # Time.

    def deadline_ms(self) -> int:
        """Log time at which a session without a connection expires; -1: never, or it has a connection."""
        if self.is_connected or self.expiry_s == NEVER_EXPIRES:
            return -1
        return self.detached_ms + self.expiry_s * 1_000

    def has_expired(self, clock_ms: int) -> bool:
        """Whether the time of the session is over."""
        return 0 <= self.deadline_ms() <= clock_ms

    # Sizes and checkpoints.

    def cost(self) -> int:
        """About how much memory the record takes."""
        names = len(self.client) + len(self.user or b"")
        if self._packed:
            packed = len(self._packed) + _PACKED_SUBSCRIPTION_COST * self.captured
            return _RECORD_COST + names + packed + _SENT_COST * self.sent.count()
        counted = _SUBSCRIPTION_COST * len(self._subscriptions) + _POSITION_COST * (
            len(self._positions) + len(self._touched)
        )
        return _RECORD_COST + names + counted + self.subscription_bytes + _SENT_COST * self.sent.count()

    def encode(self) -> bytes:
        """The record for a checkpoint. The bytes are kept until the record changes, if encoding takes long."""
        if self._packed:
            return self._encode_head() + self._packed
        if not self.encoded:
            self.encoded = self._encode_head() + self._encode_rest()
        return self.encoded

    def _encode_head(self) -> bytes:
        flags = _CONNECTED if self.is_connected else 0
        flags |= _HAD_SESSION if self.had_session else 0
        flags |= 0 if self.user is None else _HAS_USER
        flags |= _GOES_ON if self.goes_on else 0
        fields = (self.epoch, self.nonce, self.owner, self.boot, self.expiry_s, self.version, flags)
        times = (self.detached_ms, self.claimed_index, self.before, self.former, self.began)
        return sized(self.client) + _RECORD.pack(*fields, *times) + sized(self.user or b"") + self.sent.encode()

    def _encode_rest(self) -> bytes:
        stored = self._subscriptions.values()
        parts = [encode_positions(self._positions), encode_positions(self._touched), U32.pack(len(stored))]
        parts += [U64.pack(subscription.index) + subscription.encode() for subscription in stored]
        return b"".join(parts)

    def read_rest(self, reader: Reader) -> None:
        """Read what is packed."""
        self._positions = read_positions(reader, POSITIONS_MAX) or _NO_OFFSETS
        self._touched = read_positions(reader, TOUCHED_MAX) or _NO_OFFSETS
        for _ in range(reader.count(SUBSCRIPTIONS_MAX, _STORED_BYTES_LEAST)):
            index = reader.u64()
            self.put(read_subscription(reader, RECORD_BYTES_MAX), index)


def read_record(reader: Reader) -> SessionRecord:
    """Read ``SessionRecord.encode``."""
    record = SessionRecord(reader.sized())
    fields: tuple[int, ...] = _RECORD.unpack_from(reader.data, reader.skip(_RECORD.size))
    record.epoch, record.nonce, record.owner, record.boot, record.expiry_s, record.version = fields[:6]
    flags, record.detached_ms, record.claimed_index, record.before, record.former, record.began = fields[6:]
    record.is_connected = bool(flags & _CONNECTED)
    record.had_session = bool(flags & _HAD_SESSION)
    record.goes_on = bool(flags & _GOES_ON)
    user = reader.sized()
    record.user = user if flags & _HAS_USER else None
    record.take_sent(read_sent(reader))
    record.read_rest(reader)
    return record
