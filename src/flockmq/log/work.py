"""Work for the disk, as values: the store decides what has to be written, a driver does it, off the event loop.

```
 Store.take_commit() --> Commit --> perform(disk) --> Store.committed(commit)      one at a time, in order
 Store.take_chore()  --> Chore  --> perform(disk) --> Store.done(chore)            one at a time, beside the commits
                                `-> OSError --------> Store.failed(error)          final: the store is down
```
"""

from __future__ import annotations

from typing import Final

from flockmq.log.checksum import seal_text
from flockmq.log.disk import Disk
from flockmq.log.journal import Row
from flockmq.log.names import SegmentNames
from flockmq.log.segment import Segment
from flockmq.log.state import LogState, Snapshot

MANIFESTS: Final = ("manifest-a", "manifest-b")
"""The same text twice: one flipped bit must not make a whole store unreadable."""

PIECE_BYTES: Final = 512 * 1024
"""A checkpoint writes and syncs about so much at a time."""


class Commit:
    """One record of the journal: all that all groups asked for since the commit before."""

    def __init__(self, sequence: int, path: str, position: int, record: bytes, rows: list[Row]) -> None:
        self.sequence = sequence
        self.path = path
        self.position = position
        self.record = record
        self.rows = rows

    def perform(self, disk: Disk) -> None:
        """When this returns everything in it is durable."""
        disk.write_through(self.path, self.position, self.record)


class Chore:
    """Work that no acknowledgement waits for."""

    def perform(self, disk: Disk) -> None:
        """Do all of the work."""
        raise NotImplementedError


class AllocateJournal(Chore):
    """The next journal file, full of zeros: writing into it later changes no metadata, which is what makes it fast."""

    def __init__(self, path: str, length: int) -> None:
        self.path = path
        self.length = length

    def perform(self, disk: Disk) -> None:
        """Allocate the file."""
        disk.allocate(self.path, self.length)


class SaveSnapshot(Chore):
    """A snapshot's file."""

    def __init__(self, path: str, snapshot: Snapshot, data: bytes) -> None:
        self.path = path
        self.snapshot = snapshot
        self.data = data

    def perform(self, disk: Disk) -> None:
        """Write it and make it durable, with its name."""
        disk.write(self.path, 0, self.data)
        disk.sync(self.path)
        disk.sync_folder(self.path.rpartition("/")[0])


class Repair(Chore):
    """Entries that were fetched from another replica go back into their place: into a copy of the segment's file, which
    then takes the name of the damaged one. A crash on the way leaves one or the other."""

    def __init__(self, log: LogState, segment: Segment, position: int, data: bytes) -> None:
        self._log = log
        self._segment = segment
        self._cuts = segment.cuts
        self._path = log.path(segment.file_name())
        self._length = segment.flushed
        self._position = position
        self._data = data
        self._lost = [(gap.start, gap.stop) for gap in log.gaps if gap.number == segment.number]
        """What can't be read anyway."""
        self.is_over = False
        self.error = ""
        """Why it could not be done; the file is as it was."""

    def is_wanted(self) -> bool:
        """Whether the segment is still part of its log, and was not cut."""
        return self._segment in self._log.segments and self._segment.cuts == self._cuts

    def perform(self, disk: Disk) -> None:
        """Write the copy and let it take the place. A disk without room is no reason to stop everything else."""
        copy = self._path + ".repair"
        try:
            disk.remove(copy)
            self._copy(disk, copy)
            disk.sync(copy)
            disk.rename(copy, self._path)
            disk.sync_folder(self._log.folder)
        except OSError as error:
            self.error = str(error)

    def _copy(self, disk: Disk, copy: str) -> None:
        length = max(disk.size(self._path), self._length)
        stop = self._position + len(self._data)
        position = 0
        for start, end in [*self._lost, (length, length)]:
            while position < end:
                size = min(PIECE_BYTES, (start if position < start else end) - position)
                try:
                    piece = disk.read(self._path, position, size)
                except OSError:
                    if position < start:
                        raise
                    piece = b""
                disk.write(copy, position, piece + bytes(size - len(piece)))
                position += size
        disk.write(copy, self._position, self._data)
        if disk.size(copy) != max(length, stop):
            raise OSError("the file became shorter while it was copied")


