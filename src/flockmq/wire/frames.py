"""Frames between our own processes: four bytes of length (little-endian), then that many bytes.

```
 bytes as they come, cut anywhere --> FrameReader.feed --> whole frames, in order
                                                       `-> FlockError: a length beyond the limit; close the connection
```
A length is refused before anything of it is collected, so a peer can't make us hold more than one frame of the limit.
Lengths with the highest bit set are words of their own, without a body, for readers that know such words.
"""

from __future__ import annotations

import struct
from typing import Final

from flockmq.errors import FlockError

LENGTH: Final = struct.Struct("<I")
LENGTH_BYTES: Final = 4
WORD: Final = 0x8000_0000
PING: Final = WORD | 1
"""Are you there?"""
PONG: Final = WORD | 2
"""Yes."""


def frame_head(length: int) -> bytes:
    """What goes before a frame of this length."""
    return LENGTH.pack(length)


class FrameReader:
    """Cuts one connection's bytes into frames."""

    def __init__(self, frame_bytes_max: int, knows_words: bool = False) -> None:
        self.words: list[int] = []
        """Words since the link last emptied this; of each kind one is kept, however many come."""
        self._knows_words = knows_words
        self._frame_bytes_max = frame_bytes_max
        self._parts: list[bytes] = []
        self._have = 0
        self._need = LENGTH_BYTES

    def feed(self, data: bytes) -> list[bytes]:
        """Whole frames that these bytes complete."""
        found: list[bytes] = []
        if self._parts:
            self._parts.append(data)
            self._have += len(data)
            if self._have < self._need:
                return found  # joined once, when all is there: a large frame is not copied again and again
            data = b"".join(self._parts)
            self._parts = []
        position = 0
        end = len(data)
        need = LENGTH_BYTES
        while end - position >= LENGTH_BYTES:
            # As the integer it is, without an object for its four bytes.
            length = data[position] | data[position + 1] << 8 | data[position + 2] << 16 | data[position + 3] << 24
            if length > self._frame_bytes_max:
                if self._knows_words and length in (PING, PONG):
                    if length not in self.words:
                        self.words.append(length)
                    position += LENGTH_BYTES
                    continue
                raise FlockError(
                    f"A frame of {length:,} bytes is announced, the limit is {self._frame_bytes_max:,}: "
                    "the other side speaks another protocol or another version."
                )
            need = LENGTH_BYTES + length
            if end - position < need:
                break
            found.append(data[position + LENGTH_BYTES : position + need])
            position += need
            need = LENGTH_BYTES
        self._need = need
        self._have = end - position
        if position < end:
            self._parts.append(data[position:])
        return found
