from __future__ import annotations

import pytest

from flockmq.log.batch import HEADER_BYTES, BatchBuilder, BatchError, BatchView, stamp


def three_topics() -> bytes:
    builder = BatchBuilder()
    for number in range(9):
        builder.add(b"t/%d" % (number % 3), b"c", number, 0, b"%d" % number)
        builder.mark(key=b"k", packet_id=1, user=[(b"a", b"b")])
    return stamp(builder.build(), 1, 2, 100)


def test_a_batch_is_read_where_it_lies() -> None:
    batch = three_topics()
    view = BatchView(b"........" + batch + b"next", 8)
    view.verify()
    assert view.whole() == batch
    assert view.end == 8 + len(batch)
    assert view.record(4).payload == b"4"
    assert view.record(4).offset == 104


def test_a_filter_is_asked_once_per_distinct_name() -> None:
    asked: list[bytes] = []

    def wanted(topic: bytes) -> bool:
        asked.append(topic)
        return topic != b"t/1"

    assert BatchView(three_topics()).select(wanted) == [0, 2, 3, 5, 6, 8]
    assert asked == [b"t/0", b"t/1", b"t/2"]


@pytest.mark.parametrize(("verdict", "selected"), [(True, list(range(9))), (False, [])])
def test_all_or_nothing_needs_no_look_at_the_records(verdict: bool, selected: list[int]) -> None:
    batch = bytearray(three_topics())
    view = BatchView(bytes(batch))
    start, length = view.columns().spans["topic"]
    batch[start : start + length] = b"\xff" * length
    assert BatchView(bytes(batch)).select(lambda _: verdict) == selected


def test_every_flipped_bit_is_found() -> None:
    batch = three_topics()
    for position in range(len(batch)):
        broken = bytearray(batch)
        broken[position] ^= 1 << (position % 8)
        with pytest.raises(BatchError):
            BatchView(bytes(broken)).verify()


def test_every_missing_end_is_found() -> None:
    batch = three_topics()
    for length in range(len(batch)):
        with pytest.raises(BatchError):
            BatchView(batch[:length]).verify()


def test_header_and_body_are_checked_apart() -> None:
    broken = bytearray(three_topics())
    broken[-1] ^= 1
    view = BatchView(bytes(broken))
    assert view.header_is_sound()
    with pytest.raises(BatchError, match="body of batch 2"):
        view.verify()
    broken[40] ^= 1
    assert not BatchView(bytes(broken)).header_is_sound()


@pytest.mark.parametrize("position", [-1, 9, 1000])
def test_records_that_are_not_there(position: int) -> None:
    with pytest.raises(BatchError, match="9 records"):
        BatchView(three_topics()).record(position)


def test_lengths_that_lie_never_lead_outside() -> None:
    """Only checksums that fit let a lie get this far: then it is refused, not followed."""
    batch = three_topics()
    for at in range(16, HEADER_BYTES, 4):
        for value in (0, 1, 0x7FFFFFFF, 0xFFFFFFFF):
            broken = batch[:at] + value.to_bytes(4, "little") + batch[at + 4 :]
            try:
                view = BatchView(broken)
                for record in view.records()[:20] if view.count < 1000 else []:
                    assert len(record.payload) <= len(batch)
            except BatchError:
                pass


def test_a_newer_format_says_so() -> None:
    batch = bytearray(three_topics())
    batch[8] = 2
    with pytest.raises(BatchError, match="newer"):
        BatchView(bytes(batch))


def test_compressed_columns_that_lie_about_their_size() -> None:
    builder = BatchBuilder()
    for _ in range(100):
        builder.add(b"a", b"b", 1, 0, b"same same same")
    batch = bytearray(builder.build(compress=True))
    batch[28] ^= 8
    with pytest.raises(BatchError, match="another size"):
        BatchView(bytes(batch)).columns()
