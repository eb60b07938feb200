"""Which topic names persistent sessions wait for, all over the cluster: messages on them go into a log before PUBACK.

```
 shards of $sessions --announce their filters--> put, remove ---------> matches(name)? --> the plan's ``captured``
                     `-- a lease each ---------> lapses_at: from then on this node may lack a filter, and captures all
```
A filter may be in several shards; it counts until the last of them takes it back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.mqtt.topics import has_wildcard
from flockmq.routing.entry import FilterEntry
from flockmq.routing.trie import FilterTrie

if TYPE_CHECKING:
    from collections.abc import Container

    from flockmq.routing.durable import DurableTopic

NEVER: Final = 1 << 62
"""The time at which a node lacks a lease where no lease is needed: there are no persistent sessions."""


class Capture:
    """See the module."""

    def __init__(self) -> None:
        self.topic: DurableTopic | None = None
        """The hidden topic that keeps these messages; None: it was never needed."""
        self.groups: frozenset[int] = frozenset()
        """Its partitions."""
        self.lapses_at = NEVER
        """From this time on a filter may be missing here."""
        self._shards: dict[bytes, int] = {}
        """Filter -> the shards that announced it, a bit each."""
        self._trie = FilterTrie()

    def __len__(self) -> int:
        return len(self._shards)

    def matches(self, topic: bytes, levels: list[bytes]) -> bool:
        """Whether a persistent session waits for messages on a topic name."""
        if topic in self._shards:
            return True
        return self._trie.count > 0 and len(self._trie.match_levels(levels, topic.startswith(b"$"))) > 0

    def put(self, shard: int, topic_filter: bytes) -> bool:
        """A shard announces a filter; True when no other shard had it."""
        known = self._shards.get(topic_filter, 0)
        self._shards[topic_filter] = known | 1 << shard
        if not known and has_wildcard(topic_filter):
            self._trie.add(FilterEntry(topic_filter))
        return not known

    def remove(self, shard: int, topic_filter: bytes) -> bool:
        """A shard takes a filter back; True when no shard has it any more."""
        known = self._shards.get(topic_filter, 0)
        left = known & ~(1 << shard)
        if left == known:
            return False
        if left:
            self._shards[topic_filter] = left
            return False
        del self._shards[topic_filter]
        if has_wildcard(topic_filter):
            self._trie.remove(topic_filter)
        return True

    def differing(self, shard: int, filters: Container[bytes]) -> list[bytes]:
        """Filters that a shard has announced, and that are not among these."""
        bit = 1 << shard
        return [one for one, shards in self._shards.items() if shards & bit and one not in filters]

    def put_all(self, shard: int, filters: list[bytes]) -> list[bytes]:
        """A shard announces filters; those that came by that."""
        return [one for one in filters if self.put(shard, one)]

    def remove_all(self, shard: int, filters: list[bytes]) -> list[bytes]:
        """A shard takes filters back; those that went by that."""
        return [one for one in filters if self.remove(shard, one)]

    def filters(self) -> list[bytes]:
        """All of them, for people."""
        return sorted(self._shards)
