"""Numbers, bytes and texts of messages between nodes; every length is checked before its use.

Little-endian. ``Reader`` raises RemoteProtocolError for everything that is cut off, too long or not a text.
"""

from __future__ import annotations

import struct
from typing import Final

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt.reasons import MALFORMED_PACKET
from flockmq.mqtt.topics import valid_utf8

U16: Final = struct.Struct("<H")
U32: Final = struct.Struct("<I")
U64: Final = struct.Struct("<Q")
NUMBER_MAX: Final = (1 << 62) - 1
"""Largest epoch or time span that a node accepts; sums of larger ones would exceed 64 bits."""


def malformed(what: str) -> RemoteProtocolError:
    """The error for bytes of another node that can't be right."""
    return RemoteProtocolError(MALFORMED_PACKET, f"Another node sent {what}; do all nodes run the same version?")


def sized(data: bytes) -> bytes:
    """Bytes with two bytes of length in front."""
    return U16.pack(len(data)) + data


def large(data: bytes) -> bytes:
    """Bytes with four bytes of length in front."""
    return U32.pack(len(data)) + data


class Reader:
    """Reads fields one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0
        self.end = len(data)

    def skip(self, count: int) -> int:
        """Step over bytes that must be there; where they began."""
        pos = self.pos
        if count > self.end - pos:
            raise malformed("something that ends too early")
        self.pos = pos + count
        return pos

    def u8(self) -> int:
        """One byte."""
        return self.data[self.skip(1)]

    def u16(self) -> int:
        """Two bytes."""
        pos = self.skip(2)
        return int.from_bytes(self.data[pos : pos + 2], "little")

    def u32(self) -> int:
        """Four bytes."""
        pos = self.skip(4)
        return int.from_bytes(self.data[pos : pos + 4], "little")

    def u64(self) -> int:
        """Eight bytes."""
        pos = self.skip(8)
        return int.from_bytes(self.data[pos : pos + 8], "little")

    def number(self) -> int:
        """Eight bytes, at most ``NUMBER_MAX``, so that sums stay within 64 bits."""
        value = self.u64()
        if value > NUMBER_MAX:
            raise malformed("a number that is too large")
        return value

    def sized(self) -> bytes:
        """Bytes with two bytes of length in front."""
        length = self.u16()
        pos = self.skip(length)
        return self.data[pos : pos + length]

    def large(self, bytes_max: int) -> bytes:
        """Bytes with four bytes of length in front."""
        length = self.u32()
        if length > bytes_max:
            raise malformed(f"a field of {length:,} bytes where {bytes_max:,} are the most")
        pos = self.skip(length)
        return self.data[pos : pos + length]

    def text(self) -> str:
        """A text with two bytes of length in front."""
        data = self.sized()
        if not valid_utf8(data):
            raise malformed("a text that is not UTF-8")
        return data.decode()

    def count(self, most: int, bytes_each: int) -> int:
        """The length of a list; refused when the rest of the bytes is too short for that many elements."""
        count = self.u32()
        if count > most or count * bytes_each > self.end - self.pos:
            raise malformed(f"a list of {count:,} things")
        return count

    def finish(self) -> None:
        """Refuse bytes behind the last field."""
        if self.pos != self.end:
            raise malformed("more than was announced")
