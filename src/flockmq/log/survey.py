"""Looks at what a segment file really holds: which entries verify, and where there are gaps between them.

```
 file   |batch|batch|  ???  |batch|batch|          Inspection.perform, off the event loop, a piece at a time
                    `- Gap: entries, bytes, offsets --> fetched from another replica, written back (``work.Repair``)
 marks  the header checksum of each batch that verified: the same on all replicas
```
Where the header of a bad batch is sound the gap is that batch. Otherwise nothing in it can be believed, and the gap
reaches to the next batch that the sparse index names and that stands there, or to the end of the segment.
"""

from __future__ import annotations

from flockmq.log.disk import Disk
from flockmq.log.errors import must_be_lost
from flockmq.log.header import HEADER_BYTES, MAGIC, BatchError
from flockmq.log.reading import SegmentReader
from flockmq.log.segment import ROW_BYTES, Segment, read_index_row, sound_rows
from flockmq.log.state import Gap, LogState
from flockmq.log.view import BatchView


class Marks:
    """Header checksums of entries that follow on each other and verified."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.data = bytearray()
        """Four bytes each."""


class Inspection:
    """A piece of a segment file to be read. What it is made of does not change: it may be performed in a thread."""

    def __init__(self, log: LogState, segment: Segment, bytes_max: int) -> None:
        self.group = log.group
        self.number = segment.number
        self.cuts = segment.cuts
        self.file = segment.file_name()
        self.position = 0
        self.index = segment.first_index
        self.offset = segment.base_offset
        """Offset of the next record to read; ``index`` and ``position`` are those of its entry."""
        self.stop = segment.flushed
        self.stop_index = segment.flushed_index
        self.stop_offset = _offset_behind(log, segment)
        self.is_urgent = False
        self.bytes = 0
        """Bytes that were read in this piece."""
        self.marks: list[Marks] = []
        self.gaps: list[Gap] = []
        """Gaps that were found in this piece."""
        self.error = ""
        """Why nothing could be read now, which is no damage: try again."""
        self._path = log.path(segment.file_name())
        self._index_path = log.path(segment.index_name())
        self._rows = None if segment.rows is None else bytearray(segment.rows)
        self._bytes_max = bytes_max

    def is_of(self, log: LogState) -> bool:
        """Whether the segment is still part of its log, and was not cut since this was made."""
        for segment in log.segments:
            if segment.number == self.number:
                return segment.cuts == self.cuts
        return False

    def is_over(self) -> bool:
        """Whether all of the segment was looked at."""
        return self.index >= self.stop_index

    def again(self) -> None:
        """The next piece."""
        self.bytes = 0
        self.marks = []
        self.gaps = []
        self.error = ""

    def perform(self, disk: Disk) -> None:
        """Read the piece and verify each batch in it."""
        try:
            self._walk(disk)
        except OSError as error:
            self.error = str(error)

    def _walk(self, disk: Disk) -> None:
        began = self.position
        reader = SegmentReader(disk, self._path, self.position, self.stop)
        marks = Marks(self.index)
        self.marks.append(marks)
        while not self.is_over() and self.position - began < self._bytes_max:
            try:
                view = reader.next(self.index)
                if view.data[view.pos : view.pos + 4] != MAGIC:
                    raise BatchError("the first bytes of its header are damaged")
            except (BatchError, OSError) as error:
                if not must_be_lost(error):
                    raise
                self._skip(disk, str(error).rstrip("."))
                reader = SegmentReader(disk, self._path, self.position, self.stop)
                marks = Marks(self.index)
                self.marks.append(marks)
                continue
            marks.data += view.data[view.pos + 4 : view.pos + 8]
            self.position = reader.position
            self.index += 1
            self.offset = view.next_offset
        self.bytes = self.position - began

    def _skip(self, disk: Disk, reason: str) -> None:
        """Note a gap and go on behind it."""
        gap = self.gaps[-1] if self.gaps else None
        if gap is None or gap.stop != self.position:
            gap = Gap(self.number, self.index, self.position, self.offset, reason)
            self.gaps.append(gap)
        self.index, self.position, self.offset = self._next_sound(disk)
        gap.next = self.index
        gap.stop = self.position
        gap.end_offset = self.offset

    def _next_sound(self, disk: Disk) -> tuple[int, int, int]:
        """(entry, position, offset) from where on the file can be believed again."""
        head = self._head(disk)
        if head is not None and self.position + head.size <= self.stop:
            return self.index + 1, self.position + head.size, head.next_offset
        rows = self._rows
        if rows is None:
            rows = self._read_rows(disk)
            self._rows = rows
        for number in range(len(rows) // ROW_BYTES):
            index, _, _, position = read_index_row(rows, number)
            if position <= self.position or index <= self.index or position >= self.stop:
                continue
            try:
                view = SegmentReader(disk, self._path, position, self.stop).next(index)
            except (BatchError, OSError) as error:
                if not must_be_lost(error):
                    raise
                continue
            return index, position, view.base_offset
        return self.stop_index, self.stop, self.stop_offset

    def _head(self, disk: Disk) -> BatchView | None:
        """The header that stands here, if only what follows it is damaged."""
        try:
            data = disk.read(self._path, self.position, HEADER_BYTES)
            view = BatchView(data)
        except (BatchError, OSError) as error:
            if not must_be_lost(error):
                raise
            return None
        return view if view.header_is_sound() and view.index == self.index else None

    def _read_rows(self, disk: Disk) -> bytearray:
        size = disk.size(self._index_path)
        try:
            rows = sound_rows(disk.read(self._index_path, 0, size), self.stop) if size > 0 else None
        except OSError as error:
            if not must_be_lost(error):
                raise
            rows = None
        return rows if rows is not None else bytearray()


def _offset_behind(log: LogState, segment: Segment) -> int:
    """Offset of the first record behind what a segment's file holds."""
    batch = log.recent.get(segment.flushed_index)
    if batch is not None:
        return BatchView(batch).base_offset
    for one in log.segments:
        if one.first_index > segment.first_index:
            return one.base_offset
    return log.end_offset
