"""Listings over all nodes of the cluster, one node after the other, and a client wherever it is.

```
 first page   nodes that are alive, by id:  n1: all of it --> n2: limit reached --> next = "n<id of n2>-<cursor of n2>"
 next page    n2 goes on with its own cursor ------------> n3 ...
 last pages   leaders of the shards of $sessions: sessions and subscriptions that no node has;  null after the last one
```
The cursor says all: the node that is asked keeps nothing, and another one can go on with it. A node that does not
answer is named in ``unanswered`` of the page that would have had its entries. A client that moves to another node
between two pages, or away, may be listed twice or not at all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from flockmq.admin import model
from flockmq.admin.away_listings import away_page, away_shards, find_away, is_away
from flockmq.admin.node_listings import SESSIONS, ask_find, ask_page, read_find, read_page
from flockmq.errors import INVALID_PARAMETER, NOT_FOUND, UNAVAILABLE, ApiError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flockmq.admin.cluster_port import ClusterPort, LiveNode
    from flockmq.admin.desk import Desk
    from flockmq.admin.node_listings import Query

PAGE_MS: Final = 5_000
"""After this long a page is given as it is: nodes that don't answer take a while each."""
NODE: Final = "n"
SHARD: Final = "s"
_CURSOR: Final = re.compile(r"([ns])([0-9a-f]{16})(?:\.0|-([A-Za-z0-9_-]+\.[0-9]{1,18}))", re.ASCII)
"""As ``model.NODES_CURSOR_PATTERN`` describes it."""


async def list_everywhere(desk: Desk, what: str, query: Query) -> model.NodesPage[Any]:
    """A page of what all nodes have, or the one that the query names."""
    cluster = desk.ports.cluster
    if cluster is None:
        if query.node is not None:
            choose([], query.node, desk.node.name)
        found = desk.listings.page(what, query)
        return model.NodesPage(items=found.items, next=found.next)
    nodes = choose(cluster.live_nodes(), query.node, desk.node.name)
    stops = [_Stop(NODE, node.node_id, node.name, node.is_self) for node in nodes]
    stops += [_Stop(SHARD, group, name) for group, name in away_shards(desk, query)]
    return await _Walk(desk, cluster, what, query).page(stops)


class _Stop(NamedTuple):
    """Where entries are asked for: a node (``n``) or a shard of ``$sessions`` (``s``). Nodes come first."""

    mark: str
    number: int
    """Id of the node, or group of the shard."""
    name: str
    is_self: bool = False

    def cursor(self, after: str | None) -> str:
        """Where to go on: at the begin of this stop, or behind ``after``."""
        return f"{self.mark}{self.number:016x}" + (".0" if after is None else f"-{after}")


class _Walk:
    """One page in the making."""

    def __init__(self, desk: Desk, cluster: ClusterPort, what: str, query: Query) -> None:
        self._desk = desk
        self._cluster = cluster
        self._what = what
        self._query = query
        self._items: list[Any] = []
        self._unanswered: list[str] = []

    async def page(self, stops: Sequence[_Stop]) -> model.NodesPage[Any]:
        """Ask one after the other until the page is full."""
        at, after = _read_cursor(self._query.after)
        if after is not None and at[0] == NODE and all(stop[:2] != at for stop in stops):
            self._unanswered.append(self._cluster.name_of(at[1]))  # it died between two pages
        until = self._desk.clock() + PAGE_MS
        for stop in stops:
            if stop[:2] < at:
                continue
            room = self._query.limit - len(self._items)
            if room <= 0 or self._desk.clock() >= until:
                return self._done(stop.cursor(None))
            part = await self._ask(stop, after if stop[:2] == at else None, room)
            if part is None:
                self._unanswered.append(stop.name)
                continue
            self._items += self._new(part.items) if stop.mark == SHARD else part.items
            if part.next is not None:
                return self._done(stop.cursor(part.next))
        return self._done(None)

    def _new(self, items: list[Any]) -> list[Any]:
        """Entries that this page has not: a node may have forgotten a session, since it was asked."""
        listed = {(item.namespace, item.client_id) for item in self._items if not is_away(item)}
        return [item for item in items if (item.namespace, item.client_id) not in listed]

    async def _ask(self, stop: _Stop, after: str | None, room: int) -> model.Page[Any] | None:
        query = msgspec.structs.replace(self._query, after=after, limit=room, node=None)
        if stop.mark == SHARD:
            return await away_page(self._desk, self._cluster, stop.number, self._what, query)
        if stop.is_self:
            return self._desk.listings.page(self._what, query)
        answer = await self._cluster.list_at(stop.number, ask_page(self._what, query))
        return read_page(self._what, answer)

    def _done(self, following: str | None) -> model.NodesPage[Any]:
        return model.NodesPage(items=self._items, next=following, unanswered=self._unanswered)


async def find_everywhere(desk: Desk, what: str, client_id: str, node: str | None) -> Any:
    """The connection or session of a client on whichever node it is, or on the named one; None when no node has it.
    A session that no node has is found by its record.

    ApiError when no node that answers has it and some do not answer: the client may be there.
    """
    cluster = desk.ports.cluster
    nodes = choose(cluster.live_nodes() if cluster is not None else [], node, desk.node.name)
    if cluster is None or any(one.is_self for one in nodes):
        found = desk.listings.find(what, client_id)
        if found is not None or cluster is None:
            return found
    others = [one for one in nodes if not one.is_self]
    answers = await cluster.find_at([one.node_id for one in others], ask_find(what, client_id))
    for body in answers:
        found = read_find(what, body) if body else None
        if found is not None:
            return found
    silent = [one.name for one, body in zip(others, answers, strict=True) if body is None]
    if silent:
        raise ApiError(
            UNAVAILABLE, f"No node that answers has this client, and {', '.join(silent[:10])} did not answer; ask again"
        )
    return await find_away(desk, cluster, client_id) if what == SESSIONS and node is None else None


def choose(nodes: Sequence[LiveNode], wanted: str | None, own_name: str) -> list[LiveNode]:
    """The nodes to ask: all, or the one of that name (also without ``@host`` when only one begins so)."""
    if wanted is None or (not nodes and wanted in (own_name, own_name.partition("@")[0])):
        return list(nodes)
    named = [node for node in nodes if node.name == wanted]
    named = named or [node for node in nodes if node.name.partition("@")[0] == wanted]
    if len(named) == 1:
        return named
    alive = ", ".join(node.name for node in nodes[:20]) or own_name
    if named:
        raise ApiError(INVALID_PARAMETER, f"Several nodes are called {wanted!r}; name one of {alive}")
    raise ApiError(NOT_FOUND, f"There is no node {wanted[:80]!r} that is alive; alive are {alive}")


def _read_cursor(text: str | None) -> tuple[tuple[str, int], str | None]:
    """The stop to go on with, and its own cursor."""
    if text is None:
        return ("", 0), None
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise ApiError(INVALID_PARAMETER, "`after` is not a cursor; give the `next` of the page before, unchanged")
    return (found[1], int(found[2], 16)), found[3]
