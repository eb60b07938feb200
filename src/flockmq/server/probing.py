"""Gathers the facts of a node for probes from its parts; ``admin/readiness.py`` turns them into sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from flockmq.admin.readiness import ClusterFacts, NodeFacts

if TYPE_CHECKING:
    from flockmq.server.cluster import ClusterService

MOVING: Final = "This node is on its way to another cluster and takes no clients meanwhile."
OFF: Final = "This node is meant to be alone (cluster.enabled is false)."
LEFT_OUT: Final = (
    "This node was left out of its cluster when it started; the event cluster_left_out in its log says why."
)
STARTING: Final = "It opens its store and looks for the other nodes."


def node_facts(
    state: Literal["starting", "ready", "stopping"],
    *,
    is_clustered: bool,
    cluster: ClusterService | None,
    is_moving: bool,
    has_unsaved: bool,
) -> NodeFacts:
    """The facts. ``is_clustered``: the configuration wants a cluster; ``has_unsaved``: retained messages are lost."""
    problems = _problems(cluster, is_moving, has_unsaved)
    keeps_out = _keeps_out(cluster, is_moving)
    if cluster is not None:
        return NodeFacts(state=state, keeps_out=keeps_out, cluster=cluster.standing.facts(), problems=problems)
    if not is_clustered:
        return NodeFacts(state=state, why_alone=OFF, is_meant_alone=True, problems=problems)
    if state == "starting":
        return NodeFacts(state=state, cluster=ClusterFacts(waits_for=STARTING), problems=problems)
    return NodeFacts(state=state, why_alone=LEFT_OUT, is_meant_alone=True, problems=problems)


def _keeps_out(cluster: ClusterService | None, is_moving: bool) -> str:
    if is_moving:
        return MOVING
    return cluster.why_waiting if cluster is not None and cluster.is_in_doubt() else ""


def _problems(cluster: ClusterService | None, is_moving: bool, has_unsaved: bool) -> tuple[str, ...]:
    """Problems of this node for its operators, each by the name of its event in the log."""
    found = ["retained_not_saved"] if has_unsaved else []
    if cluster is not None:
        if cluster.is_in_doubt():
            found.append("waiting_for_majority")
        if not cluster.node.cluster_id:
            found.append("waiting_for_cluster")
        durable = cluster.durable
        if durable.node.engine.stopped or durable.node.engine.host.broken:
            found.append("replicas_stopped")
        if durable.trouble:
            found.append("data_folder_not_writable")
    if is_moving:
        found.append("moving_to_another_cluster")  # clients are let in when it is there
    return tuple(found)
