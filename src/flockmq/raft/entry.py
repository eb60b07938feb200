"""A log entry: a stamped batch and, read out of its header, what consensus needs to know of it."""

from __future__ import annotations

from flockmq.log.batch import BatchView


class Entry:
    """One entry. ``data`` is what is stored and sent, byte for byte the same on all replicas."""

    def __init__(self, view: BatchView) -> None:
        """``view`` must be of one batch alone."""
        self.index = view.index
        self.term = view.term
        self.base_offset = view.base_offset
        self.count = view.count
        self.kind = view.kind
        self.data = view.data
        self._view: BatchView | None = view

    @property
    def next_offset(self) -> int:
        """Offset of the first record after this entry."""
        return self.base_offset + self.count

    def take_view(self) -> BatchView:
        """The header once more, for the store. Not kept: entries stay in memory long after that."""
        view = self._view
        self._view = None
        return BatchView(self.data) if view is None else view


def entry_of(data: bytes) -> Entry:
    """The entry that a stamped batch is."""
    return Entry(BatchView(data))
