"""Where sessions stand in logs: behind all that their clients have acknowledged.

```
 live end of a stream <-- a session that keeps up            its queue and window: not acknowledged yet
                          a session that reads: Catchup      --> the lowest of these, by partition
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.durable.deliver.catchup import UNKNOWN
from flockmq.mqtt.topics import has_wildcard

if TYPE_CHECKING:
    from flockmq.durable.deliver.delivery import Delivery
    from flockmq.routing.subscription import Subscription
    from flockmq.session.session import Session


class Positions:
    """See the module."""

    def __init__(self, delivery: Delivery) -> None:
        self._streams = delivery.streams
        self._readers = delivery.readers
        self._replay = delivery.replay

    def levels(self) -> dict[int, int]:
        """By partition, the offset that this node delivers next."""
        streams = self._streams.by_group
        return {group: stream.next for group, stream in streams.items() if stream.next != UNKNOWN}

    def starts(self, topic_filter: bytes) -> dict[int, int]:
        """Where a new subscription begins: at the offset that this node delivers next."""
        found: dict[int, int] = {}
        for group in self.groups_of(topic_filter):
            stream = self._streams.by_group.get(group)
            if stream is not None and stream.next != UNKNOWN:
                found[group] = stream.next
        return found

    def starts_of(self, subscription: Subscription) -> dict[int, int]:
        """Where a subscription that asked for history begins: at the beginning of that history."""
        found = self.starts(subscription.topic_filter)
        for group, offset in self._replay.take_history(subscription).items():
            if group in found:
                found[group] = min(offset, found[group])
        return found

    def knows(self, topic_filter: bytes) -> bool:
        """Whether this node knows where a new subscription begins."""
        return len(self.starts(topic_filter)) == len(self.groups_of(topic_filter))

    def groups_of(self, topic_filter: bytes) -> list[int]:
        """Partitions that may hold messages for a filter."""
        groups: list[int] = []
        is_name = not has_wildcard(topic_filter)
        for topic in self._streams.interest.sources(topic_filter):
            groups += [topic.group_of(topic_filter)] if topic.is_capture and is_name else topic.groups
        return groups

    def generation(self) -> int:
        """Grows when topics, and with them the partitions of sessions, may be others."""
        return self._streams.interest.changes

    def all_groups(self, session: Session) -> dict[int, None]:
        """Partitions that may hold messages for a session."""
        groups: dict[int, None] = {}
        for subscription in session.subscriptions.values():
            if not subscription.group:
                groups.update(dict.fromkeys(self.groups_of(subscription.topic_filter)))
        return groups

    def of(self, session: Session) -> dict[int, int]:
        """By partition, the first offset that a session's client may not have acknowledged."""
        found = self.behind(session)
        for group in self.all_groups(session):
            stream = self._streams.by_group.get(group)
            if group not in found and stream is not None and stream.next != UNKNOWN:
                found[group] = stream.next
        return found

    def behind(self, session: Session) -> dict[int, int]:
        """The partitions in which a session is not level with what this node delivers."""
        outbound = session.outbound
        found = outbound.oldest_logged() if outbound is not None else {}
        catchup = self._readers.catching.get(session)
        if catchup is not None:
            for group, position in catchup.known_positions().items():
                found[group] = min(position, found.get(group, position))
        return found
