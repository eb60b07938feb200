"""The broker counts milliseconds on a clock of its own; people want dates. Here one becomes the other."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

_LATEST_MS: Final = 253_402_300_799_000
"""The end of the year 9999, the last that RFC 3339 can write."""
OFFSET_CHANGE_MS: Final = 1_000
"""Below this the clocks only tick at different times, or are being trimmed."""


def rfc3339(wall_ms: int) -> str:
    """Write milliseconds since 1970 as ``2026-03-01T12:00:00.000Z``."""
    seconds, milliseconds = divmod(min(max(wall_ms, 0), _LATEST_MS), 1_000)
    return f"{_second(seconds)}.{milliseconds:03}Z"


@lru_cache(maxsize=1_024)
def _second(seconds: int) -> str:
    """The slow part: kept, because those next to each other in a listing came about the same time."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


class Moments:
    """Turns moments of the broker's clock into dates, however far the two clocks drift apart."""

    def __init__(self, clock: Callable[[], int], wall_clock: Callable[[], int]) -> None:
        self._clock = clock
        self._wall_clock = wall_clock
        self._offset_ms = wall_clock() - clock()

    @property
    def now_ms(self) -> int:
        """Now, on the broker's clock."""
        return self._clock()

    @property
    def wall_ms(self) -> int:
        """Now, in milliseconds since 1970."""
        return self._wall_clock()

    def date(self, at_ms: int) -> str:
        """A moment of the broker's clock as a date; the same one each time, unless the calendar's clock was set."""
        offset_ms = self._wall_clock() - self._clock()
        if abs(offset_ms - self._offset_ms) > OFFSET_CHANGE_MS:
            self._offset_ms = offset_ms
        return rfc3339(at_ms + self._offset_ms)

    def date_or_none(self, at_ms: int) -> str | None:
        """The same, where 0 means that there is no such moment."""
        return self.date(at_ms) if at_ms else None
