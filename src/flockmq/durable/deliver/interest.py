"""Which durable topics the clients of this node may get something of, kept up to date as they come and go.

```
 subscription table --noticed: filters--> Interest --> topics that became wanted, or are no longer
 topic map ---------- topics came, went -----^
```
Only subscriptions of one client alone count. Members of shared groups are served by the leader of the partition, which
sends to their node what is for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.cluster.filters import filters_overlap
from flockmq.mqtt.topics import has_wildcard

if TYPE_CHECKING:
    from flockmq.routing.durable import DurableTopic
    from flockmq.routing.table import SubscriptionTable

FILTERS_MAX: Final = 10_000
"""Filters that a new topic is compared with. With more of them it counts as wanted without a look."""
FOUND_MAX: Final = 1_000
"""Filters with wildcards of which it is kept which topics they overlap."""
ANY: Final = b""
"""Instead of a filter: the topic counts as wanted, whichever filter it is."""


class Interest:
    """See the module."""

    def __init__(self, table: SubscriptionTable) -> None:
        self.table = table
        self.topics: dict[bytes, DurableTopic] = {}
        """By id, as of the last look at the table's map."""
        self.changes = 0
        """How often that map was another one."""
        self.wants_capture = False
        """Whether a session here gets messages from the log of persistent sessions."""
        self._wanted: dict[bytes, set[bytes]] = {}
        """Ids of topics, each with the filters here that may match."""
        self.steps = 0
        """Topics that were compared with filters so far: what looking has cost."""
        self._found: dict[bytes, list[DurableTopic]] = {}
        """By filter, what ``overlapping`` found; the same question comes several times for every SUBSCRIBE."""
        self._by_first: dict[bytes, dict[bytes, DurableTopic]] = {}
        """By the first level of their filters; under ``+`` those that begin with a wildcard."""

    def is_wanted(self, topic: DurableTopic) -> bool:
        """Whether a client here may get something of a topic."""
        return self.wants_capture if topic.is_capture else topic.id in self._wanted

    def follow(self) -> tuple[list[DurableTopic], list[DurableTopic]]:
        """Look which topics the map has now: those that are new or different, and those that went."""
        current = self.table.topics.topics
        fresh = [topic for identity, topic in current.items() if self.topics.get(identity) is not topic]
        gone = [topic for identity, topic in self.topics.items() if identity not in current]
        if gone or fresh:
            self.changes += 1
            self._found.clear()
        for topic in [*gone, *fresh]:
            old = self.topics.pop(topic.id, None)
            if old is not None:
                self._enter(old, False)
                self._wanted.pop(topic.id, None)
        if fresh:
            own = self._own_filters()
            for topic in fresh:
                self.topics[topic.id] = topic
                self._enter(topic, True)
                self._compare(topic, own)
        return fresh, gone

    def note(self, topic_filter: bytes) -> list[DurableTopic]:
        """A filter got its first subscriber here, or lost its last one; the topics that are concerned."""
        found = self.overlapping(topic_filter)
        is_own = self.table.count_own(b"", topic_filter) > 0
        for topic in found:
            filters = self._wanted.get(topic.id)
            if is_own:
                if filters is None:
                    filters = self._wanted[topic.id] = set()
                filters.add(topic_filter)
            elif filters is not None:
                filters.discard(topic_filter)
                if not filters:
                    del self._wanted[topic.id]
        return found

    def sources(self, topic_filter: bytes) -> list[DurableTopic]:
        """Topics that subscribers to a filter get messages from: those that overlap, and captured ones."""
        captured = self.table.capture.topic
        found = self.overlapping(topic_filter)
        return [*found, captured] if self.wants_capture and captured is not None else found

    def overlapping(self, topic_filter: bytes) -> list[DurableTopic]:
        """Declared topics that hold names which a filter matches."""
        if not self.topics:
            return []
        if not has_wildcard(topic_filter):
            topic = self.table.topics.find(topic_filter)
            return [topic] if topic is not None else []
        known = self._found.get(topic_filter)
        if known is not None:
            return known
        first = topic_filter.partition(b"/")[0]
        if first in (b"+", b"#"):
            candidates = self.topics
        else:
            candidates = {**self._by_first.get(first, {}), **self._by_first.get(b"+", {})}
        self.steps += len(candidates)
        found = [topic for topic in candidates.values() if could_match(topic, topic_filter)]
        if len(self._found) >= FOUND_MAX:
            self._found.clear()
        self._found[topic_filter] = found
        return found

    def _enter(self, topic: DurableTopic, is_there: bool) -> None:
        for topic_filter in topic.filters:
            first = topic_filter.partition(b"/")[0]
            key = b"+" if first in (b"+", b"#") else first
            if is_there:
                self._by_first.setdefault(key, {})[topic.id] = topic
                continue
            entered = self._by_first.get(key)
            if entered is not None:
                entered.pop(topic.id, None)
                if not entered:
                    del self._by_first[key]

    def _own_filters(self) -> list[bytes] | None:
        """What clients here subscribed to; None when that is too much to go through."""
        filters = self.table.filters()
        if len(filters) > FILTERS_MAX:
            return None
        return [topic_filter for topic_filter in filters if self.table.count_own(b"", topic_filter)]

    def _compare(self, topic: DurableTopic, own: list[bytes] | None) -> None:
        if not topic.filters:
            return  # hidden: no name is routed to it, however many filters there are here
        matching = {ANY} if own is None else {one for one in own if could_match(topic, one)}
        if matching:
            self._wanted[topic.id] = matching


def could_match(topic: DurableTopic, topic_filter: bytes) -> bool:
    """Whether a filter matches a name that a topic captures."""
    return any(filters_overlap(topic_filter, captured) for captured in topic.filters)
