"""Deletions of retained messages that other nodes may not have heard of: for how long, and how many, are remembered.

Without them a node that was away would bring a deleted message back. Each stands in the bucket of its topic name, with
its version, and counts in the digest of that bucket.
"""

from __future__ import annotations

from typing import Final

from flockmq.routing.buckets import BUCKETS, ORIGIN_BITS, Bucket
from flockmq.routing.clock import stamp_wall_ms

TOMBSTONE_MS: Final = 604_800_000
"""How long deletions are remembered: seven days."""
TOMBSTONES_MAX: Final = 1_000_000
"""Most deletions remembered where the number of messages has no limit; else as many as messages."""


class Tombstones:
    """The deletions in the buckets of one store."""

    def __init__(self, buckets: list[Bucket], count_max: int, kept_ms: int) -> None:
        self.count = 0
        self.dropped = 0
        """Deletions that were forgotten early because there were too many."""
        self._buckets = buckets
        self._count_max = count_max or TOMBSTONES_MAX
        self._kept_ms = kept_ms
        self._next_bucket = 0

    def is_forgotten(self, version: int, wall_ms: int) -> bool:
        """Whether a deletion is so old that no node needs to know of it any more."""
        return stamp_wall_ms(version >> ORIGIN_BITS) + self._kept_ms <= wall_ms

    def put(self, bucket: Bucket, topic: bytes, version: int) -> bytes:
        """Remember a deletion, in place of an older one; the topic of one that was forgotten for it, or nothing."""
        deleted = bucket.deleted
        if deleted is None:
            deleted = {}
            bucket.deleted = deleted
        old = deleted.pop(topic, 0)
        if old:
            bucket.take_digest(topic, old)
        else:
            self.count += 1
        deleted[topic] = version
        bucket.add_digest(topic, version)
        if self.count <= self._count_max or len(deleted) <= 1:
            return b""
        self.dropped += 1
        oldest = next(iter(deleted))
        self.remove(bucket, oldest)
        return oldest

    def remove(self, bucket: Bucket, topic: bytes) -> None:
        """Forget a deletion, if there is one."""
        deleted = bucket.deleted
        if deleted is None:
            return
        version = deleted.pop(topic, 0)
        if version:
            bucket.take_digest(topic, version)
            self._one_less(bucket)

    def replace(self, bucket: Bucket, topic: bytes) -> None:
        """A message takes the place of a deletion, if there is one; the digest has been corrected for both."""
        if bucket.deleted is not None and bucket.deleted.pop(topic, 0):
            self._one_less(bucket)

    def sweep(self, wall_ms: int, budget: int) -> list[bytes]:
        """Look at the deletions of some buckets, in turn, and forget the old ones: their topics."""
        forgotten: list[bytes] = []
        looked_at = 0
        for _ in range(BUCKETS):
            bucket = self._buckets[self._next_bucket]
            self._next_bucket = (self._next_bucket + 1) & (BUCKETS - 1)
            deleted = bucket.deleted
            if deleted is None:
                continue
            looked_at += len(deleted)
            old = [topic for topic, version in deleted.items() if self.is_forgotten(version, wall_ms)]
            for topic in old:
                self.remove(bucket, topic)
            forgotten.extend(old)
            if looked_at >= budget:
                break
        return forgotten

    def _one_less(self, bucket: Bucket) -> None:
        self.count -= 1
        if not bucket.deleted:
            bucket.deleted = None
