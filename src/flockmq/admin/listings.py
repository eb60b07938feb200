"""Walks over the broker's structures, for ``paging``: each yields an entry, or None for one the filters keep out.

A walk copies keys when it begins and looks each one up when its turn comes, so what went away in between is skipped
and nothing is read from a structure while it changes. Nested walks (subscriptions of sessions) copy one inner list at
a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from flockmq.admin import model, views
from flockmq.mqtt.namespaces import (
    DEFAULT_NAMESPACE,
    inside_client_id,
    split_client_id,
    topic_prefix,
    unqualified,
)
from flockmq.mqtt.topics import matches, split_shared
from flockmq.node.namespaces import inside_filter
from flockmq.session.connection import CONNECTED
from flockmq.session.space import Space

if TYPE_CHECKING:
    from flockmq.admin.moments import Moments
    from flockmq.admin.paging import Entries
    from flockmq.durable.sessions.lag import Lag
    from flockmq.node.broker import Broker
    from flockmq.routing.subscription import Subscription
    from flockmq.session.session import Session

RETAINED_STEPS_MAX = 10_000
"""How far a filter may be looked up in the tree of retained names before the walk looks at every name instead."""


def connections(broker: Broker, query: model.ConnectionQuery, moments: Moments) -> Entries[model.Connection]:
    """Connected clients that pass the filters."""
    for number in list(broker.connections):
        connection = broker.connections.get(number)
        session = connection.session if connection is not None and connection.phase == CONNECTED else None
        if connection is None or session is None or not _wanted(connection.peer, session, query):
            yield None
        else:
            yield views.connection(connection, session, moments)


def _wanted(peer: str, session: Session, query: model.ConnectionQuery) -> bool:
    namespace, client_id = split_client_id(session.client_id)
    username = session.username and unqualified(namespace, session.username)
    return (
        client_id.startswith(query.client_id or "")
        and query.namespace in (None, namespace)
        and query.username in (None, username)
        and query.peer in (None, peer)
    )


def sessions(
    broker: Broker, query: model.SessionQuery, moments: Moments, lag_of: Callable[[Session], Lag]
) -> Entries[model.Session]:
    """Sessions that pass the filters."""
    for client_id in list(broker.sessions):
        session = broker.sessions.get(client_id)
        if session is None or not _is_listed(session, query, moments):
            yield None
            continue
        lag = lag_of(session)
        yield views.session(session, moments, lag) if lag.waiting >= (query.lag_min or 0) else None


def _is_listed(session: Session, query: model.SessionQuery, moments: Moments) -> bool:
    if query.connected not in (None, session.connection is not None):
        return False
    if query.disconnected_s_min is not None and (
        session.connection is not None or moments.now_ms - session.detached_at < query.disconnected_s_min * 1_000
    ):
        return False
    return is_of(session.client_id, session.username, query)


def is_of(full_id: str, full_name: str | None, query: model.SessionQuery) -> bool:
    """Whether a session, with names as the broker keeps them, is of the client, namespace and user of a query."""
    namespace, client_id = split_client_id(full_id)
    if not client_id.startswith(query.client_id or "") or query.namespace not in (None, namespace):
        return False
    return query.username is None or (full_name is not None and unqualified(namespace, full_name) == query.username)


def subscriptions(broker: Broker, query: model.SubscriptionQuery) -> Entries[model.Subscription]:
    """Subscriptions that pass the filters, found the shortest way that the filters leave."""
    namespace = query.namespace or DEFAULT_NAMESPACE
    wanted_filter = None if query.filter is None else inside_filter(Space(namespace), query.filter.encode())
    wanted_topic = None if query.match is None else topic_prefix(namespace) + query.match.encode()
    wanted_id = None if query.client_id is None else inside_client_id(namespace, query.client_id)
    for candidate in _candidates(broker, wanted_id, wanted_filter, wanted_topic):
        # Since the walk noted it, it may have ended, or another with other options stands in its place.
        found = None if candidate is None else candidate.session.subscriptions.get(views.full_filter(candidate))
        if (
            found is None
            or wanted_id not in (None, found.session.client_id)
            or query.namespace not in (None, split_client_id(found.session.client_id)[0])
            or wanted_filter not in (None, views.full_filter(found))
            or (wanted_topic is not None and not matches(found.topic_filter, wanted_topic))
        ):
            yield None
        else:
            yield views.subscription(found)


def _candidates(
    broker: Broker, client_id: str | None, wanted_filter: bytes | None, wanted_topic: bytes | None
) -> Iterator[Subscription | None]:
    if client_id is not None:
        yield from _of_sessions(broker, [client_id])
    elif wanted_filter is not None:
        yield from _of_filters(broker, [split_shared(wanted_filter)[1]])
    elif wanted_topic is not None:
        yield from _of_filters(broker, [entry.topic_filter for entry in broker.subscriptions.matching(wanted_topic)])
    else:
        yield from _of_sessions(broker, list(broker.sessions))


def _of_sessions(broker: Broker, client_ids: Iterable[str]) -> Iterator[Subscription | None]:
    for client_id in client_ids:
        session = broker.sessions.get(client_id)
        yield None  # a session without subscriptions costs a step, too
        if session is not None:
            for key in list(session.subscriptions):
                yield session.subscriptions.get(key)


def _of_filters(broker: Broker, topic_filters: Iterable[bytes]) -> Iterator[Subscription | None]:
    for topic_filter in topic_filters:
        entry = broker.subscriptions.entry(topic_filter)
        yield None
        if entry is None:
            continue
        yield from entry.subscriptions()
        for group in list(entry.groups.values()) if entry.groups is not None else ():
            yield from list(group.members)


def retained(broker: Broker, query: model.RetainedQuery, moments: Moments) -> Entries[model.Retained]:
    """Retained messages whose topics the filter matches; the broker's own under ``$SYS`` are not listed."""
    store = broker.retained
    wanted = None if query.filter is None else query.filter.encode()
    for topic in _retained_topics(broker, wanted):
        message = store.get(topic, moments.now_ms)
        if message is None or message.is_system or (wanted is not None and not matches(wanted, topic)):
            yield None
        else:
            yield views.retained(message, moments)


def _retained_topics(broker: Broker, wanted: bytes | None) -> list[bytes]:
    """Names to look at: those that the tree finds quickly, or all when the filter is a wide one."""
    store = broker.retained
    if wanted is not None:
        found = store._names.match_within(wanted, RETAINED_STEPS_MAX)
        if found is not None:
            return [message.topic for message in found]
    return store.topics()


def bans(broker: Broker, query: model.BanQuery, moments: Moments) -> Entries[model.Ban]:
    """Bans in force."""
    for key in list(broker.bans.bans):
        ban = broker.bans.current(*key, moments.now_ms)
        if ban is None or (query.kind is not None and ban.kind != query.kind):
            yield None
        else:
            yield views.ban(ban, moments)
