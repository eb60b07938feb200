"""Listings over all nodes of the cluster, one node after the other, and a client wherever it is.

```
 first page   nodes that are alive, by id:  n1: all of it --> n2: limit reached --> next = "n<id of n2>-<cursor of n2>"
 next page    n2 goes on with its own cursor ------------> n3 ...                    null after the last node
```
The cursor says all: the node that is asked keeps nothing, and another one can go on with it. A node that does not
answer is named in ``unanswered`` of the page that would have had its entries. A client that moves to another node
between two pages may be listed twice or not at all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from flockmq.admin import model
from flockmq.admin.node_listings import ask_find, ask_page, read_find, read_page
from flockmq.errors import INVALID_PARAMETER, NOT_FOUND, UNAVAILABLE, ApiError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flockmq.admin.cluster_port import ClusterPort, LiveNode
    from flockmq.admin.desk import Desk
    from flockmq.admin.node_listings import Query

PAGE_MS: Final = 5_000
"""After this long a page is given as it is: nodes that don't answer take a while each."""
_CURSOR: Final = re.compile(r"n([0-9a-f]{16})(?:\.0|-([A-Za-z0-9_-]+\.[0-9]{1,18}))", re.ASCII)
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
    return await _Walk(desk, cluster, what, query).page(nodes)


class _Walk:
    """One page in the making."""

    def __init__(self, desk: Desk, cluster: ClusterPort, what: str, query: Query) -> None:
        self._desk = desk
        self._cluster = cluster
        self._what = what
        self._query = query
        self._items: list[Any] = []
        self._unanswered: list[str] = []

    async def page(self, nodes: Sequence[LiveNode]) -> model.NodesPage[Any]:
        """Ask nodes in the order of their ids until the page is full."""
        at, after = _read_cursor(self._query.after)
        if after is not None and all(node.node_id != at for node in nodes):
            self._unanswered.append(self._cluster.name_of(at))  # it died between two pages
        until = self._desk.clock() + PAGE_MS
        for node in nodes:
            if node.node_id < at:
                continue
            room = self._query.limit - len(self._items)
            if room <= 0 or self._desk.clock() >= until:
                return self._done(f"n{node.node_id:016x}.0")
            part = await self._ask(node, after if node.node_id == at else None, room)
            if part is None:
                self._unanswered.append(node.name)
                continue
            self._items += part.items
            if part.next is not None:
                return self._done(f"n{node.node_id:016x}-{part.next}")
        return self._done(None)

    async def _ask(self, node: LiveNode, after: str | None, room: int) -> model.Page[Any] | None:
        query = msgspec.structs.replace(self._query, after=after, limit=room, node=None)
        if node.is_self:
            return self._desk.listings.page(self._what, query)
        answer = await self._cluster.list_at(node.node_id, ask_page(self._what, query))
        return read_page(self._what, answer)

    def _done(self, following: str | None) -> model.NodesPage[Any]:
        return model.NodesPage(items=self._items, next=following, unanswered=self._unanswered)


async def find_everywhere(desk: Desk, what: str, client_id: str, node: str | None) -> Any:
    """The connection or session of a client on whichever node it is, or on the named one; None when no node has it.

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
    return None


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


def _read_cursor(text: str | None) -> tuple[int, str | None]:
    """The node to go on with, and its own cursor; 0 for the first."""
    if text is None:
        return 0, None
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise ApiError(INVALID_PARAMETER, "`after` is not a cursor; give the `next` of the page before, unchanged")
    return int(found[1], 16), found[2]
