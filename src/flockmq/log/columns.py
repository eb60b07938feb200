"""Which columns a batch has, and where their buffers lie.

```
 topic      int32 index into the topic dictionary    | always     packet_id      uint16          | only where some
 client     int32 index into the client dictionary   |            session_epoch  uint64          | record has them
 timestamp  int32 ms after the base timestamp        |            expires_at     int64 ms, 0 none|
 flags      uint8: 2 bits QoS, 1 bit retain          |            properties     binary          |
 payload    binary: int32 offsets, bytes             |            user           list<struct<key: utf8, value: utf8>>
 key        binary with validity bitmap, only where some record has one
```
Each buffer is laid out as Arrow lays it out and starts at a multiple of eight, so a reader hands the bytes to Arrow as
they are. Where a buffer ends follows from the record count or from the last offset before it: finding all of them costs
the same for one record as for a million.
"""

from __future__ import annotations

from typing import Final

QOS_MASK: Final = 3
RETAIN: Final = 4
"""Bits of a record's flags."""

KEY: Final = 1
PACKET_ID: Final = 2
SESSION_EPOCH: Final = 4
EXPIRES_AT: Final = 8
PROPERTIES: Final = 16
USER: Final = 32
KNOWN: Final = 63

Span = tuple[int, int]
"""(start, length) of a buffer within the bytes it lies in."""


class Columns:
    """The buffers of a batch: ``data`` and, by name, where in it each Arrow buffer lies."""

    def __init__(self, data: bytes, count: int, spans: dict[str, Span]) -> None:
        self.data = data
        """The batch's own bytes, or what its columns decompressed to."""
        self.count = count
        self.spans = spans
        """For example ``"payload.offsets"`` and ``"payload.bytes"``."""

    def __contains__(self, column: str) -> bool:
        return column in self.spans
