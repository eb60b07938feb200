"""Torn or damaged, told apart: every place where a write can stop, every byte that can go bad."""

from __future__ import annotations

import random

import pytest

from flockmq.log.journal import APPEND, SECTOR, STATE, UNIT, Row, encode_record
from flockmq.log.scan import JournalFile, Scan, scan_journal

STORE = 99
FILE_BYTES = 16 * 1024


def row_of(group: int, data: bytes) -> Row:
    row = Row(APPEND, group, 1, 0, 0, len(data), 1, 1)
    row.parts = [data]
    return row


def journal(records: list[list[Row]], first: int = 1) -> tuple[bytearray, list[int]]:
    """A file with these records, and where each starts; the last place is where the next one would."""
    data = bytearray(FILE_BYTES)
    starts = [0]
    for number, rows in enumerate(records):
        record = encode_record(STORE, first + number, rows, starts[-1])
        data[starts[-1] : starts[-1] + len(record)] = record
        starts.append(starts[-1] + len(record))
    return data, starts


def scan(*files: bytes | bytearray) -> Scan:
    return scan_journal([JournalFile(number, bytes(data)) for number, data in enumerate(files, 1)], STORE, 0, 1)


def three(last: bytes = b"last " * 30) -> tuple[bytearray, list[int]]:
    return journal([[row_of(1, b"a" * 40)], [Row(STATE, 2, 1, 2, 0, 0, 3)], [row_of(1, last), row_of(2, b"z" * 90)]])


def test_records_come_back_in_order() -> None:
    data, starts = three()
    found = scan(data)
    assert [record.sequence for record in found.records] == [1, 2, 3]
    assert [row.data for row in found.records[2].rows] == [b"last " * 30, b"z" * 90]
    assert (found.position, found.sequence, found.clean, found.torn, found.notes) == (starts[3], 4, True, False, [])


def test_an_empty_file_is_an_empty_journal() -> None:
    found = scan(bytes(FILE_BYTES))
    assert (found.records, found.position, found.sequence, found.clean) == ([], 0, 1, True)


def test_a_write_that_stopped_at_any_byte_is_torn_and_cut() -> None:
    data, starts = three()
    for length in range(starts[3] - starts[2]):
        cut = bytearray(data)
        cut[starts[2] + length :] = bytes(FILE_BYTES - starts[2] - length)
        found = scan(cut)
        assert [record.sequence for record in found.records] == [1, 2], length
        assert (found.position, found.sequence, found.notes) == (starts[2], 3, []), length
        assert found.torn == (length > 0)
        assert found.clean == (length == 0)


def test_a_file_that_ends_at_any_byte_is_torn_as_well() -> None:
    data, starts = three()
    for length in range(starts[3] - starts[2]):
        found = scan(data[: starts[2] + length])
        assert [record.sequence for record in found.records] == [1, 2], length
        assert found.notes == []


