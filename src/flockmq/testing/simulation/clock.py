"""The clock a node reads: true time, a constant error, a rate that is a little off, and jumps."""

from __future__ import annotations

from typing import Final

from flockmq.testing.simulation.events import EventQueue

MILLION: Final = 1_000_000


class NodeClock:
    """Milliseconds as one node sees them. Jumps survive a restart of the process, as those of a real machine do."""

    def __init__(self, queue: EventQueue, error_ms: int, drift_ppm: int) -> None:
        self._queue = queue
        self.error_ms = error_ms
        self.drift_ppm = drift_ppm

    def now_ms(self) -> int:
        """What the node believes."""
        true = self._queue.now
        return (true + true * self.drift_ppm // MILLION) // 1_000 + self.error_ms

    def jump(self, by_ms: int) -> None:
        """The clock is set to another time."""
        self.error_ms += by_ms
