from __future__ import annotations

from collections.abc import Callable

import pytest

from flockmq.errors import FlockError, RemoteProtocolError
from flockmq.mqtt.fields import binary, read_binary, read_text, read_u16, read_u32, text, u16, u32


def test_integers_there_and_back() -> None:
    assert u16(0) == b"\x00\x00"
    assert u32(0) == b"\x00\x00\x00\x00"
    assert u16(0x1234) == b"\x12\x34"
    assert u32(0x12345678) == b"\x12\x34\x56\x78"
    assert read_u16(b"\xff\x12\x34", 1, 3) == 0x1234
    assert read_u32(b"\xff\x12\x34\x56\x78", 1, 5) == 0x12345678
    assert read_u32(b"\xff\xff\xff\xff", 0, 4) == 0xFFFFFFFF


def test_strings_there_and_back() -> None:
    assert binary(b"\x00\xff") == b"\x00\x02\x00\xff"
    assert text("grün") == b"\x00\x05gr\xc3\xbcn"
    assert read_binary(b"\x00\x02\x00\xff", 0, 4) == b"\x00\xff"
    assert read_text(b"\x00\x05gr\xc3\xbcn", 0, 7) == "grün".encode()
    assert read_text(b"\x00\x00", 0, 2) == b""


@pytest.mark.parametrize("reader", [read_u16, read_u32, read_binary, read_text])
@pytest.mark.parametrize("end", [0, 1])
def test_cut_off(reader: Callable[[bytes, int, int], object], end: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        reader(b"\x00\x05hello", 0, end)  # the bytes behind the end don't count
    assert caught.value.reason_code == 0x81


def test_a_length_beyond_the_end() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read_binary(b"\x00\x05hello", 0, 6)
    assert caught.value.reason_code == 0x81


@pytest.mark.parametrize("call", [lambda: u16(65_536), lambda: u16(-1), lambda: u32(1 << 32), lambda: u32(-1)])
def test_numbers_that_do_not_fit(call: Callable[[], bytes]) -> None:
    with pytest.raises(FlockError, match="does not fit"):
        call()


def test_fields_that_do_not_fit() -> None:
    assert len(binary(bytes(65_535))) == 65_537
    with pytest.raises(FlockError, match="too long"):
        binary(bytes(65_536))
