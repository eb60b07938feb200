"""Stamps for changes that several nodes may make to the same thing: a hybrid logical clock.

```
 stamp = wall clock in ms (48 bits) | counter (16 bits)              ties between nodes: the higher node id wins

 next(wall)            the wall clock's time, or one more than the latest stamp made or seen: never the same twice
 observe(stamp, wall)  later stamps of ours come behind it           refused when it is too far ahead of our clock
```
So a change made by a node that saw another one has the later stamp, whatever the clocks of the two say; and one node
with a clock that runs wild can't drag the others along. Refused is not lost: a stamp that is ahead today is in
the past later.
"""

from __future__ import annotations

from typing import Final

COUNTER_BITS: Final = 16
AHEAD_MS_MAX: Final = 60_000
"""How far ahead of our wall clock a stamp may be."""
STAMP_MAX: Final = (1 << 62) - 1
"""Largest stamp that is taken for one at all (year 4199): it stays a small integer, also with the counter."""


def stamp_at(wall_ms: int) -> int:
    """The first stamp of a millisecond."""
    return max(wall_ms, 0) << COUNTER_BITS


def stamp_wall_ms(stamp: int) -> int:
    """When a stamp was made, by the clock of the node that made it."""
    return stamp >> COUNTER_BITS


class HybridClock:
    """The clock of one node."""

    def __init__(self, ahead_ms_max: int = AHEAD_MS_MAX) -> None:
        self.latest = 0
        """The highest stamp made or observed."""
        self.refused = 0
        """Stamps that were too far ahead."""
        self._ahead_ms_max = ahead_ms_max

    def next(self, wall_ms: int) -> int:
        """A stamp behind everything that this node has seen."""
        stamp = wall_ms << COUNTER_BITS
        if stamp <= self.latest:
            stamp = self.latest + 1  # a full counter runs over into the next millisecond
        self.latest = stamp
        return stamp

    def observe(self, stamp: int, wall_ms: int) -> bool:
        """Note another node's stamp; False when it is too far ahead to be believed."""
        if stamp <= self.latest:
            return True
        if stamp >> COUNTER_BITS > wall_ms + self._ahead_ms_max:
            self.refused += 1
            return False
        self.latest = stamp
        return True

    def resume(self, stamp: int) -> None:
        """Go on behind a stamp of before a restart, also when the wall clock was set back since."""
        self.latest = max(self.latest, stamp)
