"""Connections that are not let in yet: how many there may be, and how many bytes may be held for them.

```
 open --> waiting, in order of arrival --CONNACK--> a client, no longer counted
             |
             `--> holding: half a CONNECT, or a whole one that is being judged
 one too many, or more bytes than all may hold together --> the one that has been at it for the longest time is closed
```
An honest CONNECT is complete in a moment. A client that sends half of a CONNECT and waits is soon the oldest and is
closed, so a crowd of strangers holds a bounded amount. Which bytes are legal: ``Broker.packet_before_connack``.
"""

from __future__ import annotations

from typing import Final

from flockmq.session.connection import Connection

COUNT_MIN: Final = 16
"""Least limit: clients that reconnect together must not close each other."""


class Strangers:
    """See the module. A limit of 0 is none."""

    def __init__(self, count_max: int, bytes_max: int, connections_max: int) -> None:
        """``connections_max``: limit of all connections; strangers take at most half of it."""
        self.held_bytes = 0
        self._count_max = count_max or 1 << 62
        if connections_max:
            self._count_max = min(self._count_max, max(connections_max // 2, COUNT_MIN))
        self._bytes_max = bytes_max or 1 << 62
        self._waiting: dict[int, Connection] = {}
        self._holding: dict[int, Connection] = {}

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._waiting)

    def arrive(self, connection: Connection) -> None:
        """Count a new one."""
        self._waiting[connection.number] = connection

    def hold(self, connection: Connection, size: int) -> None:
        """So many bytes are held for a connection now, whatever it was before."""
        if connection.number not in self._waiting:
            return
        self.held_bytes += size - connection.held_bytes
        connection.held_bytes = size
        if size:
            self._holding[connection.number] = connection  # in its old place, if it has one
        else:
            self._holding.pop(connection.number, None)

    def leave(self, connection: Connection) -> None:
        """A connection was let in, or is gone; fine to say twice."""
        if self._waiting.pop(connection.number, None) is None:
            return
        self._holding.pop(connection.number, None)
        self.held_bytes -= connection.held_bytes
        connection.held_bytes = 0

    def surplus(self) -> Connection | None:
        """The connection to close now; None while all limits hold."""
        if self.held_bytes > self._bytes_max:
            return next(iter(self._holding.values()))
        if len(self._waiting) > self._count_max:
            return next(iter(self._waiting.values()))
        return None
