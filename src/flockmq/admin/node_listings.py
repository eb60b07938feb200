"""What one node tells of its clients, sessions and subscriptions: to its own API, and to other nodes that ask.

```
 API of this node ----------> page, find                          values of the model
 API of another node --CALLS--> answer_page, answer_find          the same as JSON, bounded in bytes
                              `--> answer_held                      which of these sessions are here
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from flockmq.admin import listings, model, views
from flockmq.errors import CURSOR_EXPIRED, INVALID_PARAMETER, ApiError, RemoteProtocolError
from flockmq.mqtt import reasons

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flockmq.admin.moments import Moments
    from flockmq.admin.paging import Entries, Pager
    from flockmq.durable.sessions.lag import Lag
    from flockmq.node.broker import Broker
    from flockmq.session.session import Session

CONNECTIONS: Final = "connections"
SESSIONS: Final = "sessions"
SUBSCRIPTIONS: Final = "subscriptions"
ANSWER_BYTES: Final = 262_144
"""After so many bytes of entries an answer to another node is full."""

Listed = model.Connection | model.Session | model.Subscription
Query = model.ConnectionQuery | model.SessionQuery | model.SubscriptionQuery
_QUERIES: Final[dict[str, type[Any]]] = {
    CONNECTIONS: model.ConnectionQuery,
    SESSIONS: model.SessionQuery,
    SUBSCRIPTIONS: model.SubscriptionQuery,
}
_ENTRIES: Final[dict[str, type[Any]]] = {
    CONNECTIONS: model.Connection,
    SESSIONS: model.Session,
    SUBSCRIPTIONS: model.Subscription,
}

_LISTS: Final[dict[str, Any]] = {what: list[entry] for what, entry in _ENTRIES.items()}  # type: ignore[valid-type]


class Question(msgspec.Struct, frozen=True, array_like=True):
    """A page that another node asks for."""

    what: str
    query: msgspec.Raw


class Wanted(msgspec.Struct, frozen=True, array_like=True):
    """A client that another node looks for; ``client_id`` as sessions are kept by it."""

    what: str
    client_id: str


class Told(msgspec.Struct, frozen=True, array_like=True):
    """A page as it travels; ``error`` is the code of what is wrong with ``after``, empty when nothing is."""

    error: str
    items: msgspec.Raw
    next: str | None


class NodeListings:
    """See the module."""

    def __init__(
        self,
        broker: Callable[[], Broker],
        moments: Moments,
        pager: Pager,
        name: str,
        lag_of: Callable[[Session], Lag],
    ) -> None:
        """``name``: what this node is called, for its entries; ``lag_of``: what waits for its sessions in logs."""
        self._broker = broker
        self._moments = moments
        self._pager = pager
        self._name = name
        self._lag_of = lag_of

    def page(self, what: str, query: Query, bytes_max: int = 0) -> model.Page[Any]:
        """A page of this node's entries; ApiError when ``after`` is no cursor of this listing."""
        filters = msgspec.structs.replace(query, after=None, limit=1, node=None)
        found = self._pager.page(
            (what, filters), lambda: self._walk(query), query.after, query.limit, self._moments.now_ms, bytes_max
        )
        items = [msgspec.structs.replace(item, node=self._name) for item in found.items]
        return model.Page(items=items, next=found.next)

    def _walk(self, query: Query) -> Entries[Any]:
        if isinstance(query, model.ConnectionQuery):
            return listings.connections(self._broker(), query, self._moments)
        if isinstance(query, model.SessionQuery):
            return listings.sessions(self._broker(), query, self._moments, self._lag_of)
        return listings.subscriptions(self._broker(), query)

    def find(self, what: str, client_id: str) -> Listed | None:
        """The connection or the session of a client, if this node has it."""
        session = self._broker().sessions.get(client_id)
        if session is None:
            return None
        if what == SESSIONS:
            seen = views.session(session, self._moments, self._lag_of(session))
            return msgspec.structs.replace(seen, node=self._name)
        if session.connection is None:
            return None
        found = views.connection(session.connection, session, self._moments)
        return msgspec.structs.replace(found, node=self._name)

    def answer_page(self, body: bytes) -> bytes:
        """A page for another node."""
        return answer_question(body, lambda what, query: self.page(what, query, ANSWER_BYTES))

    def answer_find(self, body: bytes) -> bytes:
        """A client for another node; no bytes when it is not here."""
        try:
            wanted = msgspec.json.decode(body, type=Wanted)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise RemoteProtocolError(reasons.PROTOCOL_ERROR, "A question for a client can't be read") from None
        found = self.find(wanted.what, wanted.client_id)
        return b"" if found is None else msgspec.json.encode(found)

    def answer_held(self, body: bytes) -> bytes:
        """Which of these clients have their sessions here, for another node."""
        try:
            asked = msgspec.json.decode(body, type=list[str])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise RemoteProtocolError(reasons.PROTOCOL_ERROR, "A question for sessions can't be read") from None
        return msgspec.json.encode(sorted(self.held(asked)))

    def held(self, client_ids: Iterable[str]) -> set[str]:
        """Those of these clients whose sessions are here."""
        sessions = self._broker().sessions
        return {client_id for client_id in client_ids if client_id in sessions}


def answer_question(body: bytes, page: Callable[[str, Query], model.Page[Any]]) -> bytes:
    """Answer ``ask_page`` with what ``page`` gives."""
    try:
        question = msgspec.json.decode(body, type=Question)
        query: Query = msgspec.json.decode(question.query, type=_QUERIES[question.what])
    except (msgspec.MsgspecError, KeyError, UnicodeDecodeError):
        raise RemoteProtocolError(reasons.PROTOCOL_ERROR, "A question for a listing can't be read") from None
    try:
        found = page(question.what, query)
    except ApiError as error:
        return msgspec.json.encode(Told(error.kind.code, msgspec.Raw(b"[]"), None))
    return msgspec.json.encode(Told("", msgspec.Raw(msgspec.json.encode(found.items)), found.next))


def ask_page(what: str, query: Query) -> bytes:
    """The question that ``answer_page`` answers."""
    return msgspec.json.encode(Question(what, msgspec.Raw(msgspec.json.encode(query))))


def ask_find(what: str, client_id: str) -> bytes:
    """The question that ``answer_find`` answers."""
    return msgspec.json.encode(Wanted(what, client_id))


def read_page(what: str, body: bytes | None) -> model.Page[Any] | None:
    """Read what ``answer_page`` said; None when there is no answer, ApiError when the cursor is of no use there."""
    if body is None:
        return None
    try:
        told = msgspec.json.decode(body, type=Told)
        items: list[Any] = msgspec.json.decode(told.items, type=_LISTS[what])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None  # of another version
    if told.error:
        kind = INVALID_PARAMETER if told.error == INVALID_PARAMETER.code else CURSOR_EXPIRED
        raise ApiError(kind, "This listing is no longer kept on the node that it had come to; start without `after`")
    return model.Page(items=items, next=told.next)


def ask_held(client_ids: Iterable[str]) -> bytes:
    """The question that ``answer_held`` answers."""
    return msgspec.json.encode(list(client_ids))


def read_held(body: bytes | None) -> set[str]:
    """Read what ``answer_held`` said; none when there is no answer."""
    try:
        return set(msgspec.json.decode(body, type=list[str])) if body else set()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return set()  # of another version


def read_find(what: str, body: bytes) -> Any:
    """Read what ``answer_find`` said; None when the client is not there."""
    try:
        return msgspec.json.decode(body, type=_ENTRIES[what]) if body else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None  # of another version
