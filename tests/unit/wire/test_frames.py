from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.errors import FlockError
from flockmq.wire.frames import FrameReader, frame_head


def framed(*frames: bytes) -> bytes:
    return b"".join(frame_head(len(frame)) + frame for frame in frames)


def test_frames_in_one_piece_come_out_in_order() -> None:
    assert FrameReader(10).feed(framed(b"a", b"", b"bc")) == [b"a", b"", b"bc"]


@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_any_cut_gives_the_same_frames(frames: list[bytes], data: st.DataObject) -> None:
    stream = framed(*frames)
    reader = FrameReader(40)
    found: list[bytes] = []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:cut])
        stream = stream[cut:]
    assert found == frames


def test_a_length_beyond_the_limit_is_refused_before_its_bytes_come() -> None:
    reader = FrameReader(8)
    assert reader.feed(framed(b"12345678")) == [b"12345678"]
    with pytest.raises(FlockError, match="9 bytes is announced, the limit is 8"):
        reader.feed(frame_head(9))
