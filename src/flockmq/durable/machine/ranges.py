"""Sets of offsets, as ranges: acknowledged out of order, a million offsets are a few numbers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

Range = tuple[int, int]
"""The offsets from the first number up to, and without, the second."""


class RangeSet:
    """Disjoint ranges, sorted; neighbours are joined."""

    def __init__(self) -> None:
        self.lows: list[int] = []
        self.highs: list[int] = []
        self.size = 0
        """How many offsets the set has."""

    def __len__(self) -> int:
        return len(self.lows)

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self.lows, offset) - 1
        return at >= 0 and offset < self.highs[at]

    def ranges(self) -> list[Range]:
        """All ranges, the lowest first."""
        return list(zip(self.lows, self.highs, strict=True))

    def add(self, low: int, high: int) -> None:
        """Put a range in; parts of it may be there."""
        if low >= high:
            return
        lows = self.lows
        highs = self.highs
        if not lows or low > highs[-1]:
            lows.append(low)
            highs.append(high)
            self.size += high - low
            return
        first = bisect_left(highs, low)
        last = bisect_right(lows, high)
        if first < last:
            low = min(low, lows[first])
            high = max(high, highs[last - 1])
            for at in range(first, last):
                self.size -= highs[at] - lows[at]
        lows[first:last] = [low]
        highs[first:last] = [high]
        self.size += high - low

    def remove(self, low: int, high: int) -> None:
        """Take a range out; parts of it may be missing."""
        first = bisect_right(self.highs, low)
        last = bisect_left(self.lows, high)
        if low >= high or first >= last:
            return
        begin = self.lows[first]
        end = self.highs[last - 1]
        for at in range(first, last):
            self.size -= self.highs[at] - self.lows[at]
        left: list[Range] = []
        if begin < low:
            left.append((begin, low))
        if end > high:
            left.append((high, end))
        self.lows[first:last] = [one[0] for one in left]
        self.highs[first:last] = [one[1] for one in left]
        self.size += sum([one[1] - one[0] for one in left])

    def gaps(self, low: int, high: int) -> list[Range]:
        """The parts of a range that are not in the set."""
        found: list[Range] = []
        at = bisect_right(self.highs, low)
        while low < high:
            if at >= len(self.lows) or self.lows[at] >= high:
                found.append((low, high))
                break
            if self.lows[at] > low:
                found.append((low, self.lows[at]))
            low = self.highs[at]
            at += 1
        return found

    def parts(self, low: int, high: int) -> list[Range]:
        """The parts of a range that are in the set."""
        found: list[Range] = []
        at = bisect_right(self.highs, low)
        while at < len(self.lows) and self.lows[at] < high:
            found.append((max(low, self.lows[at]), min(high, self.highs[at])))
            at += 1
        return found

    def take_head(self, floor: int) -> int:
        """Take the range out that begins at or below ``floor``; its end, or ``floor`` when there is no such range."""
        while self.lows and self.lows[0] <= floor:
            floor = max(floor, self.highs[0])
            self.size -= self.highs[0] - self.lows[0]
            del self.lows[0]
            del self.highs[0]
        return floor
