"""What nodes say to each other about feeds, on channel FEEDS.

```
 consumer                                        server: a node with a replica
   OPEN feed group offset  ----------------------->  where are you?
   <------------------------------  AT feed offset     here; from this offset on it comes
   <------------------------------  DATA feed batches  whole batches, as they are in the log
   ACK bytes  ------------------------------------>  that many were worked off, of all feeds of this peer
   CLOSE feed  ----------------------------------->
   <------------------------------  END feed why offset

 every message: kind (1) why (1) feed (8) group (8) offset (8), behind it the batches
```
"""

from __future__ import annotations

import struct
from typing import Final

from flockmq.durable.logs.batches import split_batches
from flockmq.errors import FlockError
from flockmq.log.batch import BatchError

OPEN: Final = 1
AT: Final = 2
DATA: Final = 3
ACK: Final = 4
"""The bytes are in the place of the offset."""
CLOSE: Final = 5
END: Final = 6

FROM_END: Final = (1 << 64) - 1
"""Instead of an offset: behind all that is committed."""

# Why a feed ended.
NOT_HERE: Final = 1
"""No replica here; or one that does not know yet where the others stand."""
GONE: Final = 2
"""The offset is before the beginning of the log here; other replicas may still have it."""
LEADERLESS: Final = 3
"""This replica has not heard of a leader for a while: another one may be better."""
LOST: Final = 4
"""The records up to the offset are damaged, and there is no other replica."""

_HEAD: Final = struct.Struct("<BBQQQ")


class FeedMessage:
    """One of them; fields that a kind does not have are 0."""

    def __init__(self, kind: int, feed: int = 0, group: int = 0, offset: int = 0, why: int = 0) -> None:
        self.kind = kind
        self.feed = feed
        self.group = group
        self.offset = offset
        self.why = why
        self.batches: list[bytes] = []
        self.size = 0
        """Bytes of the batches."""

    def encode(self) -> bytes:
        """As it is sent."""
        return _HEAD.pack(self.kind, self.why, self.feed, self.group, self.offset) + b"".join(self.batches)


def decode_feed(body: bytes) -> FeedMessage | None:
    """Read a message; None for a kind that is not known, FlockError for one that is cut off or damaged."""
    if body and not OPEN <= body[0] <= END:
        return None
    try:
        kind, why, feed, group, offset = _HEAD.unpack_from(body)
        message = FeedMessage(kind, feed, group, offset, why)
        message.batches = split_batches(body, _HEAD.size)
    except (struct.error, BatchError) as error:
        raise FlockError(f"A message of another node about a feed can't be read: {error}") from error
    message.size = len(body) - _HEAD.size
    return message
