"""From cluster state to what publishing goes by: the map of durable topics, and the rules of the partitions led here.

```
 cluster state --> Topics.follow: records that are not those of the last time
                      |--> TopicMap of the routing table; only plans that the changed filters match are made anew
                      |--> rules of the desks: from which plan on runs are taken, what is told before it is committed
                      |--> where the groups are that have no replica here
                      `--> appending: publishers that waited for a plan go on; groups that are no more are forgotten
```
Records of cluster state are never changed, only replaced: what is new is found by looking at one reference per topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.cluster.model import CAPTURE_TOPIC
from flockmq.raft.senders import STORED, TAKEN
from flockmq.routing.durable import LEADER, MEMORY, DurableTopic

if TYPE_CHECKING:
    from flockmq.cluster.model import TopicRecord
    from flockmq.cluster.state import ClusterState
    from flockmq.durable.publish.appending import Appending
    from flockmq.raft.host import RaftHost
    from flockmq.routing.table import SubscriptionTable


def durable_topic(record: TopicRecord) -> DurableTopic:
    """The facts of a topic that publishing needs."""
    partitions = sorted(record.partitions, key=lambda partition: partition.shard)
    return DurableTopic(
        record.namespace.encode(),
        record.name.encode(),
        list(record.filters),
        [partition.group for partition in partitions],
        record.ack,
        record.key,
        record.key_property.encode(),
        record.changed_index,
    )


class Topics:
    """Keeps a node's routing, its desks and its appending up to date."""

    def __init__(self, table: SubscriptionTable, host: RaftHost, appending: Appending | None = None) -> None:
        self._table = table
        self._host = host
        self._appending = appending
        self._records: dict[str, TopicRecord] = {}
        """As they were when they were looked at last."""
        self._version = -1

    def follow(self, state: ClusterState, now: int) -> None:
        """Cluster state has changed, somewhere."""
        rules = self._host.rules
        if state.versions.topics != self._version:
            self._version = state.versions.topics
            self._follow_records(state.topics)
        self._table.topics.index = state.index
        rules.known = state.index
        if self._appending is not None:
            self._appending.topics_changed(now)

    def _follow_records(self, records: dict[str, TopicRecord]) -> None:
        known = self._records
        changed: list[bytes] = []
        for key in [key for key in known if key not in records]:
            changed += self._remove(known.pop(key))
        for key, record in records.items():
            if record is not known.get(key) and record.partitions:
                changed += self._put(record, known.get(key))
                known[key] = record
        if changed:
            self._table.topics_changed(changed)

    def _put(self, record: TopicRecord, before: TopicRecord | None) -> list[bytes]:
        """A topic is new, or not what it was; the filters whose plans are wrong now."""
        host = self._host
        filters: list[bytes] = []
        if before is not None and before.created_ms != record.created_ms:
            filters += self._remove(before)  # deleted, and made again under the same name
            before = None
        for partition in record.partitions:
            host.elsewhere[partition.group] = partition.members()
        if before is not None and before.changed_index == record.changed_index:
            return filters
        topic = durable_topic(record)
        topic.is_capture = record.name == CAPTURE_TOPIC
        if topic.is_capture:
            self._table.capture_in(topic)
        topics = self._table.topics
        old = topics.topics.get(topic.id)
        if old is not None:
            filters += old.filters
            for group in old.groups:
                if group not in topic.groups:
                    self._forget_group(group)
        topics.put(topic)
        early = STORED if topic.ack == LEADER else TAKEN if topic.ack == MEMORY else 0
        for group in topic.groups:
            host.rules.least[group] = topic.index
            host.rules.early[group] = early
        return [*filters, *topic.filters]

    def _remove(self, record: TopicRecord) -> list[bytes]:
        topic = durable_topic(record)
        self._table.topics.remove(topic.id)
        for group in topic.groups:
            self._forget_group(group)
        return topic.filters

    def _forget_group(self, group: int) -> None:
        host = self._host
        host.elsewhere.pop(group, None)
        host.rules.least.pop(group, None)
        host.rules.early.pop(group, None)
        if self._appending is not None:
            self._appending.appends.forget(group)
