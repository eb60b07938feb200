"""A segment: batches end to end in one file, named by its base offset, with a sparse index by offset and by time.

```
 file    |batch|batch|batch| ... |batch|          one row per 32 KiB: (index, offset) of the batch at `position`,
 index   row(0)              row(32,911) ...      and the latest timestamp of all batches before it
```
Rows are hints: a reader checks that the batch which a row names stands there, and otherwise rebuilds the index from
the batches. What is not in the file yet (``flushed`` tells) is in the journal and in memory.
"""

from __future__ import annotations

import struct
from typing import Final

from flockmq.log.checksum import crc32c
from flockmq.log.names import SegmentNames
from flockmq.log.view import BatchView

ROW_BYTES: Final = 32
_ROW: Final = struct.Struct("<QQqI")
_CRC: Final = struct.Struct("<I")

BY_INDEX: Final = 0
BY_OFFSET: Final = 1
BY_TIME: Final = 2


class Segment:
    """One segment as the store knows it; the file may lag behind."""

    def __init__(self, number: int, base_offset: int, first_index: int) -> None:
        self.number = number
        """Never used twice in a store, so that a file never takes the place of another one."""
        self.base_offset = base_offset
        self.first_index = first_index
        self.next_index = first_index
        self.length = 0
        self.first_timestamp = 0
        self.latest_timestamp = 0
        """At least that of every record: after a cut it may be that of a record that is gone."""
        self.flushed = 0
        """How many bytes of the segment the file holds for sure."""
        self.flushed_index = first_index
        """The first entry that the file does not hold for sure."""
        self.low = 0
        """Shortest length of the segment since the running checkpoint started."""
        self.low_index = first_index
        """The next index that the segment had at that length."""
        self.was_cut = False
        """The files may be longer than the segment."""
        self.cuts = 0
        """How often it was cut: what was read of its file before may be something else now."""
        self.rows: bytearray | None = bytearray()
        """The sparse index; None while it is not in memory."""
        self.rows_flushed = 0
        self.last_row = 0
        self.names: SegmentNames | None = None
        """Which topic names it has, in logs that keep that; None while that is not in memory."""

    def file_name(self) -> str:
        """Name of the file with the batches."""
        return f"{self.base_offset:020d}-{self.number:x}.log"

    def index_name(self) -> str:
        """Name of the file with the sparse index."""
        return f"{self.base_offset:020d}-{self.number:x}.index"

    def names_name(self) -> str:
        """Name of the file with the topic names."""
        return f"{self.base_offset:020d}-{self.number:x}.names"

    def add(self, view: BatchView, index_bytes: int) -> None:
        """The next batch."""
        rows = self.rows
        position = self.length
        if rows is not None and (position == 0 or position - self.last_row >= index_bytes):
            rows += pack_row(view.index, view.base_offset, self.latest_timestamp, position)
            self.last_row = position
        self.latest_timestamp = max(self.latest_timestamp, view.latest_timestamp)
        if self.first_timestamp == 0:
            self.first_timestamp = view.base_timestamp
        self.length = position + view.size
        self.next_index = view.index + 1

    def cut(self, length: int, next_index: int) -> None:
        """Forget everything from ``length`` on."""
        self.length = length
        self.next_index = next_index
        self.was_cut = True
        self.cuts += 1
        self.rows_flushed = 0
        if length < self.low:
            self.low = length
            self.low_index = next_index
        if length < self.flushed:
            self.flushed = length
            self.flushed_index = next_index
        rows = self.rows
        if rows is not None:
            while rows and row_position(rows, len(rows) // ROW_BYTES - 1) >= length:
                del rows[-ROW_BYTES:]
            self.last_row = row_position(rows, len(rows) // ROW_BYTES - 1) if rows else 0


def pack_row(index: int, offset: int, latest_before: int, position: int) -> bytes:
    """One row of a sparse index, with its own checksum."""
    covered = _ROW.pack(index, offset, latest_before, position)
    return covered + _CRC.pack(crc32c(covered))


def sound_rows(data: bytes, length: int) -> bytearray | None:
    """Rows as they were read from a file, up to a segment's length; None when they can't be used."""
    rows = bytearray()
    before = -1
    for at in range(0, len(data) - ROW_BYTES + 1, ROW_BYTES):
        covered = data[at : at + ROW_BYTES - 4]
        crc: int = _CRC.unpack_from(data, at + ROW_BYTES - 4)[0]
        position: int = _ROW.unpack(covered)[3]
        if crc32c(covered) != crc or position <= before:
            return None
        if position >= length:
            break
        before = position
        rows += data[at : at + ROW_BYTES]
    return rows if rows and row_position(rows, 0) == 0 else None


def read_index_row(rows: bytearray, number: int) -> tuple[int, int, int, int]:
    """(index, offset, latest timestamp before, position) of a row."""
    fields: tuple[int, int, int, int] = _ROW.unpack_from(rows, number * ROW_BYTES)
    return fields


def row_position(rows: bytearray, number: int) -> int:
    """Where the batch of a row stands."""
    position: int = _ROW.unpack_from(rows, number * ROW_BYTES)[3]
    return position


def row_index(rows: bytearray, number: int) -> int:
    """The index of the batch of a row."""
    index: int = _ROW.unpack_from(rows, number * ROW_BYTES)[0]
    return index


def find_row(rows: bytearray, by: int, value: int) -> int:
    """The last row that is not behind what is looked for; -1 when there is none.

    By index and offset: the row's own is not greater. By time: everything before the row is older.
    """
    low = 0
    high = len(rows) // ROW_BYTES
    while low < high:
        middle = (low + high) // 2
        fields: tuple[int, int, int, int] = _ROW.unpack_from(rows, middle * ROW_BYTES)
        key = fields[by]
        if key < value or (by != BY_TIME and key == value):
            low = middle + 1
        else:
            high = middle
    if by == BY_TIME and low == 0:
        return 0 if rows else -1
    return low - 1
