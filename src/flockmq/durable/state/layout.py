"""What the cluster state says about partitions: which nodes have a replica, what a partition keeps.

Reads the tables as they are; nothing is copied, so that a change of one topic costs nothing for all the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.cluster.model import CAPTURE_TOPIC, HIDDEN_TOPICS, SESSIONS_TOPIC
from flockmq.cluster.tables import key_of
from flockmq.log.settings import Retention

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.cluster.model import TopicRecord
    from flockmq.cluster.state import ClusterState

HELD_TIMES: Final = 4
"""A partition with a limit keeps at most so many times as much for the cursors that hold it."""
CAPTURED_MS: Final = 6 * 3_600_000
CAPTURED_BYTES: Final = 64 * 1_048_576
"""What a shard of ``$capture`` keeps at most of messages that no session waits for any more. What ``$capture`` itself
keeps is the bound of what sessions wait for."""
SESSION_HOLDS: Final = [f"{SESSIONS_TOPIC}/{shard}".encode() for shard in range(HIDDEN_TOPICS[SESSIONS_TOPIC].shards)]
"""Cursors of ``$capture``: each stands at the least position of all sessions of one shard of ``$sessions``. They are no
part of the cluster state, whose cursors have keys with a ``#``."""


class Layout:
    """See the module. ``state`` gives what is known now; ``held_bytes`` is what a partition without a limit of its own
    may have on disk while cursors hold it (0: no bound)."""

    def __init__(self, state: Callable[[], ClusterState], held_bytes: int = 0) -> None:
        self._state = state
        self._held_bytes = held_bytes
        self._cursors: set[bytes] = set()
        self._holders: dict[str, list[bytes]] = {}
        self._cursors_version = -1

    def groups(self) -> list[int]:
        """All partition groups that there are."""
        return list(self._state().places)

    def groups_in(self, namespaces: set[str]) -> list[tuple[str, int]]:
        """The partition groups of users' topics in these namespaces, with the name of each one's namespace; looks at
        all topics."""
        return [
            (topic.namespace, partition.group)
            for topic in self._state().user_topics()
            if topic.namespace in namespaces
            for partition in topic.partitions
        ]

    def replicas_of(self, group: int) -> tuple[int, ...]:
        """Nodes that have a replica of a group, as far as its leader has told; none when there is no such group."""
        state = self._state()
        place = state.places.get(group)
        return () if place is None else state.topics[place[0]].partitions[place[1]].replicas

    def topic_of(self, group: int) -> TopicRecord | None:
        """Whose partition a group is."""
        return self._state().topic_of_group(group)

    def retention_of(self, group: int) -> Retention | None:
        """What a group keeps; None when there is no such group."""
        topic = self._state().topic_of_group(group)
        if topic is None:
            return None
        if topic.name == CAPTURE_TOPIC:
            return captured_retention(topic.retention_ms, topic.retention_bytes)
        bound = topic.retention_bytes * HELD_TIMES or self._held_bytes
        return Retention(age_ms=topic.retention_ms, bytes=topic.retention_bytes, bytes_bound=bound)

    def holders_of(self, group: int) -> list[bytes]:
        """Cursors that retention of a group waits for."""
        place = self._state().places.get(group)
        if place is None:
            return []
        if self._state().topics[place[0]].name == CAPTURE_TOPIC:
            return SESSION_HOLDS
        self._look_at_cursors()
        return self._holders.get(place[0], [])

    def has_cursor(self, key: bytes) -> bool:
        """Whether there is such a cursor (``CursorRecord.key``)."""
        self._look_at_cursors()
        return key in self._cursors or key in SESSION_HOLDS

    def _look_at_cursors(self) -> None:
        state = self._state()
        if self._cursors_version == state.versions.cursors:
            return
        self._cursors_version = state.versions.cursors
        self._cursors = set()
        self._holders = {}
        for cursor in state.cursors.values():
            key = cursor.key.encode()
            self._cursors.add(key)
            if cursor.hold:
                self._holders.setdefault(key_of(cursor.namespace, cursor.topic), []).append(key)


def captured_retention(age_ms: int, size: int) -> Retention:
    """What a shard of ``$capture`` keeps, by what the topic says: ``age_ms`` and ``size`` bound what sessions hold."""
    return Retention(
        age_ms=min(CAPTURED_MS, age_ms or CAPTURED_MS),
        bytes=min(CAPTURED_BYTES, size or CAPTURED_BYTES),
        bytes_bound=size,
        age_bound_ms=age_ms,
        names=True,
    )
