"""The names of a log's segments: from memory, from their files, or read again from the batches, a piece at a time.

```
 find(offset, wanted) --> the segment that holds the offset --> its names --> a block that may match?  --> Found
                               ^------------------------------------------------- none: the next segment
```
Names are hints. What can't be read or is not covered yet may have any name, so a reader never misses a record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.log.errors import DamageError
from flockmq.log.names import MARK_BYTES, Found, NameTest, SegmentNames, decode_names
from flockmq.log.reading import read_entries
from flockmq.log.view import BatchView

if TYPE_CHECKING:
    from flockmq.log.segment import Segment
    from flockmq.log.staging import Staging
    from flockmq.log.state import LogState

REBUILD_BYTES: Final = 1_048_576
"""Batches that one question reads again at most."""
SEGMENTS_MAX: Final = 8
"""Segments that one question looks at."""


def find_names(staging: Staging, log: LogState, offset: int, end: int, tests: list[NameTest]) -> Found:
    """Where the next record may be, from an offset that is there to ``end``, that has a wanted name."""
    at = _segment_at(log, offset)
    for number in range(at, min(at + SEGMENTS_MAX, len(log.segments))):
        is_last = number + 1 == len(log.segments)
        segment_end = end if is_last else min(log.segments[number + 1].base_offset, end)
        if offset < segment_end:
            found = names_of(staging, log, log.segments[number]).find(offset, segment_end, tests)
            if found.low < found.high:
                return found
        offset = segment_end
        if offset >= end:
            break
    return Found(offset, offset, 0)


def _segment_at(log: LogState, offset: int) -> int:
    low = 0
    high = len(log.segments)
    while high - low > 1:
        middle = (low + high) // 2
        if log.segments[middle].base_offset <= offset:
            low = middle
        else:
            high = middle
    return low


def names_of(staging: Staging, log: LogState, segment: Segment) -> SegmentNames:
    """The names of a segment, as far as they are known by now."""
    names = segment.names
    if names is None:
        names = _load(staging, log, segment)
        if names is None:
            names = SegmentNames(segment.first_index, segment.base_offset, staging.index_bytes)
        segment.names = names
        staging.named(segment)
    if names.next_index < segment.next_index and not names.is_full:
        _extend(staging, log, segment, names)
    return names


def _load(staging: Staging, log: LogState, segment: Segment) -> SegmentNames | None:
    """The names in the file, if it is sound and of this very segment."""
    path = log.path(segment.names_name())
    disk = staging.disk
    try:
        size = disk.size(path)
        names = decode_names(disk.read(path, 0, size)) if size > 0 else None
        if names is None or names.mark_at + MARK_BYTES > segment.flushed or names.next_index > segment.next_index:
            return None
        marked = disk.read(log.path(segment.file_name()), names.mark_at, MARK_BYTES)
    except OSError:
        return None
    return names if marked == names.mark and names.first_index == segment.first_index else None


def _extend(staging: Staging, log: LogState, segment: Segment, names: SegmentNames) -> None:
    """Read some more batches."""
    try:
        batches = read_entries(staging, log, names.next_index, segment.next_index, REBUILD_BYTES)
    except (DamageError, OSError):
        return  # a reader that wants these entries meets the same, and reports it
    for batch in batches:
        names.add(BatchView(batch))
    if names.is_full or names.next_index == segment.next_index:
        staging.changed.add(log.group)  # so that the next checkpoint writes them
