from __future__ import annotations

import struct

import pytest

from flockmq.log.batch import CONFIG, HEADER_BYTES, NOOP, BatchBuilder, BatchError, BatchView, control_batch, stamp
from flockmq.log.checksum import crc32c
from flockmq.log.header import DATA, aligned, kind_of, note_of, padding, size_of


def one_record() -> bytes:
    builder = BatchBuilder()
    builder.add(b"a/b", b"me", 1_700_000_000_123, 1, b"hello")
    return builder.build()


def test_the_first_bytes_are_where_the_format_says() -> None:
    batch = stamp(one_record(), 3, 17, 400)
    assert batch[:4] == b"FLKB"
    assert struct.unpack_from("<I", batch, 4)[0] == crc32c(batch[8:96])
    assert struct.unpack_from("<I", batch, 12)[0] == crc32c(batch[96:])
    assert struct.unpack_from("<I", batch, 16)[0] == len(batch)
    assert struct.unpack_from("<QQQqq", batch, 32) == (3, 17, 400, 1_700_000_000_123, 1_700_000_000_123)
    assert struct.unpack_from("<I", batch, 72)[0] == 1


def test_a_stamp_changes_the_header_and_not_the_body() -> None:
    plain = one_record()
    stamped = stamp(plain, 2**63, 2**62, 2**61)
    assert stamped[HEADER_BYTES:] == plain[HEADER_BYTES:]
    assert stamped[12:32] == plain[12:32], "the body's checksum and all lengths stay"
    view = BatchView(stamped)
    view.verify()
    assert (view.term, view.index, view.base_offset, view.next_offset) == (2**63, 2**62, 2**61, 2**61 + 1)


def test_stamping_twice_is_stamping_once() -> None:
    assert stamp(stamp(one_record(), 1, 2, 3), 4, 5, 6) == stamp(one_record(), 4, 5, 6)


@pytest.mark.parametrize("body", [b"", b"x", b"12345678", b"voters: 1, 2, 3"])
def test_a_control_batch_has_a_body_and_no_records(body: bytes) -> None:
    batch = stamp(control_batch(CONFIG, body, 77), 5, 6, 7)
    view = BatchView(batch)
    view.verify()
    assert (view.kind, view.count, view.body(), view.next_offset) == (CONFIG, 0, body, 7)
    assert view.base_timestamp == view.latest_timestamp == 77
    assert len(batch) == view.size
    assert len(batch) % 8 == 0
    with pytest.raises(BatchError, match="no columns"):
        view.columns()


def test_a_control_batch_may_be_as_small_as_a_header() -> None:
    assert len(control_batch(NOOP)) == HEADER_BYTES


@pytest.mark.parametrize(("length", "next_multiple"), [(0, 0), (1, 8), (7, 8), (8, 8), (9, 16)])
def test_everything_is_aligned_to_eight(length: int, next_multiple: int) -> None:
    assert aligned(length) == next_multiple
    assert length + len(padding(length)) == next_multiple


def test_parts_of_a_header_can_be_had_alone() -> None:
    builder = BatchBuilder()
    builder.add(b"topic", b"client", 0, 0, b"payload")
    batch = builder.build(note=b"a note")
    view = BatchView(batch)
    assert (kind_of(batch), note_of(batch), size_of(b"before" + batch, 6)) == (DATA, view.note(), view.size)
    assert note_of(control_batch(NOOP)) == b""
    assert kind_of(control_batch(NOOP)) == NOOP
    assert note_of(b"short") == b""
    with pytest.raises(BatchError, match="takes 96 bytes"):
        kind_of(b"short")
