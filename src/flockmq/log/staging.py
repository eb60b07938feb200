"""What logs ask of their store between two group commits, and what they share.

```
 GroupLog.append, truncate_from, ... --> rows (one per group and kind of change) --> Store.take_commit
```
Changes take effect in memory at once; they are durable when the commit that took their rows is.
"""

from __future__ import annotations

from typing import Final

from flockmq.log.disk import Disk
from flockmq.log.errors import StoreBusy, StoreDown
from flockmq.log.journal import APPEND, UNIT, Row, record_bytes
from flockmq.log.segment import Segment
from flockmq.log.settings import StoreSettings
from flockmq.log.state import Snapshot
from flockmq.log.work import Repair, SaveSnapshot

SUSPECTS_MAX: Final = 1_024
NAMES_COST_MAX: Final = 64 * 1024 * 1024
"""About how much memory the names of closed segments may take, of all logs together."""


class Staging:
    """One per store."""

    def __init__(self, disk: Disk, settings: StoreSettings) -> None:
        self.disk = disk
        self.segment_bytes = settings.segment_bytes
        self.segment_age_ms = settings.segment_age_ms
        self.index_bytes = settings.index_bytes
        self.batch_bytes_max = settings.commit_bytes
        self.loaded_indexes = settings.loaded_indexes
        self.room_bytes = settings.journal_bytes - 4 * UNIT
        self.rows: list[Row] = []
        self.bytes = 0
        """Batches in these rows."""
        self.appends: dict[int, Row] = {}
        """By group: the row that a further append to the same segment goes into."""
        self.changed: set[int] = set()
        """Groups that differ from what the last checkpoint wrote."""
        self.garbage: list[str] = []
        """Files that no log needs any more; they go once no manifest names them."""
        self.saves: list[SaveSnapshot] = []
        self.repairs: list[Repair] = []
        self.is_mended = False
        """Whether committed entries that can't be read are fetched from other replicas by a user of this store."""
        self.suspects: dict[tuple[int, int], None] = {}
        """(group, entry): committed entries that a read could not get from their file, to be looked at."""
        self.checkpoint_due = False
        self.next_number = 1
        """For files: segments and snapshots."""
        self.down = ""
        """Why the store is down, if it is."""
        self._loaded: list[Segment] = []
        self.names_cost_max = NAMES_COST_MAX
        self._named: dict[Segment, None] = {}

    def stage(self, row: Row) -> None:
        """Let the next commit make this durable."""
        if self.down:
            raise StoreDown(self.down)
        self.rows.append(row)
        self.changed.add(row.group)
        if row.kind == APPEND:
            self.appends[row.group] = row
        else:
            self.appends.pop(row.group, None)

    def size(self) -> int:
        """Bytes that the next record will have."""
        return record_bytes(len(self.rows), self.bytes)

    def need_room(self, length: int) -> None:
        """Refuse what does not fit into the next record any more."""
        if self.size() + 4 * UNIT + length > self.room_bytes:
            raise StoreBusy("Too much is staged for one group commit; wait until Store.has_room().")

    def stage_batch(self, row: Row, batch: bytes, index: int) -> None:
        """Add a batch to an append that is staged already."""
        row.parts.append(batch)
        row.length += len(batch)
        row.last = index
        self.bytes += len(batch)

    def suspect(self, group: int, index: int) -> None:
        """A committed entry could not be read from its file."""
        if len(self.suspects) < SUSPECTS_MAX:
            self.suspects[group, index] = None

    def save(self, path: str, snapshot: Snapshot, data: bytes) -> None:
        """Let a chore write a snapshot's file."""
        if self.down:
            raise StoreDown(self.down)
        self.saves.append(SaveSnapshot(path, snapshot, data))

    def take_number(self) -> int:
        """A number that no file of this store ever had."""
        number = self.next_number
        self.next_number = number + 1
        return number

    def loaded(self, segment: Segment) -> None:
        """The sparse index of a closed segment is in memory; the one that came first may have to go."""
        self._loaded.append(segment)
        while len(self._loaded) > self.loaded_indexes and self._loaded[0].flushed == self._loaded[0].length:
            self._loaded.pop(0).rows = None

    def named(self, segment: Segment) -> None:
        """The names of a segment are in memory; those that came first may have to go. They can be read again."""
        self._named[segment] = None
        cost = 0
        for one in list(self._named):
            if one.names is None:
                del self._named[one]
            else:
                cost += one.names.cost
        while cost > self.names_cost_max and len(self._named) > 1:
            first = next(iter(self._named))
            cost -= first.names.cost if first.names is not None else 0
            first.names = None
            del self._named[first]
