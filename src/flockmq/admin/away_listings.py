"""Sessions that no node has in memory, as the API of any node lists them: their records, less what nodes say they have.

```
 away_page(shard) --> leader of the shard: a page of records --> all nodes: which of these do you have? --> the others
                          ^------- all of them are held: the next page, a few times -------'
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from flockmq.admin import model, views
from flockmq.admin.node_listings import SUBSCRIPTIONS, ask_held, ask_page, read_held, read_page
from flockmq.cluster.model import SESSIONS_TOPIC
from flockmq.errors import UNAVAILABLE, ApiError, FlockError
from flockmq.mqtt.namespaces import DEFAULT_NAMESPACE, inside_client_id, split_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flockmq.admin.cluster_port import ClusterPort
    from flockmq.admin.desk import Desk
    from flockmq.admin.node_listings import Query

PAGES_MAX: Final = 8
"""Pages of a leader that are looked at for one, while nodes have all of their sessions."""


def away_shards(desk: Desk, query: Query) -> list[tuple[int, str]]:
    """The shards, with their names, that may have something for a query."""
    port = desk.ports.durable
    if port is None or query.node is not None or isinstance(query, model.ConnectionQuery):
        return []
    groups = port.session_shards()
    wanted = 0
    if isinstance(query, model.SessionQuery) and query.connected:
        return []
    if isinstance(query, model.SubscriptionQuery) and query.client_id is not None:
        wanted = port.session_shard_of(inside_client_id(query.namespace or DEFAULT_NAMESPACE, query.client_id))
    return [(group, f"{SESSIONS_TOPIC}/{shard}") for shard, group in enumerate(groups) if wanted in (0, group)]


def is_away(item: model.Session | model.Subscription) -> bool:
    """Whether an entry was made of a record."""
    return item.state == "away" if isinstance(item, model.Session) else item.away


async def away_page(desk: Desk, cluster: ClusterPort, group: int, what: str, query: Query) -> model.Page[Any] | None:
    """A page of what no node has, out of one shard; None when no leader answers."""
    after = query.after
    for _ in range(PAGES_MAX):
        found = await _ask(desk, group, what, msgspec.structs.replace(query, after=after))
        if found is None:
            return None
        items = await _without_held(desk, cluster, found.items)
        after = found.next
        if items or after is None:
            return model.Page(items=items, next=after)
    return model.Page(items=[], next=after)


async def _ask(desk: Desk, group: int, what: str, query: Query) -> model.Page[Any] | None:
    port = desk.ports.durable
    try:
        answer = None if port is None else await port.session_records(group, ask_page(what, query))
    except FlockError:
        return None  # this node takes part no more
    return read_page(what, answer)


async def _without_held(desk: Desk, cluster: ClusterPort, items: Sequence[Any]) -> list[Any]:
    """Entries of sessions that no node has."""
    asked = dict.fromkeys(inside_client_id(item.namespace, item.client_id) for item in items)
    held = desk.listings.held(asked)
    asked = dict.fromkeys(client_id for client_id in asked if client_id not in held)
    others = [node.node_id for node in cluster.live_nodes() if not node.is_self]
    if asked and others:
        for answer in await cluster.held_at(others, ask_held(asked)):
            held |= read_held(answer)
    return [item for item in items if inside_client_id(item.namespace, item.client_id) not in held]


async def find_away(desk: Desk, cluster: ClusterPort, client_id: str) -> model.Session | None:
    """A session that no node has; None when there is no record of it. ApiError when its shard has no leader."""
    port = desk.ports.durable
    if port is None:
        return None
    try:
        record = await port.session_record(client_id)
        lag = None if record is None else await port.record_lag(record)
    except FlockError as error:
        raise ApiError(UNAVAILABLE, str(error)) from None
    return None if record is None or not record.expiry_s else views.record(record, cluster.name_of(record.owner), lag)


async def away_subscriptions(desk: Desk, topic: bytes, limit: int) -> tuple[list[model.Subscription], bool]:
    """Subscriptions of such sessions that match a topic name (in internal form), and whether there may be more."""
    cluster = desk.ports.cluster
    if cluster is None:
        return [], False
    namespace, name = split_topic(topic)
    query = model.SubscriptionQuery(namespace=namespace, match=views.text(name))
    found: list[model.Subscription] = []
    is_more = False
    for group, _ in away_shards(desk, query):
        room = limit - len(found)
        if room <= 0:
            return found, True
        part = await _first_page(desk, cluster, group, msgspec.structs.replace(query, limit=room))
        found += part.items if part is not None else []
        is_more = is_more or part is None or part.next is not None
    return found, is_more


async def _first_page(
    desk: Desk, cluster: ClusterPort, group: int, query: model.SubscriptionQuery
) -> model.Page[Any] | None:
    try:
        return await away_page(desk, cluster, group, SUBSCRIPTIONS, query)
    except ApiError:
        return None  # the shard got another leader meanwhile
