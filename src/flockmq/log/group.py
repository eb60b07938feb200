"""The log of one group: a partition's messages, and at the same time the log that its Raft group agrees on.

```
 append(batches)        --+                         +-- term_at, entries         by index: for consensus
 truncate_from(index)     |   staged; in memory     |-- read(offset, ...)        whole batches, up to the committed one
 compact_to(index)        |-- at once, durable with |-- offset_at(time, ...)     where to start reading
 set_hard_state(...)      |   the next commit       `-- load_snapshot
 use_snapshot, reset    --+
```
Damage that a read meets is noted here (``damage``), kept over restarts, and ends with ``repaired``.
"""

from __future__ import annotations

from flockmq.errors import OffsetGone
from flockmq.log.checksum import crc32c
from flockmq.log.errors import DamageError, EntryGone, SpoiledError, must_be_lost
from flockmq.log.header import DATA, BatchError
from flockmq.log.journal import APPEND, CUT, DAMAGE, REPAIRED, RESET, SNAPSHOT, START, STATE, Row
from flockmq.log.names import Found, NameTest, SegmentNames
from flockmq.log.names_reading import find_names
from flockmq.log.reading import CHUNK_BYTES, position_of, read_entries, rows_of
from flockmq.log.segment import BY_OFFSET, BY_TIME, Segment, find_row, row_index
from flockmq.log.settings import SMALL_SEGMENTS_MAX, Retention
from flockmq.log.staging import Staging
from flockmq.log.state import Damage, LogState, Snapshot
from flockmq.log.view import BatchView


