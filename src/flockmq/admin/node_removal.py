"""The operation that takes a dead node out of the cluster; asked again, it tells how far that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.admin import cluster_model as model
from flockmq.admin.durable_common import change, durable
from flockmq.cluster.commands import RemoveNode
from flockmq.cluster.model import ALIVE, NodeRecord
from flockmq.errors import NOT_FOUND, REFUSED, ApiError

if TYPE_CHECKING:
    from flockmq.admin.desk import Desk
    from flockmq.admin.operations import Call
    from flockmq.cluster.state import ClusterState

LIVE: Final = ("alive", "suspect")


async def remove_node(desk: Desk, call: Call[model.RemoveNodeQuery, None]) -> model.NodeRemoval:
    """Take a node out that is gone for good."""
    port = durable(desk)
    node = find_node(port.state(), call.path["node"])
    _check_gone(desk, node)
    await change(desk, RemoveNode(node.id, call.query.accept_data_loss))
    meta = await port.meta()
    state = port.state()
    held = sum(1 for partition in state.partitions() if node.id in partition.members())
    votes = node.id in (*meta.voters, *meta.learners)
    is_known = node.id in state.nodes
    return model.NodeRemoval(
        name=node.name, id=f"{node.id:016x}", partitions_left=held, votes=votes, done=not (held or votes or is_known)
    )


def find_node(state: ClusterState, text: str) -> NodeRecord:
    """A node by its name or its id; of several ids with one name, the one that is not alive."""
    found = [node for node in state.nodes.values() if text in (node.name, f"{node.id:016x}")]
    gone = [node for node in found if node.state != ALIVE]
    if not found:
        raise ApiError(NOT_FOUND, f"There is no node {text[:128]!r}; see `flockmq node list`")
    if len(gone) > 1:
        ids = ", ".join(f"{node.id:016x}" for node in gone)
        raise ApiError(REFUSED, f"Several dead nodes are called {text[:128]!r}; name one of them by its id: {ids}")
    return gone[0] if gone else found[0]


def _check_gone(desk: Desk, node: NodeRecord) -> None:
    """A node that answers is not removed, whatever cluster state says of it: it may be about to be seen again."""
    cluster = desk.ports.cluster
    members = cluster.status().members if cluster is not None else []
    if any(member.id == f"{node.id:016x}" and member.state in LIVE for member in members):
        raise ApiError(
            REFUSED, f"The node {node.name} is alive; let it go with `flockmq cluster leave`, or stop it first"
        )
