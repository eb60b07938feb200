"""Statements about persistent sessions in logs; they change the table of sessions (``session_table.py``).

```
 SESSION batch   format, wall time | count | (what, length, content)...
   CLAIM        client, nonce, epoch, owner, boot, expiry, version, flags, user, will, room
                                                                                   a connection wants the client id
   SUBSCRIBE    client, epoch, subscriptions with the offsets at which they start
   UNSUBSCRIBE  client, epoch, filters
   DETACH       client, epoch, expiry, voids its will?, positions                  the connection is closed
   END          client, epoch, voids its will?                                     the session is over
   MARK         owner, boot, covers, positions, slow sessions                      how far all sessions of a node are
   ORPHAN       owner, boot, sessions                                              the node of these sessions is gone
   EXPIRE       (client, epoch)...                                                 their time is over
   ABANDON      client, nonces                                                     no connection waits for that claim
   ADVANCE      client, epoch, covers, positions                                   the session wants nothing before
   TOUCH        client, epoch, stamp, groups                                       QoS 2 goes into these partitions
   UNTOUCH      client, epoch, stamp, groups                                       it has no packet ids there
   SENT2        client, epoch, SEND2, REC2, DONE2 (``session_sent.py``)            QoS 2 on its way to the client
   FIRING       target, (client, epoch)...                                         these wills are about to be published
   FIRED        target, sequence                                                   they are published
   REVOKE       client, epoch                                                      no node may publish this will
   CHECK        (client, epoch)..., (client, epoch)...
                                        never in a log: are these sessions, and these copies, as their owner thinks?
```
Little-endian. A node skips statements of a kind that it does not know. *Positions* are group -> offset of the first
record that a session has not acknowledged.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from flockmq.durable.machine.session_counts import Room, read_room
from flockmq.durable.machine.session_sent import SentChange, read_change
from flockmq.durable.machine.session_wills import WILL_BYTES_MAX, read_will
from flockmq.errors import RemoteProtocolError
from flockmq.mqtt.topics import SHARE_PREFIX
from flockmq.peering.fields import NUMBER_MAX, U32, U64, Reader, large, malformed, sized

FORMAT: Final = 1
CLAIM: Final = 1
SUBSCRIBE: Final = 2
UNSUBSCRIBE: Final = 3
DETACH: Final = 4
END: Final = 5
MARK: Final = 6
ORPHAN: Final = 7
EXPIRE: Final = 8
ABANDON: Final = 9
CHECK: Final = 10
ADVANCE: Final = 11
FIRING: Final = 20
FIRED: Final = 21
REVOKE: Final = 22
TOUCH: Final = 30
UNTOUCH: Final = 31
SENT2: Final = 32
"""Kinds of statements."""
ANY_EPOCH: Final = 0
"""Instead of the epoch of a slow session: its owner does not know the epoch yet."""

CLEAN_START: Final = 1
"""Flag of a CLAIM: subscriptions and messages of an earlier session are dropped."""
CHECKS_USER: Final = 2
"""Flag of a CLAIM: the claim is refused if the session belongs to another user."""
SAME_EPOCH: Final = 8
"""Flag of a CLAIM: the owner reclaims a session that it has; void unless the record has exactly this epoch."""
REGISTERS: Final = 16
"""Flag of a CLAIM: the client was let in while the log could not be asked; void if it is connected to another node."""
_HAS_USER: Final = 4

NO_LOCAL: Final = 1
RETAIN_AS_PUBLISHED: Final = 2
"""Options of a subscription; bits 2 and 3 are its retain handling."""

STATEMENTS_MAX: Final = 4_096
SUBSCRIPTIONS_MAX: Final = 100_000
"""Subscriptions or filters that one statement names; those of a session are bounded by their bytes."""
POSITIONS_MAX: Final = 4_096
TOUCHED_MAX: Final = 1_024
"""Partitions into which a session may publish at QoS 2 at a time."""
NAMED_MAX: Final = 65_536
"""Sessions that one MARK, ORPHAN or EXPIRE names."""

POSITION_BYTES: Final = 16
_OPTIONS_MAX: Final = 0b1011
_HEAD: Final = struct.Struct("<Bq")
_CLAIM: Final = struct.Struct("<QQQQQIBB")
_SUBSCRIPTION: Final = struct.Struct("<BBI")
_POSITION: Final = struct.Struct("<QQ")
_LEAST_STATEMENT_BYTES: Final = 5
_LEAST_SUBSCRIPTION_BYTES: Final = 12
_LEAST_NAMED_BYTES: Final = 11


class StoredSubscription:
    """A subscription as the table keeps it; ``full_filter`` is as the client sent it, with ``$share/GROUP/`` if any."""

    def __init__(
        self, full_filter: bytes, qos: int, options: int, identifier: int, starts: dict[int, int], index: int = 0
    ) -> None:
        self.full_filter = full_filter
        self.qos = qos
        self.options = options
        self.identifier = identifier
        self.starts = starts
        """Group -> offset from which on records are for this subscription; gone once the session has passed it."""
        self.index = index
        """Entry that stored this subscription; statements do not carry it."""

    def is_captured(self) -> bool:
        """Whether publishers must store matching messages: QoS 1 or 2, and not shared."""
        return self.qos > 0 and not self.full_filter.startswith(SHARE_PREFIX)

    def size(self) -> int:
        """Bytes of ``encode``."""
        return _LEAST_SUBSCRIPTION_BYTES + len(self.full_filter) + POSITION_BYTES * len(self.starts)

    def encode(self) -> bytes:
        """For statements and checkpoints."""
        fields = _SUBSCRIPTION.pack(self.qos, self.options, self.identifier)
        return sized(self.full_filter) + fields + encode_positions(self.starts)


class SessionStatement:
    """One statement of a SESSION batch: ``what`` is its kind."""

    def __init__(self, what: int) -> None:
        self.what = what

    def content(self) -> bytes:
        """The content, after kind and length."""
        raise NotImplementedError

    def encode(self) -> bytes:
        """Kind, length and content."""
        return bytes((self.what,)) + large(self.content())


class ClaimStatement(SessionStatement):
    """A connection on node ``owner`` wants the session of a client; ``nonce`` is unique per attempt."""

    def __init__(
        self,
        client: bytes,
        nonce: int,
        epoch: int,
        owner: int,
        boot: int,
        user: bytes | None,
        expiry_s: int,
        version: int,
        flags: int,
        will: bytes = b"",
    ) -> None:
        super().__init__(CLAIM)
        self.client = client
        self.nonce = nonce
        self.epoch = epoch
        """The least epoch that the claim may get."""
        self.owner = owner
        self.boot = boot
        self.user = user
        self.expiry_s = expiry_s
        self.version = version
        self.flags = flags
        self.will = will
        """A ``StoredWill``; empty: the client left none."""
        self.seen = NUMBER_MAX
        """The index of this log that the owner knew when the client connected: a later claim is not undone."""
        self.room = Room()
        """Set by the leader that appends the claim."""

    def content(self) -> bytes:
        """The content, after kind and length."""
        flags = self.flags | (0 if self.user is None else _HAS_USER)
        fields = (self.nonce, self.epoch, self.owner, self.boot, self.seen, self.expiry_s, self.version, flags)
        return (
            sized(self.client) + _CLAIM.pack(*fields) + sized(self.user or b"") + large(self.will) + self.room.encode()
        )


class SubscribeStatement(SessionStatement):
    """A session gets subscriptions, or others in the place of those with the same filter."""

    def __init__(self, client: bytes, epoch: int, subscriptions: list[StoredSubscription]) -> None:
        super().__init__(SUBSCRIBE)
        self.client = client
        self.epoch = epoch
        self.subscriptions = subscriptions

    def content(self) -> bytes:
        """The content, after kind and length."""
        stored = b"".join([subscription.encode() for subscription in self.subscriptions])
        return encode_named(self.client, self.epoch) + U32.pack(len(self.subscriptions)) + stored


class UnsubscribeStatement(SessionStatement):
    """A session loses the subscriptions with these full filters."""

    def __init__(self, client: bytes, epoch: int, full_filters: list[bytes]) -> None:
        super().__init__(UNSUBSCRIBE)
        self.client = client
        self.epoch = epoch
        self.full_filters = full_filters

    def content(self) -> bytes:
        """The content, after kind and length."""
        filters = b"".join([sized(full_filter) for full_filter in self.full_filters])
        return encode_named(self.client, self.epoch) + U32.pack(len(self.full_filters)) + filters


class DetachStatement(SessionStatement):
    """The connection of a session is closed; ``positions`` are exact. ``voids_will``: the client took its leave."""

    def __init__(
        self, client: bytes, epoch: int, expiry_s: int, positions: dict[int, int], voids_will: bool = False
    ) -> None:
        super().__init__(DETACH)
        self.client = client
        self.epoch = epoch
        self.expiry_s = expiry_s
        self.positions = positions
        self.voids_will = voids_will

    def content(self) -> bytes:
        """The content, after kind and length."""
        head = encode_named(self.client, self.epoch) + U32.pack(self.expiry_s) + bytes((self.voids_will,))
        return head + encode_positions(self.positions)


class EndStatement(SessionStatement):
    """A session is over, whatever its expiry. ``voids_will``: the client took its leave."""

    def __init__(self, client: bytes, epoch: int, voids_will: bool = False) -> None:
        super().__init__(END)
        self.client = client
        self.epoch = epoch
        self.voids_will = voids_will

    def content(self) -> bytes:
        """The content, after kind and length."""
        return encode_named(self.client, self.epoch) + bytes((self.voids_will,))


class SlowSession:
    """A session that a MARK lists because it is behind the others of its node."""

    def __init__(self, epoch: int, positions: dict[int, int]) -> None:
        self.epoch = epoch
        self.positions = positions


class MarkStatement(SessionStatement):
    """All sessions of a node have acknowledged what is before ``positions``, except those in ``slow``.

    ``covers`` is the index of this log up to which the node has applied claims and subscriptions: the mark does not
    hold for later ones. A node lists a closed session as slow until its DETACH is applied.
    """

    def __init__(
        self, owner: int, boot: int, covers: int, positions: dict[int, int], slow: dict[bytes, SlowSession]
    ) -> None:
        super().__init__(MARK)
        self.owner = owner
        self.boot = boot
        self.covers = covers
        self.positions = positions
        self.slow = slow

    def content(self) -> bytes:
        """The content, after kind and length."""
        parts = [U64.pack(self.owner), U64.pack(self.boot), U64.pack(self.covers)]
        parts.append(encode_positions(self.positions))
        parts.append(U32.pack(len(self.slow)))
        for client, session in self.slow.items():
            parts.append(encode_named(client, session.epoch))
            parts.append(encode_positions(session.positions))
        return b"".join(parts)


class OrphanStatement(SessionStatement):
    """Sessions of ``owner`` with a boot before ``boot`` have lost their node; boot 0: whatever their boot is.

    A node may have too many sessions for one turn of its replicas: a statement names some of them, or means all.
    """

    def __init__(self, owner: int, boot: int, sessions: list[tuple[bytes, int]] | None = None) -> None:
        super().__init__(ORPHAN)
        self.owner = owner
        self.boot = boot
        self.sessions = sessions
        """(client, epoch); None: all of them."""

    def content(self) -> bytes:
        """What follows kind and length."""
        head = U64.pack(self.owner) + U64.pack(self.boot) + bytes((self.sessions is not None,))
        if self.sessions is None:
            return head
        return head + U32.pack(len(self.sessions)) + b"".join([encode_named(*named) for named in self.sessions])


class ExpireStatement(SessionStatement):
    """The time of these sessions (client, epoch) seems to be over."""

    def __init__(self, sessions: list[tuple[bytes, int]]) -> None:
        super().__init__(EXPIRE)
        self.sessions = sessions

    def content(self) -> bytes:
        """The content, after kind and length."""
        named = b"".join([encode_named(client, epoch) for client, epoch in self.sessions])
        return U32.pack(len(self.sessions)) + named


class AbandonStatement(SessionStatement):
    """The connections that made these claims are gone: if a claim was granted later, its session is away."""

    def __init__(self, client: bytes, nonces: list[int]) -> None:
        super().__init__(ABANDON)
        self.client = client
        self.nonces = nonces

    def content(self) -> bytes:
        """The content, after kind and length."""
        return sized(self.client) + U32.pack(len(self.nonces)) + b"".join([U64.pack(nonce) for nonce in self.nonces])


class AdvanceStatement(SessionStatement):
    """No record before ``positions`` is for a session that is away, with its subscriptions up to index ``covers``."""

    def __init__(self, client: bytes, epoch: int, covers: int, positions: dict[int, int]) -> None:
        super().__init__(ADVANCE)
        self.client = client
        self.epoch = epoch
        self.covers = covers
        self.positions = positions

    def content(self) -> bytes:
        """The content, after kind and length."""
        return encode_named(self.client, self.epoch) + U64.pack(self.covers) + encode_positions(self.positions)


class TouchStatement(SessionStatement):
    """A session is about to publish at QoS 2 into these partitions; ``stamp`` grows with each of its owner."""

    def __init__(self, client: bytes, epoch: int, stamp: int, groups: list[int]) -> None:
        super().__init__(TOUCH)
        self.client = client
        self.epoch = epoch
        self.stamp = stamp
        self.groups = groups

    def content(self) -> bytes:
        """The content, after kind and length."""
        return encode_named(self.client, self.epoch) + U64.pack(self.stamp) + encode_groups(self.groups)


class UntouchStatement(SessionStatement):
    """No packet id of a session is in these partitions, unless it touched them with a later stamp."""

    def __init__(self, client: bytes, epoch: int, stamp: int, groups: list[int]) -> None:
        super().__init__(UNTOUCH)
        self.client = client
        self.epoch = epoch
        self.stamp = stamp
        self.groups = groups

    def content(self) -> bytes:
        """The content, after kind and length."""
        return encode_named(self.client, self.epoch) + U64.pack(self.stamp) + encode_groups(self.groups)


class SentStatement(SessionStatement):
    """Changes of the QoS 2 messages under way to the client of a session."""

    def __init__(self, client: bytes, epoch: int, change: SentChange) -> None:
        super().__init__(SENT2)
        self.client = client
        self.epoch = epoch
        self.change = change

    def content(self) -> bytes:
        """The content, after kind and length."""
        return encode_named(self.client, self.epoch) + self.change.encode()


class FiringStatement(SessionStatement):
    """The leader of the shard is about to publish these wills (client, epoch) into one log, or past all logs."""

    def __init__(self, target: int, wills: list[tuple[bytes, int]]) -> None:
        super().__init__(FIRING)
        self.target = target
        self.wills = wills

    def content(self) -> bytes:
        """The content, after kind and length."""
        named = b"".join([encode_named(client, epoch) for client, epoch in self.wills])
        return U64.pack(self.target) + U32.pack(len(self.wills)) + named


class FiredStatement(SessionStatement):
    """The wills that the entry ``sequence`` took for a target are published."""

    def __init__(self, target: int, sequence: int) -> None:
        super().__init__(FIRED)
        self.target = target
        self.sequence = sequence

    def content(self) -> bytes:
        """The content, after kind and length."""
        return U64.pack(self.target) + U64.pack(self.sequence)


class RevokeStatement(SessionStatement):
    """The client may not publish its will any more, or its node has published the will."""

    def __init__(self, client: bytes, epoch: int) -> None:
        super().__init__(REVOKE)
        self.client = client
        self.epoch = epoch

    def content(self) -> bytes:
        """The content, after kind and length."""
        return encode_named(self.client, self.epoch)


class CheckStatement(SessionStatement):
    """A node asks which of its sessions (client, epoch) differ in the table.

    ``sessions`` are those with a connection; those in ``away`` have none, and the node keeps a copy.
    """

    def __init__(self, sessions: list[tuple[bytes, int]], away: list[tuple[bytes, int]]) -> None:
        super().__init__(CHECK)
        self.sessions = sessions
        self.away = away

    def content(self) -> bytes:
        """The content, after kind and length."""
        return _encode_all_named(self.sessions) + _encode_all_named(self.away)


# Parts of statements.


def encode_named(client: bytes, epoch: int) -> bytes:
    """Which session a statement is about."""
    return sized(client) + U64.pack(epoch)


def _encode_all_named(sessions: list[tuple[bytes, int]]) -> bytes:
    return U32.pack(len(sessions)) + b"".join([encode_named(client, epoch) for client, epoch in sessions])


def _read_all_named(reader: Reader) -> list[tuple[bytes, int]]:
    return [read_named(reader) for _ in range(reader.count(NAMED_MAX, _LEAST_NAMED_BYTES))]


def read_named(reader: Reader) -> tuple[bytes, int]:
    """Read ``encode_named``."""
    client = _read_name(reader)
    return client, reader.number()


def encode_groups(groups: list[int]) -> bytes:
    """Partitions."""
    return U32.pack(len(groups)) + b"".join([U64.pack(group) for group in groups])


def read_groups(reader: Reader) -> list[int]:
    """Read ``encode_groups``."""
    return [reader.u64() for _ in range(reader.count(TOUCHED_MAX, 8))]


def encode_positions(positions: dict[int, int]) -> bytes:
    """Group -> offset."""
    parts = [U32.pack(len(positions))]
    for group, offset in positions.items():
        parts.append(_POSITION.pack(group, offset))
    return b"".join(parts)


def read_positions(reader: Reader, most: int) -> dict[int, int]:
    """Read ``encode_positions``."""
    positions: dict[int, int] = {}
    for _ in range(reader.count(most, POSITION_BYTES)):
        group = reader.u64()
        positions[group] = reader.number()
    return positions


def read_subscription(reader: Reader, starts_max: int) -> StoredSubscription:
    """Read ``StoredSubscription.encode``."""
    full_filter = _read_name(reader)
    qos, options, identifier = _SUBSCRIPTION.unpack_from(reader.data, reader.skip(_SUBSCRIPTION.size))
    if qos > 2 or options > _OPTIONS_MAX:
        raise malformed("a subscription with options that MQTT does not have")
    return StoredSubscription(full_filter, qos, options, identifier, read_positions(reader, starts_max))


def _read_name(reader: Reader) -> bytes:
    name = reader.sized()
    if not name:
        raise malformed("a session or a subscription without a name")
    return name


# Whole statements.


def _read_claim(reader: Reader) -> SessionStatement:
    client = _read_name(reader)
    at = reader.skip(_CLAIM.size)
    nonce, epoch, owner, boot, seen, expiry_s, version, flags = _CLAIM.unpack_from(reader.data, at)
    user = reader.sized()
    will = reader.large(2 * WILL_BYTES_MAX)
    if will:
        read_will(will)
    if epoch > NUMBER_MAX or seen > NUMBER_MAX or version not in (4, 5):
        raise malformed("a claim with an impossible epoch, index or version")
    known = flags & (CLEAN_START | CHECKS_USER | SAME_EPOCH | REGISTERS)
    claim = ClaimStatement(
        client, nonce, epoch, owner, boot, user if flags & _HAS_USER else None, expiry_s, version, known, will
    )
    claim.seen = seen
    claim.room = read_room(reader)
    return claim


def _read_subscribe(reader: Reader) -> SessionStatement:
    client, epoch = read_named(reader)
    count = reader.count(SUBSCRIPTIONS_MAX, _LEAST_SUBSCRIPTION_BYTES)
    return SubscribeStatement(client, epoch, [read_subscription(reader, POSITIONS_MAX) for _ in range(count)])


def _read_unsubscribe(reader: Reader) -> SessionStatement:
    client, epoch = read_named(reader)
    count = reader.count(SUBSCRIPTIONS_MAX, 3)
    return UnsubscribeStatement(client, epoch, [_read_name(reader) for _ in range(count)])


def _read_detach(reader: Reader) -> SessionStatement:
    client, epoch = read_named(reader)
    expiry_s = reader.u32()
    voids_will = reader.u8() != 0
    return DetachStatement(client, epoch, expiry_s, read_positions(reader, POSITIONS_MAX), voids_will)


def _read_end(reader: Reader) -> SessionStatement:
    client, epoch = read_named(reader)
    return EndStatement(client, epoch, reader.u8() != 0)


def read_mark(reader: Reader) -> MarkStatement:
    """Read the content of a MARK."""
    owner = reader.u64()
    boot = reader.u64()
    covers = reader.number()
    positions = read_positions(reader, POSITIONS_MAX)
    slow: dict[bytes, SlowSession] = {}
    for _ in range(reader.count(NAMED_MAX, _LEAST_NAMED_BYTES + 4)):
        client, epoch = read_named(reader)
        slow[client] = SlowSession(epoch, read_positions(reader, POSITIONS_MAX))
    return MarkStatement(owner, boot, covers, positions, slow)


def _read_orphan(reader: Reader) -> SessionStatement:
    owner = reader.u64()
    boot = reader.u64()
    if not reader.u8():
        return OrphanStatement(owner, boot)
    count = reader.count(NAMED_MAX, _LEAST_NAMED_BYTES)
    return OrphanStatement(owner, boot, [read_named(reader) for _ in range(count)])


def _read_expire(reader: Reader) -> SessionStatement:
    count = reader.count(NAMED_MAX, _LEAST_NAMED_BYTES)
    return ExpireStatement([read_named(reader) for _ in range(count)])


def _read_abandon(reader: Reader) -> SessionStatement:
    client = _read_name(reader)
    return AbandonStatement(client, [reader.u64() for _ in range(reader.count(NAMED_MAX, 8))])


def _read_advance(reader: Reader) -> SessionStatement:
    client, epoch = read_named(reader)
    covers = reader.number()
    return AdvanceStatement(client, epoch, covers, read_positions(reader, POSITIONS_MAX))


def _read_touch(reader: Reader) -> SessionStatement:
    client, epoch = read_named(reader)
    stamp = reader.number()
    return TouchStatement(client, epoch, stamp, read_groups(reader))


def _read_untouch(reader: Reader) -> SessionStatement:
    client, epoch = read_named(reader)
    stamp = reader.number()
    return UntouchStatement(client, epoch, stamp, read_groups(reader))


def _read_sent(reader: Reader) -> SessionStatement:
    client, epoch = read_named(reader)
    return SentStatement(client, epoch, read_change(reader))


def _read_firing(reader: Reader) -> SessionStatement:
    target = reader.u64()
    count = reader.count(NAMED_MAX, _LEAST_NAMED_BYTES)
    return FiringStatement(target, [read_named(reader) for _ in range(count)])


def _read_fired(reader: Reader) -> SessionStatement:
    target = reader.u64()
    return FiredStatement(target, reader.number())


def _read_revoke(reader: Reader) -> SessionStatement:
    client, epoch = read_named(reader)
    return RevokeStatement(client, epoch)


def _read_check(reader: Reader) -> SessionStatement:
    sessions = _read_all_named(reader)
    return CheckStatement(sessions, _read_all_named(reader))


_READERS: Final[dict[int, Callable[[Reader], SessionStatement]]] = {
    CLAIM: _read_claim,
    SUBSCRIBE: _read_subscribe,
    UNSUBSCRIBE: _read_unsubscribe,
    DETACH: _read_detach,
    END: _read_end,
    MARK: read_mark,
    ORPHAN: _read_orphan,
    EXPIRE: _read_expire,
    ABANDON: _read_abandon,
    CHECK: _read_check,
    ADVANCE: _read_advance,
    TOUCH: _read_touch,
    UNTOUCH: _read_untouch,
    SENT2: _read_sent,
    FIRING: _read_firing,
    FIRED: _read_fired,
    REVOKE: _read_revoke,
}


def encode_statements(statements: list[SessionStatement]) -> bytes:
    """Statements, for a control batch or for a leader."""
    return U32.pack(len(statements)) + b"".join([statement.encode() for statement in statements])


def read_statements(reader: Reader) -> list[SessionStatement]:
    """Read ``encode_statements``; RemoteProtocolError when it is not that. Statements of unknown kinds are skipped."""
    statements: list[SessionStatement] = []
    for _ in range(reader.count(STATEMENTS_MAX, _LEAST_STATEMENT_BYTES)):
        read = _READERS.get(reader.u8())
        content = Reader(reader.large(reader.end))
        if read is not None:
            statements.append(read(content))
            content.finish()
    return statements


def session_body(wall_ms: int, statements: list[SessionStatement]) -> bytes:
    """The body of a SESSION batch."""
    return _HEAD.pack(FORMAT, wall_ms) + encode_statements(statements)


def wall_ms_of(body: bytes) -> int:
    """The leader's wall time when it made this SESSION batch; 0 when this version can't read the batch."""
    if len(body) < _HEAD.size or body[0] != FORMAT:
        return 0
    wall_ms: int = _HEAD.unpack_from(body)[1]
    return max(wall_ms, 0)


def read_session_body(body: bytes) -> list[SessionStatement] | None:
    """The statements of a SESSION batch; None when this version can't read a statement that it must apply."""
    reader = Reader(body)
    try:
        at = reader.skip(_HEAD.size)
        if body[at] != FORMAT:
            return None
        statements = read_statements(reader)
        reader.finish()
    except RemoteProtocolError:
        return None
    return statements
