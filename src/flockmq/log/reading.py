"""Reads entries: from memory where they are recent, else from segment files, every batch verified before it is served.

```
 index, offset or time --> segment --> sparse index row --> batches from there on, until the one that is meant
```
A batch that does not verify is damage: noted on its log, told to the caller, never served.
"""

from __future__ import annotations

from typing import Final

from flockmq.log.disk import Disk
from flockmq.log.errors import DamageError, must_be_lost
from flockmq.log.header import HEADER_BYTES, BatchError
from flockmq.log.segment import BY_INDEX, Segment, find_row, row_index, row_position, sound_rows
from flockmq.log.staging import Staging
from flockmq.log.state import LogState
from flockmq.log.view import BatchView

CHUNK_BYTES: Final = 64 * 1024


class SegmentReader:
    """Walks over the batches of a segment file from one of them on."""

    def __init__(self, disk: Disk, path: str, position: int, end: int) -> None:
        self._disk = disk
        self._path = path
        self.position = position
        self._end = end
        self._chunk = b""
        self._chunk_at = position

    def next(self, expected: int) -> BatchView:
        """The batch that stands here, verified, if it is entry ``expected``. BatchError says what is wrong."""
        self._need(HEADER_BYTES)
        head = BatchView(self._chunk, self.position - self._chunk_at)
        if not head.header_is_sound():
            raise BatchError("its header is damaged")
        self._need(head.size)
        view = BatchView(self._chunk, self.position - self._chunk_at)
        view.verify()
        if view.index != expected:
            raise BatchError(f"it holds entry {view.index} there")
        self.position += view.size
        return view

    def _need(self, length: int) -> None:
        """Have ``length`` bytes from the present position on in memory."""
        if self.position + length <= self._chunk_at + len(self._chunk):
            return
        if self.position + length > self._end:
            raise BatchError("it ends there")
        wanted = min(max(length, CHUNK_BYTES), self._end - self.position)
        self._chunk = self._disk.read(self._path, self.position, wanted)
        self._chunk_at = self.position
        if len(self._chunk) < length:
            raise BatchError("it ends there")


def read_entries(staging: Staging, log: LogState, low: int, high: int, bytes_max: int) -> list[bytes]:
    """Entries ``low`` to ``high`` (exclusive), all of which are there: at least one, then as many as fit."""
    found: list[bytes] = []
    size = 0
    index = low
    while index < high and (size < bytes_max or not found):
        batch = log.recent.get(index)
        if batch is not None:
            if found and size + len(batch) > bytes_max:
                break
            found.append(batch)
            size += len(batch)
            index += 1
            continue
        batches = _read_file(staging, log, index, high, bytes_max - size, not found)
        if not batches:
            break
        for batch in batches:
            size += len(batch)
        found += batches
        index += len(batches)
    return found


def _read_file(staging: Staging, log: LogState, low: int, high: int, bytes_max: int, at_least_one: bool) -> list[bytes]:
    """Entries from ``low`` on as far as its segment's file has them."""
    segment = log.segment_of(low)
    found: list[bytes] = []
    size = 0
    at = low
    gap = log.gap_at(low)
    if gap is not None:
        if at_least_one:
            raise damaged(log, segment, low, BatchError(gap.reason))
        return found
    try:
        reader, at = seek(staging, log, segment, low)
        while at < low:
            reader.next(at)
            at += 1
        end = min(high, segment.flushed_index)
        while at < end and at not in log.recent:
            view = reader.next(at)
            if size + view.size > bytes_max and (found or not at_least_one):
                break
            found.append(view.whole())
            size += view.size
            at += 1
    except (BatchError, OSError) as error:
        if not must_be_lost(error):
            raise
        if at_least_one and not found:
            raise damaged(log, segment, at, error) from error
    return found


def seek(staging: Staging, log: LogState, segment: Segment, index: int) -> tuple[SegmentReader, int]:
    """A reader that stands at or before an entry, and the entry that it stands at."""
    path = log.path(segment.file_name())
    gap = log.gap_before(segment.number, index)
    rows = rows_of(staging, log, segment)
    number = find_row(rows, BY_INDEX, index)
    while number > 0 and (gap is None or row_index(rows, number) >= gap.next):
        reader = SegmentReader(staging.disk, path, row_position(rows, number), segment.flushed)
        start = row_index(rows, number)
        try:
            reader.next(start)
        except BatchError:
            number -= 1  # a stale row, or damage: starting from the row before it tells which
        else:
            reader.position = row_position(rows, number)
            return reader, start
    if gap is not None:
        return SegmentReader(staging.disk, path, gap.stop, segment.flushed), gap.next
    return SegmentReader(staging.disk, path, 0, segment.flushed), segment.first_index


def position_of(staging: Staging, log: LogState, segment: Segment, index: int) -> tuple[int, int]:
    """(where in its segment an entry starts, its base offset); the entry itself is not read. Not for the first one."""
    rows = rows_of(staging, log, segment)
    number = find_row(rows, BY_INDEX, index - 1)
    at = segment.first_index
    position = 0
    if number > 0 and row_index(rows, number) in log.recent:
        at = row_index(rows, number)
        position = row_position(rows, number)
    elif number > 0:
        reader, at = seek(staging, log, segment, index - 1)
        position = reader.position
    offset = 0
    while at < index:
        for batch in read_entries(staging, log, at, index, CHUNK_BYTES):
            position += len(batch)
            at += 1
            offset = BatchView(batch).next_offset
    return position, offset


def rows_of(staging: Staging, log: LogState, segment: Segment) -> bytearray:
    """The sparse index of a segment: from memory, from its file, or built again from the batches."""
    rows = segment.rows
    if rows is not None:
        return rows
    path = log.path(segment.index_name())
    size = staging.disk.size(path)
    rows = sound_rows(staging.disk.read(path, 0, size), segment.length) if size > 0 else None
    if rows is None:
        rows = rebuild_rows(staging, log, segment)
    segment.rows = rows
    staging.loaded(segment)
    return rows


def rebuild_rows(staging: Staging, log: LogState, segment: Segment) -> bytearray:
    """The sparse index of a closed segment, from its batches, as far as they can be read."""
    shadow = Segment(segment.number, segment.base_offset, segment.first_index)
    reader = SegmentReader(staging.disk, log.path(segment.file_name()), 0, segment.flushed)
    try:
        while shadow.length < segment.flushed:
            shadow.add(reader.next(shadow.next_index), staging.index_bytes)
    except (BatchError, OSError) as error:
        if not must_be_lost(error):
            raise  # else a reader that goes on from the last row meets the damage and reports it
    segment.rows_flushed = 0
    staging.changed.add(log.group)
    return shadow.rows or bytearray()


def damaged(log: LogState, segment: Segment, index: int, error: Exception) -> DamageError:
    """The error to raise for an entry that can't be read."""
    reason = str(error).rstrip(".")
    return DamageError(
        f"Entry {index} of group {log.group} can't be read from {segment.file_name()}: {reason}. "
        "It has to come from another replica again.",
        index,
    )
