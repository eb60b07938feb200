"""Time as a node counts it, made of ticks, so that a clock that jumps can't make it hasty.

```
 deadlines (elections, quorum checks)      lease of a leader
 err by waiting longer                     err by waiting less
 -> ``elapsed``: per tick at least         -> ``raw`` and ``ticks``, whichever says that more time has passed;
    nothing, at most two tick lengths         none at all when ``jumps`` changed meanwhile
```
A jump ahead thus costs a follower one tick, a jump back nothing, and it never counts faster than twice the time that
really passed (ticks come no more often than every ``tick_ms``).
"""

from __future__ import annotations


class TickClock:
    """Elapsed milliseconds since start, by ticks. All groups of a node share one."""

    def __init__(self, tick_ms: int, now: int) -> None:
        self.tick_ms = tick_ms
        self.elapsed = 0
        self.ticks = 0
        self.raw = now
        """What the clock said at the last tick."""
        self.jumps = 0
        """How often it was seen to jump back or stand still for long."""

    def tick(self, now: int) -> None:
        """Count one tick."""
        if not self.is_sane(now):
            self.jumps += 1
        self.elapsed += min(max(now - self.raw, 0), 2 * self.tick_ms)
        self.ticks += 1
        self.raw = now

    def is_sane(self, now: int) -> bool:
        """Whether ``now`` can be what the clock says so shortly after the last tick."""
        return 0 <= now - self.raw <= 4 * self.tick_ms
