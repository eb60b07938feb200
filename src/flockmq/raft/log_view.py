"""The log as consensus sees it: what is on disk, and a tail in memory that holds all that is not durable yet.

```
   first ............ stable (LogReader) ............ durable
                                   tail_first ------- tail ------- last
                                                        `- handed: given out to be written up to here
```
Entries stay in the tail after they became durable, within a bound, because followers want exactly those.
"""

from __future__ import annotations

from typing import Protocol

from flockmq.raft.entry import Entry, entry_of


class LogReader(Protocol):
    """Durable entries of one group. ``flockmq.log.group.GroupLog`` is one."""

    def first_index(self) -> int:
        """Index of the oldest entry that is still there; one behind the last when there is none."""

    def last_index(self) -> int:
        """Index of the newest entry, 0 when there never was one."""

    def term_at(self, index: int) -> int:
        """Term of an entry or of the last one before the oldest; -1 when that is not known any more."""

    def entries(self, low: int, high: int, bytes_max: int) -> list[bytes]:
        """Stamped batches from ``low`` to ``high`` (exclusive): at least one, then as many as fit."""

    def next_offset(self) -> int:
        """Offset of the first record after the newest entry."""


class RaftLog:
    """Stable entries and tail as one log."""

    def __init__(self, stable: LogReader, tail_bytes_max: int) -> None:
        self.stable = stable
        self.tail_bytes_max = tail_bytes_max
        self.last_index = stable.last_index()
        self.last_term = max(stable.term_at(self.last_index), 0)
        self.next_offset = stable.next_offset()
        self.durable = self.last_index
        self.handed = self.last_index
        self.tail: list[Entry] = []
        self.tail_first = self.last_index + 1
        self.tail_bytes = 0

    def first_index(self) -> int:
        """Oldest entry that can be read."""
        return min(self.stable.first_index(), self.tail_first)

    def term_at(self, index: int) -> int:
        """Term of an entry, 0 at index 0, -1 when not known."""
        if index == self.last_index:
            return self.last_term
        if index == 0:
            return 0
        if index > self.last_index:
            return -1
        if index >= self.tail_first:
            return self.tail[index - self.tail_first].term
        return self.stable.term_at(index)

    def append(self, entry: Entry) -> None:
        """Add the next entry."""
        self.tail.append(entry)
        self.tail_bytes += len(entry.data)
        self.last_index = entry.index
        self.last_term = entry.term
        self.next_offset = entry.next_offset

    def truncate_from(self, index: int) -> None:
        """Forget all entries from ``index`` on."""
        self.last_term = max(self.term_at(index - 1), 0)
        self.next_offset = self.offset_at(index)
        if index < self.tail_first:
            self.tail.clear()
            self.tail_first = index
            self.tail_bytes = 0
        else:
            del self.tail[index - self.tail_first :]
            self.tail_bytes = sum([len(entry.data) for entry in self.tail])
        self.last_index = index - 1
        self.handed = min(self.handed, self.last_index)
        self.durable = min(self.durable, self.last_index)

    def offset_at(self, index: int) -> int:
        """Offset of the first record at or behind an entry."""
        if index > self.last_index:
            return self.next_offset
        return self.read(index, index + 1, 1)[0].base_offset

    def read(self, low: int, high: int, bytes_max: int) -> list[Entry]:
        """Entries from ``low`` to ``high`` (exclusive): at least one if there is any, then as many as fit."""
        found: list[Entry] = []
        size = 0
        if low < self.tail_first:
            for data in self.stable.entries(low, min(high, self.tail_first), bytes_max):
                found.append(entry_of(data))
                size += len(data)
            low += len(found)
            if low < self.tail_first:
                return found
        for position in range(low - self.tail_first, min(high, self.last_index + 1) - self.tail_first):
            entry = self.tail[position]
            if found and size + len(entry.data) > bytes_max:
                break
            found.append(entry)
            size += len(entry.data)
        return found

    def take_unwritten(self) -> list[Entry]:
        """Entries to be made durable that were not given out yet."""
        fresh = self.tail[self.handed + 1 - self.tail_first :]
        self.handed = self.last_index
        return fresh

    def became_durable(self, index: int, term: int) -> bool:
        """All up to this entry is written, unless it was replaced meanwhile. True when ``durable`` moved."""
        if index <= self.durable or self.term_at(index) != term:
            return False
        self.durable = index
        return True

    def trim(self) -> None:
        """Keep the tail within its bound."""
        drop = 0
        while self.tail_bytes > self.tail_bytes_max and drop < len(self.tail):
            entry = self.tail[drop]
            if entry.index > self.durable:
                break
            self.tail_bytes -= len(entry.data)
            drop += 1
        if drop:
            del self.tail[:drop]
            self.tail_first += drop

    def restart_at(self, index: int, term: int, next_offset: int) -> None:
        """A snapshot took the place of everything: the log ends at ``index`` and holds nothing in memory."""
        self.tail.clear()
        self.tail_bytes = 0
        self.tail_first = index + 1
        self.last_index = index
        self.last_term = term
        self.next_offset = next_offset
        self.handed = index
        self.durable = index

