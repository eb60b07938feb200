"""Commands about durable topics and their partitions.

```
 CreateTopic  --+
 CreateHidden --+-- choose nodes --> partitions: replicas = target = founders = first
 SetTarget    target          <-- plans (placement.py), Rebalance, ReplaceNode
 ReplicasAre  replicas        <-- the partition's leader, when its voters changed; one that left is no founder any more
 AcceptLoss   heir            <-- an operator: one node goes on alone; its ReplicasAre ends that, then the target counts
```
Users can't alter or delete a hidden topic, nor read it with a cursor; they say how much ``$capture`` keeps. Where its
partitions live is decided as for any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flockmq.cluster.changes_bindings import bind_shares, check_bound, refuse_bound, unbind
from flockmq.cluster.checks import (
    REPLICAS_MAX,
    SHARDS_MAX,
    TOPICS_MAX,
    check_durable_filters,
    check_name,
    check_number,
    check_text,
)
from flockmq.cluster.commands import CONFLICT, EXISTS, INVALID, LIMIT, Moves, RefusedError
from flockmq.cluster.filters import internal_filter, user_filter
from flockmq.cluster.loads import choose, choose_leader
from flockmq.cluster.model import (
    ACK_NAMES,
    BY_PROPERTY,
    BY_TOPIC,
    CAPTURE_TOPIC,
    CORE,
    DEFAULT_NAMESPACE,
    EXCHANGES,
    HIDDEN_REPLICATION_FACTOR,
    HIDDEN_TOPICS,
    QUORUM,
    PartitionRecord,
    TopicRecord,
    is_hidden,
)
from flockmq.cluster.rebalance import REBALANCE_MAX, plan_rebalance
from flockmq.cluster.tables import key_of

if TYPE_CHECKING:
    from flockmq.cluster.commands import (
        AcceptLoss,
        AlterTopic,
        CreateHidden,
        CreateTopic,
        DeleteTopic,
        Rebalance,
        ReplicasAre,
        SetTarget,
    )
    from flockmq.cluster.tables import Tables


def create_topic(tables: Tables, command: CreateTopic, wall_ms: int, *, dead_letters: bool = False) -> TopicRecord:
    """A new topic, its partitions spread over the core nodes that are alive. One for dead letters has no filters:
    only leaders of partitions write there."""
    check_name("topic", command.name)
    namespace = tables.namespace(command.namespace)
    if key_of(command.namespace, command.name) in tables.topics:
        raise RefusedError(EXISTS, f"The topic {command.name} exists; choose another name, or alter it.")
    if tables.user_topic_count() >= TOPICS_MAX:
        raise RefusedError(LIMIT, f"There are {TOPICS_MAX} topics, which is the most; delete one first.")
    most = namespace.limits.topics_max
    if most and sum(1 for topic in tables.user_topics() if topic.namespace == namespace.name) >= most:
        raise RefusedError(
            LIMIT,
            f"The namespace {namespace.name} has as many topics as it may, {most}; delete one or raise the limit.",
        )
    filters: tuple[bytes, ...] = ()
    if not dead_letters:
        wanted = command.filters or (f"{command.name}/#",)
        filters = _checked_filters(tables, command.namespace, command.name, wanted)
    topic = TopicRecord(
        command.namespace,
        command.name,
        filters,
        command.shards,
        command.replication_factor,
        command.retention_ms,
        command.retention_bytes,
        command.ack,
        command.key,
        command.key_property,
        command.exchange,
        wall_ms,
        tables.index,
        (),
    )
    _check_numbers(topic)
    kept = _keep(tables, _with_shards(tables, topic))
    bind_shares(tables, kept)
    return kept


def create_hidden(tables: Tables, command: CreateHidden, wall_ms: int) -> TopicRecord:
    """A topic of the cluster's own, or the one that is there already. No limit of the namespace counts for it."""
    shape = HIDDEN_TOPICS.get(command.name)
    if shape is None:
        raise RefusedError(
            INVALID, f"{command.name[:40]!r} is no hidden topic; these are {', '.join(HIDDEN_TOPICS)}. Create a topic."
        )
    known = tables.topics.get(key_of(DEFAULT_NAMESPACE, command.name))
    if known is not None:
        return known
    topic = TopicRecord(
        DEFAULT_NAMESPACE,
        command.name,
        (),
        shape.shards,
        HIDDEN_REPLICATION_FACTOR,
        shape.retention_ms,
        shape.retention_bytes,
        QUORUM,
        BY_TOPIC,
        "",
        "fanout",
        wall_ms,
        tables.index,
        (),
    )
    return _keep(tables, _with_shards(tables, topic))


