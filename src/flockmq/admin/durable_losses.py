"""Partitions that lost most of their replicas: what people are told, and how one goes on when they accept the loss.

```
 replicas tell: lost their store, or a part of their log (no vote) | have what they had | say nothing
 fewer than a majority can still have what they had --> no leader, ever --> acceptLoss: one of them goes on alone
 that one does not answer, and others have elected a leader after all   --> acceptLoss: it is not the heir any more
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.admin.durable_common import change, durable, find_group
from flockmq.admin.durable_views import is_lost, leader_among, node_name, partition_view, silent_replicas
from flockmq.cluster.commands import AcceptLoss
from flockmq.errors import REFUSED, ApiError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flockmq.admin import durable_model as model
    from flockmq.admin.desk import Desk
    from flockmq.admin.operations import Call
    from flockmq.durable.replicas.status import ReplicaStatus


async def accept_loss(desk: Desk, call: Call[model.AcceptLossQuery, None]) -> model.Partition:
    """Let the best replica that is left go on alone."""
    port = durable(desk)
    group, topic = find_group(port, call.path["group"])
    partition = port.state().partition(group)
    told = (await port.replicas([group])).get(group, [])
    nodes = port.state().nodes
    if leader_among(told) and partition.heir in silent_replicas(partition, told):
        await change(desk, AcceptLoss(group, 0, partition.as_of))  # its leader would wait for that node for ever
        return partition_view(topic, port.state().partition(group), told, nodes)
    if leader_among(told) or not is_lost(partition, told):
        raise ApiError(REFUSED, "Nothing is lost for good: most of its replicas have what they had, or may have it.")
    silent = silent_replicas(partition, told)
    if silent and not call.query.without_absent:
        names = ", ".join(node_name(nodes, node) for node in silent)
        raise ApiError(REFUSED, f"{names} may have what is missing: start it first, or say that it is gone for good.")
    if not told:
        raise ApiError(REFUSED, "No node with a replica of this partition answers; start one.")
    await change(desk, AcceptLoss(group, heir(told), partition.as_of))
    return partition_view(topic, port.state().partition(group), told, nodes)


def heir(told: Sequence[ReplicaStatus]) -> int:
    """The node that has most of a partition: one that lost nothing, then one that has its store and lost a part of its
    log; of those the latest log in Raft's order. What a replica has applied says less: it may not have heard that its
    last entries are acknowledged."""
    return max(told, key=lambda one: (one.may_vote, not one.is_lost, one.last_term, one.last, -one.node)).node
