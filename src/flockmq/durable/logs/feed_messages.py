"""What nodes say to each other about feeds, on channel FEEDS.

```
 consumer                                        server: a node with a replica
   OPEN feed group offset once  ------------------>  where are you?
   <------------------------------  AT feed offset     here; from this offset on it comes
   <------------------------------  DATA feed batches  whole batches, as they are in the log
   ACK bytes  ------------------------------------>  that many were worked off, of all feeds of this peer
   CLOSE feed  ----------------------------------->
   <------------------------------  END feed why offset
```
"""

from __future__ import annotations

import struct
from typing import Final

from flockmq.errors import FlockError
from flockmq.log.batch import BatchError, BatchView
from flockmq.log.header import HEADER_BYTES, size_of

OPEN: Final = 1
AT: Final = 2
DATA: Final = 3
ACK: Final = 4
CLOSE: Final = 5
END: Final = 6

LATEST: Final = (1 << 64) - 1
"""Instead of an offset: behind all that is committed."""

# Why a feed ended.
DONE: Final = 0
"""It was to be one piece, and that was it."""
NOT_HERE: Final = 1
"""No replica here; or one that does not know yet where the others stand."""
GONE: Final = 2
"""The offset is before the beginning of the log, which is told."""
LEADERLESS: Final = 3
"""This replica has not heard of a leader for a while: another one may be better."""

_OPEN: Final = struct.Struct("<BQQQB")
_AT: Final = struct.Struct("<BQQ")
_DATA: Final = struct.Struct("<BQ")
_ACK: Final = struct.Struct("<BQ")
_CLOSE: Final = struct.Struct("<BQ")
_END: Final = struct.Struct("<BQBQ")


class FeedMessage:
    """One of them; fields that a kind does not have are 0."""

    def __init__(self, kind: int, feed: int = 0, group: int = 0, offset: int = 0, once: bool = False) -> None:
        self.kind = kind
        self.feed = feed
        self.group = group
        self.offset = offset
        self.once = once
        self.why = 0
        self.size = 0
        self.batches: list[bytes] = []


def encode_open(feed: int, group: int, offset: int, once: bool) -> bytes:
    """Ask for a partition's batches; ``once``: one piece is enough."""
    return _OPEN.pack(OPEN, feed, group, offset, int(once))


def encode_at(feed: int, offset: int) -> bytes:
    """Say where a feed begins."""
    return _AT.pack(AT, feed, offset)


def encode_data(feed: int, batches: list[bytes]) -> bytes:
    """The next batches of a feed."""
    return _DATA.pack(DATA, feed) + b"".join(batches)


def encode_ack(size: int) -> bytes:
    """So many bytes of batches were worked off."""
    return _ACK.pack(ACK, size)


def encode_close(feed: int) -> bytes:
    """No more of it."""
    return _CLOSE.pack(CLOSE, feed)


def encode_end(feed: int, why: int, offset: int) -> bytes:
    """No more will come."""
    return _END.pack(END, feed, why, offset)


def decode_feed(body: bytes) -> FeedMessage | None:
    """Read a message; None for a kind that is not known, FlockError for one that is cut off or damaged."""
    kind = body[0] if body else 0
    message = FeedMessage(kind)
    try:
        if kind == OPEN:
            _, message.feed, message.group, message.offset, once = _OPEN.unpack(body)
            message.once = once != 0
        elif kind == AT:
            _, message.feed, message.offset = _AT.unpack(body)
        elif kind == DATA:
            message.feed = _DATA.unpack_from(body)[1]
            message.size = len(body) - _DATA.size
            message.batches = _split(body, _DATA.size)
        elif kind == ACK:
            message.size = _ACK.unpack(body)[1]
        elif kind == CLOSE:
            message.feed = _CLOSE.unpack(body)[1]
        elif kind == END:
            _, message.feed, message.why, message.offset = _END.unpack(body)
        else:
            return None
    except (struct.error, BatchError) as error:
        raise FlockError(f"What another node says of a feed can't be read: {error}.") from error
    return message


def _split(body: bytes, pos: int) -> list[bytes]:
    batches: list[bytes] = []
    while pos < len(body):
        if len(body) - pos < HEADER_BYTES:
            raise BatchError("a batch is cut off")
        size = size_of(body, pos)
        if size < HEADER_BYTES or size > len(body) - pos:
            raise BatchError("a batch is cut off")
        batch = body[pos : pos + size]
        BatchView(batch).verify()
        batches.append(batch)
        pos += size
    return batches
