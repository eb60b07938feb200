"""Lays out columns as Arrow does, and those columns that few records have.

```
 put        bytes, then zeros up to a multiple of eight        put_binary   offsets, then the values end to end
 put_int32  numbers, little-endian                             RareColumns  by position; spread out only when built
```
"""

from __future__ import annotations

import struct
import sys
from array import array
from typing import Final

from flockmq.log.columns import EXPIRES_AT, KEY, PACKET_ID, PROPERTIES, SESSION_EPOCH, USER
from flockmq.log.header import padding

UserProperty = tuple[bytes, bytes]
_IS_FOREIGN: Final = sys.byteorder != "little"
_RARE_BYTES: Final = 32
"""What a record with any rare column takes for it, roughly."""


def put(parts: list[bytes], data: bytes) -> None:
    """One buffer."""
    parts.append(data)
    parts.append(padding(len(data)))


def put_int32(parts: list[bytes], values: list[int]) -> None:
    """One buffer of numbers."""
    numbers = array("i", values)
    if _IS_FOREIGN:
        numbers.byteswap()
    put(parts, numbers.tobytes())


def put_binary(parts: list[bytes], values: list[bytes]) -> None:
    """Offsets, then bytes: Arrow's binary layout."""
    end = 0
    ends = [0]
    for value in values:
        end += len(value)
        ends.append(end)
    put_int32(parts, ends)
    put(parts, b"".join(values))


class RareColumns:
    """Values that most records don't have."""

    def __init__(self) -> None:
        self._keys: dict[int, bytes] = {}
        self._packet_ids: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        self._expiries: dict[int, int] = {}
        self._properties: dict[int, bytes] = {}
        self._users: dict[int, list[UserProperty]] = {}

    def add(
        self,
        position: int,
        key: bytes | None,
        packet_id: int,
        session_epoch: int,
        expires_at: int,
        properties: bytes,
        user: list[UserProperty],
    ) -> int:
        """Keep what the record at a position has; how many bytes that is, roughly."""
        size = _RARE_BYTES + len(properties)
        if key is not None:
            self._keys[position] = key
            size += len(key)
        if packet_id:
            self._packet_ids[position] = packet_id
        if session_epoch:
            self._epochs[position] = session_epoch
        if expires_at:
            self._expiries[position] = expires_at
        if properties:
            self._properties[position] = properties
        if user:
            self._users[position] = user
            for name, value in user:
                size += 8 + len(name) + len(value)
        return size

    def put(self, parts: list[bytes], count: int) -> int:
        """Put the columns that any record has into ``parts``; which these are."""
        mask = 0
        if self._keys:
            mask |= KEY
            put(parts, _bitmap(self._keys, count))
            put_binary(parts, _spread(self._keys, count))
        if self._packet_ids:
            mask |= PACKET_ID
            put(parts, struct.pack(f"<{count}H", *_spread_int(self._packet_ids, count)))
        if self._epochs:
            mask |= SESSION_EPOCH
            put(parts, struct.pack(f"<{count}Q", *_spread_int(self._epochs, count)))
        if self._expiries:
            mask |= EXPIRES_AT
            put(parts, struct.pack(f"<{count}q", *_spread_int(self._expiries, count)))
        if self._properties:
            mask |= PROPERTIES
            put_binary(parts, _spread(self._properties, count))
        if self._users:
            mask |= USER
            self._put_users(parts, count)
        return mask

    def _put_users(self, parts: list[bytes], count: int) -> None:
        ends = [0]
        names: list[bytes] = []
        values: list[bytes] = []
        for position in range(count):
            for name, value in self._users.get(position, ()):
                names.append(name)
                values.append(value)
            ends.append(len(names))
        put_int32(parts, ends)
        put_binary(parts, names)
        put_binary(parts, values)


def _spread(sparse: dict[int, bytes], count: int) -> list[bytes]:
    return [sparse.get(position, b"") for position in range(count)]


def _spread_int(sparse: dict[int, int], count: int) -> list[int]:
    return [sparse.get(position, 0) for position in range(count)]


def _bitmap(sparse: dict[int, bytes], count: int) -> bytes:
    """One bit per record, least significant first: set where there is a value."""
    bits = bytearray((count + 7) >> 3)
    for position in sparse:
        bits[position >> 3] |= 1 << (position & 7)
    return bytes(bits)
