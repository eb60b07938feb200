from __future__ import annotations

import random

import pytest

from flockmq.log.journal import (
    APPEND,
    BACK,
    FRONT,
    MARKER,
    STATE,
    UNIT,
    Row,
    dark_sectors,
    encode_record,
    read_header,
    read_row,
    record_bytes,
)

STORE = 0x1234_5678_9ABC


def rows() -> list[Row]:
    first = Row(APPEND, 7, 3, 400, 64, 16, 20, 21)
    first.parts = [b"batch 20", b"batch 21"]
    return [first, Row(STATE, 8, 2, 11, 0, 0, 5)]


def test_a_record_has_its_length_and_starts_and_ends_with_its_header() -> None:
    record = encode_record(STORE, 12, rows(), 0)
    assert len(record) == record_bytes(2, 16)
    assert len(record) % UNIT == 0
    assert record.endswith(MARKER)
    for at, magic in ((0, FRONT), (len(record) - UNIT, BACK)):
        header = read_header(record, at, magic, STORE)
        assert header is not None
        assert (header.sequence, header.size, header.rows, header.data_bytes) == (12, len(record), 2, 16)


def test_rows_stand_twice_and_name_their_data() -> None:
    record = encode_record(STORE, 12, rows(), 0)
    for at in (UNIT, len(record) - 3 * UNIT):
        row = read_row(record, at)
        assert row is not None
        assert (row.kind, row.group, row.segment, row.base_offset, row.position) == (APPEND, 7, 3, 400, 64)
        assert (row.first, row.last) == (20, 21)
        assert record[row.at : row.at + row.length] == b"batch 20batch 21"
        other = read_row(record, at + UNIT)
        assert other is not None
        assert (other.kind, other.group, other.segment, other.base_offset, other.first) == (STATE, 8, 2, 11, 5)


def test_a_header_of_another_store_is_none() -> None:
    record = encode_record(STORE, 12, rows(), 0)
    assert read_header(record, 0, FRONT, STORE + 1) is None
    assert read_header(record, UNIT, FRONT, STORE) is None
    assert read_header(record[: UNIT - 1], 0, FRONT, STORE) is None


def test_no_bit_of_a_header_or_row_can_change_unseen() -> None:
    record = encode_record(STORE, 12, rows(), 0)
    for bit in range(8 * UNIT):
        broken = bytearray(record)
        broken[bit // 8] ^= 1 << bit % 8
        assert read_header(bytes(broken), 0, FRONT, STORE) is None
        broken[UNIT + bit // 8] ^= 1 << bit % 8
        assert read_row(bytes(broken), UNIT) is None


@pytest.mark.parametrize("byte", MARKER)
def test_no_flipped_bit_makes_a_byte_of_the_marker_look_unwritten(byte: int) -> None:
    assert byte.bit_count() >= 4


def brute_force(record: bytes, position: int) -> tuple[int, int]:
    whole = [record[at : at + 512] for at in range(-position % 512, len(record) - 511, 512) if at + 512 <= len(record)]
    lit = [len(sector.strip(b"\0")) for sector in whole]
    return lit.count(0), sum(1 for length in lit if 0 < length <= 8)


@pytest.mark.parametrize("seed", range(200))
def test_dark_sectors_are_counted_as_by_hand(seed: int) -> None:
    rng = random.Random(seed)
    record = bytearray(rng.randrange(1, 60) * UNIT)
    for _ in range(rng.randrange(12)):
        at = rng.randrange(len(record))
        record[at : at + 1] = b"\x01"
    position = rng.randrange(20) * UNIT
    assert dark_sectors(bytes(record), position) == brute_force(bytes(record), position)


def test_the_header_tells_how_many_sectors_are_dark_anyway() -> None:
    row = Row(APPEND, 7, 3, 400, 64, 4096, 20, 20)
    row.parts = [bytes(4096)]
    record = encode_record(STORE, 1, [row], 128)
    header = read_header(record, 0, FRONT, STORE)
    assert header is not None
    assert (header.empty, header.faint) == brute_force(record, 128) == (7, 0)
