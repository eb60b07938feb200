"""One write per connection and loop turn: the broker marks connections, this walks them once the turn's reads are done.

```
 data_received ... data_received ... timer   --> broker: connection.out grows, broker.dirty lists it
        `--------------- schedule() once ---------------> run(): other nodes, then handle.flush(connection) for each
```
What the other nodes' side brings while it is called (commits become PUBACKs and messages for subscribers) leaves in the
same run when it is short: for one message alone another turn of the whole cluster node would be a part of its way. When
it is more there is load, and the next run gathers what is read meanwhile: publishers that are answered together come
again together. What clients said meanwhile waits for the next run in any case.

A loop turn may read many megabytes before it comes to what was scheduled. So that buffers do not fill up meanwhile,
everything is written in between as soon as a turn has read READ_BYTES. That begins no new turn: clients have their
shares of work once per turn of the loop (``node/turns.py``).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from flockmq.node.broker import Broker
    from flockmq.session.connection import Connection


READ_BYTES: Final = 524_288
MEASURED_WORK_MIN: Final = 200
"""Less work than that says nothing about how fast this machine is."""
MEASURED_RISE_MAX: Final = 4
"""A turn that took more times as long per unit of work was interrupted: code does not become slower like that."""
SPEED_PERCENT_MIN: Final = 5
SLOW_S: Final = 0.1
"""A turn that takes longer is worth a line in the log: other nodes wait meanwhile."""
FEW: Final = 8
"""Writing to so few connections takes no time worth measuring."""


class Handle(Protocol):
    """What a driver leaves in ``connection.handle``."""

    def flush(self, connection: Connection) -> None:
        """Write what the connection holds and follow its wishes; does not raise."""


class SlowTurn(NamedTuple):
    """What took how long in a loop turn."""

    clients_s: float
    """Work for clients that waited for their turn."""
    nodes_s: float
    """What the other nodes were told, and what they brought."""
    writing_s: float
    waited: int
    """Clients that waited."""
    written: int
    """Connections that were written to."""


class Flusher:
    """Walks the broker's dirty connections."""

    __slots__ = (
        "_between",
        "_broker",
        "_clock",
        "_loop",
        "_on_fault",
        "_on_slow",
        "_read_bytes",
        "_scheduled",
        "_turns",
        "_unit_us",
    )

    def __init__(
        self,
        broker: Broker,
        loop: asyncio.AbstractEventLoop,
        on_fault: Callable[[str, Exception], None],
        on_slow: Callable[[SlowTurn], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        between: Callable[[], bool] | None = None,
    ) -> None:
        """``on_fault``: told of a bug, and what was being done; ``on_slow``: told of every turn that took long.

        ``between`` is called in every run before anything is written: other nodes have a message before its PUBACK is
        out. False: it has not told them everything, so nothing that came of it may be written yet.
        """
        self._between = between
        self._broker = broker
        self._turns = broker.node.turns
        self._clock = clock
        self._loop = loop
        self._scheduled: asyncio.Handle | None = None
        self._read_bytes = 0
        self._unit_us = 1.0
        self._on_fault = on_fault
        self._on_slow = on_slow

    def note_read(self, size: int) -> None:
        """Bytes were handed to the broker: flush at the end of the turn, or now if it has been many."""
        self._read_bytes += size
        if self._read_bytes > READ_BYTES:
            self._turn(is_new=False)
        if self._scheduled is None:
            self._scheduled = self._loop.call_soon(self._turn)

    def schedule(self) -> None:
        """Have ``run`` called once in this turn, however often it is asked for."""
        if self._scheduled is None:
            self._scheduled = self._loop.call_soon(self._turn)

    def run(self) -> None:
        """Begin a turn now, in place of the one that is scheduled: else every run of a timer would add one for good."""
        if self._scheduled is not None:
            self._scheduled.cancel()
        self._turn()

    def _turn(self, is_new: bool = True) -> None:
        """Begin a turn: write for every marked connection; new marks that writing causes come in the next turn.

        ``is_new=False`` only writes, in the middle of a turn. The whole of a turn is one function: a message that comes
        alone pays for every call.
        """
        broker = self._broker
        began = served = self._clock()
        waited = 0
        if is_new:
            self._scheduled = None
            waited = self._turns.waiting
        if waited:
            self._go_on(began)
            served = self._clock()
        self._read_bytes = 0
        dirty = broker.take_dirty() if is_new and not waited else broker.take_marked()
        if self._between is not None and self._between():
            dirty += broker.take_answered()
        told = self._clock() if len(dirty) > FEW else 0.0
        for connection in dirty:
            handle = connection.handle
            if handle is not None:  # else its transport is gone
                cast("Handle", handle).flush(connection)
        if broker.has_more():
            self.schedule()
        done = self._clock()
        if done - began > SLOW_S:
            told = told or done
            self._note_slow(SlowTurn(served - began, told - served, done - told, waited, len(dirty)))

    def _go_on(self, began: float) -> None:
        """Begin a turn with the clients that waited for it."""
        try:
            self._broker.begin_turn()
        except Exception as error:  # the connection that met the bug is closed; the others are written to
            self._on_fault("turn", error)
        self._measure((self._clock() - began) * 1_000_000, self._turns.work)

    def _measure(self, took_us: float, work: int) -> None:
        """Learn how long a unit of work takes here; it is meant to be a microsecond."""
        if work < MEASURED_WORK_MIN:
            return
        unit_us = min(took_us / work, MEASURED_RISE_MAX * max(self._unit_us, 1.0))
        self._unit_us += (unit_us - self._unit_us) / 4
        percent = int(100 / max(self._unit_us, 1.0))
        self._turns.set_speed(max(percent, SPEED_PERCENT_MIN))

    def _note_slow(self, turn: SlowTurn) -> None:
        if self._on_slow is not None:
            self._on_slow(turn)
