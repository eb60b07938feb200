"""Parts of frames between nodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.errors import FlockError
from flockmq.peering.channels import MAPS, part_head, split_parts


@given(st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40)), max_size=8))
def test_parts_come_back_as_they_went_in(parts: list[tuple[int, bytes]]) -> None:
    frame = b"".join(part_head(channel, len(body)) + body for channel, body in parts)
    assert split_parts(frame) == parts


@given(st.binary(max_size=60))
def test_any_bytes_are_parts_or_refused(frame: bytes) -> None:
    try:
        parts = split_parts(frame)
    except FlockError:
        return
    assert b"".join(part_head(channel, len(body)) + body for channel, body in parts) == frame


@pytest.mark.parametrize("frame", [b"\x02", part_head(MAPS, 3) + b"ab", part_head(MAPS, 0xFFFFFFFF)])
def test_a_frame_that_ends_too_early_is_refused(frame: bytes) -> None:
    with pytest.raises(FlockError, match=r"(ends within|is announced)"):
        split_parts(frame)
