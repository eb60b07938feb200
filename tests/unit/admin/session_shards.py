"""Shards of ``$sessions`` with real tables, for tests of what the API shows of them."""

from __future__ import annotations

from itertools import count

from flockmq.admin.moments import Moments
from flockmq.admin.paging import Pager
from flockmq.admin.session_records import RecordListings, Surroundings
from flockmq.durable.machine.session_bodies import (
    ClaimStatement,
    DetachStatement,
    SessionStatement,
    StoredSubscription,
    SubscribeStatement,
    session_body,
)
from flockmq.durable.machine.session_record import SessionRecord
from flockmq.durable.machine.session_table import SessionTable
from flockmq.durable.sessions.lag import NO_LAG, Lag
from flockmq.routing.durable import shard_of
from flockmq.testing.harness import BrokerHarness

DETACHED_MS = 1_772_366_400_000
BOOT = 5


class Shards:
    """Groups 101, 102, ... on one leader, whose own sessions are those of ``harness``."""

    def __init__(self, harness: BrokerHarness, shards: int = 1, scan_max: int = 10_000) -> None:
        self.tables = {101 + shard: SessionTable() for shard in range(shards)}
        self.boots: dict[int, int] = {}
        """Nodes that live."""
        self.later_ms = 0
        """The wall clock since sessions were detached."""
        self._index = 0
        numbers = count()
        moments = Moments(lambda: harness.now, lambda: DETACHED_MS + self.later_ms)
        self.lags: dict[str, Lag | None] = {}
        """By client id; others have none."""
        around = Surroundings(
            harness.broker,
            lambda: self.boots,
            lambda node: f"n{node}@host",
            moments,
            lambda record, _table: self.lag_of(record),
        )
        pager = Pager(lambda: f"records{next(numbers)}", scan_max=scan_max)
        self.records = RecordListings(self.tables.__getitem__, around, pager)

    def add(
        self,
        client_id: str,
        *filters: bytes,
        owner: int = 9,
        user: bytes | None = None,
        expiry_s: int = 60,
        connected: bool = False,
    ) -> int:
        """A session with these subscriptions; its epoch."""
        client = client_id.encode()
        table = self.tables[101 + shard_of(client, len(self.tables))]
        self._say(table, ClaimStatement(client, self._index + 1, 0, owner, BOOT, user, expiry_s, 5, 0))
        epoch = table.records[client].epoch
        stored = [StoredSubscription(one, 1, 1 << 2, 7, {}) for one in filters]
        self._say(table, SubscribeStatement(client, epoch, stored))
        if not connected:
            self._say(table, DetachStatement(client, epoch, expiry_s, {}))
        return epoch

    def lag_of(self, record: SessionRecord) -> Lag | None:
        return self.lags.get(record.client.decode(), NO_LAG)

    def _say(self, table: SessionTable, statement: SessionStatement) -> None:
        self._index += 1
        table.apply(session_body(DETACHED_MS, [statement]), self._index, DETACHED_MS)
