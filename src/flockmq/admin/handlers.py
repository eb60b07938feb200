"""What each operation does: a small function from a checked call to a model value.

They read the broker's structures directly, in its own event loop: between two awaits nothing changes. Each is bounded
in what it touches.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from flockmq.admin import listings, metrics, model, publishing, readiness, views
from flockmq.admin.cluster_listings import find_everywhere, list_everywhere
from flockmq.admin.node_listings import CONNECTIONS, SESSIONS, SUBSCRIPTIONS
from flockmq.admin.operations import JSON, Call, NoQuery, Raw
from flockmq.errors import INVALID_PARAMETER, NOT_FOUND, REFUSED, UNAVAILABLE, ApiError, FlockError, RemoteProtocolError
from flockmq.mqtt.namespaces import inside_client_id, split_client_id
from flockmq.mqtt.topics import check_topic_filter, check_topic_name, split_shared

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.admin.desk import Desk
    from flockmq.admin.paging import Entries

T = TypeVar("T")
Plain = Call[NoQuery, None]
OfClient = Call[model.ClientQuery, None]
Found = Call[model.FindQuery, None]


# --- node ---


def get_node(desk: Desk, _call: Plain) -> model.Node:
    """The node that answers."""
    return model.Node(
        name=desk.node.name,
        version=desk.node.version,
        build=desk.node.build,
        state=desk.state,
        started_at=desk.moments.date(desk.started_at_ms),
        uptime_s=round(desk.uptime_s, 3),
        listeners=list(desk.ports.listeners()),
    )


def get_stats(desk: Desk, _call: Plain) -> model.Stats:
    """The numbers of the metrics."""
    return model.Stats(gauges=metrics.flat(desk, "gauge"), counters=metrics.flat(desk, "counter"))


def get_config(desk: Desk, _call: Plain) -> dict[str, Any]:
    """The configuration in effect."""
    if desk.ports.config is None:
        raise ApiError(UNAVAILABLE, "This node was started without a configuration to show")
    return dict(desk.ports.config())


async def reload(desk: Desk, _call: Plain) -> model.ReloadResult:
    """Read passwords, ACL and certificates again."""
    if desk.ports.reload is None:
        raise ApiError(UNAVAILABLE, "This node was started without files that could be read again")
    try:
        reloaded = await desk.ports.reload()
    except FlockError as error:
        raise ApiError(
            REFUSED, f"{str(error).rstrip('.')}; nothing was changed, the broker goes on with what it had"
        ) from None
    return model.ReloadResult(reloaded=list(reloaded))


# --- clients ---


async def list_connections(desk: Desk, call: Call[model.ConnectionQuery, None]) -> model.NodesPage[model.Connection]:
    """A page of connected clients, of all nodes or one."""
    return await list_everywhere(desk, CONNECTIONS, call.query)


async def get_connection(desk: Desk, call: Found) -> model.Connection:
    """One connected client, whichever node it is connected to."""
    found = await find_everywhere(desk, CONNECTIONS, _inside(call), call.query.node)
    if not isinstance(found, model.Connection):
        raise _not_connected(call.path["client_id"])
    return found


async def kick_connection(desk: Desk, call: OfClient) -> None:
    """Disconnect a client, whichever node it is connected to."""
    client_id = _inside(call)
    if desk.broker.kick(client_id, desk.clock()):
        desk.ports.flush()
        return
    cluster = desk.ports.cluster
    if cluster is None or not await cluster.kick(client_id):
        raise _not_connected(call.path["client_id"])


async def list_sessions(desk: Desk, call: Call[model.SessionQuery, None]) -> model.NodesPage[model.Session]:
    """A page of sessions, of all nodes or one."""
    return await list_everywhere(desk, SESSIONS, call.query)


async def get_session(desk: Desk, call: Found) -> model.Session:
    """One session, whichever node it lives on."""
    found = await find_everywhere(desk, SESSIONS, _inside(call), call.query.node)
    if not isinstance(found, model.Session):
        raise _no_session(call.path["client_id"])
    return found


async def delete_session(desk: Desk, call: OfClient) -> None:
    """Disconnect a client and forget its session, whichever node it lives on."""
    client_id = _inside(call)
    cluster = desk.ports.cluster
    is_ended = desk.broker.end_session(client_id, desk.clock())
    if is_ended:
        desk.ports.flush()
    elif cluster is not None:
        is_ended = await cluster.end_session(client_id)
    if is_ended:
        await _until_ended(desk, client_id)
    elif cluster is None or not await _end_away(desk, client_id):
        raise _no_session(call.path["client_id"])


async def _until_ended(desk: Desk, client_id: str) -> None:
    """A node has ended the session: its record shall not be listed after the answer."""
    if desk.ports.durable is not None:
        with suppress(FlockError):  # the node that had the session goes on to say so
            await desk.ports.durable.session_record_ended(client_id)


async def _end_away(desk: Desk, client_id: str) -> bool:
    """End a session that no node has; False when there is none."""
    found = await find_everywhere(desk, SESSIONS, client_id, None)
    port = desk.ports.durable
    if found is None or port is None:
        return False
    if found.state != "away":
        raise ApiError(UNAVAILABLE, "The client came or moved to another node just now; ask again")
    return await port.end_session_record(client_id)


async def list_session_subscriptions(
    desk: Desk, call: Call[model.SessionSubscriptionQuery, None]
) -> model.NodesPage[model.Subscription]:
    """A page of one session's subscriptions, whichever node it lives on."""
    client_id = inside_client_id(call.query.namespace, call.path["client_id"])
    if await find_everywhere(desk, SESSIONS, client_id, None) is None:
        raise _no_session(call.path["client_id"])
    namespace, own_id = split_client_id(client_id)
    query = model.SubscriptionQuery(
        client_id=own_id, namespace=namespace, after=call.query.after, limit=call.query.limit
    )
    return await list_everywhere(desk, SUBSCRIPTIONS, query)