def alter_topic(tables: Tables, command: AlterTopic) -> TopicRecord:
    """Another shape for a topic. Another replication factor is reached later, by plans (placement.py)."""
    known = _alterable(tables, command)
    topic = replace(
        known,
        filters=known.filters
        if command.filters is None
        else _checked_filters(tables, command.namespace, command.name, command.filters),
        shards=known.shards if command.shards is None else command.shards,
        replication_factor=_or(command.replication_factor, known.replication_factor),
        retention_ms=_or(command.retention_ms, known.retention_ms),
        retention_bytes=_or(command.retention_bytes, known.retention_bytes),
        ack=_or(command.ack, known.ack),
        key=_or(command.key, known.key),
        key_property=known.key_property if command.key_property is None else command.key_property,
        exchange=known.exchange if command.exchange is None else command.exchange,
    )
    _check_numbers(topic)
    if topic.shards < known.shards:
        raise RefusedError(
            INVALID, f"The topic {topic.name} has {known.shards} shards; shards can be added, not taken away."
        )
    if topic == known:
        return known
    check_bound(tables, topic)
    if (topic.filters, topic.shards, topic.ack, topic.key, topic.key_property) != (
        known.filters,
        known.shards,
        known.ack,
        known.key,
        known.key_property,
    ):
        topic = replace(topic, changed_index=tables.index)
    kept = _keep(tables, _with_shards(tables, topic))
    bind_shares(tables, kept)
    return kept


def delete_topic(tables: Tables, command: DeleteTopic) -> TopicRecord:
    """The topic and its cursors. Its Raft groups are never used again. RefusedError while a consumer group needs it."""
    known = topic_of_users(tables, command.namespace, command.name)
    refuse_bound(tables, known)
    unbind(tables, known)
    tables.drop_derived(known)
    del tables.topics[key_of(command.namespace, command.name)]
    readers = [
        key
        for key, cursor in tables.cursors.items()
        if cursor.namespace == command.namespace and cursor.topic == command.name
    ]
    for key in readers:
        del tables.cursors[key]
    cursors = tables.index if readers else tables.versions.cursors
    tables.versions = replace(tables.versions, topics=tables.index, cursors=cursors)
    return known


def set_target(tables: Tables, command: SetTarget) -> PartitionRecord:
    """Where a partition should live."""
    known = tables.partition(command.group)
    _check_replicas(command.target)
    for node in command.target:
        if tables.node(node).role != CORE:
            raise RefusedError(
                INVALID, f"The node {tables.node(node).name} is an edge node; only core nodes store partitions."
            )
    preferred = command.preferred
    if not preferred:
        preferred = known.preferred if known.preferred in command.target else command.target[0]
    if preferred not in command.target:
        raise RefusedError(INVALID, "The preferred leader must be one of the target's nodes.")
    record = replace(known, target=command.target, preferred=preferred, is_advised=command.is_advised)
    return _keep_partition(tables, known, record)


def replicas_are(tables: Tables, command: ReplicasAre) -> PartitionRecord:
    """A leader tells its voters."""
    known = tables.partition(command.group)
    _check_replicas(command.replicas)
    check_number("Raft index", command.as_of, 0)
    if known.heir:
        if command.replicas != (known.heir,):
            raise RefusedError(CONFLICT, f"Group {command.group} waits until its heir leads it alone.")
        # What the heir has may be older than what was reported: that is the loss that was accepted.
        record = replace(known, replicas=command.replicas, founders=(), as_of=command.as_of, heir=0)
        return _keep_partition(tables, known, record)
    if command.as_of < known.as_of:
        raise RefusedError(
            CONFLICT, f"The voters of group {command.group} have changed since; nothing needs to be done."
        )
    founders = tuple([node for node in known.founders if node in command.replicas])
    record = replace(known, replicas=command.replicas, founders=founders, as_of=command.as_of)
    return _keep_partition(tables, known, record)


def accept_loss(tables: Tables, command: AcceptLoss) -> PartitionRecord:
    """Let one node go on alone with what it has of a partition, or none after all."""
    known = tables.partition(command.group)
    if command.heir and command.heir not in known.replicas:
        raise RefusedError(INVALID, f"Only a node with a replica of group {command.group} can go on with it.")
    if command.as_of != known.as_of:
        raise RefusedError(CONFLICT, f"The voters of group {command.group} have changed since; look at it again.")
    return _keep_partition(tables, known, replace(known, heir=command.heir))


def rebalance(tables: Tables, command: Rebalance) -> Moves:
    """Begin some of the moves that make the cluster even, and tell how many are left."""
    check_number("number of moves", command.moves_max, 0, REBALANCE_MAX)
    # An operator that asks for even numbers gets them, whatever was advised before.
    moves = plan_rebalance(tables, command.moves_max) if command.moves_max else []
    for move in moves:
        set_target(tables, move)
    return Moves(len(moves), len(plan_rebalance(tables)))


