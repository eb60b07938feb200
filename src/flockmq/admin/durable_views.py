"""Cluster state and what nodes tell of their replicas, as the API shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from flockmq.admin import durable_model as model
from flockmq.admin import durable_tenants_model as tenants
from flockmq.admin.durable_port import NOWHERE
from flockmq.admin.moments import rfc3339
from flockmq.cluster.filters import user_filter
from flockmq.cluster.model import ACK_NAMES, ALIVE, BY_PROPERTY, CORE, KEY_NAMES, is_hidden
from flockmq.cluster.placement import effective_factor
from flockmq.durable.cursors.cursors import lag_of, lost_of
from flockmq.durable.replicas.status import FOLLOWING, LEADING, LEARNING

if TYPE_CHECKING:
    from flockmq.cluster.model import ClientRecord, CursorRecord, Namespace, NodeRecord, PartitionRecord, TopicRecord
    from flockmq.durable.replicas.status import ReplicaStatus
    from flockmq.session.space import Space

_ROLES: Final[dict[int, model.ReplicaRole]] = {LEADING: "leader", FOLLOWING: "follower", LEARNING: "learner"}
_ACKS: Final[tuple[model.Ack, ...]] = ("quorum", "leader", "memory")
assert _ACKS == ACK_NAMES


def topic_view(topic: TopicRecord, cores: int) -> model.DataTopic:
    """A topic as it was declared, in a cluster with so many core nodes alive."""
    return model.DataTopic(
        namespace=topic.namespace,
        name=topic.name,
        filters=[user_filter(topic.namespace, one) for one in topic.filters],
        shards=topic.shards,
        replication_factor=topic.replication_factor,
        copies_possible=effective_factor(topic.replication_factor, cores),
        retention_ms=topic.retention_ms or None,
        retention_bytes=topic.retention_bytes or None,
        ack=_ACKS[topic.ack],
        key=topic.key_property if topic.key == BY_PROPERTY else KEY_NAMES[topic.key],
        exchange=topic.exchange,  # type: ignore[arg-type]  # checked by cluster state
        created_at=rfc3339(topic.created_ms),
        changed_index=topic.changed_index,
        groups=[one.group for one in topic.partitions],
        hidden=is_hidden(topic.name),
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


def silent_replicas(partition: PartitionRecord, told: Iterable[ReplicaStatus]) -> list[int]:
    """Nodes that should have a copy and do not say so."""
    answering = {one.node for one in told}
    return [node for node in partition.replicas if node not in answering]


def is_lost(partition: PartitionRecord, told: Iterable[ReplicaStatus]) -> bool:
    """Whether so many replicas lost their stores, or parts of their logs, that the others can't elect a leader, even
    if all of them answered."""
    lost = {one.node for one in told if not one.may_vote}
    whole = [node for node in partition.replicas if node not in lost]
    return 2 * len(whole) <= len(partition.replicas)


def copies_wanted(topic: TopicRecord, cores: int) -> int:
    """Copies that each partition must have to be well: of a hidden topic, for which no user chose a number, as many as
    the core nodes alive allow."""
    wanted = topic.replication_factor
    return effective_factor(wanted, cores) if is_hidden(topic.name) else wanted


def _replica(node: int, told: ReplicaStatus | None, nodes: Mapping[int, NodeRecord], end: int | None) -> model.Replica:
    record = nodes.get(node)
    return model.Replica(
        node=node_name(nodes, node),
        id=f"{node:016x}",
        api=(record.api or None) if record is not None else None,
        role=_ROLES.get(told.role, "unknown") if told is not None else "unknown",
        end_offset=told.end if told is not None else None,
        lag=end - told.end if told is not None and end is not None else None,
        damaged=told.damaged if told is not None else 0,
        scrubbed_at=rfc3339(told.scrubbed_ms) if told is not None and told.scrubbed_ms else None,
        scrubbing=told is not None and told.is_scrubbing,
    )


def _problem(
    topic: TopicRecord,
    partition: PartitionRecord,
    told: Mapping[int, ReplicaStatus],
    leader: int,
    nodes: Mapping[int, NodeRecord],
) -> str:
    if not leader and is_lost(partition, told.values()):
        lost = ", ".join(node_name(nodes, one.node) for one in told.values() if not one.may_vote)
        return (
            f"Data is gone: {lost} lost what it stored of this partition, and too few others have it to elect a leader."
            f" Put the store back, or give up what is missing with `flockmq partition accept-loss {partition.group}`."
        )
    if not leader:
        return "It has no leader: a majority of its replicas must be up."
    silent = silent_replicas(partition, told.values())
    if silent:
        return f"No answer from {', '.join(node_name(nodes, node) for node in silent)}."
    for one in told.values():
        if one.problem:
            return f"{node_name(nodes, one.node)}: {one.problem}"
    return _few_copies(topic, partition, nodes)


def _few_copies(topic: TopicRecord, partition: PartitionRecord, nodes: Mapping[int, NodeRecord]) -> str:
    copies = len(partition.replicas)
    cores = sum(1 for one in nodes.values() if one.role == CORE and one.state == ALIVE)
    if copies >= copies_wanted(topic, cores):
        return ""
    few = f"Few copies: {copies} of {topic.replication_factor}"
    if copies < effective_factor(topic.replication_factor, cores):
        return f"{few}; more are being made."
    return f"{few}, with {cores} core {'node' if cores == 1 else 'nodes'} alive; more are made when nodes join."


def cursor_view(
    cursor: CursorRecord, positions: Sequence[int | None], heads: Sequence[tuple[int, int] | None], problem: str
) -> tenants.ReadCursor:
    """A cursor and how far it is behind. Positions are offsets, NOWHERE, or None where no leader answers."""
    rows = [_position(shard, *one) for shard, one in enumerate(zip(positions, heads, strict=True))]
    return tenants.ReadCursor(
        namespace=cursor.namespace,
        name=cursor.name,
        topic=cursor.topic,
        hold=cursor.hold,
        created_at=rfc3339(cursor.created_ms),
        lag=_total([row.lag for row in rows]),
        lost=_total([row.lost for row in rows]),
        positions=rows,
        problem=problem,
    )


def _position(shard: int, at: int | None, head: tuple[int, int] | None) -> tenants.CursorPosition:
    offset = None if at == NOWHERE else at
    first, end = head if head is not None else (None, None)
    lag = lost = None
    if at is not None and first is not None and end is not None:
        lag = lag_of(at, first, end)
        lost = lost_of(at, first)
    return tenants.CursorPosition(shard=shard, offset=offset, end_offset=end, lag=lag, lost=lost, known=at is not None)


def _total(figures: Sequence[int | None]) -> int | None:
    """Of all together; None when one of them is not known."""
    known = [figure for figure in figures if figure is not None]
    return sum(known) if len(known) == len(figures) else None


def namespace_view(namespace: Namespace, topics: int, clients: int, space: Space | None) -> tenants.NamespaceInfo:
    """A namespace and what is in it; ``space``: as this node knows it."""
    stored_bytes = None
    if space is not None and space.stored_bytes_max:
        stored_bytes = space.stored_bytes + space.stored_bytes_elsewhere
    limits: dict[str, int] = msgspec.structs.asdict(namespace.limits)
    return tenants.NamespaceInfo(
        name=namespace.name,
        limits={name: value for name, value in limits.items() if value},
        topics=topics,
        clients=clients,
        stored_bytes=stored_bytes,
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
