"""The basic fields of packets: reading them checks every length against what is there; writing them checks the limit.

Readers return the value; the caller knows how far to go on (``2 + len(value)`` after a string or binary field).
"""

from __future__ import annotations

from flockmq.errors import FlockError, RemoteProtocolError
from flockmq.mqtt.reasons import MALFORMED_PACKET
from flockmq.mqtt.topics import valid_utf8


def read_u16(buf: bytes, pos: int, end: int) -> int:
    """Read two bytes, big-endian."""
    if pos + 2 > end:
        raise RemoteProtocolError(MALFORMED_PACKET, "A two byte integer is cut off")
    return buf[pos] << 8 | buf[pos + 1]


def read_u32(buf: bytes, pos: int, end: int) -> int:
    """Read four bytes, big-endian."""
    if pos + 4 > end:
        raise RemoteProtocolError(MALFORMED_PACKET, "A four byte integer is cut off")
    return buf[pos] << 24 | buf[pos + 1] << 16 | buf[pos + 2] << 8 | buf[pos + 3]


def read_binary(buf: bytes, pos: int, end: int) -> bytes:
    """Read a two byte length and that many bytes."""
    start = pos + 2
    if start > end:
        raise RemoteProtocolError(MALFORMED_PACKET, "The length of a field is cut off")
    stop = start + (buf[pos] << 8 | buf[pos + 1])
    if stop > end:
        raise RemoteProtocolError(MALFORMED_PACKET, "A field is longer than what is left of its packet")
    return buf[start:stop]


def read_text(buf: bytes, pos: int, end: int) -> bytes:
    """Read a UTF-8 string, as bytes known to be valid [MQTT-1.5.4-1] [MQTT-1.5.4-2]."""
    text = read_binary(buf, pos, end)
    if not valid_utf8(text):
        raise RemoteProtocolError(MALFORMED_PACKET, "A string is not valid UTF-8, or holds U+0000")
    return text


def u16(value: int) -> bytes:
    """Write two bytes, big-endian."""
    if value < 0 or value > 0xFFFF:
        raise FlockError(f"{value} does not fit two bytes (0 to 65535)")
    return value.to_bytes(2, "big")


def u32(value: int) -> bytes:
    """Write four bytes, big-endian."""
    if value < 0 or value > 0xFFFFFFFF:
        raise FlockError(f"{value} does not fit four bytes (0 to 4294967295)")
    return value.to_bytes(4, "big")


def binary(value: bytes) -> bytes:
    """Write a two byte length and the bytes."""
    if len(value) > 0xFFFF:
        raise FlockError(f"A field of {len(value)} bytes is too long for MQTT; the limit is 65535")
    return u16(len(value)) + value


def text(value: str) -> bytes:
    """Write a UTF-8 string."""
    return binary(value.encode())
