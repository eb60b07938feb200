"""Time as a node counts it, made of ticks, so that a clock that jumps can't make it hasty.

Deadlines are counted in ``elapsed``: each tick adds what the clock says has passed, but at least nothing and at most two
tick lengths. A jump ahead thus costs one tick, a jump back none, and a follower never counts faster than twice the time
that really passed. A leader's lease is the opposite case, there caution means to believe the clock when it says that
much time has passed; ``is_steady`` is false around a jump back or a pause, when it can't be believed.
"""

from __future__ import annotations


class TickClock:
    """Elapsed milliseconds since start, by ticks."""

    def __init__(self, tick_ms: int, now: int) -> None:
        self.tick_ms = tick_ms
        self.elapsed = 0
        self.raw = now
        """What the clock said at the last tick."""
        self.last_jump = 0
        """``elapsed`` when the clock was last seen to jump back or stand still for long."""

    def tick(self, now: int) -> None:
        """Count one tick."""
        step = now - self.raw
        if step < 0 or step > 4 * self.tick_ms:
            self.last_jump = self.elapsed + 1
        self.elapsed += min(max(step, 0), 2 * self.tick_ms)
        self.raw = now

    def is_steady(self, now: int, span_ms: int) -> bool:
        """Whether the clock can be trusted to have measured the last ``span_ms`` up to ``now``."""
        if now < self.raw or now - self.raw > 4 * self.tick_ms:
            return False
        return self.last_jump == 0 or self.elapsed - self.last_jump > span_ms
