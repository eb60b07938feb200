"""How late the event loop is: the one number that tells whether the node can keep up.

A timer asks to be called every ``INTERVAL_S``; by how much it comes too late is the lag of everything else, too. The
largest of about the last minute is kept in a ring of slots, so that several scrapers don't take it from each other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

INTERVAL_S: Final = 0.5
SAMPLES_PER_SLOT: Final = 20
SLOTS: Final = 6


class LagWindow:
    """The last lag and the largest of the last ``SLOTS * SAMPLES_PER_SLOT`` samples."""

    def __init__(self) -> None:
        self.last_s = 0.0
        self._slots: deque[float] = deque([0.0], maxlen=SLOTS)
        self._in_slot = 0

    @property
    def max_s(self) -> float:
        """The largest of about the last minute."""
        return max(self._slots)

    def add(self, lag_s: float) -> None:
        """Take a sample."""
        self.last_s = max(0.0, lag_s)
        if self._in_slot == SAMPLES_PER_SLOT:
            self._slots.append(0.0)
            self._in_slot = 0
        self._in_slot += 1
        self._slots[-1] = max(self._slots[-1], self.last_s)


class LoopLag:
    """Samples the running loop."""

    def __init__(self) -> None:
        self.window = LagWindow()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to sample the running loop."""
        if self._timer is None:
            self._arm(asyncio.get_running_loop())

    def stop(self) -> None:
        """Sample no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + INTERVAL_S
        self._timer = loop.call_at(due, self._sample, loop, due)

    def _sample(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self.window.add(loop.time() - due)
        self._arm(loop)
