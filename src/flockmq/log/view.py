"""Reads batches where they lie: header fields at once, columns as spans over the same bytes, records for people.

```
 bytes --> BatchView --> term, index, base_offset, count, size, ...      from the header alone
               |-------> verify()                                        both checksums
               |-------> topics(), select(wanted)                        a filter is asked once per distinct name
               |-------> columns()                                       Arrow buffers, nothing copied
               `-------> record(i)
```
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from flockmq.log.checksum import crc32c
from flockmq.log.columns import EXPIRES_AT, KEY, KNOWN, PACKET_ID, PROPERTIES, SESSION_EPOCH, USER, Columns, Span
from flockmq.log.header import BATCH_BYTES_MAX, COVERED, DATA, HEADER_BYTES, MAGIC, VERSION, ZSTD, BatchError, aligned

_INT32: Final = struct.Struct("<i")
_CRC: Final = struct.Struct("<I")


class Record:
    """One message of a batch, for people and for tests; fast readers use columns."""

    def __init__(self, offset: int, topic: bytes, client: bytes, timestamp_ms: int, flags: int, payload: bytes) -> None:
        self.offset = offset
        self.topic = topic
        self.client = client
        self.timestamp_ms = timestamp_ms
        self.flags = flags
        self.payload = payload
        self.key: bytes | None = None
        self.packet_id = 0
        self.session_epoch = 0
        self.expires_at = 0
        self.properties = b""
        self.user: list[tuple[bytes, bytes]] = []


class BatchView:
    """The batch that starts at ``pos`` of ``data``. Raises BatchError when no batch can start there."""

    def __init__(self, data: bytes, pos: int = 0) -> None:
        if len(data) - pos < HEADER_BYTES:
            raise BatchError(f"A batch header takes {HEADER_BYTES} bytes; {len(data) - pos} are there.")
        if data[pos : pos + 4] != MAGIC:
            raise BatchError("These bytes are no batch: they don't start with its magic.")
        fields: tuple[int, ...] = COVERED.unpack_from(data, pos + 8)
        self.data = data
        self.pos = pos
        self.version: int = fields[0]
        self.flags: int = fields[1]
        self.kind: int = fields[2]
        self.size: int = fields[5]
        """Bytes of the whole batch: the next one starts there."""
        self.term: int = fields[9]
        self.index: int = fields[10]
        self.base_offset: int = fields[11]
        self.base_timestamp: int = fields[12]
        self.latest_timestamp: int = fields[13]
        self.count: int = fields[14]
        self._body_crc: int = fields[4]
        self._note_bytes: int = fields[6]
        self._dictionary_bytes: int = fields[7]
        self._columns_bytes: int = fields[8]
        self._mask: int = fields[15]
        self._topic_count: int = fields[16]
        self._client_count: int = fields[17]
        self._stored_bytes: int = fields[18]
        self._columns: Columns | None = None
        if self.version != VERSION:
            raise BatchError(f"This batch has format {self.version}; this FlockMQ reads {VERSION}. Use a newer one.")
        if self.size < HEADER_BYTES or self.size > BATCH_BYTES_MAX or self.size & 7:
            raise BatchError(f"A batch can't be {self.size:,} bytes long.")

    @property
    def next_offset(self) -> int:
        """The offset after this batch."""
        return self.base_offset + self.count

    @property
    def end(self) -> int:
        """Where in ``data`` the batch ends, if ``data`` holds all of it."""
        return self.pos + self.size

    def header_is_sound(self) -> bool:
        """Whether the header's checksum fits: only then its fields mean anything."""
        stored: int = _CRC.unpack_from(self.data, self.pos + 4)[0]
        return crc32c(self.data[self.pos + 8 : self.pos + HEADER_BYTES]) == stored

    def verify(self) -> None:
        """Check both checksums and that the body is all there; BatchError says what is wrong."""
        if not self.header_is_sound():
            raise BatchError("The header of this batch is damaged: its checksum does not fit.")
        if len(self.data) < self.end:
            raise BatchError(f"This batch has {self.size:,} bytes; only {len(self.data) - self.pos:,} are there.")
        if crc32c(self.data[self.pos + HEADER_BYTES : self.end]) != self._body_crc:
            raise BatchError(f"The body of batch {self.index} is damaged: its checksum does not fit.")

    def whole(self) -> bytes:
        """This batch alone."""
        if self.pos == 0 and self.size == len(self.data):
            return self.data
        return self.data[self.pos : self.end]

    def note(self) -> bytes:
        """What its builder noted beside the records."""
        start = self.pos + HEADER_BYTES
        return self.data[start : start + self._note_bytes]

    def body(self) -> bytes:
        """What a control batch says."""
        start = self._columns_at()
        return self.data[start : start + self._stored_bytes]

    def _columns_at(self) -> int:
        return self.pos + HEADER_BYTES + aligned(self._note_bytes) + self._dictionary_bytes

    def topics(self) -> list[bytes]:
        """The distinct topic names, in the order of their indexes."""
        # Asked of every batch that a reader with a filter passes: found without a walk over both dictionaries.
        count = self._topic_count
        offsets = self.pos + HEADER_BYTES + aligned(self._note_bytes)
        start = offsets + aligned(4 * (count + 1))
        stop = min(self._columns_at(), self.end, len(self.data))
        if start > stop:
            raise BatchError("The dictionaries of this batch do not fit into it.")
        data = self.data
        ends: tuple[int, ...] = struct.unpack_from(f"<{count + 1}i", data, offsets)
        if start + ends[count] > stop:
            raise BatchError("The dictionaries of this batch do not fit into it.")
        return [data[start + ends[i] : start + ends[i + 1]] for i in range(count)]

    def clients(self) -> list[bytes]:
        """The distinct client ids, in the order of their indexes."""
        count = self._client_count
        spans = self.dictionaries()
        offsets = spans["clients.offsets"][0]
        start = spans["clients.bytes"][0]
        ends: tuple[int, ...] = struct.unpack_from(f"<{count + 1}i", self.data, offsets)
        return [self.data[start + ends[i] : start + ends[i + 1]] for i in range(count)]

    def dictionaries(self) -> dict[str, Span]:
        """Where in ``data`` both dictionaries lie: ``topics.offsets``, ``topics.bytes``, ``clients...``."""
        walk = _Walk(self.data, self.pos + HEADER_BYTES + aligned(self._note_bytes), min(self._columns_at(), self.end))
        walk.binary("topics", self._topic_count)
        walk.binary("clients", self._client_count)
        return walk.spans

    def columns(self) -> Columns:
        """The columns as Arrow buffers, over the batch's own bytes unless it is compressed."""
        if self._columns is None:
            self._columns = self._find_columns()
        return self._columns

    def _find_columns(self) -> Columns:
        if self.kind != DATA:
            raise BatchError("A control batch has no columns.")
        if self._mask & ~KNOWN:
            raise BatchError("This batch has columns that this FlockMQ does not know. Use a newer one.")
        data = self.data
        start = self._columns_at()
        end = start + self._stored_bytes
        if end > self.end or end > len(data):
            raise BatchError("The columns of this batch do not fit into it.")
        if self.flags & ZSTD:
            data = _decompress(data[start:end], self._columns_bytes)
            start = 0
            end = len(data)
        count = self.count
        walk = _Walk(data, start, end)
        walk.plain("topic", 4 * count)
        walk.plain("client", 4 * count)
        walk.plain("timestamp", 4 * count)
        walk.plain("flags", count)
        walk.binary("payload", count)
        mask = self._mask
        if mask & KEY:
            walk.plain("key.validity", (count + 7) >> 3)
            walk.binary("key", count)
        if mask & PACKET_ID:
            walk.plain("packet_id", 2 * count)
        if mask & SESSION_EPOCH:
            walk.plain("session_epoch", 8 * count)
        if mask & EXPIRES_AT:
            walk.plain("expires_at", 8 * count)
        if mask & PROPERTIES:
            walk.binary("properties", count)
        if mask & USER:
            pairs = walk.offsets("user", count)
            walk.binary("user.key", pairs)
            walk.binary("user.value", pairs)
        return Columns(data, count, walk.spans)

    def select(self, wanted: Callable[[bytes], bool]) -> list[int]:
        """Which records have a topic that is wanted. ``wanted`` is asked once per distinct name, never per record."""
        verdicts = [wanted(topic) for topic in self.topics()]
        if True not in verdicts:
            return []
        if False not in verdicts:
            return list(range(self.count))
        columns = self.columns()
        indexes: tuple[int, ...] = struct.unpack_from(f"<{self.count}i", columns.data, columns.spans["topic"][0])
        try:
            return [position for position in range(self.count) if verdicts[indexes[position]]]
        except IndexError:
            raise _no_such_name() from None

    def timestamps(self) -> list[int]:
        """When each record came, in ms."""
        columns = self.columns()
        deltas: tuple[int, ...] = struct.unpack_from(f"<{self.count}i", columns.data, columns.spans["timestamp"][0])
        base = self.base_timestamp
        return [base + delta for delta in deltas]

    def record(self, position: int) -> Record:
        """One record, all of it."""
        if position < 0 or position >= self.count:
            raise BatchError(f"This batch has {self.count} records, counted from 0; there is no record {position}.")
        return self._record(position, self.topics(), self.clients())

    def records(self) -> list[Record]:
        """All records."""
        topics = self.topics()
        clients = self.clients()
        return [self._record(position, topics, clients) for position in range(self.count)]

    def _record(self, position: int, topics: list[bytes], clients: list[bytes]) -> Record:
        columns = self.columns()
        data = columns.data
        spans = columns.spans
        try:
            topic = topics[_int32(data, spans, "topic", position)]
            client = clients[_int32(data, spans, "client", position)]
        except IndexError:
            raise _no_such_name() from None
        timestamp = self.base_timestamp + _int32(data, spans, "timestamp", position)
        flags = data[spans["flags"][0] + position]
        payload = _item(data, spans, "payload", position)
        record = Record(self.base_offset + position, topic, client, timestamp, flags, payload)
        if "key.validity" in spans and data[spans["key.validity"][0] + (position >> 3)] >> (position & 7) & 1:
            record.key = _item(data, spans, "key", position)
        if "packet_id" in spans:
            record.packet_id = struct.unpack_from("<H", data, spans["packet_id"][0] + 2 * position)[0]
        if "session_epoch" in spans:
            record.session_epoch = struct.unpack_from("<Q", data, spans["session_epoch"][0] + 8 * position)[0]
        if "expires_at" in spans:
            record.expires_at = struct.unpack_from("<q", data, spans["expires_at"][0] + 8 * position)[0]
        if "properties.offsets" in spans:
            record.properties = _item(data, spans, "properties", position)
        if "user.offsets" in spans:
            low = _int32(data, spans, "user.offsets", position)
            high = _int32(data, spans, "user.offsets", position + 1)
            for pair in range(low, high):
                record.user.append((_item(data, spans, "user.key", pair), _item(data, spans, "user.value", pair)))
        return record


