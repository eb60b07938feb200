"""Durations of one kind, counted by bounds, for a histogram of the metrics."""

from __future__ import annotations

from typing import Final

BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)


class Waits:
    """See the module."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        """Counts by the first bound that a duration does not exceed; the last count is for longer ones."""
        self.sum_ms = 0

    def note(self, took_ms: int) -> None:
        """Count a duration."""
        at = 0
        while at < len(BOUNDS_MS) and took_ms > BOUNDS_MS[at]:
            at += 1
        self.counts[at] += 1
        self.sum_ms += took_ms

    def figures(self, name: str) -> dict[str, int | float]:
        """Seconds, as metrics: ``NAME_le_BOUND`` counts all durations up to a bound; ``NAME_sum`` is their sum."""
        found: dict[str, int | float] = {}
        total = 0
        for bound_ms, count in zip(BOUNDS_MS, self.counts, strict=False):
            total += count
            found[f"{name}_le_{bound_ms / 1_000:g}"] = total
        found[f"{name}_le_+Inf"] = total + self.counts[-1]
        found[f"{name}_sum"] = self.sum_ms / 1_000
        return found
