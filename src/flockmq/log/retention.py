"""Which segments of a log may go: by age and size, but not while a cursor needs them, unless the disk is at its bound.

```
 oldest segment --> already applied and in a snapshot? --no--> stays
        | yes
        v
 too old, or as much as the log has to keep left without it? --no--> stays (and all newer ones)
        | yes
        v
 does a cursor that holds retention still need it? --no--> goes
        | yes
        v
 as much as the bound left without it, or older than the bound of age? --no--> stays
        | yes
        v
 goes, and the cursor is told: it lost records
```
So size alone takes none of the newest ``bytes``. The segment that is written to goes only if all in it is too old: what
comes next begins a new one.
"""

from __future__ import annotations

from flockmq.log.settings import Retention
from flockmq.log.state import LogState


class Expiry:
    """What may go: everything up to entry ``index`` (0: nothing)."""

    def __init__(self) -> None:
        self.index = 0
        self.bytes = 0
        self.overrun = 0
        """A cursor that stands before this offset loses records; 0 when none does."""


def expired(log: LogState, rule: Retention, now_ms: int, held_offset: int | None, applied: int) -> Expiry:
    """Decide for one log.

    ``held_offset`` is the lowest offset that a cursor which holds retention still needs, None when no cursor holds any.
    Nothing after entry ``applied`` may go: the state machine still needs it. ``GroupLog.compact_to`` carries it out.
    """
    found = Expiry()
    left = log.size()
    for order, segment in enumerate(log.segments):
        if segment.next_index - 1 > applied:
            break
        end_offset = log.segments[order + 1].base_offset if order + 1 < len(log.segments) else log.end_offset
        left -= segment.length
        too_old = rule.age_ms > 0 and segment.latest_timestamp < now_ms - rule.age_ms
        too_large = 0 < rule.bytes <= left
        beyond = 0 < rule.bytes_bound <= left or 0 < rule.age_bound_ms < now_ms - segment.latest_timestamp
        held = held_offset is not None and held_offset < end_offset
        if not (too_old or too_large) or (held and not beyond):
            break
        if held:
            found.overrun = end_offset
        found.index = segment.next_index - 1
        found.bytes += segment.length
    return found
