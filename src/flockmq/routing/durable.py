"""Which durable topic a topic name belongs to, and which of its partitions.

```
 topic name --> TopicMap.find --> DurableTopic --> shard_of(key) --> group
                exact names: a dict, filters: a trie         key: topic name | client id | value of a user property
```
A name belongs to one topic at most: cluster state refuses filters of two topics that could match the same name.
"""

from __future__ import annotations

from typing import Final

from flockmq.mqtt.topics import has_wildcard
from flockmq.routing.entry import FilterEntry
from flockmq.routing.spreading import spread
from flockmq.routing.trie import FilterTrie

QUORUM: Final = 0
LEADER: Final = 1
MEMORY: Final = 2
"""When a publisher gets its acknowledgement: committed; on the leader's disk; in the leader's memory."""

BY_TOPIC: Final = 0
BY_CLIENT: Final = 1
BY_PROPERTY: Final = 2
"""What decides about the partition of a message."""

MANY_GROUPS: Final = -1
"""In a plan: the group depends on more than the topic name."""


def shard_of(key: bytes, shards: int) -> int:
    """The shard of a key; the same everywhere and for ever."""
    if shards <= 1:
        return 0
    return spread(key) % shards


class DurableTopic:
    """What publishers must know of a durable topic. Never changed: another one takes its place."""

    def __init__(
        self,
        namespace: bytes,
        name: bytes,
        filters: list[bytes],
        groups: list[int],
        ack: int = QUORUM,
        key: int = BY_TOPIC,
        key_property: bytes = b"",
        index: int = 0,
    ) -> None:
        self.namespace = namespace
        self.name = name
        self.filters = list(dict.fromkeys(filters))
        """In internal form."""
        self.groups = groups
        """The Raft group of each shard."""
        self.ack = ack
        self.key = key
        self.key_property = key_property
        self.index = index
        """Cluster-state index of its last change."""
        self.id = namespace + b"/" + name
        """Tells it from all others."""
        self.is_capture = False
        """It keeps what persistent sessions wait for: names belong to it only while some do."""

    def group_of(self, topic: bytes) -> int:
        """The group of a topic name's messages, ``MANY_GROUPS`` when it depends on each message."""
        shards = len(self.groups)
        if shards == 1:
            return self.groups[0]
        return self.groups[shard_of(topic, shards)] if self.key == BY_TOPIC else MANY_GROUPS

    def group_of_key(self, key: bytes) -> int:
        """The group of a key."""
        return self.groups[shard_of(key, len(self.groups))]

    def shards_like(self, other: DurableTopic) -> bool:
        """Whether every message has the same partition in both."""
        return self.groups == other.groups and self.key == other.key and self.key_property == other.key_property


class TopicFilter(FilterEntry):
    """A filter that belongs to a durable topic."""

    def __init__(self, topic_filter: bytes, topic: DurableTopic) -> None:
        super().__init__(topic_filter)
        self.topic = topic


class TopicMap:
    """All durable topics, as of a cluster state."""

    def __init__(self, index: int = 0, topics: list[DurableTopic] | None = None) -> None:
        self.index = index
        """Index of the cluster state that this map reflects; grows with every command."""
        self.topics: dict[bytes, DurableTopic] = {}
        """By id."""
        self._exact: dict[bytes, DurableTopic] = {}
        self._trie = FilterTrie()
        if topics is not None:
            for topic in topics:
                self.put(topic)

    def find(self, topic: bytes) -> DurableTopic | None:
        """The durable topic that a topic name belongs to."""
        if not self.topics:
            return None
        return self.find_levels(topic, topic.split(b"/"))

    def find_levels(self, topic: bytes, levels: list[bytes]) -> DurableTopic | None:
        """As ``find``, of a name already cut into levels."""
        exact = self._exact.get(topic)
        if exact is not None:
            return exact
        if self._trie.count:
            for entry in self._trie.match_levels(levels, topic.startswith(b"$")):
                if isinstance(entry, TopicFilter):
                    return entry.topic
        return None

    def put(self, topic: DurableTopic) -> None:
        """Enter a topic, in the place of the one with the same id."""
        self.remove(topic.id)
        self.topics[topic.id] = topic
        for topic_filter in topic.filters:
            if has_wildcard(topic_filter):
                self._trie.add(TopicFilter(topic_filter, topic))
            else:
                self._exact[topic_filter] = topic

    def remove(self, identity: bytes) -> None:
        """Take a topic out, if it is there."""
        topic = self.topics.pop(identity, None)
        if topic is None:
            return
        for topic_filter in topic.filters:
            if has_wildcard(topic_filter):
                self._trie.remove(topic_filter)
            else:
                self._exact.pop(topic_filter, None)
