"""Frames: every case decodes whole and byte by byte; violations end with the close code the RFC names."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.wire.websocket import (
    FRAME_BYTES_MAX,
    NO_STATUS,
    FrameDecoder,
    close_frame,
    encode_client_frame,
    frame_header,
)

KEY = b"\x37\xfa\x21\x3d"
HELLO = bytes.fromhex("8285 37fa213d 7f9f4d5158")  # the masked "Hello" of RFC 6455 section 5.7, as a binary frame


def client(payload: bytes, first: int = 0x82) -> bytes:
    return encode_client_frame(payload, KEY, first)


def decode(wire: bytes, step: int, frame_bytes_max: int = FRAME_BYTES_MAX) -> tuple[bytes, FrameDecoder]:
    decoder = FrameDecoder(frame_bytes_max)
    found = b"".join(decoder.feed(wire[at : at + step]) for at in range(0, len(wire), step))
    return found, decoder


def test_the_example_of_the_rfc() -> None:
    assert FrameDecoder().feed(HELLO) == b"Hello"
    assert client(b"Hello") == HELLO


@pytest.mark.parametrize("step", [1, 3, 7, 1_000_000])
@pytest.mark.parametrize("size", [0, 1, 4, 5, 125, 126, 127, 65_535, 65_536, 70_001])
def test_one_frame_of_any_size(size: int, step: int) -> None:
    payload = bytes(index * 7 & 0xFF for index in range(size))
    found, decoder = decode(client(payload), step)
    assert found == payload
    assert decoder.close_code == 0
    server = frame_header(size) + payload
    assert FrameDecoder(from_client=False).feed(server) == payload


def test_mqtt_packets_may_share_and_span_frames() -> None:
    """[MQTT-6.0.0-2]: frames mean nothing to MQTT; their payloads are one stream."""
    decoder = FrameDecoder()
    assert decoder.feed(client(b"\xc0\x00\xc0") + client(b"\x00")) == b"\xc0\x00\xc0\x00"


def test_payload_is_handed_on_before_its_frame_is_complete() -> None:
    wire = client(b"0123456789")
    decoder = FrameDecoder()
    assert decoder.feed(wire[:9]) == b"012"
    assert decoder.feed(wire[9:14]) == b"34567"
    assert decoder.feed(wire[14:] + client(b"next")) == b"89next"


@pytest.mark.parametrize("step", [1, 2, 1000])
def test_fragments_with_a_ping_between_them(step: int) -> None:
    wire = client(b"one", 0x02) + client(b"?", 0x89) + client(b"", 0x00) + client(b"two", 0x80) + client(b"three")
    found, decoder = decode(wire, step)
    assert found == b"onetwothree"
    assert decoder.take_reply() == b"\x8a\x01?"
    assert decoder.take_reply() == b""


def test_a_flood_of_pings_leaves_one_pong() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(b"".join(client(b"%d" % number, 0x89) for number in range(1000))) == b""
    assert decoder.take_reply() == b"\x8a\x03999"


def test_a_pong_is_ignored() -> None:
    found, decoder = decode(client(b"x", 0x8A) + client(b"data"), 100)
    assert (found, decoder.take_reply(), decoder.close_code) == (b"data", b"", 0)


VIOLATIONS = {
    "text [MQTT-6.0.0-1]": (client(b"text", 0x81), 1003),
    "text fragment [MQTT-6.0.0-1]": (client(b"text", 0x01), 1003),
    "not masked": (frame_header(2) + b"ab", 1002),
    "reserved bit 1": (client(b"", 0xC2), 1002),
    "reserved bit 3": (client(b"", 0x92), 1002),
    "reserved data opcode": (client(b"", 0x83), 1002),
    "reserved control opcode": (client(b"", 0x8B), 1002),
    "fragmented ping": (client(b"", 0x09), 1002),
    "continuation of nothing": (client(b"", 0x80), 1002),
    "new message inside a message": (client(b"", 0x02) + client(b"", 0x82), 1002),
    "long ping": (client(b"x" * 126, 0x89), 1002),
    "over the limit": (client(b"x" * 1001), 1009),
    "64-bit length": (b"\x82\xff" + b"\xff" * 8 + KEY, 1009),
    "close with half a code": (client(b"\x03", 0x88), 1002),
    "close with code 999": (client(b"\x03\xe7", 0x88), 1002),
    "close with code 1005": (client(b"\x03\xed", 0x88), 1002),
    "close with code 1006": (client(b"\x03\xee", 0x88), 1002),
    "close with code 1015": (client(b"\x03\xf7", 0x88), 1002),
    "close with code 2999": (client(b"\x0b\xb7", 0x88), 1002),
    "close with code 5000": (client(b"\x13\x88", 0x88), 1002),
    "close reason not UTF-8": (client(b"\x03\xe8\xff", 0x88), 1007),
}


@pytest.mark.parametrize("step", [1, 10_000])
@pytest.mark.parametrize(("wire", "code"), VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_a_violation_ends_it_after_what_came_before(wire: bytes, code: int, step: int) -> None:
    found, decoder = decode(client(b"before") + wire + client(b"after"), step, frame_bytes_max=1000)
    assert found == b"before"
    assert decoder.close_code == code
    assert decoder.error
    assert decoder.take_reply() == close_frame(code)


@pytest.mark.parametrize("step", [1, 10_000])
@pytest.mark.parametrize("code", [1000, 1001, 1003, 1007, 1011, 1014, 3000, 4999])
def test_a_close_frame_is_answered_with_its_code(code: int, step: int) -> None:
    found, decoder = decode(client(b"x") + client(code.to_bytes(2, "big") + b"bye \xc3\xa9", 0x88) + HELLO, step)
    assert (found, decoder.close_code, decoder.error) == (b"x", code, "")
    assert decoder.take_reply() == close_frame(code)


def test_a_close_frame_without_a_code() -> None:
    _, decoder = decode(client(b"", 0x88), 1)
    assert decoder.close_code == NO_STATUS
    assert decoder.take_reply() == b"\x88\x00"


def test_a_client_masks_its_replies() -> None:
    decoder = FrameDecoder(from_client=False)
    decoder.feed(frame_header(2, 0x89) + b"hi")
    server = FrameDecoder()
    assert server.feed(decoder.take_reply() + HELLO) == b"Hello"
    decoder.feed(HELLO)
    assert decoder.close_code == 1002  # a server never masks


def test_an_announced_length_allocates_nothing() -> None:
    decoder = FrameDecoder()
    announced = b"\x82\xff" + (200_000_000).to_bytes(8, "big") + KEY
    tracemalloc.start()
    try:
        decoder.feed(announced)
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()
    assert decoder.close_code == 0


FRAMES = st.lists(
    st.one_of(
        st.tuples(st.just("message"), st.lists(st.binary(max_size=200), min_size=1, max_size=4)),
        st.tuples(st.just("ping"), st.lists(st.binary(max_size=125), min_size=1, max_size=1)),
    ),
    max_size=12,
)


@given(FRAMES, st.lists(st.integers(1, 60), min_size=1), st.binary(min_size=4, max_size=4))
def test_any_frames_split_anywhere(frames: list[tuple[str, list[bytes]]], steps: list[int], key: bytes) -> None:
    wire = b""
    expected = b""
    for kind, parts in frames:
        for number, part in enumerate(parts):
            opcode = 0x09 if kind == "ping" else (0x02 if number == 0 else 0x00)
            final = 0x80 if number == len(parts) - 1 else 0
            wire += encode_client_frame(part, key, final | opcode)
            expected += part if kind == "message" else b""
    decoder = FrameDecoder()
    found = b""
    turn = 0
    while wire:
        step = steps[turn % len(steps)]
        turn += 1
        found += decoder.feed(wire[:step])
        wire = wire[step:]
    assert found == expected
    assert decoder.close_code == 0


@given(st.lists(st.binary(max_size=400), max_size=8))
def test_garbage_never_raises(reads: list[bytes]) -> None:
    decoder = FrameDecoder()
    for data in reads:
        assert len(decoder.feed(data)) <= len(data) + 130
