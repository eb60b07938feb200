"""Where the batches of a read are: in segment files, or still in memory. ``extents_reading`` takes them out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.log.batch import BatchView
from flockmq.log.reading import rows_of
from flockmq.log.segment import BY_INDEX, find_row, row_index, row_position

if TYPE_CHECKING:
    from flockmq.log.group import GroupLog
    from flockmq.log.segment import Segment
    from flockmq.log.staging import Staging

EXTENT_BYTES_MAX: Final = 64 * 1_048_576
PARTS_MAX: Final = 16_384
"""Parts of extents; each batch that is still in memory is one."""


class FilePart:
    """Batches in a segment file: from ``first_index``, which stands at ``start``, to the end of what is written."""

    def __init__(self, path: str, start: int, stop: int, first_index: int) -> None:
        self.path = path
        self.start = start
        self.stop = stop
        self.first_index = first_index


class Extents:
    """Where batches are. May be read in a thread: nothing in here changes once it is filled."""

    def __init__(self, group: int, offset: int, last_index: int, bytes_max: int, scan_bytes_max: int) -> None:
        self.group = group
        self.offset = offset
        self.last_index = last_index
        """The last entry that was committed when these were made."""
        self.bytes_max = bytes_max
        self.scan_bytes_max = scan_bytes_max
        """Most that is looked at, for a reader that wants only some of the batches."""
        self.parts: list[FilePart | bytes] = []
        self.piece_bytes_min = 64 * 1024
        self.piece_bytes_max = 1_048_576
        """Read from a file at once, unless a batch is larger."""

    def first_index(self) -> int:
        """The first entry of the first file; 0 when all is in memory."""
        for part in self.parts:
            if not isinstance(part, bytes):
                return part.first_index
        return 0

    def is_little(self, bytes_max: int) -> bool:
        """Whether all of it is in memory, and no more than this."""
        size = 0
        for part in self.parts:
            if not isinstance(part, bytes):
                return False
            size += len(part)
        return size <= bytes_max


def fill(extents: Extents, log: GroupLog, staging: Staging) -> int:
    """Name the parts; the index of a damaged entry when the very first one is damaged, else 0."""
    index = log.index_near(extents.offset)
    size = 0
    parts = extents.parts
    while index <= extents.last_index and size < extents.scan_bytes_max and len(parts) < PARTS_MAX:
        batch = log.recent.get(index)
        if batch is not None:
            if size or BatchView(batch).next_offset > extents.offset:
                parts.append(batch)
                size += len(batch)
            index += 1
            continue
        segment = log.segment_of(index)
        if segment.flushed_index <= index:
            break
        if log.gap_at(index) is not None:
            return 0 if parts else index
        part = _file_part(staging, log, segment, index)
        # All of the first part may lie before the offset: its size does not count.
        size += part.stop - part.start if parts else 0
        parts.append(part)
        index = segment.flushed_index
        behind = log.gap_after(segment.number, part.first_index)
        if behind is not None:
            part.stop = behind.start
            break
    return 0


def _file_part(staging: Staging, log: GroupLog, segment: Segment, index: int) -> FilePart:
    path = log.path(segment.file_name())
    rows = rows_of(staging, log, segment)
    number = find_row(rows, BY_INDEX, index)
    gap = log.gap_before(segment.number, index)
    if gap is not None and (number <= 0 or row_index(rows, number) < gap.next):
        return FilePart(path, gap.stop, segment.flushed, gap.next)
    if number > 0 and row_position(rows, number) < segment.flushed:
        return FilePart(path, row_position(rows, number), segment.flushed, row_index(rows, number))
    return FilePart(path, 0, segment.flushed, segment.first_index)
