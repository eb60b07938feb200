"""The state of one log in memory: where it starts and ends, its segments, terms, votes and damage.

Every change is an ``apply_...`` that does no IO, so that a live log and a replayed journal reach the same state by the
same code.
"""

from __future__ import annotations

from bisect import bisect_right

from flockmq.log.segment import Segment
from flockmq.log.view import BatchView


class Damage:
    """Entries that were durable and can't be read. Until the log is refilled its replica must not vote or campaign."""

    def __init__(self, first: int, last: int, everything: bool, reason: str) -> None:
        self.first = first
        """The first entry that is missing; 0 when none is known to be."""
        self.last = last
        """The last one that is known to have been there; 0 when that is not known."""
        self.everything = everything
        """Anything may be missing, votes as well: a lost part of the journal may have concerned this log."""
        self.reason = reason


class Gap:
    """Committed entries that a segment file does not give back. The log's metadata still has them: other replicas are
    asked for their bytes, which are written into the same place again."""

    def __init__(self, number: int, first: int, start: int, first_offset: int, reason: str) -> None:
        self.number = number
        """Of the segment."""
        self.first = first
        self.next = first
        """Entries from ``first`` to before ``next`` can't be read."""
        self.start = start
        self.stop = start
        """Where in the file they stand."""
        self.first_offset = first_offset
        self.end_offset = first_offset
        """Offsets of their records."""
        self.reason = reason
        self.retry_at = 0
        """Other replicas are not asked before."""


class Snapshot:
    """State of the machine behind a log after entry ``index``, in a file of its own."""

    def __init__(self, number: int, index: int, term: int, next_offset: int, length: int, crc: int) -> None:
        self.number = number
        self.index = index
        self.term = term
        self.next_offset = next_offset
        self.length = length
        self.crc = crc
        self.saved = False
        """The snapshot's file is durable: ``GroupLog.use_snapshot`` may name the snapshot."""

    def file_name(self) -> str:
        """Name of its file."""
        return f"{self.index:020d}-{self.number:x}.snapshot"


