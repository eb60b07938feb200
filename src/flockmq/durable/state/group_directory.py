"""What the cluster state says about consumer groups, ready to be asked for each batch: by id, by partition, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flockmq.cluster.groups import NO_DEAD_LETTERS
from flockmq.cluster.selection import Selection
from flockmq.cluster.tables import key_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.cluster.groups import ConsumerGroup
    from flockmq.cluster.model import TopicRecord
    from flockmq.cluster.state import ClusterState


class Place(NamedTuple):
    """A partition that a group reads."""

    partition: int
    shard: int
    topic: TopicRecord


class GroupDirectory:
    """See the module. ``state`` gives what is known now; derived tables follow its versions."""

    def __init__(self, state: Callable[[], ClusterState]) -> None:
        self._state = state
        self._versions = (-1, -1)
        self._by_id: dict[int, ConsumerGroup] = {}
        self._by_topic: dict[str, list[ConsumerGroup]] = {}
        self._selections: dict[tuple[int, str], Selection] = {}
        self._holds: dict[str, list[int]] = {}

    @property
    def version(self) -> tuple[int, int]:
        """Changes whenever an answer could have changed."""
        versions = self._state().versions
        return versions.groups, versions.topics

    def has_groups(self) -> bool:
        """Whether there is any consumer group."""
        return bool(self._state().groups)

    def group(self, group_id: int) -> ConsumerGroup | None:
        """A group that is not deleted."""
        self._follow()
        return self._by_id.get(group_id)

    def named(self, namespace: str, name: str) -> ConsumerGroup | None:
        """A group by its name."""
        return self._state().groups.get(key_of(namespace, name))

    def of_partition(self, partition: int) -> list[ConsumerGroup]:
        """The groups that read a partition."""
        place = self._state().places.get(partition)
        if place is None:
            return []
        self._follow()
        return self._by_topic.get(place[0], [])

    def holders_of(self, partition: int) -> list[int]:
        """Ids of the groups that retention of a partition waits for."""
        place = self._state().places.get(partition)
        if place is None:
            return []
        self._follow()
        return self._holds.get(place[0], [])

    def places_of(self, group: ConsumerGroup) -> list[Place]:
        """All partitions that a group reads."""
        found: list[Place] = []
        for name in group.topics():
            topic = self._state().topics.get(key_of(group.namespace, name))
            if topic is not None:
                found += [Place(one.group, one.shard, topic) for one in topic.partitions]
        return found

    def place_of(self, partition: int) -> Place | None:
        """Whose partition it is."""
        place = self._state().places.get(partition)
        if place is None:
            return None
        topic = self._state().topics[place[0]]
        return Place(partition, topic.partitions[place[1]].shard, topic)

    def selection(self, group: ConsumerGroup, partition: int) -> Selection | None:
        """Which records of a partition are for a group."""
        place = self._state().places.get(partition)
        if place is None:
            return None
        self._follow()
        found = self._selections.get((group.id, place[0]))
        if found is None:
            found = self._selections[group.id, place[0]] = Selection.of(group, self._state().topics[place[0]])
        return found

    def dead_topic(self, group: ConsumerGroup) -> TopicRecord | None:
        """The topic that takes a group's dead letters; None: they are dropped."""
        if group.dead_letter == NO_DEAD_LETTERS:
            return None
        return self._state().topics.get(key_of(group.namespace, group.dead_letter))

    def _follow(self) -> None:
        if self._versions == self.version:
            return
        self._versions = self.version
        self._by_id = {}
        self._by_topic = {}
        self._selections = {}
        self._holds = {}
        for group in self._state().groups.values():
            self._by_id[group.id] = group
            for name in group.topics():
                key = key_of(group.namespace, name)
                self._by_topic.setdefault(key, []).append(group)
                if group.hold:
                    self._holds.setdefault(key, []).append(group.id)
