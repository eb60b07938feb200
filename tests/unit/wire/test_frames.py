from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.errors import FlockError
from flockmq.wire.frames import PING, PONG, FrameReader, frame_head


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


def test_words_stand_between_frames() -> None:
    reader = FrameReader(8, knows_words=True)
    word = frame_head(PING)
    assert reader.feed(framed(b"a") + word + word + framed(b"b") + word[:2]) == [b"a", b"b"]
    assert reader.words == [PING]
    reader.words = []
    assert reader.feed(word[2:] + frame_head(PONG) + framed(b"c")) == [b"c"]
    assert reader.words == [PING, PONG]


def test_words_are_lengths_to_who_does_not_know_them() -> None:
    with pytest.raises(FlockError, match="is announced"):
        FrameReader(8).feed(frame_head(PING))


def test_there_are_no_other_words() -> None:
    with pytest.raises(FlockError, match="is announced"):
        FrameReader(8, knows_words=True).feed(frame_head(PING | 0x70))
