"""What a frame between two nodes is made of: parts, each for one channel.

```
 frame = part part part ...          part = channel (1 byte), length (4 bytes, little-endian), body
```
All parts that one node has for another in a loop turn go into one frame. A node skips parts on channels that it does
not know, because newer nodes may have more channels.
"""

from __future__ import annotations

from typing import Final

from flockmq.errors import FlockError

MEMBERS: Final = 1
"""Push and pull of the whole list of members."""
MAPS: Final = 2
"""Owned maps: deltas, acknowledgements, digests, buckets."""
RUNS: Final = 3
"""Published messages on their way to other nodes' subscribers."""
RETAINED: Final = 6
"""Retained messages and their repair."""
CALLS: Final = 7
"""Questions of the admin side to another node, and answers."""
RAFT: Final = 8
"""Consensus."""
FEEDS: Final = 10
"""Committed messages for nodes that hold no replica of their partition."""

HEAD_BYTES: Final = 5


def part_head(channel: int, length: int) -> bytes:
    """What stands before a part's body."""
    return channel.to_bytes(1, "little") + length.to_bytes(4, "little")


def split_parts(frame: bytes) -> list[tuple[int, bytes]]:
    """The parts of a frame: channel and body."""
    parts: list[tuple[int, bytes]] = []
    pos = 0
    end = len(frame)
    while pos < end:
        if end - pos < HEAD_BYTES:
            raise FlockError("A frame between nodes ends within the head of a part.")
        length = int.from_bytes(frame[pos + 1 : pos + HEAD_BYTES], "little")
        body = pos + HEAD_BYTES
        if length > end - body:
            raise FlockError(f"A part of {length:,} bytes is announced where {end - body:,} are left in the frame.")
        parts.append((frame[pos], frame[body : body + length]))
        pos = body + length
    return parts