async def list_subscriptions(
    desk: Desk, call: Call[model.SubscriptionQuery, None]
) -> model.NodesPage[model.Subscription]:
    """A page of subscriptions, of all nodes or one."""
    query = call.query
    if query.filter is not None:
        _check("filter", query.filter, lambda text: check_topic_filter(split_shared(text)[1]))
    if query.match is not None:
        _check("match", query.match, check_topic_name)
    return await list_everywhere(desk, SUBSCRIPTIONS, query)


# --- messages ---


async def publish(desk: Desk, call: Call[NoQuery, model.PublishRequest]) -> model.PublishResult:
    """Publish a message; one for a durable topic is answered after commit."""
    if desk.ports.durable is not None:
        from flockmq.admin.durable_publishing import publish_durably

        kept = await publish_durably(desk, desk.ports.durable, call.body)
        if kept is not None:
            return kept
    result = publishing.publish(desk.broker, call.body, desk.clock())
    desk.ports.flush()
    return result


def list_retained(desk: Desk, call: Call[model.RetainedQuery, None]) -> model.Page[model.Retained]:
    """A page of retained messages."""
    if call.query.filter is not None:
        _check("filter", call.query.filter, check_topic_filter)
    return page(desk, "retained", call, lambda: listings.retained(desk.broker, call.query, desk.moments))


def get_retained(desk: Desk, call: Plain) -> model.RetainedMessage:
    """One retained message with its payload."""
    moments = desk.moments
    message = desk.broker.retained.get(call.path["topic"].encode(), moments.now_ms)
    if message is None:
        raise _no_retained(call.path["topic"])
    return views.retained_message(message, moments)


def delete_retained(desk: Desk, call: Plain) -> None:
    """Forget a retained message; subscribers are not told."""
    topic = call.path["topic"].encode()
    message = desk.broker.retained.get(topic, desk.clock())
    if message is None:
        raise _no_retained(call.path["topic"])
    if message.is_system:
        raise ApiError(REFUSED, "Messages under $SYS/ are the broker's own and come back by themselves")
    desk.broker.retained.delete(topic, desk.clock())


# --- description, metrics, health ---


def get_openapi(desk: Desk, _call: Plain) -> Raw:
    """The OpenAPI description."""
    return Raw(desk.description.openapi, JSON)


def get_docs(desk: Desk, _call: Plain) -> Raw:
    """The same for people."""
    return Raw(desk.description.page, "text/html; charset=utf-8", headers=desk.description.page_headers)


def get_metrics(desk: Desk, call: Plain) -> Raw:
    """The scrape."""
    text, content_type = desk.exposition.text(call.accept, with_names=call.has_token)
    return Raw(text, content_type)


def get_live(_desk: Desk, _call: Plain) -> model.Health:
    """The loop runs, or there would be no answer."""
    return model.Health(status="live")


def get_ready(desk: Desk, call: Call[model.ReadyQuery, None]) -> Raw:
    """What the node can do: 200 when that is what is required, else 503 with the same and the reasons."""
    found = desk.readiness()
    required = _required(call.query.require) or tuple(found.required)
    found = msgspec.structs.replace(found, required=list(required))
    reasons = readiness.missing(found, required)
    if not reasons:
        return Raw(msgspec.json.encode(found), JSON)
    error = model.ErrorDetail(code=UNAVAILABLE.code, message=" ".join(reasons))
    body = {"error": error, **msgspec.structs.asdict(found), "status": "not_ready"}
    return Raw(msgspec.json.encode(body), JSON, UNAVAILABLE.status)


def _required(text: str | None) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(text.split(","))) if text is not None else ()
    unknown = [name for name in names if name not in readiness.NAMES]
    if unknown:
        raise ApiError(
            INVALID_PARAMETER,
            f"`require` can't be {unknown[0][:40]!r}; it takes {', '.join(readiness.NAMES)}, separated by commas",
        )
    return names


# --- helpers ---


def page(desk: Desk, listing: object, call: Call[Any, None], start: Callable[[], Entries[T]]) -> model.Page[T]:
    """One page of a listing."""
    query: model.PageQuery = call.query
    filters = msgspec.structs.replace(query, after=None, limit=1)
    return desk.pager.page((listing, filters), start, query.after, query.limit, desk.clock())


def _check(name: str, text: str, check: Callable[[bytes], None]) -> None:
    try:
        check(text.encode())
    except RemoteProtocolError as error:
        raise ApiError(INVALID_PARAMETER, f"Parameter {name!r} can't be used: {error}") from None


def _inside(call: OfClient | Found) -> str:
    return inside_client_id(call.query.namespace, call.path["client_id"])


def _not_connected(client_id: str) -> ApiError:
    return ApiError(
        NOT_FOUND, f"Client {client_id!r} is not connected to any node; list the connected clients to see which are"
    )


def _no_session(client_id: str) -> ApiError:
    return ApiError(NOT_FOUND, f"There is no session of client {client_id!r}; list the sessions to see those there are")


def _no_retained(topic: str) -> ApiError:
    return ApiError(
        NOT_FOUND, f"Topic {topic!r} has no retained message; list the retained messages to see what has one"
    )
