"""Checks segment files against what manifest and journal say about them. What does not fit is damage, and is cut off.

```
 every segment:            the file is there and long enough
 the newest of each log:   its last part, as much as the budget allows, batch for batch; the sparse index comes with it
 where damage was noted:   all of that segment, so that what can't be read is cut off and will be refilled
```
Older batches are verified whenever they are read, and all of them by ``flockmq log verify``.
"""

from __future__ import annotations

from typing import Final

from flockmq.log.errors import must_be_lost
from flockmq.log.group import GroupLog
from flockmq.log.header import BatchError
from flockmq.log.reading import SegmentReader
from flockmq.log.segment import ROW_BYTES, Segment, read_index_row, row_position, sound_rows
from flockmq.log.staging import Staging
from flockmq.log.state import Damage
from flockmq.log.view import BatchView

KEEP_BYTES_MAX: Final = 16 * 1024
"""Batches of segments that are not larger are kept: a node that opens thousands of small logs needs them at once."""

Kept = list[tuple[GroupLog, int, bytes]]
"""(log, index, batch)"""


def verify_log(staging: Staging, log: GroupLog, budget: int, kept: Kept) -> str:
    """Check the files of one log, reading at most about ``budget`` bytes of each segment. What is wrong, or nothing.

    Small segments that were read are added to ``kept``.
    """
    newest = None
    for segment in log.segments:
        if segment.flushed:
            newest = segment
    suspect = log.damage.first if log.damage is not None else 0
    for segment in log.segments:
        short = staging.disk.size(log.path(segment.file_name())) < segment.flushed
        doubtful = short or segment.first_index <= suspect < segment.next_index or budget < 0
        if doubtful or segment is newest or segment.flushed < segment.length:
            problem = _check(staging, log, segment, segment.flushed if doubtful else budget, kept)
            if problem:
                return problem
    return ""


def _check(staging: Staging, log: GroupLog, segment: Segment, budget: int, kept: Kept) -> str:
    """Read the last ``budget`` bytes of a segment's file, and make its sparse index; cut the log at damage."""
    shadow = Segment(segment.number, segment.base_offset, segment.first_index)
    path = log.path(segment.file_name())
    offset = _skip(staging, log, segment, shadow, segment.flushed - budget)
    reader = SegmentReader(staging.disk, path, shadow.length, segment.flushed)
    is_small = segment.flushed <= KEEP_BYTES_MAX
    try:
        while shadow.length < segment.flushed:
            view = reader.next(shadow.next_index)
            if is_small:
                kept.append((log, shadow.next_index, view.whole()))
            shadow.add(view, staging.index_bytes)
            offset = view.next_offset
    except (BatchError, OSError) as error:
        if not must_be_lost(error):
            raise
        problem = f"Group {log.group}: entry {shadow.next_index} in {path} is damaged: {str(error).rstrip('.')}."
        _cut(log, segment, shadow, offset, problem)
        segment.rows = shadow.rows
        return problem
    for index in range(segment.flushed_index, segment.next_index):
        shadow.add(BatchView(log.recent[index]), staging.index_bytes)
    segment.rows = shadow.rows
    segment.last_row = shadow.last_row
    segment.rows_flushed = 0
    return ""


def _skip(staging: Staging, log: GroupLog, segment: Segment, shadow: Segment, until: int) -> int:
    """Let ``shadow`` start at the last row of the index file before ``until``, if there is one to trust; its offset."""
    path = log.path(segment.index_name())
    size = staging.disk.size(path) if until > 0 else 0
    rows = sound_rows(staging.disk.read(path, 0, size), until) if size > 0 else None
    if rows is None or len(rows) <= ROW_BYTES:
        return segment.base_offset
    last = len(rows) // ROW_BYTES - 1
    index, offset, latest_before, position = read_index_row(rows, last)
    try:
        SegmentReader(staging.disk, log.path(segment.file_name()), position, segment.flushed).next(index)
    except (BatchError, OSError) as error:
        if not must_be_lost(error):
            raise
        return segment.base_offset  # a stale row or damage: reading from the front tells which
    del rows[last * ROW_BYTES :]
    shadow.rows = rows
    shadow.last_row = row_position(rows, last - 1)
    shadow.latest_timestamp = latest_before
    shadow.length = position
    shadow.next_index = index
    return offset


def _cut(log: GroupLog, segment: Segment, shadow: Segment, offset: int, problem: str) -> None:
    """Let the log end before the batch that can't be read."""
    last = log.last
    at = log.segments.index(segment)
    number, length = segment.number, shadow.length
    if shadow.next_index == segment.first_index:
        number = log.segments[at - 1].number if at else 0
        length = log.segments[at - 1].length if at else 0
    log.apply_cut(number, length, shadow.next_index - 1, offset)
    known = log.damage
    everything = known is not None and known.everything
    log.damage = Damage(shadow.next_index, max(last, known.last if known else 0), everything, problem)