def topic_of_users(tables: Tables, namespace: str, name: str) -> TopicRecord:
    """A topic that must be there and that users may change and read."""
    if is_hidden(name):
        raise RefusedError(
            INVALID, f"The topic {name} is the cluster's own: it can't be altered, deleted or read; name another topic."
        )
    return tables.topic(namespace, name)


def _alterable(tables: Tables, command: AlterTopic) -> TopicRecord:
    """The topic to be altered. Of ``$capture`` operators say how much it keeps for sessions, and no more."""
    asked = (command.filters, command.shards, command.replication_factor, command.ack, command.key)
    others = (*asked, command.key_property, command.exchange)
    if command.name == CAPTURE_TOPIC and all(one is None for one in others):
        return tables.topic(command.namespace, command.name)
    return topic_of_users(tables, command.namespace, command.name)


def _keep_partition(tables: Tables, known: PartitionRecord, record: PartitionRecord) -> PartitionRecord:
    if record != known:
        tables.keep_partition(record)
        tables.versions = replace(tables.versions, topics=tables.index)
    return record


def _keep(tables: Tables, topic: TopicRecord) -> TopicRecord:
    tables.keep_topic(topic)
    tables.next_group += sum(1 for partition in topic.partitions if partition.group >= tables.next_group)
    tables.versions = replace(tables.versions, topics=tables.index)
    return topic


def _or(said: int | None, known: int) -> int:
    return known if said is None else said


def _checked_filters(tables: Tables, namespace: str, name: str, filters: tuple[str, ...]) -> tuple[bytes, ...]:
    """Internal form of filters that no other topic overlaps."""
    check_durable_filters(filters)
    key = key_of(namespace, name)
    internal = tuple([internal_filter(namespace, topic_filter) for topic_filter in filters])
    for topic_filter in internal:
        owner = tables.filters.owner_of_overlap(topic_filter, key)
        if owner:
            other = tables.topics[owner]
            theirs = ", ".join([user_filter(namespace, each) for each in other.filters])[:200]
            raise RefusedError(
                CONFLICT,
                f"The filter {user_filter(namespace, topic_filter)[:80]} could match a name that belongs to the topic "
                f"{other.name} ({theirs}); choose filters that no name can share.",
            )
    return internal


def _check_numbers(topic: TopicRecord) -> None:
    check_number("number of shards", topic.shards, 1, SHARDS_MAX)
    check_number("replication factor", topic.replication_factor, 1, REPLICAS_MAX)
    check_number("retention in milliseconds", topic.retention_ms, 0)
    check_number("retention in bytes", topic.retention_bytes, 0)
    check_number("ack level", topic.ack, 0, len(ACK_NAMES) - 1)
    check_number("key", topic.key, 0, BY_PROPERTY)
    check_text("name of the key's property", topic.key_property)
    if (topic.key == BY_PROPERTY) != bool(topic.key_property):
        raise RefusedError(
            INVALID, "Name the user property that is the key; and name none when the key is something else."
        )
    if topic.exchange not in EXCHANGES:
        raise RefusedError(INVALID, f"The exchange must be one of {', '.join(EXCHANGES)}, not {topic.exchange[:40]!r}.")


def _check_replicas(nodes: tuple[int, ...]) -> None:
    check_number("number of replicas", len(nodes), 1, REPLICAS_MAX)
    if len(set(nodes)) != len(nodes):
        raise RefusedError(INVALID, "A node can hold only one replica of a partition; name each node once.")


def _with_shards(tables: Tables, topic: TopicRecord) -> TopicRecord:
    """The topic with partitions for all its shards; those it has stay where they are."""
    wanted = topic.shards - len(topic.partitions)
    if not wanted:
        return topic
    if tables.loads.partitions + wanted > tables.partitions_max():
        raise RefusedError(
            LIMIT,
            f"The cluster may have {tables.partitions_max()} partitions and has {tables.loads.partitions}; delete "
            "topics, use fewer shards, or raise the setting partitions_max.",
        )
    candidates = tables.alive_cores()
    if not candidates:
        raise RefusedError(CONFLICT, "No core node is alive to store the topic; start one.")
    loads = tables.loads.copy()
    partitions = list(topic.partitions)
    for number in range(wanted):
        nodes = choose(candidates, loads, topic.replication_factor, (), {})
        leader = choose_leader(nodes, loads)
        partition = PartitionRecord(tables.next_group + number, len(partitions), nodes, nodes, nodes, leader, nodes)
        loads.add(partition)
        partitions.append(partition)
    return replace(topic, partitions=tuple(partitions))
