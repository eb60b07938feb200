"""What cluster state and partitions add to what the API says about the cluster and about the way of a message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from flockmq.admin import cluster_model as model
from flockmq.admin.cluster_views import step
from flockmq.admin.durable_common import owner_of
from flockmq.admin.durable_views import copies_wanted, is_lost, leader_among, node_name, silent_replicas
from flockmq.cluster.model import BY_TOPIC, CAPTURE_TOPIC, DEFAULT_NAMESPACE, EDGE, LEFT, is_hidden
from flockmq.cluster.policy import voters_warning
from flockmq.cluster.tables import key_of
from flockmq.durable.replicas.status import LEADING
from flockmq.routing.durable import shard_of

if TYPE_CHECKING:
    from flockmq.admin.durable_port import DurablePort, MetaStatus
    from flockmq.admin.model import Subscription
    from flockmq.cluster.model import PartitionRecord, TopicRecord
    from flockmq.cluster.state import ClusterState
    from flockmq.durable.replicas.status import ReplicaStatus


AWAY_NOTE: Final = "away: no node has its session; waits for it in the log at QoS 1 and 2, is lost at QoS 0"
MORE_AWAY_NOTE: Final = "More sessions that are away may match; `flockmq subscription list` lists all of them."
JOINING_MS: Final = 20_000
"""For so long after a core node came, the number of voters is not worth a warning: more nodes may be on their way."""


def _unheard(members: Sequence[model.Member], state: ClusterState) -> list[model.Member]:
    """Nodes that cluster state counts in, and that a node which was started without them has not heard of."""
    heard = {member.id for member in members}
    return [
        model.Member(
            name=node.name,
            id=f"{node.id:016x}",
            host=node.host,
            port=node.port,
            state="dead",
            role="edge" if node.role == EDGE else "core",
            version=node.version,
            is_self=False,
            linked=False,
            rtt_ms=None,
            clock_offset_ms=None,
            clients=None,
            routes=0,
            unsent_bytes=0,
        )
        for node in state.nodes.values()
        if node.state != LEFT and f"{node.id:016x}" not in heard
    ]


def with_decisions(
    cluster: model.Cluster,
    state: ClusterState,
    meta: MetaStatus,
    told: Mapping[int, Sequence[ReplicaStatus]],
    wall_ms: int,
) -> model.Cluster:
    """The cluster with the nodes that decide about its state, and what each node has of the partitions."""
    leads: dict[int, int] = {}
    copies: dict[int, int] = {}
    lags: dict[int, int] = {}
    without_leader = few_copies = replica_away = stopped = damaged = differing = lost = hidden = 0
    hidden_without_leader: list[str] = []
    cores = len(state.alive_cores())
    for topic, partition in _partitions(state):
        replicas = told.get(partition.group, ())
        leader = leader_among(replicas)
        without_leader += not leader
        if is_hidden(topic.name):
            hidden += 1
            hidden_without_leader += [] if leader else [f"{topic.name}/{partition.shard}"]
        lost += not leader and is_lost(partition, replicas)
        few_copies += len(partition.replicas) < copies_wanted(topic, cores)
        replica_away += bool(silent_replicas(partition, replicas))
        stopped += any(one.problem and not one.damaged and not one.differs for one in replicas)
        damaged += any(one.damaged for one in replicas)
        differing += any(one.differs for one in replicas)
        end = max((one.end for one in replicas), default=0)
        for one in replicas:
            copies[one.node] = copies.get(one.node, 0) + 1
            leads[one.node] = leads.get(one.node, 0) + (one.role == LEADING)
            lags[one.node] = max(lags.get(one.node, 0), end - one.end)
    members = []
    for member in [*cluster.members, *_unheard(cluster.members, state)]:
        node = int(member.id, 16)
        is_known = member.role == "core" and (node in copies or member.is_self)
        members.append(
            replace(
                member,
                leads=leads.get(node, 0) if is_known else None,
                replicas=copies.get(node, 0) if is_known else None,
                lag=lags.get(node, 0) if is_known else None,
                zone=state.nodes[node].zone if node in state.nodes else "",
            )
        )
    decisions = model.Decisions(
        index=meta.index,
        leader=node_name(state.nodes, meta.leader) if meta.leader else None,
        voters=sorted(node_name(state.nodes, node) for node in meta.voters),
        learners=sorted(node_name(state.nodes, node) for node in meta.learners),
        topics=state.user_topic_count(),
        partitions=len(state.places) - hidden,
        without_leader=without_leader,
        moving=len(state.moving()),
        few_copies=few_copies,
        replica_away=replica_away,
        stopped=stopped,
        lost=lost,
        warning=_lasting_warning(state, meta, wall_ms),
        damaged=damaged,
        differing=differing,
        hidden_partitions=hidden,
        hidden_without_leader=hidden_without_leader,
    )
    return replace(cluster, members=members, decisions=decisions)


def _lasting_warning(state: ClusterState, meta: MetaStatus, wall_ms: int) -> str:
    """What an operator should know about the voters; nothing while nodes have just joined and may still get a vote."""
    cores = state.alive_cores()
    is_changing = bool(meta.learners) or len(cores) > len(meta.voters)
    if is_changing or any(wall_ms - node.since_ms < JOINING_MS for node in cores):
        return ""
    return voters_warning(len(meta.voters))


def _partitions(state: ClusterState) -> Iterator[tuple[TopicRecord, PartitionRecord]]:
    return ((topic, partition) for topic in state.topics.values() for partition in topic.partitions)


async def with_durable(found: model.Explanation, port: DurablePort, topic: bytes) -> model.Explanation:
    """The way of a message with the log that keeps it, where one does."""
    state = port.state()
    record = owner_of(state, topic)
    if record is None:
        return await _with_capture(found, port, topic) if found.captured else found
    is_fixed = record.key == BY_TOPIC or record.shards == 1
    shard = shard_of(topic, record.shards) if is_fixed else None
    group = record.partitions[shard].group if shard is not None else None
    leader = leader_among((await port.replicas([group])).get(group, ())) if group is not None else 0
    name = node_name(state.nodes, leader) if leader else None
    place = model.DurablePlace(namespace=record.namespace, topic=record.name, shard=shard, group=group, leader=name)
    steps = list(found.steps)
    if name is not None:
        steps.insert(1, step(found.node, name, "Append", f"{record.name}/{shard}"))
    return replace(found, steps=steps, durable=place)


async def _with_capture(found: model.Explanation, port: DurablePort, topic: bytes) -> model.Explanation:
    """The way of a message with the copy for persistent sessions."""
    state = port.state()
    record = state.topics.get(key_of(DEFAULT_NAMESPACE, CAPTURE_TOPIC))
    if record is None:
        return found
    shard = shard_of(topic, record.shards)
    group = record.partitions[shard].group
    leader = leader_among((await port.replicas([group])).get(group, ()))
    if not leader:
        return found
    append = step(found.node, node_name(state.nodes, leader), "Append", f"{CAPTURE_TOPIC}/{shard}")
    return replace(found, steps=[found.steps[0], append, *found.steps[1:]])


def with_away(found: model.Explanation, away: list[Subscription], is_more: bool) -> model.Explanation:
    """The way of a message with sessions that no node has, which will read it from its log."""
    log = found.durable.topic if found.durable is not None else CAPTURE_TOPIC
    steps = [
        replace(step(log, one.client_id, "Deliver", one.filter), qos=one.qos, note=AWAY_NOTE)
        for one in away
        if one.qos and one.share_group is None
    ]
    notes = [*found.notes, MORE_AWAY_NOTE] if is_more else found.notes
    return replace(found, steps=[*found.steps, *steps], notes=notes)
