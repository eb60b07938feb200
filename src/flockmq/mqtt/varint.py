"""Variable byte integers: seven bits a byte, low first, the high bit says that another byte follows; 1 to 4 bytes.

```
 0 .. 127 | .. 16,383 | .. 2,097,151 | .. 268,435,455
```
``frame_length`` reads the one in a fixed header and decides whether a whole packet can be announced yet.
"""

from __future__ import annotations

from typing import Final

from flockmq.errors import FlockError, RemoteProtocolError
from flockmq.mqtt.reasons import MALFORMED_PACKET

VARINT_MAX: Final = 268_435_455


def _encode(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80, value >> 21))


# Most packets are short; their lengths are looked up, not computed.
_SMALL: Final = [_encode(value) for value in range(2048)]


def encode_varint(value: int) -> bytes:
    """Encode in the fewest bytes [MQTT-1.5.5-1]."""
    if 0 <= value < 2048:
        return _SMALL[value]
    if value < 0 or value > VARINT_MAX:
        raise FlockError(f"{value} does not fit a variable byte integer (0 to {VARINT_MAX}); send less at once")
    return _encode(value)


def decode_varint(buf: bytes, pos: int, end: int) -> tuple[int, int]:
    """Decode at ``pos``: the value and the position after it. It must be whole and in its shortest form."""
    if pos >= end:
        raise RemoteProtocolError(MALFORMED_PACKET, "A variable byte integer is missing")
    byte = buf[pos]
    pos += 1
    if byte < 0x80:
        return byte, pos
    value = byte & 0x7F
    shift = 7
    while shift <= 21:
        if pos >= end:
            raise RemoteProtocolError(MALFORMED_PACKET, "A variable byte integer is cut off")
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0:  # [MQTT-1.5.5-1]
                raise RemoteProtocolError(MALFORMED_PACKET, "A variable byte integer is longer than needed")
            return value, pos
        shift += 7
    raise RemoteProtocolError(MALFORMED_PACKET, "A variable byte integer is longer than four bytes")


def frame_length(buf: bytes, pos: int, end: int, version: int = 0) -> tuple[int, int]:
    """Measure the packet at ``pos``: length of its fixed header and of the whole packet, as announced.

    (0, 0) when the fixed header is not all there yet. The whole packet may reach beyond ``end``: the caller compares,
    and can refuse a length that is too large before the first byte of it is kept. In version 5 the length must have its
    shortest form; 3.1.1 lets a sender pad it with zeros, and small clients do.
    """
    at = pos + 1
    value = 0
    shift = 0
    while at < end:
        byte = buf[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift and version == 5:  # [MQTT-1.5.5-1]
                raise RemoteProtocolError(MALFORMED_PACKET, "The remaining length is longer than needed")
            return at - pos, at - pos + value
        shift += 7
        if shift > 21:
            raise RemoteProtocolError(MALFORMED_PACKET, "The remaining length is longer than four bytes")
    return 0, 0