class Flush:
    """What a segment's files lack: batches that only the journal holds so far, rows of the sparse index, names."""

    def __init__(
        self, log: LogState, segment: Segment, batches: list[bytes], rows: bytes, names: SegmentNames | None = None
    ) -> None:
        self.log = log
        self.batches = batches
        self.first_index = segment.flushed_index
        self._segment = segment
        self._path = log.path(segment.file_name())
        self._index_path = log.path(segment.index_name())
        self._names_path = log.path(segment.names_name())
        self._names = names
        """Of a closed segment: nothing changes them."""
        self._rows = rows
        self._position = segment.flushed
        self._row_position = segment.rows_flushed
        self._length = segment.length
        self._next_index = segment.next_index
        self._cut = segment.was_cut
        self.is_large = segment.length - segment.flushed > PIECE_BYTES
        """Better not written beside other large ones."""
        segment.low = segment.length
        segment.low_index = segment.next_index
        segment.was_cut = False
        segment.rows_flushed += len(rows)
        if names is not None:
            names.is_written = True

    def perform(self, disk: Disk) -> None:
        """Write all and make the batches durable. The rest need not be: what a crash takes of it is built again."""
        position = self._position
        for batches in _pieces(self.batches):
            if position > self._position:
                disk.sync(self._path)  # so that a commit never finds much before it in the disk's queue
            piece = b"".join(batches)
            disk.write(self._path, position, piece)
            position += len(piece)
        rows_end = self._row_position + len(self._rows)
        if self._rows:
            disk.write(self._index_path, self._row_position, self._rows)
        if self._cut:
            disk.truncate(self._path, self._length)
            if disk.size(self._index_path) > rows_end:
                disk.truncate(self._index_path, rows_end)
        if self._names is not None:
            self._write_names(disk, self._names.encode())
        disk.sync(self._path)
        if self._position == 0:
            disk.sync_folder(self.log.folder)

    def _write_names(self, disk: Disk, data: bytes) -> None:
        disk.write(self._names_path, 0, data)
        if disk.size(self._names_path) > len(data):
            disk.truncate(self._names_path, len(data))

    def finish(self) -> None:
        """The work was performed. What the segment was cut to in the meantime does not count as written."""
        self._segment.flushed = min(self._length, self._segment.low)
        self._segment.flushed_index = min(self._next_index, self._segment.low_index)


def _pieces(batches: list[bytes]) -> list[list[bytes]]:
    """Batches in order, in pieces of about ``PIECE_BYTES``; at least one piece."""
    pieces: list[list[bytes]] = [[]]
    size = 0
    for batch in batches:
        if size >= PIECE_BYTES:
            pieces.append([])
            size = 0
        pieces[-1].append(batch)
        size += len(batch)
    return pieces


class Checkpoint(Chore):
    """Brings segment files and manifest up to one record of the journal; everything before that record can go."""

    def __init__(self, flushes: list[Flush], parts: list[str], garbage: list[str]) -> None:
        self.flushes = flushes
        self.parts = parts
        """The manifest, in pieces that are cheap to collect."""
        self.garbage = garbage
        self.journals: list[str] = []
        """Journal files that are not needed once the manifest is durable."""
        self.sequence = 0
        """The commit that it includes: it must not start before that is durable."""

    def perform(self, disk: Disk) -> None:
        """Segments first (in any order, at once if the disk can), then all that ``publish`` does."""
        for flush in self.flushes:
            flush.perform(disk)
        self.publish(disk)

    def publish(self, disk: Disk) -> None:
        """The manifest that names the new segments, then away with what it no longer names."""
        text = seal_text("".join(self.parts))
        for name in MANIFESTS:
            disk.remove(name + ".new")
            disk.write(name + ".new", 0, text)
            disk.sync(name + ".new")
            disk.rename(name + ".new", name)
            disk.sync_folder("")
        for path in [*self.garbage, *self.journals]:
            disk.remove(path)
