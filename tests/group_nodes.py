"""Whole nodes in lockstep with consumer groups: topics, records, fetchers and members over MQTT.

```
 nodes = GroupNodes()                        three nodes, topic ``t`` with filter t/#
 group = nodes.group("work")                 a consumer group that reads t, begun in all partitions
 nodes.publish(1, b"t/a", b"1", b"2")        records, through a node
 nodes.fetch(2, group, "m", 10)              records for a fetcher on node 2
 nodes.ack(3, one.token)                     "" or a sentence, through any node
```
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from flockmq.cluster.bindings import parse_binding
from flockmq.cluster.commands import CreateTopic
from flockmq.cluster.commands_groups import AlterGroup, CreateGroup, DeleteGroup, ResetGroup
from flockmq.log.batch import BatchBuilder, BatchView
from flockmq.tasks import Promise
from flockmq.testing.lockstep_nodes import NodesLockstep, WholeNode

if TYPE_CHECKING:
    from flockmq.cluster.groups import ConsumerGroup
    from flockmq.cluster.model import TopicRecord
    from flockmq.cluster.state import ClusterState
    from flockmq.durable.groups.port import Fetched, GroupMembers, PartitionStatus

T = TypeVar("T")
KEY = "default/t"


class GroupNodes(NodesLockstep):
    """See the module."""

    def __init__(self, cores: int = 3, shards: int = 1, seed: int = 1) -> None:
        super().__init__(seed, cores)
        self.found(*range(2, cores + 1))
        self.until(lambda: len(self.state.nodes) == cores and len(self.voters()) == min(cores, 3), 30_000)
        self.topic("t", shards)

    @property
    def state(self) -> ClusterState:
        """The cluster state, as its leader has it."""
        leader = self.leader()
        return (leader or self.running()[0]).meta.state

    def topic(self, name: str, shards: int = 1) -> None:
        """A durable topic, on all nodes."""
        result = self.submit(1, CreateTopic(name, filters=(f"{name}/#",), shards=shards, replication_factor=3))
        assert result.ok, result
        self.until(lambda: all(self.leader(one) is not None for one in self.partitions(name)), 30_000)

    def partitions(self, name: str = "t") -> list[int]:
        """The partitions of a topic."""
        return [one.group for one in self.state.topics[f"default/{name}"].partitions]

    def group(self, name: str = "work", *bindings: str, **options: object) -> ConsumerGroup:
        """A consumer group that all partitions have begun."""
        options = {"start": "earliest", **options}
        command = CreateGroup(name, tuple([parse_binding(one) for one in bindings or ("t",)]), **options)  # type: ignore[arg-type]
        result = self.submit(1, command)
        assert result.ok, result
        self.begin(name)
        return self.state.groups[f"default/{name}"]

    def begin(self, name: str) -> None:
        """Wait until all partitions have begun the present generation."""
        group = self.state.groups[f"default/{name}"]
        node = self.running()[0]
        self.until(lambda: node.durable.group_directory.group(group.id) == group)
        assert self.answer(node.durable.group_room.port.begin(group.id)) == []

    def alter(self, name: str, **options: object) -> None:
        """Change a group."""
        result = self.submit(self.running()[0].number, AlterGroup(name, **options))  # type: ignore[arg-type]
        assert result.ok, result
        self.known(name)

    def reset(self, name: str, start: str) -> None:
        """A new generation."""
        assert self.submit(1, ResetGroup(name, start)).ok
        self.known(name)
        self.begin(name)

    def delete(self, name: str) -> None:
        """The group is no more."""
        assert self.submit(1, DeleteGroup(name)).ok

    def known(self, name: str) -> None:
        """All nodes know the group as it is."""
        key = f"default/{name}"
        group = self.state.groups[key]
        self.until(lambda: all(node.meta.state.groups.get(key) == group for node in self.running()))

    def answer(self, promise: Promise[T], ms_max: int = 15_000) -> T:
        """Let time pass until a promise is kept."""
        self.until(lambda: promise.is_set, ms_max)
        assert promise.error is None
        value: T = promise.value
        return value

    def port(self, number: int) -> GroupMembers:
        """Groups, as callers on a node see them."""
        return self[number].durable.group_room.port

    def fetch(
        self, number: int, group: ConsumerGroup, member: str, count: int = 10, wait_ms: int = 500
    ) -> list[Fetched]:
        """Records for a fetcher."""
        return self.answer(self.port(number).fetch(group.id, member, count, wait_ms), wait_ms + 10_000)

    def ack(self, number: int, *records: Fetched) -> list[str]:
        """Settle records."""
        return self.answer(self.port(number).ack([one.token for one in records]))

    def nack(self, number: int, *records: Fetched, delay_ms: int | None = None, reason: str = "") -> list[str]:
        """Have records delivered again."""
        return self.answer(self.port(number).nack([one.token for one in records], delay_ms, reason))

    def status(self, group: ConsumerGroup, number: int = 1) -> list[PartitionStatus]:
        """Where a group stands."""
        return self.answer(self.port(number).status(group.id))

    def put(self, partition: int, *records: tuple[bytes, bytes], key: bytes | None = None, user: object = ()) -> None:
        """Records (name, payload) in a partition, as one batch, by way of its leader."""
        builder = BatchBuilder()
        for name, payload in records:
            builder.add(name, b"publisher", self.wall_ms(), 1, payload)
            if key is not None or user:
                builder.mark(key=key, user=list(user))  # type: ignore[call-overload]
        self.put_batch(partition, builder)

    def put_batch(self, partition: int, builder: BatchBuilder) -> None:
        """A batch in a partition."""
        before = self.end(partition)
        leader = self.leader(partition)
        assert leader is not None
        leader.durable.engine.host.propose(partition, builder.build())
        leader.wake()
        self.until(lambda: self.end(partition) == before + builder.count)

    def publish(self, name: bytes, *payloads: bytes) -> None:
        """Records of one topic name in the only partition of t."""
        self.put(self.partitions()[0], *[(name, payload) for payload in payloads])

    def end(self, partition: int) -> int:
        """Where a log ends."""
        leader = self.leader(partition)
        return -1 if leader is None else leader.durable.local.end(partition)

    def leader_number(self, partition: int) -> int:
        """The node that leads a partition."""
        self.until(lambda: self.leader(partition) is not None, 30_000)
        leader = self.leader(partition)
        assert leader is not None
        return leader.number

    def floor(self, group: ConsumerGroup, partition: int) -> int:
        """All before it are settled, as every replica has it."""
        nodes = [node for node in self.running() if partition in node.durable.machines.by_group]
        return min(node.durable.machines.by_group[partition].groups.held_offset(group.id) for node in nodes)

    def payloads_of(self, topic: TopicRecord) -> list[bytes]:
        """All records of a topic."""
        found: list[bytes] = []
        for one in topic.partitions:
            leader = self[self.leader_number(one.group)]
            found += leader.payloads(one.group)
        return found


def payloads(records: list[Fetched]) -> list[bytes]:
    """What they say."""
    return [one.payload for one in records]


def wait_for(nodes: GroupNodes, condition: Callable[[], bool], ms_max: int = 60_000) -> None:
    """Let time pass until something holds."""
    nodes.until(condition, ms_max)


__all__ = ["BatchView", "GroupNodes", "WholeNode", "payloads", "wait_for"]
