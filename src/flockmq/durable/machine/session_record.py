"""One persistent session as a table keeps it, and how far the session certainly is.

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
"""

from __future__ import annotations

import struct
from typing import Final

from flockmq.durable.machine.session_bodies import (
    ANY_EPOCH,
    POSITION_BYTES,
    POSITIONS_MAX,
    SUBSCRIPTIONS_MAX,
    TOUCHED_MAX,
    ClaimStatement,
    MarkStatement,
    StoredSubscription,
    SubscribeStatement,
    TouchStatement,
    UntouchStatement,
    encode_positions,
    read_positions,
    read_subscription,
)
from flockmq.peering.fields import U32, U64, Reader, sized

NEVER_EXPIRES: Final = 0xFFFFFFFF
RECORD_BYTES_MAX: Final = 1 << 20
"""Encoded."""
SUBSCRIPTION_BYTES_MAX: Final = RECORD_BYTES_MAX - (256 << 10)
"""All subscriptions of a session; the rest is for client, user and positions, whatever these become."""

_CONNECTED: Final = 1
_HAD_SESSION: Final = 2
_HAS_USER: Final = 4
_RECORD: Final = struct.Struct("<QQQQIBBQQQQ")
RECORD_BYTES_LEAST: Final = _RECORD.size + 16
_STORED_BYTES_LEAST: Final = 20
_RECORD_COST: Final = 1_000
_SUBSCRIPTION_COST: Final = 500
_POSITION_COST: Final = 100
"""About what Python takes for each, beside the bytes in it."""


