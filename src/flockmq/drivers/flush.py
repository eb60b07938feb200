"""One write per connection and loop turn: the broker marks connections, this walks them once the turn's reads are done.

```
 data_received ... data_received ... timer   --> broker: connection.out grows, broker.dirty lists who
        `--------------- schedule() once ---------------> run(): other nodes, then handle.flush(connection) for each
```
What the other nodes' side brings while it is called (commits become PUBACKs and messages for subscribers) leaves in the
same run when it is short: for one message alone another turn of the whole cluster node would be a part of its way. When
it is more there is load, and the next run gathers what is read meanwhile: publishers that are answered together come
again together. What clients said meanwhile waits for the next run in any case.

A loop turn may read many megabytes before it comes to what was scheduled. So that buffers do not fill up meanwhile,
``run`` is called in between as soon as a turn has read READ_BYTES.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, cast

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from flockmq.node.broker import Broker
    from flockmq.session.connection import Connection


READ_BYTES: Final = 524_288


class Handle(Protocol):
    """What a driver leaves in ``connection.handle``."""

    def flush(self, connection: Connection) -> None:
        """Write what the connection holds and follow its wishes; does not raise."""


class Flusher:
    """Walks the broker's dirty connections."""

    __slots__ = ("_broker", "_loop", "_read_bytes", "_scheduled", "between")

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self.between: Callable[[], bool] | None = None
        """Called in every run before anything is written: other nodes have a message before its PUBACK is out.

        False: it has not told them everything, so nothing that came of it may be written yet.
        """
        self._broker = broker
        self._loop = loop
        self._scheduled = False
        self._read_bytes = 0

    def note_read(self, size: int) -> None:
        """Bytes were handed to the broker: flush at the end of the turn, or now if it has been many."""
        self._read_bytes += size
        if self._read_bytes > READ_BYTES:
            self.run()
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.run)

    def schedule(self) -> None:
        """Have ``run`` called once in this turn, however often it is asked for."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.run)

    def run(self) -> None:
        """Write for every marked connection; new marks that writing causes come in the next turn."""
        self._scheduled = False
        self._read_bytes = 0
        dirty = self._broker.take_dirty()
        if self.between is not None and self.between():
            dirty += self._broker.take_answered()
        for connection in dirty:
            handle = connection.handle
            if handle is not None:  # else its transport is gone
                cast("Handle", handle).flush(connection)
        if self._broker.dirty:
            self.schedule()
