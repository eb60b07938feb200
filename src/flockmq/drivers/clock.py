"""The one clock of the drivers: milliseconds that never go back."""

from __future__ import annotations

from time import monotonic_ns


def now_ms() -> int:
    """Return milliseconds since some moment before the process started."""
    return monotonic_ns() // 1_000_000
