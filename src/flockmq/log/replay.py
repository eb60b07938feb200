"""Brings logs from the state of the manifest to that of the last journal record, row by row.

```
 APPEND whose batches are damaged ----> that log is frozen there: later entries have a hole before them
 a record that can't be read ---------> every log is frozen: any may have lost entries, cuts or votes in it
 CUT below the hole, RESET -----------> the hole does not matter any more
```
A frozen log keeps what it has, tells what it lost, and must not vote until it is refilled.
"""

from __future__ import annotations

from flockmq.log.group import GroupLog
from flockmq.log.header import BatchError
from flockmq.log.journal import (
    APPEND,
    CREATE,
    CUT,
    DAMAGE,
    REMOVE,
    REPAIRED,
    RESET,
    SNAPSHOT,
    START,
    STATE,
    Row,
)
from flockmq.log.scan import JournalRecord
from flockmq.log.segment import Segment
from flockmq.log.staging import Staging
from flockmq.log.state import Damage, Snapshot
from flockmq.log.view import BatchView


class Replay:
    """Applies records to ``groups``, in order."""

    def __init__(self, groups: dict[int, GroupLog], staging: Staging) -> None:
        self.groups = groups
        self.notes: list[str] = []
        self.next_number = staging.next_number
        self._staging = staging
        self._frozen: dict[int, Damage | None] = {}
        """Logs that take no more entries, with the damage that they had before."""

    def record(self, record: JournalRecord) -> None:
        """Apply all rows of one record."""
        if record.rows_lost:
            reason = f"Record {record.sequence} of the journal can't be read."
            for log in self.groups.values():
                self._freeze(log, Damage(log.last + 1, 0, True, reason))
        for row in record.rows:
            self._row(row)

    def _freeze(self, log: GroupLog, damage: Damage) -> None:
        known = log.damage
        if log.group not in self._frozen:
            self._frozen[log.group] = known
        if known is not None:
            damage = Damage(
                min(known.first or damage.first, damage.first),
                max(known.last, damage.last),
                known.everything or damage.everything,
                known.reason,
            )
        log.damage = damage
        self.notes.append(f"Group {log.group}: {damage.reason} Entries from {damage.first} on may be missing.")

    def _row(self, row: Row) -> None:
        self._staging.changed.add(row.group)
        if row.kind == CREATE:
            self.groups[row.group] = GroupLog(row.group, self._staging)
            self._frozen.pop(row.group, None)
            return
        log = self.groups.get(row.group)
        if log is None:
            return  # its creation is in a record that was lost, and noted
        if row.kind == APPEND:
            self._append(log, row)
        elif row.kind == CUT:
            self._cut(log, row)
        elif row.kind == STATE:
            log.term = row.first
            log.vote = row.segment
            log.commit = row.base_offset
        elif row.kind == START:
            self._start(log, row)
        elif row.kind == RESET:
            log.apply_reset(row.first, row.last, row.base_offset)
            self._thaw(log)
        elif row.kind == SNAPSHOT:
            snapshot = Snapshot(row.segment, row.first, row.last, row.base_offset, row.length, row.crc)
            snapshot.saved = True
            log.apply_snapshot(snapshot)
            self._saw_number(row.segment)
        elif row.kind == DAMAGE:
            reason = "Damage was found by a read."
            log.damage = Damage(row.first, row.last, row.position == 1, reason)
        elif row.kind == REPAIRED and row.group not in self._frozen:
            log.damage = None
        elif row.kind == REMOVE:
            del self.groups[row.group]

    def _append(self, log: GroupLog, row: Row) -> None:
        self._saw_number(row.segment)
        if log.group in self._frozen:
            if log.damage is not None:
                log.damage.last = max(log.damage.last, row.last)
            return
        if row.data is None:
            self._freeze(log, Damage(row.first, row.last, False, "Batches in the journal are damaged."))
            return
        if not log.segments or log.segments[-1].number != row.segment:
            log.segments.append(Segment(row.segment, row.base_offset, row.first))
        if log.segments[-1].length != row.position or row.first != log.last + 1:
            self._freeze(log, Damage(log.last + 1, row.last, True, "The journal does not fit to the manifest."))
            return
        position = 0
        while position < len(row.data):
            view = BatchView(row.data, position)
            if view.index != log.last + 1:
                raise BatchError(f"Entry {view.index} of group {log.group} does not follow on {log.last}.")
            log.apply_batch(view, view.whole(), self._staging.index_bytes)
            position += view.size

    def _cut(self, log: GroupLog, row: Row) -> None:
        damage = log.damage
        if log.group in self._frozen:
            if damage is None or damage.everything or row.first >= damage.first:
                return
            self._thaw(log)
        log.apply_cut(row.segment, row.position, row.first, row.base_offset)

    def _start(self, log: GroupLog, row: Row) -> None:
        if row.first > log.last + 1:
            log.apply_reset(row.first - 1, row.last, row.base_offset)  # a frozen log lacks what comes after
        else:
            log.apply_start(row.first, row.base_offset, row.last)

    def _thaw(self, log: GroupLog) -> None:
        """The hole does not matter any more. Lost votes still do."""
        if log.group in self._frozen:
            before = self._frozen.pop(log.group)
            if log.damage is None or not log.damage.everything:
                log.damage = before

    def _saw_number(self, number: int) -> None:
        self.next_number = max(self.next_number, number + 1)