@pytest.mark.parametrize("seed", range(300))
def test_a_write_of_which_any_sectors_are_missing_is_torn_or_complete(seed: int) -> None:
    rng = random.Random(seed)
    pieces = [rng.randbytes(100), bytes(rng.randrange(3000)), rng.randbytes(rng.randrange(2000))]
    rng.shuffle(pieces)
    data, starts = three(b"".join(pieces))
    cut = bytearray(data)
    for start in range(starts[2] // SECTOR * SECTOR, starts[3], SECTOR):
        if rng.random() < 0.3:
            low, high = max(start, starts[2]), min(start + SECTOR, starts[3])
            cut[low:high] = bytes(high - low)
    found = scan(cut)
    assert found.notes == []
    if len(found.records) == 3:
        assert [row.data for row in found.records[2].rows] == [b"".join(pieces), b"z" * 90]
    else:
        assert len(found.records) == 2
        assert found.torn or cut[starts[2] :] == bytes(FILE_BYTES - starts[2])


def test_a_flipped_bit_in_the_last_record_is_never_taken_for_a_torn_write() -> None:
    """It may have been acknowledged: all of it is read from its copies, or it is told who lost what."""
    data, starts = three()
    for position in range(starts[2], starts[3]):
        for bit in (0, 7):
            broken = bytearray(data)
            broken[position] ^= 1 << bit
            found = scan(broken)
            assert not found.torn, position
            assert [record.sequence for record in found.records] == [1, 2, 3], position
            last = found.records[2]
            assert last.rows_lost == 0, "all but the data stands twice"
            assert [row.group for row in last.rows] == [1, 2]
            lost = [row.group for row in last.rows if row.data is None]
            assert len(lost) <= 1
            assert bool(found.notes) or not lost


def test_a_sector_that_one_flipped_bit_makes_look_unwritten_is_damage() -> None:
    for lonely in range(1200, 2400):
        payload = bytearray(3000)
        payload[lonely] = 0x10
        data, starts = three(bytes(payload))
        data[data.index(0x10, starts[2] + 1000)] = 0
        found = scan(data)
        assert not found.torn, lonely
        assert [row.data is None for row in found.records[2].rows] == [True, False]


def test_damage_in_the_middle_costs_only_what_was_hit() -> None:
    data, starts = three()
    for position in range(starts[0], starts[1]):
        broken = bytearray(data)
        broken[position] ^= 0x10
        found = scan(broken)
        assert [record.sequence for record in found.records] == [1, 2, 3]
        assert (found.torn, found.position) == (False, starts[3])


def test_a_record_that_looks_torn_is_damage_when_another_follows() -> None:
    data, starts = three()
    broken = bytearray(data)
    broken[starts[1] + 70 : starts[2]] = bytes(starts[2] - starts[1] - 70)
    found = scan(broken)
    assert not found.torn
    assert found.records[1].rows_lost
    assert found.records[2].sequence == 3
    assert any("record 2 is damaged" in note for note in found.notes)


def test_a_record_that_is_gone_is_noticed_by_the_next() -> None:
    data, starts = three()
    broken = bytearray(data)
    broken[starts[1] : starts[2]] = bytes(starts[2] - starts[1])
    found = scan(broken)
    assert [(record.sequence, record.rows_lost) for record in found.records] == [(1, 0), (2, 1), (3, 0)]
    assert any("record 2" in note and "can't be read" in note for note in found.notes)


def test_a_last_record_with_both_headers_bad_is_damage() -> None:
    data, starts = three()
    data[starts[2] + 20] ^= 1
    data[starts[3] - 20] ^= 1
    found = scan(data)
    assert (found.torn, found.records[-1].rows_lost) == (False, 1)
    assert found.notes


def test_the_journal_goes_on_in_the_next_file() -> None:
    first, starts = three()
    second, more = journal([[row_of(3, b"x")], [row_of(4, b"y")]], first=4)
    found = scan(first, second, bytes(FILE_BYTES))
    assert [record.sequence for record in found.records] == [1, 2, 3, 4, 5]
    assert (found.file, found.position, found.sequence, found.clean) == (2, more[2], 6, True)
    assert starts[3] != more[2]


def test_a_torn_record_before_another_file_is_damage() -> None:
    first, starts = three()
    second, _ = journal([[row_of(3, b"x")]], first=4)
    first[starts[2] + 100 :] = bytes(FILE_BYTES - starts[2] - 100)
    found = scan(first, second)
    assert not found.torn
    assert [record.sequence for record in found.records] == [1, 2, 3, 4]
    assert found.records[2].rows_lost


def test_records_missing_at_the_end_of_a_file_are_noticed_in_the_next() -> None:
    first, starts = three()
    second, _ = journal([[row_of(3, b"x")]], first=4)
    first[starts[2] :] = bytes(FILE_BYTES - starts[2])
    found = scan(first, second)
    assert [(record.sequence, record.rows_lost) for record in found.records] == [(1, 0), (2, 0), (3, 1), (4, 0)]


def test_bytes_that_clients_chose_are_never_taken_for_records() -> None:
    """A payload may hold a whole record, even of a higher sequence; but not one that names this store."""
    forged = encode_record(STORE + 1, 50, [row_of(1, b"gotcha")], 0)
    data, starts = three(bytes(UNIT - 40) + forged)
    data[starts[3] - 300 :] = bytes(FILE_BYTES - starts[3] + 300)
    found = scan(data)
    assert (found.torn, len(found.records)) == (True, 2)
