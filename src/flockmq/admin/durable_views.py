"""Cluster state and what nodes tell of their replicas, as the API shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from flockmq.admin import durable_model as model
from flockmq.admin import durable_tenants_model as tenants
from flockmq.admin.durable_port import FOLLOWING, LEADING, LEARNING
from flockmq.admin.moments import rfc3339
from flockmq.cluster.filters import user_filter
from flockmq.cluster.model import ACK_NAMES, ALIVE, BY_PROPERTY, KEY_NAMES

if TYPE_CHECKING:
    from flockmq.admin.durable_port import ReplicaStatus
    from flockmq.cluster.model import ClientRecord, CursorRecord, Namespace, NodeRecord, PartitionRecord, TopicRecord

_ROLES: Final[dict[int, model.ReplicaRole]] = {LEADING: "leader", FOLLOWING: "follower", LEARNING: "learner"}
_ACKS: Final[tuple[model.Ack, ...]] = ("quorum", "leader", "memory")
assert _ACKS == ACK_NAMES


def topic_view(topic: TopicRecord) -> model.DataTopic:
    """A topic as it was declared."""
    return model.DataTopic(
        namespace=topic.namespace,
        name=topic.name,
        filters=[user_filter(topic.namespace, one) for one in topic.filters],
        shards=topic.shards,
        replication_factor=topic.replication_factor,
        retention_ms=topic.retention_ms or None,
        retention_bytes=topic.retention_bytes or None,
        ack=_ACKS[topic.ack],
        key=topic.key_property if topic.key == BY_PROPERTY else KEY_NAMES[topic.key],
        exchange=topic.exchange,  # type: ignore[arg-type]  # checked by cluster state
        created_at=rfc3339(topic.created_ms),
        changed_index=topic.changed_index,
        groups=[one.group for one in topic.partitions],
    )


def node_name(nodes: Mapping[int, NodeRecord], node: int) -> str:
    """What people call a node."""
    found = nodes.get(node)
    return found.name if found is not None else f"{node:016x}"


def partition_view(
    topic: TopicRecord,
    partition: PartitionRecord,
    told: Sequence[ReplicaStatus],
    nodes: Mapping[int, NodeRecord],
) -> model.Partition:
    """A partition: what was decided about it, and what its replicas say."""
    by_node = {one.node: one for one in told}
    leader = leader_among(told)
    end = max((one.end for one in told), default=None)
    problem = _problem(topic, partition, by_node, leader, nodes)
    source = by_node.get(leader) or max(told, key=lambda one: one.end, default=None)
    return model.Partition(
        group=partition.group,
        namespace=topic.namespace,
        topic=topic.name,
        shard=partition.shard,
        leader=node_name(nodes, leader) if leader else None,
        preferred=node_name(nodes, partition.preferred) if partition.preferred else None,
        term=max((one.term for one in told), default=None),
        first_offset=source.first if source is not None else None,
        end_offset=end,
        bytes=source.bytes if source is not None else None,
        replicas=[_replica(node, by_node.get(node), nodes, end) for node in partition.members()],
        target=[node_name(nodes, node) for node in partition.target] if partition.is_moving else [],
        healthy=not problem,
        problem=problem,
    )


def leader_among(told: Iterable[ReplicaStatus]) -> int:
    """The node that leads, as replicas tell: the one of the highest term that says so itself; 0 when none does."""
    best = max((one for one in told if one.role == LEADING), key=lambda one: one.term, default=None)
    return best.node if best is not None else 0


def _replica(node: int, told: ReplicaStatus | None, nodes: Mapping[int, NodeRecord], end: int | None) -> model.Replica:
    record = nodes.get(node)
    return model.Replica(
        node=node_name(nodes, node),
        id=f"{node:016x}",
        api=(record.api or None) if record is not None else None,
        role=_ROLES.get(told.role, "unknown") if told is not None else "unknown",
        end_offset=told.end if told is not None else None,
        lag=end - told.end if told is not None and end is not None else None,
    )


def _problem(
    topic: TopicRecord,
    partition: PartitionRecord,
    told: Mapping[int, ReplicaStatus],
    leader: int,
    nodes: Mapping[int, NodeRecord],
) -> str:
    if not leader:
        return "It has no leader: a majority of its replicas must be up."
    silent = [node for node in partition.replicas if node not in told]
    if silent:
        return f"No answer from {', '.join(node_name(nodes, node) for node in silent)}."
    for one in told.values():
        if one.problem:
            return f"{node_name(nodes, one.node)}: {one.problem}"
    cores = sum(1 for one in nodes.values() if one.role == 0 and one.state == ALIVE)
    wanted = min(topic.replication_factor, max(cores, 1))
    if len(partition.replicas) < wanted:
        return f"It has {len(partition.replicas)} of {wanted} replicas; more are being made."
    return ""


def cursor_view(
    cursor: CursorRecord, positions: Sequence[int | None], heads: Sequence[tuple[int, int] | None]
) -> tenants.ReadCursor:
    """A cursor and how far it is behind."""
    rows = []
    for shard, (offset, head) in enumerate(zip(positions, heads, strict=True)):
        end = head[1] if head is not None else None
        start = offset if offset is not None else (head[0] if head is not None else None)
        lag = max(0, end - max(start, head[0])) if end is not None and start is not None and head is not None else None
        lost = max(0, head[0] - offset) if offset is not None and head is not None else 0
        rows.append(tenants.CursorPosition(shard=shard, offset=offset, end_offset=end, lag=lag, lost=lost))
    lags = [row.lag for row in rows]
    return tenants.ReadCursor(
        namespace=cursor.namespace,
        name=cursor.name,
        topic=cursor.topic,
        hold=cursor.hold,
        created_at=rfc3339(cursor.created_ms),
        lag=None if None in lags else sum(lag for lag in lags if lag is not None),
        lost=sum(row.lost for row in rows),
        positions=rows,
    )


def namespace_view(namespace: Namespace, topics: int, clients: int) -> tenants.NamespaceInfo:
    """A namespace and what is in it."""
    limits: dict[str, int] = msgspec.structs.asdict(namespace.limits)
    return tenants.NamespaceInfo(
        name=namespace.name,
        limits={name: value for name, value in limits.items() if value},
        topics=topics,
        clients=clients,
    )


def client_view(client: ClientRecord) -> tenants.RegisteredClient:
    """A registered client without its secret."""
    return tenants.RegisteredClient(
        namespace=client.namespace,
        name=client.name,
        has_password=bool(client.secret),
        publish=list(client.publish),
        subscribe=list(client.subscribe),
        publish_deny=list(client.publish_deny),
        subscribe_deny=list(client.subscribe_deny),
        superuser=client.superuser,
    )
