"""Sessions that no node has in memory: pages of their records, from the leader of a shard of ``$sessions``.

```
 API of any node --RECORDS--> leader of the shard --> walk over its records --> entries, without those that
                                                        |   are connected on a node that lives
                                                        `-- are in the memory of this node
 API: asks all nodes which of the entries they have (HELD), and shows the others
```
A record says which node had the session last, not whether that node still has it: a session may be with its owner,
have moved, or be with no node though its owner lives (the client went away before CONNACK).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from flockmq.admin import model, views
from flockmq.admin.listings import is_of
from flockmq.admin.node_listings import ANSWER_BYTES, answer_question
from flockmq.mqtt.namespaces import DEFAULT_NAMESPACE, inside_client_id, split_client_id, topic_prefix
from flockmq.mqtt.topics import matches, split_shared
from flockmq.node.namespaces import inside_filter
from flockmq.session.space import Space

if TYPE_CHECKING:
    from flockmq.admin.moments import Moments
    from flockmq.admin.node_listings import Query
    from flockmq.admin.paging import Entries, Pager
    from flockmq.durable.machine.session_record import SessionRecord
    from flockmq.durable.machine.session_table import SessionTable
    from flockmq.durable.sessions.lag import Lag
    from flockmq.node.broker import Broker

SUBSCRIPTIONS_PER_STEP: Final = 16
"""Subscriptions whose logs are looked at for the price of an entry."""


class Surroundings:
    """What a leader knows beside its records: its own sessions, the nodes that live, and their names."""

    def __init__(
        self,
        broker: Broker,
        boots: Callable[[], dict[int, int]],
        name_of: Callable[[int], str],
        moments: Moments,
        lag_of: Callable[[SessionRecord, SessionTable], Lag | None],
    ) -> None:
        """``boots``: the nodes that live, each with the boot that it is in."""
        self.broker = broker
        self.boots = boots
        self.name_of = name_of
        self.moments = moments
        self.lag_of = lag_of


class RecordListings:
    """See the module."""

    def __init__(self, table: Callable[[int], SessionTable], around: Surroundings, pager: Pager) -> None:
        """``table``: the records of a group that this node leads."""
        self._table = table
        self._around = around
        self._pager = pager

    def answer(self, group: int, body: bytes) -> bytes:
        """A page of a shard, for the node that asks."""
        return answer_question(body, lambda what, query: self.page(group, what, query))

    def page(self, group: int, what: str, query: Query) -> model.Page[Any]:
        """A page of what no node seems to have; ApiError when ``after`` is no cursor of this listing."""
        filters = msgspec.structs.replace(query, after=None, limit=1, node=None)
        now_ms = self._around.moments.now_ms
        return self._pager.page(
            (group, what, filters), lambda: self._walk(group, query), query.after, query.limit, now_ms, ANSWER_BYTES
        )

    def _walk(self, group: int, query: Query) -> Entries[Any]:
        if isinstance(query, model.SessionQuery):
            return sessions(self._table(group), query, self._around)
        if isinstance(query, model.SubscriptionQuery):
            return subscriptions(self._table(group), query, self._around)
        return iter(())


def sessions(table: SessionTable, query: model.SessionQuery, around: Surroundings) -> Entries[model.Session]:
    """Sessions that pass the filters."""
    for record in records(table, list(table.records), around):
        if record is None or query.connected or not _is_listed(record, query, around.moments):
            yield None
            continue
        for _ in range(len(record.subscriptions) // SUBSCRIPTIONS_PER_STEP):
            yield None  # counting what waits takes a while
        lag = around.lag_of(record, table)
        is_wanted = lag is None or lag.waiting >= (query.lag_min or 0)
        yield views.record(record, around.name_of(record.owner), lag) if is_wanted else None


def subscriptions(
    table: SessionTable, query: model.SubscriptionQuery, around: Surroundings
) -> Entries[model.Subscription]:
    """Subscriptions that pass the filters."""
    namespace = query.namespace or DEFAULT_NAMESPACE
    wanted_filter = None if query.filter is None else inside_filter(Space(namespace), query.filter.encode())
    wanted_topic = None if query.match is None else topic_prefix(namespace) + query.match.encode()
    wanted_id = None if query.client_id is None else inside_client_id(namespace, query.client_id).encode()
    for record in records(table, list(table.records) if wanted_id is None else [wanted_id], around):
        yield None  # a session without subscriptions costs a step, too
        if record is None or query.namespace not in (None, split_client_id(views.text(record.client))[0]):
            continue
        for full_filter, stored in list(record.subscriptions.items()):
            if wanted_filter not in (None, full_filter) or (
                wanted_topic is not None and not matches(split_shared(full_filter)[1], wanted_topic)
            ):
                yield None
            else:
                yield views.stored_subscription(record, stored, around.name_of(record.owner))


def records(table: SessionTable, clients: list[bytes], around: Surroundings) -> Iterator[SessionRecord | None]:
    """Records of sessions that no node seems to have; None for each other one."""
    boots = around.boots()
    held = around.broker.sessions
    for client in clients:
        record = table.records.get(client)
        is_clean = record is not None and not record.expiry_s  # its node has just died, and the session with it
        if record is None or is_clean or (record.is_connected and boots.get(record.owner) == record.boot):
            yield None
        else:
            yield None if views.text(client) in held else record


def _is_listed(record: SessionRecord, query: model.SessionQuery, moments: Moments) -> bool:
    if query.disconnected_s_min is not None and (
        not record.detached_ms or moments.wall_ms - record.detached_ms < query.disconnected_s_min * 1_000
    ):
        return False
    return is_of(views.text(record.client), None if record.user is None else views.text(record.user), query)
