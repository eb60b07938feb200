"""From the clock of ticks to that of the calendar."""

from __future__ import annotations


class WallClock:
    """One per node; the node sets ``offset_ms`` anew at each tick."""

    def __init__(self, offset_ms: int) -> None:
        self.offset_ms = offset_ms

    def at(self, now: int) -> int:
        """The time of the calendar, in milliseconds, at a time of the ticks."""
        return max(now + self.offset_ms, 0)
