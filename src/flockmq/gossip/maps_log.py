"""What is kept of a map's past, and how a whole map is cut into pieces.

```
 SegmentLog   [ 7..9 ][ 9..12 ][ 12..40 ]      encoded once, sent to every peer as it is; the oldest are forgotten
                       ^ a peer at version 9 goes on here; one at version 3 gets a Snapshot
 Snapshot     version 40: piece 0, piece 1, ... last     encoded as they are needed, shared by all peers that get them
```
Where a segment ends is the owner's decision (the end of a turn, or a full message), and all others keep to it: a copy
is exactly what the owner had there. That is why a third node can pass on the segments it got.
"""

from __future__ import annotations

from typing import Final

from flockmq.gossip.maps_codec import ENTRY_BYTES, FULL_BYTES, encode_entry, encode_full

SEGMENT_BYTES: Final = 128
"""What a segment costs beside its bytes: many small ones must not take more memory than the bound allows."""


class Segment:
    """The changes of one turn, as a message."""

    def __init__(self, first: int, last: int, body: bytes, end: int) -> None:
        self.first = first
        self.last = last
        self.body = body
        self.end = end
        """What all segments since the log began have cost, this one included."""


class SegmentLog:
    """The newest changes of one map, without gaps."""

    def __init__(self, bytes_max: int) -> None:
        self.segments: list[Segment] = []
        self._bytes_max = bytes_max
        self._begin = 0  # what the forgotten ones have cost
        self._end = 0

    def append(self, first: int, last: int, body: bytes) -> None:
        """Keep a segment, and forget the oldest ones if they are too many."""
        segments = self.segments
        self._end += len(body) + SEGMENT_BYTES
        segments.append(Segment(first, last, body, self._end))
        if self._end - self._begin <= self._bytes_max:
            return
        # A quarter at once: moving the rest of the list for each new segment would cost more than it saves.
        target = self._end - self._bytes_max + self._bytes_max // 4
        count = 0
        while count < len(segments) and self._begin < target:
            self._begin = segments[count].end
            count += 1
        del segments[:count]

    def clear(self) -> None:
        """Forget all segments: the next one does not follow on them."""
        self.segments = []
        self._begin = self._end

    def index_of(self, version: int) -> int:
        """Which segment goes on from this version; -1: none does."""
        segments = self.segments
        low = 0
        high = len(segments)
        if high and segments[high - 1].first <= version:
            low = high - 1  # nearly always: a peer that follows was level before this turn
        while low < high:
            middle = (low + high) // 2
            if segments[middle].first < version:
                low = middle + 1
            else:
                high = middle
        if low < len(segments) and segments[low].first == version:
            return low
        return -1

    def end_at(self, version: int) -> int:
        """What all segments up to this version have cost since the log began; -1: that is not kept."""
        segments = self.segments
        count = len(segments)
        if count and segments[count - 1].last == version:
            return self._end
        index = self.index_of(version)
        if index > 0:
            return segments[index - 1].end
        return self._begin if index == 0 else -1


class Snapshot:
    """A whole map at one version, in pieces."""

    def __init__(self, owner: int, boot: int, version: int, entries: dict[bytes, bytes], chunk_bytes_max: int) -> None:
        self.owner = owner
        self.boot = boot
        self.version = version
        self.users = 0
        self._items: list[tuple[bytes, bytes]] = list(entries.items())
        self._position = 0
        self._chunk_bytes_max = chunk_bytes_max
        self._chunks: list[bytes] = []
        self._complete = False

    def chunk(self, index: int) -> bytes:
        """The piece with this number; there must be one."""
        while index >= len(self._chunks):
            assert not self._complete
            self._encode_next()
        return self._chunks[index]

    def is_last(self, index: int) -> bool:
        """Whether nothing comes after this piece; it must have been encoded."""
        return self._complete and index == len(self._chunks) - 1

    def _encode_next(self) -> None:
        items = self._items
        position = self._position
        room = self._chunk_bytes_max - FULL_BYTES
        entries: list[bytes] = []
        while position < len(items):
            key, value = items[position]
            room -= ENTRY_BYTES + len(key) + len(value)
            if room < 0:
                break
            entries.append(encode_entry(key, value))
            position += 1
        self._position = position
        self._complete = position == len(items)
        body = encode_full(
            self.owner, self.boot, self.version, len(self._chunks), self._complete, len(entries), entries
        )
        self._chunks.append(body)
        if self._complete:
            self._items = []