class SessionRecord:
    """See the module. Without ``is_connected`` no connection has the session."""

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
        """The epoch before that CLAIM: a node that has the session under it has all of it. 0: there was no session."""
        self.began = 0
        """The epoch of the claim that began this session: QoS 2 packet ids of older epochs are void."""
        self.claimed_index = 0
        """Entry of the last CLAIM that was granted."""
        self.had_session = False
        """"Session present": whether a session was there, and kept, when that CLAIM was applied."""
        self.subscriptions: dict[bytes, StoredSubscription] = {}
        """By full filter."""
        self.positions: dict[int, int] = {}
        self.touched: dict[int, int] = {}
        """Partitions that may hold QoS 2 packet ids which its client has not released, each with the stamp of its last
        TOUCH; 0: an earlier owner touched it."""
        # Made of the above:
        self.subscription_bytes = 0
        self.captured = 0
        """How many of its subscriptions are in the set of filters."""
        self.newest_index = 0
        """No subscription has a higher index."""
        self.cost_bytes = 0
        self.encoded = b""
        """What ``encode`` gave last; empty when the record has changed since."""

    def take(self, claim: ClaimStatement, epoch: int, index: int, had_session: bool) -> None:
        """A claim is granted."""
        self.before = self.epoch if had_session else 0
        self.epoch = epoch
        if not had_session:
            self.began = epoch
        self.touched = dict.fromkeys(self.touched, 0)
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

    # Subscriptions.

    def put(self, subscription: StoredSubscription, index: int) -> StoredSubscription | None:
        """Store a subscription; the one that it replaces, whose starts stay where they are older: nothing is missed."""
        old = self.subscriptions.get(subscription.full_filter)
        if old is not None:
            self._count(old, -1)
            starts = dict(old.starts)
            for group, offset in subscription.starts.items():
                starts[group] = min(offset, starts.get(group, offset))
            subscription.starts = starts
        subscription.index = index
        self.newest_index = max(self.newest_index, index)
        self.subscriptions[subscription.full_filter] = subscription
        self._count(subscription, 1)
        return old

    def discard(self, full_filter: bytes) -> StoredSubscription | None:
        """Remove a subscription; None when there is none."""
        old = self.subscriptions.pop(full_filter, None)
        if old is not None:
            self._count(old, -1)
        return old

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
        if len({*self.touched, *statement.groups}) > TOUCHED_MAX:
            return False
        for group in statement.groups:
            self.touched[group] = max(statement.stamp, self.touched.get(group, 0))
        return True

    def untouch(self, statement: UntouchStatement) -> None:
        """Forget partitions that were not touched since."""
        for group in statement.groups:
            if self.touched.get(group, statement.stamp + 1) <= statement.stamp:
                del self.touched[group]

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
        """Take what a mark says into the own positions, while the mark holds."""
        groups = set(self.positions).union(*[subscription.starts for subscription in self.subscriptions.values()])
        slow = mark.slow.get(self.client)
        if slow is not None:
            groups.update(slow.positions)
        for group in sorted(groups):  # a mark names all partitions of its node; most are not this session's
            self.advance(group, self.position(group, mark))

    def advance(self, group: int, offset: int) -> None:
        """Move a position forwards; never back."""
        known = self.positions.get(group, -1)
        if offset > known and (known >= 0 or len(self.positions) < POSITIONS_MAX):
            self.positions[group] = offset

    def drop_starts(self, covers: int) -> None:
        """Forget starts that positions have passed, of subscriptions up to the index ``covers``."""
        for subscription in self.subscriptions.values():
            if subscription.starts and subscription.index <= covers:
                starts = subscription.starts
                subscription.starts = {
                    group: offset for group, offset in starts.items() if offset > self.positions.get(group, -1)
                }
                self.subscription_bytes -= POSITION_BYTES * (len(starts) - len(subscription.starts))

    def least_start(self, group: int) -> int:
        """Where the first captured subscription starts in a group; -1: none says so."""
        starts = [
            subscription.starts[group]
            for subscription in self.subscriptions.values()
            if group in subscription.starts and subscription.is_captured()
        ]
        return min(starts) if starts else -1

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
        counted = _SUBSCRIPTION_COST * len(self.subscriptions) + _POSITION_COST * (
            len(self.positions) + len(self.touched)
        )
        return _RECORD_COST + names + counted + self.subscription_bytes

    def encode(self) -> bytes:
        """For a checkpoint; kept until the record changes."""
        if not self.encoded:
            self.encoded = self._encode()
        return self.encoded

    def _encode(self) -> bytes:
        flags = _CONNECTED if self.is_connected else 0
        flags |= _HAD_SESSION if self.had_session else 0
        flags |= 0 if self.user is None else _HAS_USER
        fields = (self.epoch, self.nonce, self.owner, self.boot, self.expiry_s, self.version, flags)
        parts = [
            sized(self.client),
            _RECORD.pack(*fields, self.detached_ms, self.claimed_index, self.before, self.began),
        ]
        parts += [sized(self.user or b""), encode_positions(self.positions), encode_positions(self.touched)]
        parts.append(U32.pack(len(self.subscriptions)))
        for subscription in self.subscriptions.values():
            parts.append(U64.pack(subscription.index) + subscription.encode())
        return b"".join(parts)


def read_record(reader: Reader) -> SessionRecord:
    """Read ``SessionRecord.encode``."""
    record = SessionRecord(reader.sized())
    fields: tuple[int, ...] = _RECORD.unpack_from(reader.data, reader.skip(_RECORD.size))
    record.epoch, record.nonce, record.owner, record.boot, record.expiry_s, record.version = fields[:6]
    flags, record.detached_ms, record.claimed_index, record.before, record.began = fields[6:]
    record.is_connected = bool(flags & _CONNECTED)
    record.had_session = bool(flags & _HAD_SESSION)
    user = reader.sized()
    record.user = user if flags & _HAS_USER else None
    record.positions = read_positions(reader, POSITIONS_MAX)
    record.touched = read_positions(reader, TOUCHED_MAX)
    for _ in range(reader.count(SUBSCRIPTIONS_MAX, _STORED_BYTES_LEAST)):
        index = reader.u64()
        record.put(read_subscription(reader, RECORD_BYTES_MAX), index)
    return record
