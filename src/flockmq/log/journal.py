"""The journal's records: one per group commit, with everything that all groups of a node want to be durable.

```
 64-byte header | row row ... | data (batches end to end) | row row ... | 64-byte header
  magic, own CRC, sequence,     64 bytes each, own CRC:      again         again: the record's last 8 bytes are bytes
  size, how many sectors are    what happened to which                     that a torn write would have left at zero
  empty anyway                  group, where its data lies
```
A record starts at a multiple of 64 in a file that was full of zeros, so a header never spans two sectors. All but the
data stands twice: one flipped bit costs at most one row's batches, and tells which group lost which entries. ``scan``
reads records back and tells a torn record from a damaged one.
"""

from __future__ import annotations

import struct
from typing import Final

from flockmq.log.checksum import crc32c

UNIT: Final = 64
"""Records, headers and rows are made of these."""
SECTOR: Final = 512

FRONT: Final = b"FLKJ"
BACK: Final = b"JKLF"
MARKER: Final = b"\xa5\x5a\xc3\x3c\x96\x69\xe7\x7e"
"""Ends a header, hence a record. No byte of it can be zero, nor become zero by one flipped bit."""

APPEND: Final = 1
CUT: Final = 2
STATE: Final = 3
START: Final = 4
RESET: Final = 5
SNAPSHOT: Final = 6
CREATE: Final = 7
REMOVE: Final = 8
DAMAGE: Final = 9
REPAIRED: Final = 10
"""What a row says happened to its group. Which fields it uses: see ``Row``."""

_HEADER: Final = struct.Struct("<QQIIIII12x8s")
_ROW: Final = struct.Struct("<BxxxQQQIIIIQQ")
_CRC: Final = struct.Struct("<I")
_FIRST: Final = struct.Struct("<4sI")
_FAINT_BYTES: Final = 8


class Row:
    """One thing that happened to one group.

    ```
    kind      segment        base_offset   position, length       first              last
    APPEND    file           its name      where in it, bytes     first index        last index     (with data)
    CUT       last one left  next offset   its length             last index left    its term
    STATE     vote           commit index                         term
    START     first one left first offset                         first index        term before it
    RESET                    next offset                          last index         its term
    SNAPSHOT  file           next offset   length (crc)           index              term
    DAMAGE                                 1: anything may be     first index        last index, 0: unknown
                                           lost, votes too
    ```
    """

    def __init__(
        self,
        kind: int,
        group: int,
        segment: int = 0,
        base_offset: int = 0,
        position: int = 0,
        length: int = 0,
        first: int = 0,
        last: int = 0,
    ) -> None:
        self.kind = kind
        self.group = group
        self.segment = segment
        self.base_offset = base_offset
        self.position = position
        self.length = length
        self.first = first
        self.last = last
        self.at = 0
        self.crc = 0
        self.parts: list[bytes] = []
        """Batches that are staged with this row."""
        self.data: bytes | None = b""
        """Batches as read back; None when they are damaged."""


class JournalHeader:
    """What either header of a record says."""

    def __init__(self, sequence: int, size: int, rows: int, empty: int, faint: int, data_bytes: int) -> None:
        self.sequence = sequence
        self.size = size
        self.rows = rows
        self.empty = empty
        self.faint = faint
        self.data_bytes = data_bytes


def record_bytes(rows: int, data_bytes: int) -> int:
    """How long a record gets."""
    return 2 * UNIT + 2 * UNIT * rows + ((data_bytes + UNIT - 1) & -UNIT)


def encode_record(store: int, sequence: int, rows: list[Row], position: int) -> bytes:
    """The record for these rows, as it stands at ``position`` of its file. Fills in where each row's data lies."""
    table: list[bytes] = []
    data: list[bytes] = []
    start = UNIT + UNIT * len(rows)
    at = start
    for row in rows:
        if row.parts:
            piece = row.parts[0] if len(row.parts) == 1 else b"".join(row.parts)
            row.at = at
            row.crc = crc32c(piece)
            data.append(piece)
            at += len(piece)
        table.append(_encode_row(row))
    size = record_bytes(len(rows), at - start)
    body = b"".join([*table, *data, bytes(-at & (UNIT - 1)), *table])
    empty, faint = dark_sectors(body, position + UNIT)  # no sector that has a header in it is dark
    covered = _HEADER.pack(store, sequence, size, len(rows), empty, faint, at - start, MARKER)
    crc = crc32c(covered)
    return b"".join([_FIRST.pack(FRONT, crc), covered, body, _FIRST.pack(BACK, crc), covered])


def _encode_row(row: Row) -> bytes:
    covered = _ROW.pack(
        row.kind,
        row.group,
        row.segment,
        row.base_offset,
        row.position,
        row.length,
        row.at,
        row.crc,
        row.first,
        row.last,
    )
    return _CRC.pack(crc32c(covered)) + covered


def read_header(data: bytes, at: int, magic: bytes, store: int) -> JournalHeader | None:
    """The header at this place, if there is one of this store and its checksum fits."""
    if data[at : at + 4] != magic or at + UNIT > len(data):
        return None
    crc: int = _CRC.unpack_from(data, at + 4)[0]
    covered = data[at + 8 : at + UNIT]
    if crc32c(covered) != crc:
        return None
    fields: tuple[int, int, int, int, int, int, int, bytes] = _HEADER.unpack(covered)
    if fields[0] != store:
        return None
    return JournalHeader(fields[1], fields[2], fields[3], fields[4], fields[5], fields[6])


def read_row(data: bytes, at: int) -> Row | None:
    """The row at this place, if its checksum fits."""
    crc: int = _CRC.unpack_from(data, at)[0]
    covered = data[at + 4 : at + UNIT]
    if crc32c(covered) != crc:
        return None
    fields: tuple[int, ...] = _ROW.unpack(covered)
    row = Row(fields[0], fields[1], fields[2], fields[3], fields[4], fields[5], fields[8], fields[9])
    row.at = fields[6]
    row.crc = fields[7]
    return row


def dark_sectors(record: bytes, position: int) -> tuple[int, int]:
    """How many sectors that lie wholly within a record are (empty, faint).

    A faint sector has all its bits within a few bytes: one bad byte could make it look unwritten.
    """
    empty = 0
    faint = 0
    for start in range(-position & (SECTOR - 1), len(record) - SECTOR + 1, SECTOR):
        # Two lit bytes so far apart tell that it is neither, without a look at the rest.
        if (record[start] and record[start + 128]) or (record[start + 256] and record[start + 384]):
            continue
        lit = len(record[start : start + SECTOR].strip(b"\0"))
        if lit == 0:
            empty += 1
        elif lit <= _FAINT_BYTES:
            faint += 1
    return empty, faint
