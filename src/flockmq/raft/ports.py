"""What consensus needs of others: a log to read, snapshots to send and a place to put those that come.

Snapshots are optional: a group that keeps its whole log needs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from flockmq.raft.messages import Checkpoint, SnapshotMeta

SAVED: Final = 1
SAVING: Final = 0
BROKEN: Final = -1


class LogReader(Protocol):
    """Durable entries of one group. ``flockmq.log.group.GroupLog`` is one."""

    @property
    def first_offset(self) -> int:
        """Offset of the first record at or behind the oldest entry."""
        ...

    def first_index(self) -> int:
        """Index of the oldest entry that is still there; one behind the last when there is none."""
        ...

    def last_index(self) -> int:
        """Index of the newest entry, 0 when there never was one."""
        ...

    def term_at(self, index: int) -> int:
        """Term of an entry or of the last one before the oldest; -1 when that is not known any more."""
        ...

    def entries(self, low: int, high: int, bytes_max: int) -> list[bytes]:
        """Stamped batches from ``low`` to ``high`` (exclusive): at least one, then as many as fit."""
        ...

    def next_offset(self) -> int:
        """Offset of the first record after the newest entry."""
        ...

    def settle(self, index: int) -> None:
        """Entries up to ``index`` are committed: where one can't be read ``entries`` raises SpoiledError."""
        ...


class SnapshotSource(Protocol):
    """Checkpoints of this replica, for followers that lack entries which are gone here."""

    def latest(self) -> Checkpoint | None:
        """The newest one that can be sent. No entry after it may be gone from the log."""
        ...

    def read(self, meta: SnapshotMeta, position: int, length: int) -> bytes:
        """A piece of its content; nothing when it is gone."""
        ...


class SnapshotSink(Protocol):
    """Where the content of a snapshot that comes in pieces is put together."""

    def received(self, meta: SnapshotMeta) -> int:
        """How many bytes of exactly this snapshot are here; 0 starts it. Any other one may be dropped."""
        ...

    def write(self, meta: SnapshotMeta, position: int, data: bytes) -> None:
        """The next piece."""
        ...

    def complete(self, meta: SnapshotMeta) -> int:
        """All of it is here: SAVED, or SAVING as long as that lasts, or BROKEN when it is not what ``meta`` says."""
        ...
