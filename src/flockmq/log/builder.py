"""Builds batches: records go in one by one, a column after a column comes out.

```
 add(topic, client, ...) --> a list per column, names once each, --> build() --> header | note | dictionaries | columns
                             rare columns by position only
```
"""

from __future__ import annotations

import struct
from typing import Final

from flockmq.log.checksum import crc32c
from flockmq.log.columns import EXPIRES_AT, KEY, PACKET_ID, PROPERTIES, SESSION_EPOCH, USER
from flockmq.log.header import (
    BATCH_BYTES_MAX,
    COVERED,
    DATA,
    HEADER_BYTES,
    VERSION,
    ZSTD,
    BatchError,
    padding,
    seal,
)

UserProperty = tuple[bytes, bytes]
_RECORD_BYTES: Final = 17
"""What a record without rare columns takes besides its payload: topic, client, timestamp, flags, payload offset."""
_DELTA_MAX: Final = (1 << 31) - 1
_ZSTD_LEVEL: Final = 3


class BatchBuilder:
    """Collects records. ``count`` and ``size`` (bytes, roughly, before compression) tell when to build."""

    def __init__(self) -> None:
        self.count = 0
        self.size = HEADER_BYTES
        self._base = 0
        self._latest = 0
        self._topics: dict[bytes, int] = {}
        self._clients: dict[bytes, int] = {}
        self._topic: list[int] = []
        self._client: list[int] = []
        self._delta: list[int] = []
        self._flags = bytearray()
        self._payloads: list[bytes] = []
        self._ends: list[int] = [0]
        self._end = 0
        self._keys: dict[int, bytes] = {}
        self._packet_ids: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        self._expiries: dict[int, int] = {}
        self._properties: dict[int, bytes] = {}
        self._users: dict[int, list[UserProperty]] = {}

    def add(
        self,
        topic: bytes,
        client: bytes,
        timestamp_ms: int,
        flags: int,
        payload: bytes,
        key: bytes | None = None,
        packet_id: int = 0,
        session_epoch: int = 0,
        expires_at: int = 0,
        properties: bytes = b"",
        user: list[UserProperty] | None = None,
    ) -> None:
        """Append one record. Its offset will be the batch's base offset plus how many were added before it."""
        position = self.count
        if position == 0:
            self._base = timestamp_ms
            self._latest = timestamp_ms
        delta = timestamp_ms - self._base
        if delta > _DELTA_MAX or delta < -_DELTA_MAX:
            raise BatchError("Records of one batch must lie within 24 days; build this batch and start another.")
        latest = self._latest
        if timestamp_ms > latest:
            self._latest = timestamp_ms
        topic_index = self._topics.get(topic, -1)
        if topic_index < 0:
            topic_index = self._name(self._topics, topic)
        client_index = self._clients.get(client, -1)
        if client_index < 0:
            client_index = self._name(self._clients, client)
        end = self._end + len(payload)
        self.count = position + 1
        self.size += _RECORD_BYTES + len(payload)
        self._topic.append(topic_index)
        self._client.append(client_index)
        self._delta.append(delta)
        self._flags.append(flags)
        self._payloads.append(payload)
        self._ends.append(end)
        self._end = end
        if key is not None or packet_id or session_epoch or expires_at or properties or user:
            self._add_rare(position, key, packet_id, session_epoch, expires_at, properties, user)

    def _name(self, names: dict[bytes, int], name: bytes) -> int:
        index = len(names)
        names[name] = index
        self.size += 4 + len(name)
        return index

    def _add_rare(
        self,
        position: int,
        key: bytes | None,
        packet_id: int,
        session_epoch: int,
        expires_at: int,
        properties: bytes,
        user: list[UserProperty] | None,
    ) -> None:
        self.size += 32
        if key is not None:
            self._keys[position] = key
            self.size += len(key)
        if packet_id:
            self._packet_ids[position] = packet_id
        if session_epoch:
            self._epochs[position] = session_epoch
        if expires_at:
            self._expiries[position] = expires_at
        if properties:
            self._properties[position] = properties
            self.size += len(properties)
        if user:
            self._users[position] = user
            for name, value in user:
                self.size += 8 + len(name) + len(value)

    def build(self, compress: bool = False, note: bytes = b"") -> bytes:
        """The batch, not stamped yet. ``note`` is kept beside the records, for whoever forwards or appends them."""
        if self.count == 0:
            raise BatchError("A batch needs at least one record; control batches are made with control_batch().")
        parts: list[bytes] = []
        mask = self._columns(parts)
        columns = b"".join(parts)
        stored = columns
        flags = 0
        if compress:
            packed = _compress(columns)
            if len(packed) < len(columns):
                stored = packed
                flags = ZSTD
        front: list[bytes] = [note, padding(len(note))]
        _put_binary(front, list(self._topics))
        _put_binary(front, list(self._clients))
        head = b"".join(front)
        body = head + stored + padding(len(stored))
        size = HEADER_BYTES + len(body)
        if size > BATCH_BYTES_MAX or len(columns) > BATCH_BYTES_MAX:
            raise BatchError(
                f"A batch may have {BATCH_BYTES_MAX:,} bytes; this one would have {size:,}. Build earlier."
            )
        dictionaries = len(head) - len(note) - len(padding(len(note)))
        covered = COVERED.pack(
            *(VERSION, flags, DATA, 0, crc32c(body), size, len(note), dictionaries, len(columns)),
            *(0, 0, 0, self._base, self._latest),
            *(self.count, mask, len(self._topics), len(self._clients), len(stored), 0),
        )
        return seal(covered) + body

    def _columns(self, parts: list[bytes]) -> int:
        """Put all columns into ``parts``; which of the rare ones are among them."""
        count = self.count
        _put_int32(parts, self._topic)
        _put_int32(parts, self._client)
        _put_int32(parts, self._delta)
        _put(parts, bytes(self._flags))
        _put_int32(parts, self._ends)
        _put(parts, b"".join(self._payloads))
        mask = 0
        if self._keys:
            mask |= KEY
            _put(parts, _bitmap(self._keys, count))
            _put_binary(parts, _spread(self._keys, count))
        if self._packet_ids:
            mask |= PACKET_ID
            _put(parts, struct.pack(f"<{count}H", *_spread_int(self._packet_ids, count)))
        if self._epochs:
            mask |= SESSION_EPOCH
            _put(parts, struct.pack(f"<{count}Q", *_spread_int(self._epochs, count)))
        if self._expiries:
            mask |= EXPIRES_AT
            _put(parts, struct.pack(f"<{count}q", *_spread_int(self._expiries, count)))
        if self._properties:
            mask |= PROPERTIES
            _put_binary(parts, _spread(self._properties, count))
        if self._users:
            mask |= USER
            self._put_users(parts)
        return mask

    def _put_users(self, parts: list[bytes]) -> None:
        ends = [0]
        names: list[bytes] = []
        values: list[bytes] = []
        for position in range(self.count):
            for name, value in self._users.get(position, ()):
                names.append(name)
                values.append(value)
            ends.append(len(names))
        _put_int32(parts, ends)
        _put_binary(parts, names)
        _put_binary(parts, values)


def _put(parts: list[bytes], data: bytes) -> None:
    parts.append(data)
    parts.append(padding(len(data)))


def _put_int32(parts: list[bytes], values: list[int]) -> None:
    _put(parts, struct.pack(f"<{len(values)}i", *values))


def _put_binary(parts: list[bytes], values: list[bytes]) -> None:
    """Offsets, then bytes: Arrow's binary layout."""
    end = 0
    ends = [0]
    for value in values:
        end += len(value)
        ends.append(end)
    _put_int32(parts, ends)
    _put(parts, b"".join(values))


def _spread(sparse: dict[int, bytes], count: int) -> list[bytes]:
    return [sparse.get(position, b"") for position in range(count)]


def _spread_int(sparse: dict[int, int], count: int) -> list[int]:
    return [sparse.get(position, 0) for position in range(count)]


def _bitmap(sparse: dict[int, bytes], count: int) -> bytes:
    """One bit per record, least significant first: set where there is a value."""
    bits = bytearray((count + 7) >> 3)
    for position in sparse:
        bits[position >> 3] |= 1 << (position & 7)
    return bytes(bits)


def _compress(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(data)
