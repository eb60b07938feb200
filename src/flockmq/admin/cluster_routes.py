"""The part of the table of operations that is about the cluster."""

from __future__ import annotations

from typing import Final

from flockmq.admin import cluster_handlers as handlers
from flockmq.admin import cluster_model as model
from flockmq.admin.model import Page, PageQuery
from flockmq.admin.operations import PREFIX, Operation
from flockmq.errors import CURSOR_EXPIRED, INVALID_PARAMETER, REFUSED, UNAVAILABLE

MOVE_S: Final = 40.0
"""Others take over what a node stores before it goes, and it waits for those it goes to."""

CLUSTER_OPERATIONS: Final = (
    Operation(
        at=f"GET {PREFIX}/cluster",
        tag="cluster",
        summary="The cluster as this node sees it: members, links, clocks",
        handler=handlers.get_cluster,
        answer=model.Cluster,
        answer_text="The cluster",
    ),
    Operation(
        at=f"POST {PREFIX}/cluster/join",
        tag="cluster",
        summary="Make this node a member of another node's cluster",
        handler=handlers.join_cluster,
        body=model.JoinRequest,
        answer=model.JoinResult,
        answer_text="The cluster that it belongs to now",
        errors=(REFUSED, UNAVAILABLE),
        extra_s=MOVE_S,
    ),
    Operation(
        at=f"POST {PREFIX}/cluster/leave",
        tag="cluster",
        summary="Let this node take leave of the others; it goes on alone",
        handler=handlers.leave_cluster,
        query=model.LeaveQuery,
        answer=model.JoinResult,
        answer_text="The node is alone, in this cluster of its own",
        errors=(REFUSED, UNAVAILABLE),
        extra_s=MOVE_S,
    ),
    Operation(
        at=f"GET {PREFIX}/routes",
        tag="cluster",
        summary="All topic filters of the cluster with the nodes that have subscribers for them",
        handler=handlers.list_routes,
        query=PageQuery,
        answer=Page[model.Route],
        answer_text="A page of the route table",
        errors=(CURSOR_EXPIRED,),
    ),
    Operation(
        at=f"GET {PREFIX}/explain/{{topic}}",
        tag="cluster",
        summary="Which clients would get a message to this topic, through which node, and which nodes get none; with "
        "`client_id`, whether that one would, and why",
        handler=handlers.explain,
        query=model.ExplainQuery,
        answer=model.Explanation,
        answer_text="The way of the message",
        errors=(INVALID_PARAMETER, UNAVAILABLE),
    ),
)
