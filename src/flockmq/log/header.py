"""The head of a batch: 96 bytes that say what follows, and can be rewritten without touching it.

```
 bytes   0 magic "FLKB" | 4 header CRC-32C (of all that follows it in the header)
         8 version | 9 flags | 10 kind (0 data, else control) | 11 zero | 12 body CRC-32C (all after the header)
        16 size of the whole batch | 20 note length | 24 dictionaries length | 28 columns length, not compressed
        32 term | 40 index | 48 base offset | 56 base timestamp (ms) | 64 latest timestamp (ms)
        72 record count | 76 which columns | 80 topic names | 84 client ids | 88 columns length as stored | 92 zero
        96 note, dictionaries, columns: each 8-byte aligned
```
Little-endian. A leader stamps term, index and offset into a batch that another node built: only the header and its own
checksum change, the body stays as it came, on every replica.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from flockmq.errors import FlockError
from flockmq.log.checksum import crc32c

HEADER_BYTES: Final = 96
MAGIC: Final = b"FLKB"
VERSION: Final = 1
BATCH_BYTES_MAX: Final = 1 << 30

ZSTD: Final = 1
"""Flag: the columns are compressed; note and dictionaries never are."""
PART: Final = 2
"""Flag: the note says which part of a sink's batch these records are."""

DATA: Final = 0
NOOP: Final = 1
CONFIG: Final = 2
MARKER: Final = 3
CURSOR: Final = 4
SINK: Final = 5
SESSION: Final = 6
GROUP: Final = 7
"""Kinds of batches. All but DATA are control batches: no records, a body that only their maker understands."""

COVERED: Final = struct.Struct("<BBBBIIIIIQQQqqIIIIII")
"""What the header checksum covers: everything from ``COVERED_AT`` on, in the order of ``Header``."""
COVERED_AT: Final = 8
_FIRST: Final = struct.Struct("<4sI")
_STAMP: Final = struct.Struct("<QQQ")
_STAMP_AT: Final = 32
_SIZE: Final = struct.Struct("<I")
_FLAGS_AT: Final = 9
_KIND_AT: Final = 10
_SIZE_AT: Final = 16
_NOTE_LENGTH_AT: Final = 20
_LATEST_AT: Final = 64
_COLUMNS_AT: Final = 76
_TIME: Final = struct.Struct("<q")
_ZEROS: Final = b"\0\0\0\0\0\0\0\0"


class BatchError(FlockError):
    """These bytes are no batch that can be read; the sentence says what is wrong with them."""


class Header(NamedTuple):
    """The fields that the header checksum covers, in the order of their bytes."""

    version: int
    flags: int
    kind: int
    zero: int
    body_crc: int
    size: int
    """Bytes of the whole batch, with its header."""
    note_bytes: int
    dictionary_bytes: int
    columns_bytes: int
    """Bytes of the columns before compression."""
    term: int
    log_index: int
    base_offset: int
    base_timestamp: int
    latest_timestamp: int
    record_count: int
    columns: int
    """One bit per rare column that the batch has (``log/columns.py``)."""
    topics: int
    clients: int
    stored_bytes: int
    """Bytes of the columns as stored."""
    zero_at_end: int


def read_header(data: bytes, position: int = 0) -> Header:
    """The header that starts at ``position``: its 96 bytes are there, as the caller knows; no field is checked."""
    return Header._make(COVERED.unpack_from(data, position + COVERED_AT))


def seal_header(header: Header) -> bytes:
    """The bytes of a header, with its magic and checksum."""
    return seal(COVERED.pack(*header))


def padding(length: int) -> bytes:
    """What is missing to the next multiple of eight."""
    return _ZEROS[: -length & 7]


def aligned(length: int) -> int:
    """The next multiple of eight."""
    return (length + 7) & ~7


def seal(covered: bytes) -> bytes:
    """A header from what its checksum covers."""
    return _FIRST.pack(MAGIC, crc32c(covered)) + covered


def kind_of(batch: bytes) -> int:
    """Kind of a batch, without reading the rest of its header."""
    if len(batch) < HEADER_BYTES:
        raise BatchError(f"A batch header takes {HEADER_BYTES} bytes; {len(batch)} are there.")
    return batch[_KIND_AT]


def flags_of(batch: bytes) -> int:
    """Flags of a whole batch, without reading the rest of its header."""
    return batch[_FLAGS_AT]


def latest_of(batch: bytes) -> int:
    """Latest timestamp of a whole batch, without reading the rest of its header."""
    latest: int = _TIME.unpack_from(batch, _LATEST_AT)[0]
    return latest


def columns_of(batch: bytes) -> int:
    """Which rare columns a whole batch has, without reading the rest of its header."""
    columns: int = _SIZE.unpack_from(batch, _COLUMNS_AT)[0]
    return columns


def size_of(data: bytes, position: int) -> int:
    """What the header that starts here says about the size of its batch; nothing is checked."""
    size: int = _SIZE.unpack_from(data, position + _SIZE_AT)[0]
    return size


def note_of(batch: bytes) -> bytes:
    """The note of a batch, without reading the rest of its header."""
    if len(batch) < HEADER_BYTES:
        return b""
    length: int = _SIZE.unpack_from(batch, _NOTE_LENGTH_AT)[0]
    return batch[HEADER_BYTES : HEADER_BYTES + length] if length else b""


def stamp(batch: bytes, term: int, index: int, base_offset: int) -> bytes:
    """The same batch at its place in a log. The body is not looked at."""
    covered = batch[8:_STAMP_AT] + _STAMP.pack(term, index, base_offset) + batch[_STAMP_AT + 24 : HEADER_BYTES]
    return seal(covered) + batch[HEADER_BYTES:]


def control_batch(kind: int, body: bytes = b"", timestamp_ms: int = 0) -> bytes:
    """A batch without records, not stamped yet."""
    stored = body + padding(len(body))
    size = HEADER_BYTES + len(stored)
    if size > BATCH_BYTES_MAX:
        raise BatchError(
            f"A control batch of {size:,} bytes is larger than the {BATCH_BYTES_MAX:,} that a batch may have."
        )
    length = len(body)
    now = timestamp_ms
    return (
        seal(
            COVERED.pack(
                VERSION, 0, kind, 0, crc32c(stored), size, 0, 0, length, 0, 0, 0, now, now, 0, 0, 0, 0, length, 0
            )
        )
        + stored
    )
