"""The log as consensus sees it: what is on disk, and a tail in memory that holds all that is not durable yet.

```
   first ............ stable (LogReader) ............ durable
                                   tail_first ------- tail ------- last
                                                        `- handed: given out to be written up to here
```
Entries stay in the tail after they became durable, within a bound, because followers want exactly those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.log.errors import SpoiledError
from flockmq.raft.entry import Entry, entry_of

if TYPE_CHECKING:
    from flockmq.raft.ports import LogReader


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
        self.truncated_from = 0
        """Entries from here on were given out to be written, then forgotten: the disk must forget them as well."""
        self.rewritten = False
        """What was given out before is no longer what the log holds; see ``became_durable``."""
        self.floor = 0
        """A snapshot that ends here took the place of all entries, and is not durable yet: the disk has others."""
        self.tail: list[Entry] = []
        self.tail_first = self.last_index + 1
        self.term_before = self.last_term
        """Term of the entry before the tail: the disk may forget it earlier than we do."""
        self.tail_bytes = 0

    def first_index(self) -> int:
        """Oldest entry that can be read."""
        if self.floor:
            return self.floor + 1
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
        if index == self.tail_first - 1:
            return self.term_before
        return -1 if self.floor else self.stable.term_at(index)

    def append(self, entry: Entry) -> None:
        """Add the next entry."""
        assert entry.index == self.last_index + 1, "entries are appended one behind the other"
        self.tail.append(entry)
        self.tail_bytes += len(entry.data)
        self.last_index = entry.index
        self.last_term = entry.term
        self.next_offset = entry.next_offset

    def truncate_from(self, index: int) -> None:
        """Forget all entries from ``index`` on."""
        if index > self.last_index:
            return
        offset = self.offset_at(index)
        self.last_term = max(self.term_at(index - 1), 0)
        self.next_offset = offset
        if index <= self.tail_first:
            self.tail.clear()
            self.tail_first = index
            self.term_before = self.last_term
            self.tail_bytes = 0
        else:
            del self.tail[index - self.tail_first :]
            self.tail_bytes = sum([len(entry.data) for entry in self.tail])
        self.last_index = index - 1
        if index <= self.handed:
            self.truncated_from = min(index, self.truncated_from) if self.truncated_from else index
            self.handed = index - 1
            self.rewritten = True
        self.durable = min(self.durable, self.last_index)

    def offset_at(self, index: int) -> int:
        """Offset of the first record at or behind an entry."""
        if index > self.last_index:
            return self.next_offset
        try:
            return self.read(index, index + 1, 1)[0].base_offset
        except SpoiledError:
            if index == self.stable.first_index():
                return self.stable.first_offset
            return self.read(index - 1, index, 1)[0].next_offset

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

    def agreement(self, index: int, term: int, low: int) -> int:
        """The last entry at or before ``index`` whose term is not above ``term``; at least ``low``.

        Two logs can't agree behind it, if the other one has ``term`` at ``index``. Terms never fall along a log, so
        halving finds it, however long the logs went apart.
        """
        high = min(index, self.last_index)
        while low < high:
            middle = (low + high + 1) // 2
            if self.term_at(middle) <= term:
                low = middle
            else:
                high = middle - 1
        return low

    def take_unwritten(self, bytes_max: int) -> list[Entry]:
        """Entries to be made durable that were not given out yet: at least one if there is any, then as many as fit."""
        low = self.handed + 1 - self.tail_first
        high = low
        size = 0
        while high < len(self.tail) and (high == low or size + len(self.tail[high].data) <= bytes_max):
            size += len(self.tail[high].data)
            high += 1
        self.handed += high - low
        return self.tail[low:high]

    def take_truncation(self) -> int:
        """From where on the disk must forget entries before it writes new ones; 0 for nowhere."""
        index = self.truncated_from
        self.truncated_from = 0
        return index

    def became_durable(self, index: int) -> None:
        """All up to here is written.

        The caller sees to it that nothing which was given out up to here was rewritten since: an entry may be forgotten
        and come back with the same term, while the write in between that removes it is still on its way to the disk.
        """
        self.durable = max(self.durable, index)
        if self.floor and self.durable >= self.floor:
            self.floor = 0

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
            self.term_before = self.tail[drop - 1].term
            del self.tail[:drop]
            self.tail_first += drop

    def restart_at(self, index: int, term: int, next_offset: int) -> None:
        """A snapshot takes the place of everything: the log ends at ``index`` and holds nothing in memory."""
        self.tail.clear()
        self.tail_bytes = 0
        self.tail_first = index + 1
        self.term_before = term
        self.last_index = index
        self.last_term = term
        self.next_offset = next_offset
        self.handed = index
        self.durable = 0
        self.truncated_from = 0
        self.rewritten = True
        self.floor = index
