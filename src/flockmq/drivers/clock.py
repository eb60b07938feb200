"""The clocks of the drivers: milliseconds that never go back, and those of the calendar."""

from __future__ import annotations

from time import monotonic_ns, time_ns


def now_ms() -> int:
    """Return milliseconds since some moment before the process started."""
    return monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Return milliseconds since 1970; an operator or NTP may set that clock."""
    return time_ns() // 1_000_000
