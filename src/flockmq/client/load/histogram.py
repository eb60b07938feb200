"""A histogram of durations with bounded memory and an error below two percent, however many values it holds.

```
 value 0..127         one bucket each
 value 128..255       shift 1: 64 buckets     each power of two is cut into 64 buckets
 value 256..511       shift 2: 64 buckets     ...
```
Histograms of several processes add up, which sorted lists would not do cheaply.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

SUB_BITS: Final = 7
SUB_COUNT: Final = 1 << SUB_BITS


class Histogram:
    """Counts of values by bucket; values are whole numbers, here nanoseconds."""

    def __init__(self, counts: Mapping[int, int] | None = None, highest: int = 0) -> None:
        self.counts: dict[int, int] = dict(counts or {})
        self.total = sum(self.counts.values())
        self.highest = highest

    def record(self, values: Iterable[int]) -> None:
        """Count values; a negative one (a clock that stepped back) counts as 0."""
        counts = self.counts
        for value in values:
            bucket = bucket_of(value)
            counts[bucket] = counts.get(bucket, 0) + 1
            self.total += 1
            self.highest = max(self.highest, value)

    def add(self, other: Histogram) -> None:
        """Take over what another histogram counted."""
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.total += other.total
        self.highest = max(self.highest, other.highest)

    def quantile(self, share: float) -> int:
        """The value that ``share`` of all values do not exceed, to the upper edge of its bucket; 0 when empty."""
        wanted = share * self.total
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= wanted:
                return min(upper_edge(bucket), self.highest)
        return self.highest


def bucket_of(value: int) -> int:
    """Number of the bucket a value falls into; grows with the value."""
    if value < SUB_COUNT:
        return max(value, 0)
    shift = value.bit_length() - SUB_BITS
    return (shift << SUB_BITS) + (value >> shift)


def upper_edge(bucket: int) -> int:
    """The largest value in a bucket."""
    shift = bucket >> SUB_BITS
    return (((bucket & (SUB_COUNT - 1)) + 1) << shift) - 1