class GroupLog(LogState):
    """See the module. Made by ``Store.create``, or found by its recovery."""

    def __init__(self, group: int, staging: Staging) -> None:
        super().__init__(group)
        self._staging = staging
        self.manifest_row = ""
        """How the last manifest describes this log; empty when that has to be written anew."""
        self._roll_bytes = staging.segment_bytes
        self._roll_age_ms = staging.segment_age_ms
        self.keeps_names = False
        """Whether its segments have an index of topic names."""

    # What consensus asks.

    def first_index(self) -> int:
        """Index of the oldest entry that is still there; one behind the last when there is none."""
        return self.first

    def last_index(self) -> int:
        """Index of the newest entry, 0 when there never was one."""
        return self.last

    def next_offset(self) -> int:
        """Offset of the first record after the newest entry."""
        return self.end_offset

    def entries(self, low: int, high: int, bytes_max: int) -> list[bytes]:
        """Stamped batches from ``low`` to ``high`` (exclusive): at least one, then as many as fit."""
        if low < self.first:
            raise EntryGone(f"Group {self.group} starts at entry {self.first}; entry {low} is gone. Send a snapshot.")
        if low >= high or low > self.last:
            return []
        try:
            return read_entries(self._staging, self, low, min(high, self.last + 1), bytes_max)
        except DamageError as error:
            raise self._met(error) from error

    def _met(self, error: DamageError) -> DamageError:
        """What to raise for damage. Of committed entries other replicas have the bytes: the log need not be cut."""
        if error.index <= self.settled and self._staging.is_mended:
            self._staging.suspect(self.group, error.index)
            return SpoiledError(str(error), error.index)
        self.note_damage(error.index, str(error))
        return error

    # What consensus does.

    def append(self, batches: list[bytes]) -> None:
        """Add stamped batches that follow on each other and on what is there."""
        self.append_views([BatchView(batch) for batch in batches])

    def append_views(self, views: list[BatchView]) -> None:
        """The same for batches whose headers were read already, each alone in its bytes."""
        staging = self._staging
        for view in views:
            batch = view.data
            if view.index != self.last + 1 or view.base_offset != self.end_offset or view.size != len(batch):
                raise BatchError(
                    f"Entry {view.index} (offset {view.base_offset}) does not follow on entry {self.last} "
                    f"(offset {self.end_offset}) of group {self.group}."
                )
            if view.size > staging.batch_bytes_max:
                raise BatchError(f"A batch of {view.size:,} bytes is too large for a group commit: build smaller ones.")
            staging.need_room(view.size)
            segment = self._segment_for(view)
            row = staging.appends.get(self.group)
            if row is None or row.segment != segment.number:
                row = Row(APPEND, self.group, segment.number, segment.base_offset, segment.length, 0, view.index)
                staging.stage(row)
            self.apply_batch(view, batch, staging.index_bytes)
            names = segment.names
            if names is not None and names.next_index == view.index:
                names.add(view)
            staging.stage_batch(row, batch, view.index)

    def _segment_for(self, view: BatchView) -> Segment:
        """The last segment, or a new one when that is full or old."""
        staging = self._staging
        if self.segments:
            last = self.segments[-1]
            is_small = len(self.segments) < SMALL_SEGMENTS_MAX
            has_records = last.base_offset < self.end_offset  # without any there is nothing that has to go soon
            bytes_max = self._roll_bytes if is_small else staging.segment_bytes
            age_ms_max = self._roll_age_ms if is_small and has_records else staging.segment_age_ms
            age = view.base_timestamp - last.first_timestamp if last.first_timestamp else 0
            if last.length == 0 or (age < age_ms_max and last.length + view.size <= bytes_max):
                return last
            staging.loaded(last)
            if last.names is not None:
                staging.named(last)
        segment = Segment(staging.take_number(), view.base_offset, view.index)
        if self.keeps_names:
            segment.names = SegmentNames(view.index, view.base_offset, staging.index_bytes)
        self.segments.append(segment)
        return segment

    def roll_for(self, rule: Retention) -> None:
        """Close segments so early that whole ones can go about when the rule wants it. Not kept over restarts."""
        self._roll_bytes = rule.segment_bytes(self._staging.segment_bytes)
        self._roll_age_ms = rule.segment_age_ms(self._staging.segment_age_ms)
        self.keeps_names = rule.names

    def truncate_from(self, index: int) -> None:
        """Forget entry ``index`` and all after it: another leader's log differs there."""
        if index > self.last:
            return
        if index < self.first:
            raise EntryGone(f"Group {self.group} starts at entry {self.first} and can't be cut at {index}.")
        try:
            number, length, offset = self._cut_at(index)
        except DamageError as error:
            self.note_damage(error.index, str(error))
            raise
        term = self.term_at(index - 1)
        self._staging.stage(Row(CUT, self.group, number, offset, length, 0, index - 1, term))
        self._staging.garbage += self.apply_cut(number, length, index - 1, offset)

    def _cut_at(self, index: int) -> tuple[int, int, int]:
        """(segment that becomes the last, its length, next offset) of a log that ends before ``index``."""
        segment = self.segment_of(index)
        if index == segment.first_index:
            at = self.segments.index(segment)
            if at == 0:
                return 0, 0, segment.base_offset
            before = self.segments[at - 1]
            return before.number, before.length, segment.base_offset
        length, offset = position_of(self._staging, self, segment, index)
        return segment.number, length, offset

    def compact_to(self, index: int) -> None:
        """Forget whole segments of which every entry is at or before ``index``."""
        keep = 0
        while keep < len(self.segments) and self.segments[keep].next_index <= index + 1:
            keep += 1
        if keep == 0:
            return
        number = 0
        first = self.last + 1
        offset = self.end_offset
        if keep < len(self.segments):
            number = self.segments[keep].number
            first = self.segments[keep].first_index
            offset = self.segments[keep].base_offset
        term = self.term_at(first - 1)
        self._staging.stage(Row(START, self.group, number, offset, 0, 0, first, term))
        self._staging.garbage += self.apply_start(first, offset, term)
        self._staging.checkpoint_due = True  # only then their files go

    def set_hard_state(self, term: int, vote: int, commit: int) -> None:
        """The current term, the vote of this replica in it (0: none), and how far it knows to be committed."""
        if (term, vote, commit) == (self.term, self.vote, self.commit):
            return
        self.term = term
        self.vote = vote
        self.commit = commit
        self._staging.stage(Row(STATE, self.group, vote, commit, 0, 0, term))

    def reset(self, last: int, term: int, next_offset: int) -> None:
        """Start over, empty, after entry ``last``: a snapshot took the place of everything up to there."""
        self._staging.stage(Row(RESET, self.group, 0, next_offset, 0, 0, last, term))
        self._staging.garbage += self.apply_reset(last, term, next_offset)

    # Snapshots of the state machine behind the log.

    def save_snapshot(self, data: bytes, index: int, term: int, next_offset: int) -> Snapshot:
        """Write the state after entry ``index`` into a file, off the commits' way. ``saved`` tells when it is there."""
        snapshot = Snapshot(self._staging.take_number(), index, term, next_offset, len(data), crc32c(data))
        self._staging.save(self.path(snapshot.file_name()), snapshot, data)
        return snapshot

    def use_snapshot(self, snapshot: Snapshot) -> None:
        """Let a saved snapshot be the one that a restart, or a follower that is far behind, starts from."""
        if not snapshot.saved:
            raise BatchError(f"The snapshot of group {self.group} at entry {snapshot.index} is not saved yet.")
        row = Row(SNAPSHOT, self.group, snapshot.number, snapshot.next_offset, 0, snapshot.length)
        row.first = snapshot.index
        row.last = snapshot.term
        row.crc = snapshot.crc
        self._staging.stage(row)
        self._staging.garbage += self.apply_snapshot(snapshot)

    def load_snapshot(self) -> bytes | None:
        """The state that the present snapshot holds, verified; None when there is none."""
        snapshot = self.snapshot
        if snapshot is None:
            return None
        try:
            data = self._staging.disk.read(self.path(snapshot.file_name()), 0, snapshot.length)
        except OSError as error:
            if not must_be_lost(error):
                raise
            data = b""
        if len(data) != snapshot.length or crc32c(data) != snapshot.crc:
            text = f"The snapshot of group {self.group} at entry {snapshot.index} is damaged; it has to be sent again."
            self.note_damage(snapshot.index, text)
            raise DamageError(text, snapshot.index)
        return data

    # Damage.

    def note_damage(self, index: int, reason: str) -> None:
        """Entry ``index`` can't be read. Kept over restarts, until ``repaired``."""
        if self.damage is not None and 0 < self.damage.first <= index:
            return
        everything = self.damage is not None and self.damage.everything
        self.damage = Damage(index, self.last, everything, reason)
        if not self._staging.down:
            self._staging.stage(Row(DAMAGE, self.group, 0, 0, int(everything), 0, index, self.last))

    def note_forgotten(self, reason: str) -> None:
        """Anything may be missing, votes as well: this log takes the place of one that is lost. Kept like damage."""
        self.damage = Damage(0, 0, True, reason)
        self._staging.stage(Row(DAMAGE, self.group, 0, 0, 1))

    def repaired(self) -> None:
        """The log holds again all that its replica ever acknowledged, or a leader showed what was never committed."""
        if self.damage is not None:
            self.damage = None
            self._staging.stage(Row(REPAIRED, self.group))

    # What readers ask.

    def read(self, offset: int, commit: int, bytes_max: int) -> list[bytes]:
        """Whole batches from the one that holds ``offset`` on, up to entry ``commit``: at least one if there is any."""
        if offset < self.first_offset:
            raise OffsetGone(self.first_offset, f"Offset {offset} of partition group {self.group}")
        found: list[bytes] = []
        if offset >= self.end_offset:
            return found
        size = 0
        index = self.index_near(offset)
        while index <= commit:
            try:
                batches = self.entries(index, commit + 1, max(bytes_max - size, CHUNK_BYTES))
            except SpoiledError:
                if found:
                    break
                raise
            for batch in batches:
                view = BatchView(batch)
                if view.kind != DATA or view.next_offset <= offset:
                    continue
                if found and size + view.size > bytes_max:
                    return found
                found.append(batch)
                size += view.size
            if not batches:
                break
            index += len(batches)
        return found

    def index_near(self, offset: int) -> int:
        """An entry at or a little before the one that holds an offset which is there."""
        low = 0
        high = len(self.segments)
        while high - low > 1:
            middle = (low + high) // 2
            if self.segments[middle].base_offset <= offset:
                low = middle
            else:
                high = middle
        segment = self.segments[low]
        rows = rows_of(self._staging, self, segment)
        number = find_row(rows, BY_OFFSET, offset)
        index = row_index(rows, number) if number > 0 else segment.first_index
        for gap in self.gaps:
            if gap.number == segment.number and gap.end_offset <= offset and gap.next > index:
                index = gap.next
        return index

    def find_names(self, offset: int, end: int, tests: list[NameTest]) -> Found:
        """Where, from an offset on that is there, the next record before ``end`` may be that has a wanted name."""
        if not self.keeps_names or not self.first_offset <= offset < end <= self.end_offset:
            return Found(offset, max(offset, end), CHUNK_BYTES)
        return find_names(self._staging, self, offset, end, tests)

    def offset_at(self, timestamp_ms: int, commit: int) -> int:
        """Offset of the first record that is not older, among those up to entry ``commit``; else the one after them."""
        commit = min(commit, self.last)
        for segment in self.segments:
            if segment.latest_timestamp < timestamp_ms or segment.first_index > commit:
                continue
            rows = rows_of(self._staging, self, segment)
            number = find_row(rows, BY_TIME, timestamp_ms)
            index = row_index(rows, number) if number > 0 else segment.first_index
            end = min(commit + 1, segment.next_index)
            while index < end:
                batches = self.entries(index, end, CHUNK_BYTES)
                for batch in batches:
                    view = BatchView(batch)
                    if view.kind == DATA and view.latest_timestamp >= timestamp_ms:
                        return _first_since(view, timestamp_ms)
                index += len(batches)
        return _offset_after(self, commit)


def _offset_after(log: GroupLog, index: int) -> int:
    """Offset of the first record after an entry."""
    if index < log.first:
        return log.first_offset
    if index >= log.last:
        return log.end_offset
    return BatchView(log.entries(index, index + 1, 1)[0]).next_offset


def _first_since(view: BatchView, timestamp_ms: int) -> int:
    position = 0
    for stamped in view.timestamps():
        if stamped >= timestamp_ms:
            break
        position += 1
    return view.base_offset + position
