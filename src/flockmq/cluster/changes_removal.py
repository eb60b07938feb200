"""An operator takes a dead node out for good: its replicas and its vote go elsewhere, then it is forgotten.

```
 RemoveNode --> alive, or the last majority of a partition: refused
            `-> LEFT --> policy.py: no seat, replicas rebuilt elsewhere --> ForgetNode
                `-- with accept_data_loss: partitions without a majority begin anew, empty, as other groups
```
A group without a majority of its voters can't change its voters, and its log can't be trusted without them. So what is
accepted is the loss of that log: the shard goes on with a new group, whose offsets begin at 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flockmq.cluster.commands import CONFLICT, RefusedError
from flockmq.cluster.loads import choose, choose_leader
from flockmq.cluster.model import ALIVE, LEFT, NodeRecord, PartitionRecord
from flockmq.wording import counted

if TYPE_CHECKING:
    from flockmq.cluster.commands import RemoveNode
    from flockmq.cluster.model import TopicRecord
    from flockmq.cluster.tables import Tables


def remove_node(tables: Tables, command: RemoveNode, wall_ms: int) -> NodeRecord:
    """A node that is not alive is to be forgotten. Doing it again is fine."""
    known = tables.node(command.id)
    if known.state == ALIVE:
        raise RefusedError(
            CONFLICT, f"The node {known.name} is alive; let it go with `flockmq cluster leave`, or stop it first."
        )
    lost = [partition for partition in tables.partitions() if _is_lost_with(tables, partition, known.id)]
    if lost and not command.accept_data_loss:
        topic = tables.topic_of_group(lost[0].group)
        shown = f"{topic.name}/{lost[0].shard}" if topic is not None else f"group {lost[0].group}"
        raise RefusedError(
            CONFLICT,
            f"Without the node {known.name} no majority of the copies of {counted(len(lost), 'partition')} is left, "
            f"such as {shown}; start that node, or the others that hold copies. With --accept-data-loss these "
            "partitions begin anew, empty.",
        )
    if lost:
        _begin_anew(tables, {partition.group for partition in lost})
    if known.state != LEFT:
        known = replace(known, state=LEFT, since_ms=wall_ms)
        tables.nodes[known.id] = known
        tables.versions = replace(tables.versions, nodes=tables.index)
    return known


def _is_lost_with(tables: Tables, partition: PartitionRecord, node: int) -> bool:
    """Whether a partition depends on that node, or on others that are not there either."""
    voters = partition.replicas
    alive = [voter for voter in voters if voter in tables.nodes and tables.nodes[voter].state == ALIVE]
    return node in voters and 2 * len(alive) <= len(voters)


def _begin_anew(tables: Tables, groups: set[int]) -> None:
    """Put new groups, on nodes that are alive, in the place of these."""
    if not tables.alive_cores():
        raise RefusedError(CONFLICT, "No core node is alive to store the partitions; start one.")
    for topic in list(tables.topics.values()):
        if any(partition.group in groups for partition in topic.partitions):
            tables.keep_topic(_with_new_groups(tables, topic, groups))
    tables.versions = replace(tables.versions, topics=tables.index)


def _with_new_groups(tables: Tables, topic: TopicRecord, groups: set[int]) -> TopicRecord:
    loads = tables.loads.copy()
    zones = {node.id: node.zone for node in tables.nodes.values()}
    partitions: list[PartitionRecord] = []
    for partition in topic.partitions:
        if partition.group not in groups:
            partitions.append(partition)
            continue
        nodes = choose(tables.alive_cores(), loads, topic.replication_factor, (), zones)
        leader = choose_leader(nodes, loads)
        anew = PartitionRecord(tables.next_group, partition.shard, nodes, nodes, nodes, leader, nodes)
        tables.next_group += 1
        loads.add(anew)
        partitions.append(anew)
    return replace(topic, partitions=tuple(partitions), changed_index=tables.index)
