"""Whose turn it is: how much work a loop turn does for one client, and for all of them together.

```
 read --> within its share and within the turn --> worked on at once
             |                    |
     used up its own share    others used up the turn (with many bytes: heavy)
             v                    v
           heavy                light        bytes wait in ``Connection.rest``, the connection is not read meanwhile
             `----- next turn: light ones first, then heavy ones round robin, for half of the turn -----> on they go
```
Whatever clients send, a turn ends soon, and then gossip, links and consensus are served. A client that asks for little
is served in the same turn or in the next, however much others ask for.

Work is counted in units of about a microsecond of compiled code: per run, per packet of the rare kinds, per filter, per
receiver; never per message of a run.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from flockmq.session.connection import Connection

SHARE: Final = 5_000
"""Work for one connection in one turn."""
TURN: Final = 25_000
"""Work for all connections in one turn."""
WAITING: Final = 12_500
"""Share of ``TURN`` for connections that waited; the rest is for bytes that are read in this turn."""
LIGHT_BYTES: Final = 1_024
"""A connection that waits with no more bytes than that is served first."""
LIGHT_FILTERS: Final = 64
"""A lost connection with no more subscriptions than that is ended at once."""
LOST_BYTES_MAX: Final = 16_777_216
"""Bytes that wait for connections whose transport is gone: no limit of a listener counts those any more."""

# What things cost.
PACKET: Final = 4
"""Any packet that is not part of a run."""
PING: Final = 1
ACKS_SHIFT: Final = 4
"""A unit for so many bytes of plain acks: 16, which are four of them."""
CONNECT: Final = 100
FILTER: Final = 4
"""A filter of a SUBSCRIBE or UNSUBSCRIBE, or of a session that ends: in the table, for other nodes, for logs."""
STEPS: Final = 8
"""Steps of a search among retained messages that cost one unit."""
LEAVE: Final = 50
"""The end of a connection."""
RUN: Final = 2
BYTES_SHIFT: Final = 8
"""A unit for so many bytes: 256."""


class Turns:
    """The turn that is going on, and the connections that wait for the next."""

    def __init__(self) -> None:
        self.number = 1
        self.work = 0
        """Work done in this turn so far."""
        self.share = SHARE
        self.turn = TURN
        self.for_waiting = WAITING
        self.waiting = 0
        """How many connections wait."""
        self.lost_bytes = 0
        """Bytes held for connections whose transport is gone."""
        self._lost: dict[int, int] = {}
        """Bytes held for each connection whose transport is gone, by its number."""
        self._light: deque[Connection] = deque()
        self._heavy: deque[Connection] = deque()

    def set_speed(self, percent: int) -> None:
        """The share of the work units that fits into a turn's time: less where code is not compiled."""
        self.share = SHARE * percent // 100
        self.turn = TURN * percent // 100
        self.for_waiting = WAITING * percent // 100

    def is_over(self) -> bool:
        """Whether the work of this turn is used up."""
        return self.work >= self.turn

    def wait(self, connection: Connection, is_heavy: bool) -> None:
        """Have a connection wait for a later turn; ``is_heavy``: it has had its share of this one, or asks for much."""
        if connection.waits_turn:
            return
        connection.waits_turn = True
        connection.mark()
        self.waiting += 1
        if is_heavy:
            self._heavy.append(connection)
        else:
            self._light.append(connection)

    def keep_lost(self, connection: Connection) -> bool:
        """Whether the bytes of a lost connection go on waiting for a turn; otherwise they are no longer held."""
        size = len(connection.rest)
        held = self.lost_bytes + size - self._lost.get(connection.number, 0)
        if held <= LOST_BYTES_MAX:
            self.lost_bytes = held
            self._lost[connection.number] = size
            return True
        connection.waits_turn = False
        connection.rest = b""
        self.waiting -= 1
        if connection in self._heavy:
            self._heavy.remove(connection)
        else:
            self._light.remove(connection)
        return False

    def forget_lost(self, connection: Connection) -> None:
        """A lost connection was ended."""
        self.lost_bytes -= self._lost.pop(connection.number, 0)

    def take_light(self) -> Connection | None:
        """The next light connection: it waited only for others."""
        return self._take(self._light)

    def take_heavy(self) -> Connection | None:
        """The next heavy connection: it used up its share before."""
        return self._take(self._heavy)

    def _take(self, queue: deque[Connection]) -> Connection | None:
        if not queue:
            return None
        connection = queue.popleft()
        connection.waits_turn = False
        self.waiting -= 1
        return connection

    def lengths(self) -> tuple[int, int]:
        """How many wait in each queue."""
        return len(self._light), len(self._heavy)
