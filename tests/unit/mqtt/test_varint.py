from __future__ import annotations

import pytest

from flockmq.errors import FlockError, RemoteProtocolError
from flockmq.mqtt.varint import decode_varint, encode_varint, frame_length

# Table 1-1 of the specification, and the edges of the table of small values.
EDGES = [
    (0, "00"),
    (127, "7f"),
    (128, "8001"),
    (2047, "ff0f"),
    (2048, "8010"),
    (16_383, "ff7f"),
    (16_384, "808001"),
    (2_097_151, "ffff7f"),
    (2_097_152, "80808001"),
    (268_435_455, "ffffff7f"),
]


@pytest.mark.parametrize(("value", "wire"), EDGES)
def test_edges(value: int, wire: str) -> None:
    data = bytes.fromhex(wire)
    assert encode_varint(value) == data
    assert decode_varint(b"\xff" + data + b"\xff", 1, 2 + len(data)) == (value, 1 + len(data))


@pytest.mark.parametrize("value", [-1, 268_435_456])
def test_what_does_not_fit_is_not_sent(value: int) -> None:
    with pytest.raises(FlockError, match="does not fit"):
        encode_varint(value)


@pytest.mark.parametrize("wire", ["", "80", "ffff", "ffffff", "ffffffff", "ffffffff01", "80808080", "8000", "ff8000"])
def test_broken_ones_are_malformed(wire: str) -> None:
    data = bytes.fromhex(wire)
    with pytest.raises(RemoteProtocolError) as caught:
        decode_varint(data, 0, len(data))
    assert caught.value.reason_code == 0x81


def test_end_counts_not_the_buffer() -> None:
    with pytest.raises(RemoteProtocolError):
        decode_varint(b"\x80\x01", 0, 1)


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        ("", (0, 0)),
        ("30", (0, 0)),
        ("c000", (2, 2)),
        ("3080", (0, 0)),
        ("308001", (3, 131)),
        ("30ffffff", (0, 0)),
        ("30ffffff7f", (5, 268_435_460)),
        ("308000", (3, 3)),  # padded: allowed in 3.1.1
    ],
)
def test_frame_length(wire: str, expected: tuple[int, int]) -> None:
    data = bytes.fromhex(wire)
    assert frame_length(data, 0, len(data)) == expected
    assert frame_length(b"\xff\xff" + data + b"\x00", 2, 2 + len(data)) == expected


@pytest.mark.parametrize("wire", ["308000", "30848000", "30ff808000"])
def test_a_padded_remaining_length_is_malformed_in_version_5(wire: str) -> None:  # [MQTT-1.5.5-1]
    data = bytes.fromhex(wire)
    assert frame_length(data, 0, len(data), 4)[0] == len(data)
    with pytest.raises(RemoteProtocolError) as caught:
        frame_length(data, 0, len(data), 5)
    assert caught.value.reason_code == 0x81


def test_a_length_of_zero_is_not_padded() -> None:
    assert frame_length(b"\xc0\x00", 0, 2, 5) == (2, 2)


def test_a_remaining_length_of_five_bytes_is_malformed_before_the_fifth_arrives() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        frame_length(b"\x30\xff\xff\xff\xff", 0, 5)
    assert caught.value.reason_code == 0x81
