"""The store of one node: all its logs, one journal, and what to do next, as values for a driver.

```
 logs stage rows --> take_commit() --> one journal record with everything that was staged --> committed(): acknowledge
                        |
                        `-- the journal file is full, or a checkpoint is wanted: what each log looks like after this
                            record is set down --> once that is durable take_chore() gives the Checkpoint --> done()
```
Entries live in the journal and in memory until a checkpoint writes them to segment files, many at once: a commit costs
one write however many groups take part. At most one commit and one chore are under way. At most two journal files hold
what is not checkpointed; when the second is full before the checkpoint is done, commits wait, ``has_room`` says no, and
consensus stops taking proposals.
"""

from __future__ import annotations

import errno
from collections import deque

from flockmq.errors import FlockError
from flockmq.log.disk import Disk
from flockmq.log.group import GroupLog
from flockmq.log.journal import CREATE, REMOVE, Row, encode_record
from flockmq.log.manifest import manifest_parts
from flockmq.log.segment import Segment
from flockmq.log.settings import StoreSettings
from flockmq.log.staging import Staging
from flockmq.log.state import LogState
from flockmq.log.work import AllocateJournal, Checkpoint, Chore, Commit, Flush, Repair, SaveSnapshot


def journal_path(number: int) -> str:
    """Name of a journal file."""
    return "journal-" + str(number).zfill(8)  # quicker than a format; every commit needs one


