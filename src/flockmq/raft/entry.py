"""A log entry: a stamped batch and, read out of its header, what consensus needs to know of it."""

from __future__ import annotations

from flockmq.log.batch import BatchView


class Entry:
    """One entry. ``data`` is what is stored and sent, byte for byte the same on all replicas."""

    def __init__(self, index: int, term: int, base_offset: int, count: int, kind: int, data: bytes) -> None:
        self.index = index
        self.term = term
        self.base_offset = base_offset
        self.count = count
        self.kind = kind
        self.data = data

    @property
    def next_offset(self) -> int:
        """Offset of the first record after this entry."""
        return self.base_offset + self.count


def entry_of(data: bytes) -> Entry:
    """Read an entry's head out of a stamped batch."""
    view = BatchView(data)
    return Entry(view.index, view.term, view.base_offset, view.count, view.kind, data)
