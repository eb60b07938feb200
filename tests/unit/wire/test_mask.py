"""Masking: every way gives what the byte loop of RFC 6455 section 5.3 gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flockmq.wire.mask import fastest, xor, xor_by_integer


def byte_by_byte(data: bytes, key: bytes) -> bytes:
    return bytes(byte ^ key[index % 4] for index, byte in enumerate(data))


@given(st.binary(max_size=300), st.binary(min_size=4, max_size=4))
def test_all_ways_agree_with_the_byte_loop(data: bytes, key: bytes) -> None:
    expected = byte_by_byte(data, key)
    assert xor_by_integer(data, key) == expected
    assert fastest()(data, key) == expected
    assert xor(xor(data, key), key) == data