class LogState:
    """One log as it will be once everything staged is durable."""

    def __init__(self, group: int) -> None:
        self.group = group
        self.folder = f"groups/{group:016x}"
        self.first = 1
        self.first_offset = 0
        self.term_before = 0
        """Term of the entry before the first."""
        self.last = 0
        self.end_offset = 0
        self.term = 0
        self.vote = 0
        self.commit = 0
        """Hard state: the current term, the vote in it (0: none), the commit index it knew."""
        self.segments: list[Segment] = []
        self.term_starts: list[int] = []
        self.terms: list[int] = []
        """Entry ``term_starts[i]`` is the first of ``terms[i]``."""
        self.recent: dict[int, bytes] = {}
        """Entries in memory: all that no segment file holds yet, and some others."""
        self.snapshot: Snapshot | None = None
        self.damage: Damage | None = None
        self.settled = 0
        """The last entry that its replica knows to be committed, since this start."""
        self.gaps: list[Gap] = []
        """Known damage among entries that are committed; in the order of entries. Not kept over restarts."""

    def settle(self, index: int) -> None:
        """Entries up to ``index`` are committed."""
        self.settled = index

    def gap_at(self, index: int) -> Gap | None:
        """The gap that an entry is in."""
        for gap in self.gaps:
            if gap.first <= index < gap.next:
                return gap
        return None

    def gap_before(self, number: int, index: int) -> Gap | None:
        """The last gap of a segment that ends at or before an entry."""
        found: Gap | None = None
        for gap in self.gaps:
            if gap.number == number and gap.next <= index:
                found = gap
        return found

    def gap_after(self, number: int, index: int) -> Gap | None:
        """The first gap of a segment that begins at or behind an entry."""
        for gap in self.gaps:
            if gap.number == number and gap.first >= index:
                return gap
        return None

    def add_gap(self, gap: Gap) -> bool:
        """Note damage; False when all of it is known."""
        known = self.gap_at(gap.first)
        if known is not None and known.next >= gap.next:
            return False
        self.gaps = [one for one in self.gaps if one.next <= gap.first or one.first >= gap.next]
        self.gaps.append(gap)
        self.gaps.sort(key=_first_of)
        return True

    def drop_stale_gaps(self) -> None:
        """Forget gaps of segments that are gone."""
        numbers = {segment.number for segment in self.segments}
        self.gaps = [gap for gap in self.gaps if gap.number in numbers]

    def term_at(self, index: int) -> int:
        """Term of an entry or of the last one before the oldest; -1 when that is not known."""
        if index < self.first:
            return self.term_before if index == self.first - 1 else -1
        if index > self.last:
            return -1
        return self.terms[bisect_right(self.term_starts, index) - 1]

    def size(self) -> int:
        """Bytes of all segments together."""
        return sum([segment.length for segment in self.segments])

    def segment_of(self, index: int) -> Segment:
        """The segment that holds an entry which is there."""
        low = 0
        high = len(self.segments)
        while high - low > 1:
            middle = (low + high) // 2
            if self.segments[middle].first_index <= index:
                low = middle
            else:
                high = middle
        return self.segments[low]

    def path(self, name: str) -> str:
        """A file of this log, from the store's folder on."""
        return f"{self.folder}/{name}"

    def files_of(self, segment: Segment) -> list[str]:
        """All files that a segment may have."""
        return [self.path(name) for name in (segment.file_name(), segment.index_name(), segment.names_name())]

    def _dropped(self, segment: Segment) -> list[str]:
        """Let go of a segment. Its files."""
        segment.names = None
        return self.files_of(segment)

    def apply_batch(self, view: BatchView, batch: bytes, index_bytes: int) -> None:
        """The next entry, into the last segment."""
        self.segments[-1].add(view, index_bytes)
        self.recent[view.index] = batch
        if not self.terms or self.terms[-1] != view.term:
            self.term_starts.append(view.index)
            self.terms.append(view.term)
        self.last = view.index
        self.end_offset = view.next_offset

    def apply_cut(self, number: int, length: int, last: int, end_offset: int) -> list[str]:
        """Forget all entries after ``last``; segment ``number`` becomes the last one. Files that are not needed now."""
        garbage: list[str] = []
        while self.segments and self.segments[-1].number != number:
            garbage += self._dropped(self.segments.pop())
        if self.segments:
            self.segments[-1].cut(length, last + 1)
            names = self.segments[-1].names
            if names is not None:
                self.segments[-1].names = names.cut(length, last + 1, end_offset)
        self.gaps = [gap for gap in self.gaps if gap.next <= last + 1]
        for index in range(last + 1, self.last + 1):
            self.recent.pop(index, None)
        while self.term_starts and self.term_starts[-1] > last:
            self.term_starts.pop()
            self.terms.pop()
        self.last = last
        self.end_offset = end_offset
        return garbage

    def apply_start(self, first: int, first_offset: int, term_before: int) -> list[str]:
        """Forget all segments before entry ``first``. Files that are not needed now."""
        garbage: list[str] = []
        while self.segments and self.segments[0].next_index <= first:
            segment = self.segments.pop(0)
            garbage += self._dropped(segment)
            for index in range(segment.first_index, segment.next_index):
                self.recent.pop(index, None)
        while len(self.term_starts) > 1 and self.term_starts[1] <= first:
            self.term_starts.pop(0)
            self.terms.pop(0)
        if first > self.last:
            self.term_starts.clear()
            self.terms.clear()
        self.first = first
        self.first_offset = first_offset
        self.term_before = term_before
        return garbage

    def apply_reset(self, last: int, term: int, end_offset: int) -> list[str]:
        """An empty log that goes on after entry ``last``. Files that are not needed now."""
        garbage: list[str] = []
        for segment in self.segments:
            garbage += self._dropped(segment)
        self.segments.clear()
        self.recent.clear()
        self.term_starts.clear()
        self.terms.clear()
        self.first = last + 1
        self.first_offset = end_offset
        self.term_before = term
        self.last = last
        self.end_offset = end_offset
        return garbage

    def apply_snapshot(self, snapshot: Snapshot) -> list[str]:
        """Another snapshot counts from now on. Files that are not needed now."""
        old = self.snapshot
        self.snapshot = snapshot
        return [] if old is None else [self.path(old.file_name())]


def _first_of(gap: Gap) -> int:
    return gap.first