class _Walk:
    """Finds one buffer after the other between ``pos`` and ``end``; none may reach beyond."""

    def __init__(self, data: bytes, pos: int, end: int) -> None:
        self.data = data
        self.pos = pos
        self.end = min(end, len(data))
        self.spans: dict[str, Span] = {}

    def plain(self, name: str, length: int) -> None:
        start = self.pos
        if length < 0 or start + length > self.end:
            raise BatchError(f"The column {name} of this batch does not fit into it.")
        self.spans[name] = (start, length)
        self.pos = start + aligned(length)

    def offsets(self, name: str, count: int) -> int:
        """A column of ``count`` + 1 offsets; the last one, which is the size of what follows."""
        self.plain(name + ".offsets", 4 * (count + 1))
        last: int = _INT32.unpack_from(self.data, self.spans[name + ".offsets"][0] + 4 * count)[0]
        return last

    def binary(self, name: str, count: int) -> None:
        length = self.offsets(name, count)
        self.plain(name + ".bytes", length)


def _no_such_name() -> BatchError:
    return BatchError("A record of this batch names a topic or client that the batch does not have.")


def _int32(data: bytes, spans: dict[str, Span], name: str, position: int) -> int:
    value: int = _INT32.unpack_from(data, spans[name][0] + 4 * position)[0]
    return value


def _item(data: bytes, spans: dict[str, Span], name: str, position: int) -> bytes:
    start = spans[name + ".bytes"][0]
    low = _int32(data, spans, name + ".offsets", position)
    high = _int32(data, spans, name + ".offsets", position + 1)
    return data[start + low : start + high]


def _decompress(stored: bytes, length: int) -> bytes:
    import zstandard

    # The frame names its own size; believe the header, whose checksum was verified, and refuse anything else.
    try:
        if zstandard.frame_content_size(stored) != length:
            raise BatchError("The compressed columns of this batch have another size than its header says.")
        return zstandard.ZstdDecompressor().decompress(stored, max_output_size=length)
    except zstandard.ZstdError as error:
        raise BatchError(f"The columns of this batch can't be decompressed: {error}.") from error
