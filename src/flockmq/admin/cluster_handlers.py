"""The operations on the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from flockmq.admin import cluster_model as model
from flockmq.admin.away_listings import away_subscriptions
from flockmq.admin.cluster_views import explain_alone, routes
from flockmq.admin.durable_cluster_views import with_away, with_decisions, with_durable
from flockmq.admin.group_verdicts import group_verdicts
from flockmq.admin.handlers import page
from flockmq.admin.session_verdicts import session_verdict
from flockmq.errors import INVALID_PARAMETER, REFUSED, UNAVAILABLE, ApiError, FlockError, RemoteProtocolError
from flockmq.mqtt.topics import check_topic_name

if TYPE_CHECKING:
    from flockmq.admin.cluster_port import ClusterPort
    from flockmq.admin.desk import Desk
    from flockmq.admin.model import Page, PageQuery
    from flockmq.admin.operations import Call, NoQuery

AWAY_MAX: Final = 100
"""Most subscriptions of sessions that no node has which an explanation names."""


async def get_cluster(desk: Desk, _call: Call[NoQuery, None]) -> model.Cluster:
    """The members, the node that decides, and how partitions do."""
    cluster = desk.ports.cluster
    if cluster is None:
        return model.Cluster(id=None, node=desk.node.name, state="off", reason="cluster.enabled is false", members=[])
    found = cluster.status()
    port = desk.ports.durable
    if port is None:
        return found
    try:
        meta, told = await port.meta(), await port.replicas(None)
        return with_decisions(found, port.state(), meta, told, desk.moments.wall_ms)
    except FlockError:
        return found  # not ready yet


async def join_cluster(desk: Desk, call: Call[NoQuery, model.JoinRequest]) -> model.JoinResult:
    """Become part of another cluster."""
    desk.check_running()
    try:
        return await _cluster(desk).join(call.body.address, call.body.discard_data)
    except FlockError as error:
        raise ApiError(REFUSED, str(error)) from None


async def leave_cluster(desk: Desk, call: Call[model.LeaveQuery, None]) -> model.JoinResult:
    """Take leave."""
    desk.check_running()
    try:
        return await _cluster(desk).leave(call.query.discard_data)
    except FlockError as error:
        raise ApiError(REFUSED, str(error)) from None


def list_routes(desk: Desk, call: Call[PageQuery, None]) -> Page[model.Route]:
    """A page of the route table."""
    return page(desk, "routes", call, lambda: routes(desk.broker, desk.node.name))


async def explain(desk: Desk, call: Call[model.ExplainQuery, None]) -> model.Explanation:
    """The way of a message."""
    topic = call.path["topic"].encode()
    try:
        check_topic_name(topic)
    except RemoteProtocolError as error:
        raise ApiError(INVALID_PARAMETER, f"That is not a topic name: {error}") from None
    found = await _explain(desk, topic, call.query.publisher)
    client_id = call.query.client_id
    if client_id is None:
        return found
    return msgspec.structs.replace(found, session=await session_verdict(desk, found, topic, client_id))


async def _explain(desk: Desk, topic: bytes, publisher: str) -> model.Explanation:
    cluster = desk.ports.cluster
    if cluster is None:
        return explain_alone(desk.broker, desk.node.name, topic, publisher)
    found = await cluster.explain(topic, publisher)
    if desk.ports.durable is None:
        return found
    try:
        found = await with_durable(found, desk.ports.durable, topic)
        found = msgspec.structs.replace(found, groups=await group_verdicts(desk.ports.durable, topic))
        return with_away(found, *await away_subscriptions(desk, topic, AWAY_MAX))
    except FlockError:
        return found  # not ready yet


def _cluster(desk: Desk) -> ClusterPort:
    if desk.ports.cluster is None:
        raise ApiError(UNAVAILABLE, "This node talks to no others: cluster.enabled is false, or its port was taken")
    return desk.ports.cluster
