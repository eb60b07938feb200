"""The cluster state as tables, with what is derived from them kept beside: owners of filters, loads of nodes.

```
 records (in the order they were made; encoded as they are)      derived (rebuilt when decoded)
 nodes  namespaces  clients  acls  topics  cursors  settings        filters  loads  places
 bans   groups
```
The order of the records is part of the state: it is the same on every node, also on one that got it as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from flockmq.cluster.commands import NOT_FOUND, RefusedError
from flockmq.cluster.filters import FilterTree
from flockmq.cluster.loads import Loads
from flockmq.cluster.model import (
    ALIVE,
    CORE,
    DEFAULT_NAMESPACE,
    HIDDEN_TOPICS,
    AclRecord,
    BanRecord,
    ClientRecord,
    CursorRecord,
    Namespace,
    NodeRecord,
    Setting,
    TopicRecord,
    Versions,
    is_hidden,
)

if TYPE_CHECKING:
    from flockmq.cluster.groups import ConsumerGroup
    from flockmq.cluster.model import PartitionRecord

PARTITIONS_MAX_SETTING: Final = "partitions_max"
PARTITIONS_MAX_DEFAULT: Final = 100_000


def key_of(namespace: str, name: str) -> str:
    """How clients, topics and cursors are found: no name holds a slash."""
    return f"{namespace}/{name}"


class Tables:
    """All records. Only the functions in ``changes_*.py`` write here."""

    def __init__(self) -> None:
        self.cluster_id = 0
        self.index = 0
        """How many commands were applied, refused ones too: the offset in group 0 of the next one."""
        self.versions = Versions()
        self.next_group = 1
        self.nodes: dict[int, NodeRecord] = {}
        self.namespaces: dict[str, Namespace] = {DEFAULT_NAMESPACE: Namespace(DEFAULT_NAMESPACE)}
        self.clients: dict[str, ClientRecord] = {}
        """By ``key_of(namespace, name)``, as are topics and cursors."""
        self.acls: dict[str, AclRecord] = {}
        """By namespace."""
        self.topics: dict[str, TopicRecord] = {}
        self.cursors: dict[str, CursorRecord] = {}
        self.settings: dict[str, Setting] = {}
        self.bans: dict[tuple[str, str], BanRecord] = {}
        """By kind and value."""
        self.groups: dict[str, ConsumerGroup] = {}
        """By ``key_of(namespace, name)``."""
        self.filters = FilterTree()
        self.loads = Loads()
        self.places: dict[int, tuple[str, int]] = {}
        """Group to key of its topic and shard."""
        self._moving: list[PartitionRecord] = []
        self._moving_as_of = 0

    def node(self, node_id: int) -> NodeRecord:
        """A node that must be there."""
        found = self.nodes.get(node_id)
        if found is None:
            raise RefusedError(
                NOT_FOUND, f"There is no node {node_id:016x} in the cluster; see `flockmq cluster status`."
            )
        return found

    def namespace(self, name: str) -> Namespace:
        """A namespace that must be there."""
        found = self.namespaces.get(name)
        if found is None:
            raise RefusedError(
                NOT_FOUND, f"There is no namespace {name[:128]!r}; create it, or see `flockmq namespace list`."
            )
        return found

    def topic(self, namespace: str, name: str) -> TopicRecord:
        """A topic that must be there."""
        found = self.topics.get(key_of(namespace, name))
        if found is None:
            raise _no_topic(namespace, name)
        return found

    def user_topic(self, namespace: str, name: str) -> TopicRecord:
        """A topic that must be there, as users know them: without the hidden ones."""
        if is_hidden(name):
            raise _no_topic(namespace, name)
        return self.topic(namespace, name)

    def client(self, namespace: str, name: str) -> ClientRecord:
        """A client that must be there."""
        found = self.clients.get(key_of(namespace, name))
        if found is None:
            raise RefusedError(
                NOT_FOUND,
                f"There is no client {name[:128]!r} in the namespace {namespace[:128]!r}; see `flockmq client list "
                "--registered`.",
            )
        return found

    def cursor(self, namespace: str, name: str) -> CursorRecord:
        """A cursor that must be there."""
        found = self.cursors.get(key_of(namespace, name))
        if found is None:
            raise RefusedError(
                NOT_FOUND,
                f"There is no cursor {name[:128]!r} in the namespace {namespace[:128]!r}; see `flockmq cursor list`.",
            )
        return found

    def consumer_group(self, namespace: str, name: str) -> ConsumerGroup:
        """A consumer group that must be there."""
        found = self.groups.get(key_of(namespace, name))
        if found is None:
            raise RefusedError(
                NOT_FOUND,
                f"There is no consumer group {name[:128]!r} in the namespace {namespace[:128]!r}; see `flockmq group "
                "list`.",
            )
        return found

    def partition(self, group: int) -> PartitionRecord:
        """A partition that must be there."""
        place = self.places.get(group)
        if place is None:
            raise RefusedError(
                NOT_FOUND, f"There is no partition with the group {group}; see `flockmq partition list`."
            )
        return self.topics[place[0]].partitions[place[1]]

    def topic_of_group(self, group: int) -> TopicRecord | None:
        """Whose partition a group is."""
        place = self.places.get(group)
        return None if place is None else self.topics[place[0]]

    def user_topics(self) -> list[TopicRecord]:
        """Topics that users made, in all namespaces: all but the hidden ones."""
        return [topic for topic in self.topics.values() if not is_hidden(topic.name)]

    def user_topic_count(self) -> int:
        """How many topics users made."""
        hidden = [name for name in HIDDEN_TOPICS if key_of(DEFAULT_NAMESPACE, name) in self.topics]
        return len(self.topics) - len(hidden)

    def partitions(self) -> list[PartitionRecord]:
        """All of them, topic by topic."""
        return [partition for topic in self.topics.values() for partition in topic.partitions]

    def moving(self) -> list[PartitionRecord]:
        """Partitions that are on their way to other nodes; found once per change, for this is asked often."""
        if self._moving_as_of != self.versions.topics:
            self._moving = [partition for partition in self.partitions() if partition.is_moving]
            self._moving_as_of = self.versions.topics
        return self._moving

    def alive_cores(self) -> list[NodeRecord]:
        """Nodes that can take replicas."""
        return [node for node in self.nodes.values() if node.state == ALIVE and node.role == CORE]

    def partitions_max(self) -> int:
        """How many partitions the cluster may have."""
        value = self.settings.get(PARTITIONS_MAX_SETTING, PARTITIONS_MAX_DEFAULT)
        return value if isinstance(value, int) else PARTITIONS_MAX_DEFAULT

    def keep_topic(self, topic: TopicRecord) -> None:
        """Put a topic in, or in the place of what it was; what is derived follows."""
        key = key_of(topic.namespace, topic.name)
        known = self.topics.get(key)
        if known is not None:
            self.drop_derived(known)
        self.topics[key] = topic
        for topic_filter in topic.filters:
            self.filters.add(topic_filter, key)
        for partition in topic.partitions:
            self.loads.add(partition)
            self.places[partition.group] = (key, partition.shard)

    def keep_partition(self, partition: PartitionRecord) -> None:
        """Put a partition in the place of what it was."""
        key, shard = self.places[partition.group]
        topic = self.topics[key]
        known = topic.partitions[shard]
        self.loads.move(known.target, known.preferred, partition.target, partition.preferred)
        partitions = (*topic.partitions[:shard], partition, *topic.partitions[shard + 1 :])
        self.topics[key] = with_partitions(topic, partitions)

    def drop_derived(self, topic: TopicRecord) -> None:
        """Forget what is derived from a topic."""
        for topic_filter in topic.filters:
            self.filters.remove(topic_filter)
        for partition in topic.partitions:
            self.loads.remove(partition)
            del self.places[partition.group]


def _no_topic(namespace: str, name: str) -> RefusedError:
    return RefusedError(
        NOT_FOUND, f"There is no topic {name[:128]!r} in the namespace {namespace[:128]!r}; see `flockmq topic list`."
    )


def with_partitions(topic: TopicRecord, partitions: tuple[PartitionRecord, ...]) -> TopicRecord:
    """The same topic with partitions elsewhere."""
    return replace(topic, partitions=partitions)
