"""Drives one broker: time, the flush, goodbyes, and the way of its events to the log.

```
 every 100 ms: broker.tick --> flush --> deadlines (handshakes, goodbyes) --> events to the callback
 stop(): listeners close --> broker.shutdown --> flush --> wait for goodbyes, at most FAREWELL_MS
```
An exception out of the broker costs the connection it happened on and becomes an ``internal_error`` event: a bug must
be seen, and must not take the other connections down with it.
"""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING, Final, Protocol

from flockmq.drivers.admission import Room
from flockmq.drivers.clock import now_ms, wall_ms
from flockmq.drivers.deadlines import Deadlines
from flockmq.drivers.flush import Flusher
from flockmq.node.events import EventList

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.drivers.deadlines import Waiting
    from flockmq.drivers.flush import SlowTurn
    from flockmq.drivers.listeners import Listener
    from flockmq.node.broker import Broker
    from flockmq.node.events import Event

TICK_S: Final = 0.1
SLOW_GAP_MS: Final = 1_000
"""Between two reports of turns that took long."""
FAREWELL_MS: Final = 2_000
"""How long a peer may take to read our last bytes and to close its side."""


class Nodes(Protocol):
    """The other nodes' side of a loop turn."""

    def turn(self) -> bool:
        """End a loop turn; False when something is left to be said to the others."""

    def tick(self, now: int) -> None:
        """Time passes."""


class Runner:
    """The loop's side of one broker. Create and start it inside a running event loop."""

    def __init__(
        self,
        broker: Broker,
        on_events: Callable[[list[Event]], None],
        connections_max: int = 0,
        nodes: Nodes | None = None,
    ) -> None:
        """``connections_max``: on all listeners together; 0: no limit. ``nodes``: None for a node alone."""
        self.broker = broker
        self.room = Room(connections_max)
        self.loop = asyncio.get_running_loop()
        self.listeners: list[Listener] = []
        self.events = EventList()
        """What the drivers have to say themselves."""
        self._flusher = Flusher(
            broker, self.loop, self.fault, self._slow_turn, between=nodes.turn if nodes is not None else None
        )
        self._slow_at = 0
        self.flush_soon = self._flusher.schedule
        self.note_read = self._flusher.note_read
        self._on_events = on_events
        self._nodes = nodes
        self._farewells = Deadlines(FAREWELL_MS)
        self._farewells_open = 0
        self._all_gone: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to tick."""
        self._timer = self.loop.call_later(TICK_S, self._tick)

    async def stop(self) -> None:
        """Stop listening, let the broker disconnect all clients, and wait a moment for them to hear it."""
        for listener in list(self.listeners):
            await listener.stop()
        self.guard("shutdown", lambda: self.broker.shutdown(now_ms()))
        while self.broker.dirty:
            self._flusher.run()
        if self._farewells_open:
            self._all_gone = self.loop.create_future()
            await self._all_gone  # the tick ends those that linger
        if self._timer is not None:
            self._timer.cancel()
        self._deliver_events()

    def fault(self, doing: str, error: Exception, **where: object) -> None:
        """Make an exception visible that must not go further up."""
        trace = "".join(traceback.format_exception(error)[-8:])
        self.events.note("internal_error", {"doing": doing, "error": repr(error), **where, "traceback": trace})

    def guard(self, doing: str, action: Callable[[], None]) -> None:
        """Run something of the broker's that belongs to no one connection."""
        try:
            action()
        except Exception as error:  # a bug in one place must not stop the loop for all
            self.fault(doing, error)

    def _slow_turn(self, turn: SlowTurn) -> None:
        """Tell of a loop turn that took long, once a second at most."""
        now = now_ms()
        if now < self._slow_at:
            return
        self._slow_at = now + SLOW_GAP_MS
        self.events.note(
            "slow_turn",
            {
                "clients_ms": round(turn.clients_s * 1_000),
                "nodes_ms": round(turn.nodes_s * 1_000),
                "writing_ms": round(turn.writing_s * 1_000),
                "waited": turn.waited,
                "written": turn.written,
            },
        )

    def say_farewell(self, waiting: Waiting) -> None:
        """Count a connection that has its last bytes; it must call ``gone`` when it is closed."""
        self._farewells_open += 1
        self._farewells.begin(waiting, now_ms())

    def gone(self) -> None:
        """Count a connection that is closed after its farewell."""
        self._farewells_open -= 1
        if not self._farewells_open and self._all_gone is not None and not self._all_gone.done():
            self._all_gone.set_result(None)

    def _tick(self) -> None:
        self._timer = self.loop.call_later(TICK_S, self._tick)
        now = now_ms()
        self.broker.set_wall(wall_ms(), now)
        self.guard("tick", lambda: self.broker.tick(now))
        nodes = self._nodes
        if nodes is not None:
            self.guard("cluster tick", lambda: nodes.tick(now))
        self._flusher.run()
        self._farewells.expire(now)
        for listener in self.listeners:
            listener.tick(now)
        self._deliver_events()

    def _deliver_events(self) -> None:
        events = self.broker.take_events() + self.events.take()
        if events:
            self._on_events(events)
