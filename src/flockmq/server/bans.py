"""Bans that the cluster agrees on, brought into force on this node.

```
 cluster state changed --follow--> BanList: looked at for every CONNECT
                                   a new ban --> connections, some in each turn of the loop: those that it hits end;
                                                 one that comes meanwhile waits for the next walk
```
Cluster state tells the end of a ban by the calendar, the broker counts on a clock of its own: both agree on the time
that is left.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from flockmq.drivers.clock import now_ms, wall_ms
from flockmq.node.bans import Ban
from flockmq.session.connection import CONNECTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.cluster.model import BanRecord
    from flockmq.cluster.tables import Tables
    from flockmq.node.broker import Broker

CLIENTS_PER_SLICE: Final = 2_000
"""How many connections one step checks before other work has the loop."""


class Bans:
    """Follows cluster state; use it in a running event loop."""

    def __init__(
        self,
        broker: Broker,
        flush: Callable[[], None],
        clock: Callable[[], int] = now_ms,
        wall_clock: Callable[[], int] = wall_ms,
    ) -> None:
        self._broker = broker
        self._flush = flush
        self._clock = clock
        self._wall_clock = wall_clock
        self._seen = (0, 0)
        self._begun: dict[tuple[str, str, int], int] = {}
        """(kind, value, wall time) of a ban -> its begin on the broker's clock, computed once."""
        self._walk: list[int] = []
        """Connections to check, from ``_at`` on."""
        self._at = 0
        self._goes_again = False
        """Bans were added since this walk began: another walk follows."""

    def follow(self, state: Tables) -> None:
        """Take over the bans, if they have changed."""
        version = (state.cluster_id, state.versions.bans)
        if version == self._seen:
            return
        self._seen = version
        now, wall = self._clock(), self._wall_clock()
        begun = self._begun
        self._begun = {}
        found: list[Ban] = []
        for record in state.bans.values():
            if 0 < record.until_ms <= wall:
                continue
            key = (record.kind, record.value, record.since_ms)
            since = begun.get(key, now - (wall - record.since_ms))
            self._begun[key] = since
            found.append(_ban(record, since, now, wall))
        if not self._broker.bans.hold(found):
            return
        if self._walk:
            self._goes_again = True  # one walk at a time, however many bans there are
        else:
            self._begin_walk()
            self._end_banned()

    def _begin_walk(self) -> None:
        self._walk = [*self._broker.connections]
        self._at = 0
        self._goes_again = False

    def _end_banned(self) -> None:
        """End connections that a ban hits. A ban counts for every CONNECT before this begins: no client slips in."""
        numbers = self._walk[self._at : self._at + CLIENTS_PER_SLICE]
        self._at += CLIENTS_PER_SLICE
        if self._at >= len(self._walk):
            self._walk = []
            if self._goes_again:
                self._begin_walk()
        if self._walk:
            asyncio.get_running_loop().call_soon(self._end_banned)
        broker, now = self._broker, self._clock()
        for number in numbers:
            connection = broker.connections.get(number)
            if connection is None or connection.phase != CONNECTED or connection.session is None:
                continue
            session = connection.session
            ban = broker.bans.check(session.client_id, session.username, connection.peer, now)
            if ban is not None and broker.kick(session.client_id, now):
                ban.kicked += 1
        self._flush()


def _ban(record: BanRecord, since: int, now: int, wall: int) -> Ban:
    until = now + record.until_ms - wall if record.until_ms else 0
    return Ban(record.kind, record.value, until, record.reason, since)
