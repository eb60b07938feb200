"""Retained messages cut into buckets by topic name, so that two nodes can find where they differ without listing all.

```
 topic --> bucket (1 of 1,024): messages, deletions, digest        the same bucket on every node
                                                     |
            sum of a hash of each (topic, stamp, node): two nodes whose buckets have the same content have the same
            digest, in whatever order it came; a message that expired counts like the deletion it becomes
```
A version is a stamp and the id of the node that made it, in one integer: what is larger is later.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final
from zlib import crc32

if TYPE_CHECKING:
    from flockmq.routing.retained import RetainedMessage

BUCKETS: Final = 1_024
DIGEST_MASK: Final = (1 << 64) - 1
ORIGIN_BITS: Final = 64
ORIGIN_MASK: Final = (1 << 64) - 1


def bucket_of(topic: bytes) -> int:
    """The number of the bucket that a topic name belongs to."""
    return crc32(topic) & (BUCKETS - 1)


def version_of(stamp: int, origin: int) -> int:
    """A stamp and the node it is from as one number that can be compared."""
    return stamp << ORIGIN_BITS | origin


def entry_digest(topic: bytes, stamp: int, origin: int) -> int:
    """What an entry adds to the digest of its bucket."""
    version = version_of(stamp, origin).to_bytes(16, "little")
    return int.from_bytes(blake2b(version + topic, digest_size=8).digest(), "little")


class Bucket:
    """The messages and deletions of some topic names."""

    def __init__(self) -> None:
        self.messages: dict[bytes, RetainedMessage] = {}
        self.deleted: dict[bytes, int] | None = None
        """Versions of deletions that other nodes may not have heard of yet."""
        self.digest = 0

    def version(self, topic: bytes) -> int:
        """The version of a topic's message or deletion; 0 when nothing is known of it."""
        message = self.messages.get(topic)
        if message is not None:
            return version_of(message.stamp, message.origin)
        if self.deleted is not None:
            return self.deleted.get(topic, 0)
        return 0

    def topics(self) -> list[bytes]:
        """All names with a message that is shared with other nodes, or a deletion."""
        found = [topic for topic in self.messages if not topic.startswith(b"$SYS/")]
        if self.deleted:
            found.extend(self.deleted)
        return found

    def add_digest(self, topic: bytes, version: int) -> None:
        """An entry is there."""
        digest = entry_digest(topic, version >> ORIGIN_BITS, version & ORIGIN_MASK)
        self.digest = (self.digest + digest) & DIGEST_MASK

    def take_digest(self, topic: bytes, version: int) -> None:
        """An entry is gone."""
        digest = entry_digest(topic, version >> ORIGIN_BITS, version & ORIGIN_MASK)
        self.digest = (self.digest - digest) & DIGEST_MASK


class Changes:
    """Names of topics that changed, each once, until they are taken.

    Bounded: beyond ``topics_max`` names it only remembers that it lost count, and the taker looks at all.
    """

    def __init__(self, topics_max: int) -> None:
        self.topics: dict[bytes, None] = {}
        self.lost_count = False
        self._topics_max = topics_max

    def add(self, topic: bytes) -> None:
        """A topic changed."""
        if len(self.topics) >= self._topics_max and topic not in self.topics:
            self.lost_count = True
            self.topics.clear()
        self.topics[topic] = None

    def take(self, count: int) -> list[bytes]:
        """Up to ``count`` names, those that changed first before the others."""
        if len(self.topics) <= count:
            taken = list(self.topics)
            self.topics = {}
            return taken
        taken = []
        for topic in self.topics:
            if len(taken) >= count:
                break
            taken.append(topic)
        for topic in taken:
            del self.topics[topic]
        return taken