class Store:
    """Made by ``recovery.open_store``."""

    def __init__(self, disk: Disk, settings: StoreSettings, identity: int) -> None:
        self.identity = identity
        self.groups: dict[int, GroupLog] = {}
        self.notes: list[str] = []
        """What recovery found, in sentences; empty when all was well."""
        self.is_new = False
        """The store was made just now: the folder had none."""
        self.torn = False
        """The last write before this start did not finish; what it left was cut."""
        self.generation = 0
        self.journal = 1
        self.position = 0
        self.sequence = 1
        """Where the next record goes, and its number."""
        self.oldest_journal = 1
        self.has_spare = False
        self.settings = settings
        self.staging = Staging(disk, settings)
        self._commit_bytes = settings.commit_bytes
        self.journal_bytes = settings.journal_bytes
        self.held_bytes = settings.held_bytes
        self._cache_bytes = settings.cache_bytes
        self._commit: Commit | None = None
        self._chore: Chore | None = None
        self._checkpoint: Checkpoint | None = None
        """Set down and not done yet."""
        self._cached: deque[tuple[LogState, int, bytes]] = deque()
        self._cached_bytes = 0

    @property
    def down(self) -> str:
        """Why the store is down; empty while it is not."""
        return self.staging.down

    def has_room(self) -> bool:
        """Whether logs may stage more before the next commit."""
        return self.staging.size() < self._commit_bytes

    def create(self, group: int) -> GroupLog:
        """An empty log for a group that has none."""
        if group in self.groups:
            raise FlockError(f"Group {group} has a log already.")
        log = GroupLog(group, self.staging)
        self.staging.stage(Row(CREATE, group))
        self.groups[group] = log
        return log

    def remove(self, group: int) -> None:
        """Forget a group's log; its files go with the next checkpoint."""
        log = self.groups.pop(group)
        self.staging.stage(Row(REMOVE, group))
        self.staging.garbage += log.apply_reset(0, 0, 0)
        if log.snapshot is not None:
            self.staging.garbage.append(log.path(log.snapshot.file_name()))
        self.staging.checkpoint_due = True

    def take_commit(self) -> Commit | None:
        """All that is staged as one record; None while there is nothing, or nowhere to write it yet."""
        return self.take_record() if self.staging.rows else None

    def take_record(self) -> Commit | None:
        """As ``take_commit``; the record is empty while nothing is staged."""
        staging = self.staging
        if self._commit is not None or staging.down:
            return None
        size = staging.size()
        switching = self.position + size > self.journal_bytes
        if switching:
            if self._checkpoint is not None or not self.has_spare:
                return None
            self.journal += 1
            self.position = 0
            self.has_spare = False
        rows = staging.rows
        record = encode_record(self.identity, self.sequence, rows, self.position)
        commit = Commit(self.sequence, journal_path(self.journal), self.position, record, rows)
        staging.rows = []
        staging.bytes = 0
        staging.appends.clear()
        self.position += size
        self.sequence += 1
        self._commit = commit
        if switching or (staging.checkpoint_due and self._checkpoint is None):
            self._set_down()
        return commit

    def committed(self, commit: Commit) -> None:
        """The commit was performed: everything in it is durable."""
        if commit is self._commit:
            self._commit = None

    def failed(self, error: Exception) -> None:
        """A commit or chore could not be performed. Final."""
        is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        what, remedy = ("is full", "make room there") if is_full else ("failed", "repair or replace the disk")
        self.staging.down = (
            f"The disk {what} ({error}). Nothing can be acknowledged any more; {remedy} and start the node again."
        )

    def request_checkpoint(self) -> None:
        """Let the coming chores bring all files up to date, for example before a planned stop."""
        self.staging.checkpoint_due = True

    def take_chore(self) -> Chore | None:
        """The next thing to do beside the commits; None while there is nothing, or one is under way."""
        staging = self.staging
        if self._chore is not None or staging.down:
            return None
        if staging.checkpoint_due and self._checkpoint is None and self._commit is None and not staging.rows:
            self._set_down()
        checkpoint = self._checkpoint
        if checkpoint is not None and (self._commit is None or self._commit.sequence > checkpoint.sequence):
            self._chore = checkpoint
        elif not self.has_spare:
            self._chore = AllocateJournal(journal_path(self.journal + 1), self.journal_bytes)
        elif staging.saves:
            self._chore = staging.saves.pop(0)
        elif staging.repairs:
            self._chore = self._next_repair()
        return self._chore

    def done(self, chore: Chore) -> None:
        """The chore was performed."""
        if chore is not self._chore:
            return
        self._chore = None
        if isinstance(chore, Checkpoint):
            self._checkpoint = None
            self._checkpointed(chore)
        elif isinstance(chore, AllocateJournal):
            self.has_spare = True
        elif isinstance(chore, SaveSnapshot):
            chore.snapshot.saved = True
        elif isinstance(chore, Repair):
            chore.is_over = True

    def leave_to_mender(self) -> None:
        """A user of this store fetches committed entries that can't be read: from now on logs are not cut for them."""
        self.staging.is_mended = True

    def repair(self, repair: Repair) -> None:
        """Let a chore write entries into their place again; ``Repair.is_over`` tells when it is done."""
        self.staging.repairs.append(repair)

    def _next_repair(self) -> Repair | None:
        """The next one whose segment is still there: nothing may bring back a file that a checkpoint removed."""
        repairs = self.staging.repairs
        while repairs:
            repair = repairs.pop(0)
            if repair.is_wanted():
                return repair
            repair.error = "its segment is gone or was cut"
            repair.is_over = True
        return None

    def _set_down(self) -> None:
        """Set down what all logs look like after the last record that was taken."""
        staging = self.staging
        staging.checkpoint_due = False
        self.generation += 1
        flushes: list[Flush] = []
        for group in sorted(staging.changed):
            log = self.groups.get(group)
            if log is None:
                continue
            log.manifest_row = ""
            flushes += [
                _flush(log, segment) for segment in log.segments if _is_behind(segment) or _has_names(log, segment)
            ]
        staging.changed.clear()
        fields = {
            "store": self.identity,
            "generation": self.generation,
            "journal": self.journal,
            "position": self.position,
            "sequence": self.sequence,
            "next_number": staging.next_number,
        }
        parts = manifest_parts(fields, [self.groups[group] for group in sorted(self.groups)])
        checkpoint = Checkpoint(flushes, parts, staging.garbage)
        checkpoint.journals = [journal_path(number) for number in range(self.oldest_journal, self.journal)]
        checkpoint.sequence = self.sequence - 1
        staging.garbage = []
        self.oldest_journal = self.journal
        self._checkpoint = checkpoint

    def _checkpointed(self, checkpoint: Checkpoint) -> None:
        """Segment files hold more than before: remember that, and let go of batches that are only cached now."""
        for flush in checkpoint.flushes:
            flush.finish()
            for order, batch in enumerate(flush.batches):
                self._cached.append((flush.log, flush.first_index + order, batch))
                self._cached_bytes += len(batch)
        self._forget_some()

    def remember(self, batches: list[tuple[GroupLog, int, bytes]]) -> None:
        """Keep batches that were read from segment files in memory, as if they had just been written there."""
        for log, index, batch in batches:
            log.recent[index] = batch
            self._cached.append((log, index, batch))
            self._cached_bytes += len(batch)
        self._forget_some()

    def _forget_some(self) -> None:
        while self._cached_bytes > self._cache_bytes:
            log, index, batch = self._cached.popleft()
            self._cached_bytes -= len(batch)
            if log.recent.get(index) is batch:
                del log.recent[index]


def _is_behind(segment: Segment) -> bool:
    """Whether the files of a segment differ from it."""
    rows = 0 if segment.rows is None else len(segment.rows)
    return segment.flushed < segment.length or segment.was_cut or segment.rows_flushed < rows


def _has_names(log: GroupLog, segment: Segment) -> bool:
    """Whether the names of a closed segment are all known, and still to be written."""
    names = segment.names
    if names is None or names.is_written or not names.mark or segment is log.segments[-1]:
        return False
    return names.is_full or names.next_index == segment.next_index


def _flush(log: GroupLog, segment: Segment) -> Flush:
    batches = [log.recent[index] for index in range(segment.flushed_index, segment.next_index)]
    rows = b"" if segment.rows is None else bytes(segment.rows[segment.rows_flushed :])
    return Flush(log, segment, batches, rows, segment.names if _has_names(log, segment) else None)
