"""Which topic names the batches of a segment have, by block: a reader with filters passes what it does not want.

```
 segment   |batch|batch|batch|batch| ... |batch|batch|      blocks: batches that begin within the same 32 KiB
 starts     100         140               900               first offset of each block
 names      a/b -> 0, 2     a/c -> 1                        distinct names, the blocks of each
 next_index: entries from here on are not in the index. They may have any name.
```
An index of fewer entries than its segment has is right for what it covers. So it can be built step by step, may lag
behind, and stops to grow when it has too many names (``is_full``).

```
 file   crc | block size, first and next entry, next offset, positions, mark | starts | (length, name, blocks)...
```
The mark is the header of the last batch that is covered, up to its checksum, and where it stands. A segment that has it
there has all batches before it, too: a log that was cut and written anew has another one.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Final, NamedTuple

from flockmq.log.checksum import crc32c
from flockmq.log.header import DATA
from flockmq.log.view import BatchView

COST_MAX: Final = 8 * 1024 * 1024
"""About how much memory the index of one segment may take."""
NAME_COST: Final = 100
BLOCK_COST: Final = 2
BLOCKS_MAX: Final = 65_536
SCANNED_MAX: Final = 4_096
"""Names that a filter with wildcards is compared with. It counts as matching if there are more that may match."""
GAP_MAX: Final = 1
"""Blocks without a wanted name that are read with those before and behind them: another read costs more."""
KEPT_MAX: Final = 256
"""Filters with wildcards of which the index keeps what they match."""
MARK_BYTES: Final = 8

_MAGIC: Final = b"FNM1"
_CRC: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<4s?IQQQII8sII")
_NAME: Final = struct.Struct("<HI")
_BLOCK: Final = struct.Struct("<H")


class NameTest:
    """Which names a reader wants: those that begin with ``prefix`` and match, or the prefix itself where there is
    nothing to match. ``key`` tells tests apart."""

    def __init__(self, key: bytes, prefix: bytes, matches: Callable[[bytes], bool] | None) -> None:
        self.key = key
        self.prefix = prefix
        self.matches = matches


class Found(NamedTuple):
    """No record from the offset that was asked for to ``low`` has a wanted name; those from ``low`` to ``high`` may.

    Equal: nothing was found, and what comes behind was not looked at.
    """

    low: int
    high: int
    size: int
    """About how many bytes there are to read from ``low`` to ``high``."""


class SegmentNames:
    """See the module."""

    def __init__(self, first_index: int, base_offset: int, block_bytes: int, cost_max: int = COST_MAX) -> None:
        self._cost_max = cost_max
        self.first_index = first_index
        self.block_bytes = block_bytes
        self.next_index = first_index
        """The first entry that is not covered,"""
        self.next_offset = base_offset
        """the offset of its first record,"""
        self.position = 0
        """and where in the segment it stands."""
        self.mark = b""
        """The first bytes of the last batch that is covered; empty: not known."""
        self.mark_at = 0
        self.is_full = False
        self.is_written = False
        """The file of the segment's index has all of this."""
        self.starts: list[int] = []
        self.blocks: dict[bytes, bytes] = {}
        """By name, the numbers of its blocks, two bytes each."""
        self.cost = 0
        self._sorted: list[bytes] = []
        self._fresh: list[bytes] = []
        """Names that ``_sorted`` lacks."""
        self._kept: dict[bytes, tuple[int, tuple[int, ...] | None]] = {}
        """By test: ``cost`` at that time, and what was found."""

    def add(self, view: BatchView) -> None:
        """The next entry of the segment."""
        block = self.position // self.block_bytes
        if self.is_full or block >= BLOCKS_MAX:
            self.is_full = True
            return
        starts = self.starts
        while len(starts) <= block:
            starts.append(view.base_offset)
            self.cost += 8
        if view.kind == DATA and not self._enter(view.topics(), _BLOCK.pack(block)):
            self.is_full = True
            return
        self.mark = view.data[view.pos : view.pos + MARK_BYTES]
        self.mark_at = self.position
        self.position += view.size
        self.next_index = view.index + 1
        self.next_offset = view.next_offset
        self.is_written = False

    def _enter(self, names: list[bytes], number: bytes) -> bool:
        """Note that a block has these names; False: there are too many."""
        blocks = self.blocks
        for name in names:
            known = blocks.get(name)
            if known is None:
                blocks[name] = number
                self._fresh.append(name)
                self.cost += NAME_COST + len(name)
                if self.cost > self._cost_max:
                    return False
            elif known[-2:] != number:
                blocks[name] = known + number
                self.cost += BLOCK_COST
        return True

    def cut(self, length: int, next_index: int, next_offset: int) -> SegmentNames:
        """The index of the same segment when it has been cut. This one stays as it is: it may be being written."""
        found = SegmentNames(
            self.first_index, self.starts[0] if self.starts else next_offset, self.block_bytes, self._cost_max
        )
        last = (length - 1) // self.block_bytes if length else -1
        found.starts = self.starts[: last + 1]
        for name, numbers in self.blocks.items():
            left = numbers[: 2 * bisect_right(_numbers(numbers), last)]
            if left:
                found._enter([name], left)
        found.next_index = min(self.next_index, next_index)
        found.next_offset = min(self.next_offset, next_offset)
        found.position = min(self.position, length)
        return found

    def find(self, offset: int, end: int, tests: list[NameTest]) -> Found:
        """Look for wanted names from an offset of this segment on; ``end``: where the segment ends for this reader."""
        covered = min(self.next_offset, end)
        if offset >= covered:
            return Found(offset, end, COST_MAX)
        wanted: set[int] = set()
        for test in tests:
            numbers = self._blocks_of(test)
            if numbers is None:
                return Found(offset, covered, COST_MAX)
            wanted.update(numbers)
        starts = self.starts
        first = bisect_right(starts, offset) - 1
        block = min([number for number in wanted if number >= first], default=len(starts))
        if block >= len(starts) or starts[block] >= covered:
            return Found(covered, end, COST_MAX if covered < end else 0)
        after = self._run_end(block, wanted)
        high = min(starts[after], covered) if after < len(starts) else covered
        stop = after * self.block_bytes if after < len(starts) else self.position
        return Found(max(offset, starts[block]), high, max(stop - block * self.block_bytes, self.block_bytes))

    def _run_end(self, block: int, wanted: set[int]) -> int:
        """Up to which block to read at once from a wanted one on: a short gap is read with the rest."""
        starts = self.starts
        at = end = block + 1
        gap = 0
        while at < len(starts) and gap <= GAP_MAX:
            if at in wanted:
                gap = 0
                end = at + 1
            elif at + 1 == len(starts) or starts[at] < starts[at + 1]:
                gap += 1
            elif not gap:
                end = at + 1  # no record begins in it: the batch before is large
            at += 1
        return end

    def _blocks_of(self, test: NameTest) -> tuple[int, ...] | None:
        """The blocks that have a wanted name; None: any may have one."""
        if test.matches is None:
            return _numbers(self.blocks.get(test.prefix, b""))
        kept = self._kept.get(test.key)
        if kept is not None and kept[0] == self.cost:
            return kept[1]
        found = self._scan(test.prefix, test.matches)
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        self._kept[test.key] = (self.cost, found)
        return found

    def _scan(self, prefix: bytes, matches: Callable[[bytes], bool]) -> tuple[int, ...] | None:
        names = self._sorted
        if self._fresh:
            names += self._fresh
            names.sort()
            self._fresh = []
        found: set[int] = set()
        at = bisect_left(names, prefix)
        stop = min(len(names), at + SCANNED_MAX)
        while at < stop and names[at].startswith(prefix):
            if matches(names[at]):
                found.update(_numbers(self.blocks[names[at]]))
            at += 1
        if at < len(names) and at == stop and names[at].startswith(prefix):
            return None
        return tuple(found)

    def encode(self) -> bytes:
        """What the file holds."""
        head = (self.is_full, self.block_bytes, self.first_index, self.next_index, self.next_offset)
        marked = (self.position, self.mark_at, self.mark, len(self.starts), len(self.blocks))
        parts = [_HEAD.pack(_MAGIC, *head, *marked), struct.pack(f"<{len(self.starts)}Q", *self.starts)]
        for name in sorted(self.blocks):
            numbers = self.blocks[name]
            parts.append(_NAME.pack(len(name), len(numbers)) + name + numbers)
        body = b"".join(parts)
        return _CRC.pack(crc32c(body)) + body


def decode_names(data: bytes) -> SegmentNames | None:
    """Read ``SegmentNames.encode``; None when it is not that, or not all of it."""
    if len(data) < _CRC.size + _HEAD.size or crc32c(data[4:]) != _CRC.unpack_from(data)[0] or data[4:8] != _MAGIC:
        return None
    head = _HEAD.unpack_from(data, _CRC.size)
    names = SegmentNames(head[3], 0, head[2])
    names.is_full = head[1]
    names.next_index, names.next_offset, names.position, names.mark_at, names.mark = head[4:9]
    at = _CRC.size + _HEAD.size
    names.starts = list(struct.unpack_from(f"<{head[9]}Q", data, at))
    names.cost = 8 * len(names.starts)
    at += 8 * len(names.starts)
    for _ in range(head[10]):
        size, length = _NAME.unpack_from(data, at)
        at += _NAME.size
        name = data[at : at + size]
        names.blocks[name] = data[at + size : at + size + length]
        names._sorted.append(name)
        names.cost += NAME_COST + len(name) + length
        at += size + length
    names.is_written = True
    return names


def _numbers(packed: bytes) -> tuple[int, ...]:
    numbers: tuple[int, ...] = struct.unpack(f"<{len(packed) // 2}H", packed)
    return numbers
