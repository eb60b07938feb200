from __future__ import annotations

from itertools import pairwise

import pytest

from flockmq.log.batch import BatchView, stamp
from flockmq.log.segment import (
    BY_INDEX,
    BY_OFFSET,
    BY_TIME,
    ROW_BYTES,
    Segment,
    find_row,
    pack_row,
    row_index,
    row_position,
    sound_rows,
)
from log_cases import batch_of


def filled(count: int, index_bytes: int = 600) -> Segment:
    segment = Segment(9, 1000, 50)
    for number in range(count):
        batch = stamp(batch_of(b"x" * 100, timestamp_ms=1000 * number), 1, 50 + number, 1000 + number)
        segment.add(BatchView(batch), index_bytes)
    return segment


def rows_of(segment: Segment) -> bytearray:
    assert segment.rows is not None
    return segment.rows


def test_files_are_named_by_the_base_offset() -> None:
    segment = Segment(0x2A, 1234, 7)
    assert segment.file_name() == "00000000000000001234-2a.log"
    assert segment.index_name() == "00000000000000001234-2a.index"


def test_the_index_is_sparse() -> None:
    segment = filled(20)
    size = segment.length // 20
    rows = rows_of(segment)
    assert len(rows) // ROW_BYTES == -(-20 // -(-600 // size))
    assert row_position(rows, 0) == 0
    positions = [row_position(rows, number) for number in range(len(rows) // ROW_BYTES)]
    assert all(high - low >= 600 for low, high in pairwise(positions))


@pytest.mark.parametrize("by", [BY_INDEX, BY_OFFSET])
def test_finding_by_index_and_offset(by: int) -> None:
    rows = rows_of(filled(20))
    start = 50 if by == BY_INDEX else 1000
    assert find_row(rows, by, start - 1) == -1
    for number in range(20):
        row = find_row(rows, by, start + number)
        assert row_index(rows, row) <= 50 + number
        after = row + 1
        assert after * ROW_BYTES == len(rows) or row_index(rows, after) > 50 + number


def test_finding_by_time_never_starts_behind_a_newer_record() -> None:
    segment = Segment(1, 0, 1)
    times = [5, 3, 9, 2, 2, 30, 1, 1, 40]
    for number, time in enumerate(times):
        segment.add(BatchView(stamp(batch_of(b"x", timestamp_ms=time), 1, number + 1, number)), 1)
    for wanted in range(45):
        first = next((number for number, time in enumerate(times) if time >= wanted), len(times))
        start = row_index(rows_of(segment), find_row(rows_of(segment), BY_TIME, wanted)) - 1
        assert start <= first


def test_a_cut_forgets_rows_and_remembers_how_short_it_was() -> None:
    segment = filled(20)
    segment.flushed, segment.flushed_index = segment.length, 70
    segment.low, segment.low_index = segment.length, 70
    size = segment.length // 20
    segment.cut(7 * size, 57)
    assert (segment.length, segment.next_index) == (7 * size, 57)
    assert (segment.flushed, segment.flushed_index, segment.low, segment.low_index) == (7 * size, 57, 7 * size, 57)
    rows = rows_of(segment)
    assert row_index(rows, len(rows) // ROW_BYTES - 1) < 57
    segment.add(BatchView(stamp(batch_of(b"new"), 2, 57, 1007)), 600)
    assert (segment.low, segment.flushed) == (7 * size, 7 * size)


def test_rows_from_a_file_are_used_only_when_sound() -> None:
    good = bytearray(pack_row(1, 0, 0, 0) + pack_row(5, 9, 3, 700) + pack_row(9, 20, 8, 1500))
    assert sound_rows(bytes(good), 9999) == good
    assert sound_rows(bytes(good), 1500) == good[: 2 * ROW_BYTES], "rows behind the end don't count"
    assert sound_rows(bytes(good[:-1]), 9999) == good[: 2 * ROW_BYTES], "half a row was written"
    for bit in range(8 * ROW_BYTES * 2):
        broken = bytearray(good)
        broken[bit // 8] ^= 1 << bit % 8
        assert sound_rows(bytes(broken), 9999) is None
    assert sound_rows(b"", 9999) is None
    assert sound_rows(bytes(good[ROW_BYTES:]), 9999) is None, "the first row is missing"
    assert sound_rows(pack_row(1, 0, 0, 0) * 2, 9999) is None, "positions must grow"
