"""What logs say about sinks: chunks that are staged, batches whose commit begins, and which part of one a batch is.

```
 SINK batch   format, what, wall time | query | batch | ...
                STAGE  task, attempt, sequence | the chunk: a batch as its writer made it
                BEGIN  indexes of the entries that hold the chunks, in the order of their commit
                DROP   nothing more
                SWEEP  neither query nor batch: time has passed
 note of a DATA batch with the flag PART: tag | batch | part, counted from 0 | query
```
Little-endian.
"""

from __future__ import annotations

import struct
from typing import Final

from flockmq.errors import RemoteProtocolError
from flockmq.log.checksum import crc32c
from flockmq.log.header import HEADER_BYTES, PART, note_of, padding, read_header, seal_header
from flockmq.peering.fields import U32, U64, Reader, malformed, sized

FORMAT: Final = 1
STAGE: Final = 1
BEGIN: Final = 2
DROP: Final = 3
SWEEP: Final = 4

QUERY_BYTES_MAX: Final = 512
CHUNKS_MAX: Final = 16_384
"""Chunks of one batch in a partition, and staged chunks of all batches together."""
_HEAD: Final = struct.Struct("<BBq")
_CHUNK: Final = struct.Struct("<IQI")
_NOTE: Final = struct.Struct("<8sQI")
_TAG: Final = b"FLKSNK\0\1"


class SinkBody:
    """A SINK batch, read. Of a chunk only its name: ``chunk_at`` is where in the entry the chunk itself begins."""

    def __init__(self, what: int, wall_ms: int) -> None:
        self.what = what
        self.wall_ms = wall_ms
        self.query = b""
        self.batch = 0
        self.task = 0
        self.attempt = 0
        self.sequence = 0
        self.indexes: list[int] = []
        self.chunk_at = 0


def stage_name(query: bytes, batch: int, task: int, attempt: int, sequence: int) -> bytes:
    """Which chunk it is, as logs and questions to leaders have it."""
    return sized(query) + U64.pack(batch) + _CHUNK.pack(task, attempt, sequence)


def read_stage_name(reader: Reader, body: SinkBody) -> None:
    """Read ``stage_name``."""
    _read_batch(reader, body)
    body.task, body.attempt, body.sequence = _CHUNK.unpack_from(reader.data, reader.skip(_CHUNK.size))
    if body.sequence >= CHUNKS_MAX:
        raise malformed("a chunk with too high a number")


def _read_batch(reader: Reader, body: SinkBody) -> None:
    body.query = reader.sized()
    body.batch = reader.number()
    if not body.query or len(body.query) > QUERY_BYTES_MAX:
        raise malformed("a query without a name, or with one that is too long")


def stage_body(wall_ms: int, name: bytes, chunk: bytes) -> bytes:
    """A chunk is staged; ``name`` as ``stage_name`` makes it."""
    return _HEAD.pack(FORMAT, STAGE, wall_ms) + name + chunk


def begin_body(wall_ms: int, query: bytes, batch: int, indexes: list[int]) -> bytes:
    """A batch is to be committed: these entries' chunks, in this order."""
    plan = U32.pack(len(indexes)) + struct.pack(f"<{len(indexes)}Q", *indexes)
    return _HEAD.pack(FORMAT, BEGIN, wall_ms) + sized(query) + U64.pack(batch) + plan


def drop_body(wall_ms: int, query: bytes, batch: int) -> bytes:
    """Whatever is staged of a batch is not wanted."""
    return _HEAD.pack(FORMAT, DROP, wall_ms) + sized(query) + U64.pack(batch)


def sweep_body(wall_ms: int) -> bytes:
    """A SWEEP: tells the partition the leader's wall time, so that old stages expire."""
    return _HEAD.pack(FORMAT, SWEEP, wall_ms)


def read_sink_entry(entry: bytes) -> SinkBody | None:
    """Read an entry of kind SINK; None when this version can't."""
    reader = Reader(entry)
    try:
        version, what, wall_ms = _HEAD.unpack_from(entry, reader.skip(HEADER_BYTES + _HEAD.size) + HEADER_BYTES)
        if version != FORMAT:
            return None
        body = SinkBody(what, max(wall_ms, 0))
        if what == STAGE:
            read_stage_name(reader, body)
        elif what in (BEGIN, DROP):
            _read_batch(reader, body)
        if what == BEGIN:
            body.indexes = read_indexes(reader)
    except RemoteProtocolError:
        return None
    body.chunk_at = reader.pos
    return body


def read_indexes(reader: Reader) -> list[int]:
    """Numbers of entries."""
    count = reader.count(CHUNKS_MAX, 8)
    found: tuple[int, ...] = struct.unpack_from(f"<{count}Q", reader.data, reader.skip(8 * count))
    return list(found)


# Parts.


class PartName:
    """Which part of whose batch."""

    def __init__(self, query: bytes, batch: int, part: int) -> None:
        self.query = query
        self.batch = batch
        self.part = part


def part_of(chunk: bytes, name: PartName, wall_ms: int) -> bytes:
    """A chunk as it goes into the log for readers: with a note that says what it is, and the time of its commit."""
    note = _NOTE.pack(_TAG, name.batch, name.part) + sized(name.query)
    body = note + padding(len(note)) + chunk[HEADER_BYTES:]
    header = read_header(chunk)
    marked = header._replace(
        flags=header.flags | PART,
        body_crc=crc32c(body),
        size=HEADER_BYTES + len(body),
        note_bytes=len(note),
        base_timestamp=wall_ms,
        latest_timestamp=wall_ms,
    )
    return seal_header(marked) + body


def read_part(entry: bytes) -> PartName | None:
    """Which part an entry with the flag PART is; None when its note says nothing of that."""
    note = note_of(entry)
    if len(note) < _NOTE.size or note[:8] != _TAG:
        return None
    _, batch, part = _NOTE.unpack_from(note)
    reader = Reader(note)
    reader.skip(_NOTE.size)
    try:
        return PartName(reader.sized(), batch, part)
    except RemoteProtocolError:
        return None
