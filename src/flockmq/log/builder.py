"""Builds batches: records go in one by one or in runs, a column after a column comes out.

```
 add(topic, client, ...) --> a list per column, names once each, --> build() --> header | note | dictionaries | columns
                             rare columns by position only
```
"""

from __future__ import annotations

from typing import Final

from flockmq.log.checksum import crc32c
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
from flockmq.log.layout import RareColumns, UserProperty, put, put_binary, put_int32

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
        self._varied = False
        """Not all records have the same time."""
        self._flags = bytearray()
        self._payloads: list[bytes] = []
        self._ends: list[int] = [0]
        self._end = 0
        self._rare: RareColumns | None = None

    def add(
        self,
        topic: bytes,
        client: bytes,
        timestamp_ms: int,
        flags: int,
        payload: bytes,
    ) -> None:
        """Append one record. Its offset will be the batch's base offset plus how many were added before it."""
        position = self.count
        if position == 0:
            self._base = timestamp_ms
            self._latest = timestamp_ms
        delta = timestamp_ms - self._base
        if delta > _DELTA_MAX or delta < -_DELTA_MAX:
            raise BatchError("Records of one batch must lie within 24 days; build this batch and start another.")
        if delta:
            self._varied = True
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

    def mark(
        self,
        key: bytes | None = None,
        packet_id: int = 0,
        session_epoch: int = 0,
        expires_at: int = 0,
        properties: bytes = b"",
        user: list[UserProperty] | None = None,
    ) -> None:
        """Give the record that was added last what most records do not have."""
        if key is not None or packet_id or session_epoch or expires_at or properties or user:
            if self._rare is None:
                self._rare = RareColumns()
            position = self.count - 1
            self.size += self._rare.add(position, key, packet_id, session_epoch, expires_at, properties, user or [])

    def _name(self, names: dict[bytes, int], name: bytes) -> int:
        index = len(names)
        names[name] = index
        self.size += 4 + len(name)
        return index

    def add_run(self, topic: bytes, client: bytes, timestamp_ms: int, flags: int, payloads: list[bytes]) -> None:
        """Append records that differ in nothing but their payloads."""
        if not payloads:
            return
        self.add(topic, client, timestamp_ms, flags, payloads[0])
        more = len(payloads) - 1
        if not more:
            return
        self._topic.extend([self._topic[-1]] * more)
        self._client.extend([self._client[-1]] * more)
        self._delta.extend([self._delta[-1]] * more)
        self._flags.extend(bytes((flags,)) * more)
        rest = payloads[1:]
        self._payloads.extend(rest)
        end = self._end
        self.size += _RECORD_BYTES * more - end
        ends = self._ends
        for payload in rest:
            end += len(payload)
            ends.append(end)
        self.size += end
        self._end = end
        self.count += more

    def build(self, compress: bool = False, note: bytes = b"") -> bytes:
        """The batch, not stamped yet. ``note`` is kept beside the records, for nodes that forward or append them."""
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
        put_binary(front, list(self._topics))
        put_binary(front, list(self._clients))
        head = b"".join(front)
        body = head + stored + padding(len(stored))
        size = HEADER_BYTES + len(body)
        if size > BATCH_BYTES_MAX or len(columns) > BATCH_BYTES_MAX:
            raise BatchError(
                f"A batch may have {BATCH_BYTES_MAX:,} bytes; this one would have {size:,}. Build earlier."
            )
        dictionaries = len(head) - len(note) - len(padding(len(note)))
        covered = COVERED.pack(
            VERSION,
            flags,
            DATA,
            0,
            crc32c(body),
            size,
            len(note),
            dictionaries,
            len(columns),
            0,
            0,
            0,
            self._base,
            self._latest,
            self.count,
            mask,
            len(self._topics),
            len(self._clients),
            len(stored),
            0,
        )
        return seal(covered) + body

    def _columns(self, parts: list[bytes]) -> int:
        """Put all columns into ``parts``; which of the rare ones are among them."""
        count = self.count
        zeros = bytes(4 * count + (4 * count & 4))
        if len(self._topics) > 1:
            put_int32(parts, self._topic)
        else:
            parts.append(zeros)
        if len(self._clients) > 1:
            put_int32(parts, self._client)
        else:
            parts.append(zeros)
        if self._varied:
            put_int32(parts, self._delta)
        else:
            parts.append(zeros)
        put(parts, bytes(self._flags))
        put_int32(parts, self._ends)
        put(parts, b"".join(self._payloads))
        return 0 if self._rare is None else self._rare.put(parts, count)


def _compress(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(data)
