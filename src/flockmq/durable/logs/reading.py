"""Committed batches of partitions that have a replica here: by offset, by time, and whoever waits for more of them.

```
 read(group, offset, bytes_max) --> whole batches from the one that holds the offset on, no further than what is applied
        |-- Gone      retention took it; the oldest offset that is there
        |-- Behind    this replica does not have it yet; how far it is: wait, or ask another
        |-- NotHere   no replica here, or none that can be read; who has one
        `-- Damaged   the same, because its file does not give it back: others are asked, and it is mended
 extents(group, offset, bytes_max) --> Extents: what to read from which file, or bytes --> scanning, in a thread
 wait_for({group: offset}, callback, due_at) --> called when one of them has more, or with nothing when the time is over
```
A replica never answers short: ``until`` is how far the log was committed when somebody asked, and one that is not so
far says so.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flockmq.errors import FlockError, OffsetGone
from flockmq.log import errors as log_errors
from flockmq.log.batch import BatchView
from flockmq.log.reading import rows_of
from flockmq.log.segment import BY_INDEX, find_row, row_index, row_position

if TYPE_CHECKING:
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.state.layout import Layout
    from flockmq.log.group import GroupLog
    from flockmq.log.segment import Segment
    from flockmq.log.staging import Staging
    from flockmq.raft.engine import RaftEngine
    from flockmq.raft.entry import Entry
    from flockmq.raft.replicas import Replica

READ_BYTES_MAX: Final = 1_048_576
"""Most that is read in one piece on the event loop (a single larger batch is read as it is)."""
EXTENT_BYTES_MAX: Final = 64 * 1_048_576
PARTS_MAX: Final = 16_384
"""Parts of extents; each batch that is still in memory is one."""
WAITERS_MAX: Final = 10_000
WAITED_GROUPS_MAX: Final = 100_000
"""Groups of all waiters together."""

Grown = Callable[[list[int]], None]
"""Groups that have more now; none when the time is over."""


class Gone(FlockError):  # noqa: N818
    """The offset is older than the oldest one that is kept."""

    def __init__(self, group: int, offset: int, first: int) -> None:
        super().__init__(
            f"Offset {offset} of partition group {group} is gone; the oldest one is {first}: read from there."
        )
        self.first = first


class Behind(FlockError):  # noqa: N818
    """The replica does not have this yet."""

    def __init__(self, group: int, wanted: int, end: int) -> None:
        super().__init__(
            f"This replica of group {group} is committed up to offset {end}, not {wanted}. Wait, or ask another one."
        )
        self.end = end


class NotHere(FlockError):  # noqa: N818
    """No replica here that can be read."""

    def __init__(self, group: int, replicas: tuple[int, ...]) -> None:
        super().__init__(f"This node has no replica of group {group} that can be read. Ask one that has.")
        self.replicas = replicas


class Damaged(NotHere):
    """The replica here can't give back what was asked for; ``first`` to before ``end`` are the offsets."""

    def __init__(self, group: int, first: int, end: int) -> None:
        super().__init__(group, ())
        self.args = (
            f"{offsets_text(first, end)} of partition group {group} {'is' if end - first == 1 else 'are'} damaged",
        )
        self.group = group
        self.first = first
        self.end = end


def offsets_text(first: int, end: int) -> str:
    """Offsets from ``first`` to before ``end``, for people."""
    return f"Offset {first}" if end - first == 1 else f"Offsets {first} to {end - 1}"


class Again(FlockError):  # noqa: N818
    """A file went away while it was read, because retention took it: ask for the extents once more."""


class FilePart:
    """Batches in a segment file: from ``first_index``, which stands at ``start``, to the end of what is written."""

    def __init__(self, path: str, start: int, stop: int, first_index: int) -> None:
        self.path = path
        self.start = start
        self.stop = stop
        self.first_index = first_index


class Extents:
    """Where batches are. May be read in a thread: nothing in here changes."""

    def __init__(self, group: int, offset: int, last_index: int, bytes_max: int, scan_bytes_max: int) -> None:
        self.group = group
        self.offset = offset
        self.last_index = last_index
        """The last entry that was committed when these were made."""
        self.bytes_max = bytes_max
        self.scan_bytes_max = scan_bytes_max
        """Most that is looked at, for a reader who wants only some of the batches."""
        self.parts: list[FilePart | bytes] = []

    def first_index(self) -> int:
        """The first entry of the first file; 0 when all is in memory."""
        for part in self.parts:
            if not isinstance(part, bytes):
                return part.first_index
        return 0


class Waiter:
    """Somebody who waits for more."""

    def __init__(self, number: int, positions: dict[int, int], callback: Grown, due_at: int) -> None:
        self.number = number
        self.positions = positions
        self.callback = callback
        self.due_at = due_at
        self.over = False


class Reader:
    """See the module. A listener of ``Machines``."""

    def __init__(self, engine: RaftEngine, machines: Machines, layout: Layout) -> None:
        self._engine = engine
        self._machines = machines
        self._layout = layout
        self._waiters: dict[int, dict[int, Waiter]] = {}
        """By group and number."""
        self._due: list[tuple[int, int]] = []
        self._by_number: dict[int, Waiter] = {}
        self._number = 0
        self._waited_groups = 0

    # Where a log begins and ends.

    def _replica(self, group: int) -> Replica:
        replica = self._engine.replicas.get(group)
        if replica is None or group not in self._machines.by_group or group in self._engine.host.broken:
            raise NotHere(group, self._layout.replicas_of(group))
        return replica

    def end_of(self, group: int) -> int:
        """Offset behind the last committed record that can be read here; -1 without a replica."""
        machine = self._machines.by_group.get(group)
        replica = self._engine.replicas.get(group)
        if machine is None or replica is None or group in self._engine.host.broken:
            return -1
        # While a snapshot's entries are on their way the log may end before what is applied.
        return min(machine.end_offset, replica.log.end_offset)

    def committed_end(self, group: int) -> int:
        """At the leader: also what its own slow disk has not yet, and others can read already."""
        end = self.end_of(group)
        if end < 0:
            return end
        state = self._engine.replicas[group].node.state
        return max(end, state.log.offset_at(state.commit + 1))

    def first_of(self, group: int) -> int:
        """The oldest offset that can be read here."""
        return self._replica(group).log.first_offset

    # Batches.

    def read(self, group: int, offset: int, bytes_max: int, until: int = 0) -> list[bytes]:
        """Whole batches from the one that holds ``offset`` on: at least one if there is any, then as many as fit."""
        log = self._check(group, offset, until)
        try:
            return log.read(offset, self._last_index(group, log), min(bytes_max, READ_BYTES_MAX))
        except OffsetGone:
            raise Gone(group, offset, log.first_offset) from None
        except log_errors.DamageError as error:
            raise self._damaged(group, log, error.index, offset) from None

    def _damaged(self, group: int, log: GroupLog, index: int, offset: int) -> Damaged:
        gap = log.gap_at(index)
        if gap is None or gap.end_offset <= offset:
            return Damaged(group, offset, offset + 1)
        return Damaged(group, gap.first_offset, gap.end_offset)

    def _check(self, group: int, offset: int, until: int) -> GroupLog:
        log = self._replica(group).log
        end = self.end_of(group)
        if offset > end or until > end:
            raise Behind(group, max(offset, until), end)
        if offset < log.first_offset:
            raise Gone(group, offset, log.first_offset)
        return log

    def _last_index(self, group: int, log: GroupLog) -> int:
        return min(self._machines.by_group[group].applied, log.last)

    def offset_at(self, group: int, time_ms: int) -> int:
        """Offset of the first committed record that is not older; the end when all are."""
        log = self._replica(group).log
        try:
            return log.offset_at(time_ms, self._last_index(group, log))
        except log_errors.DamageError as error:
            gap = log.gap_at(error.index)
            if gap is not None and len(self._layout.replicas_of(group)) == 1:
                return gap.first_offset  # no replica has it: the reader is told
            raise NotHere(group, self._layout.replicas_of(group)) from None

    def extents(self, group: int, offset: int, bytes_max: int, until: int = 0, scan_bytes_max: int = 0) -> Extents:
        """Where the batches are that ``read`` would give, for somebody who has time to read files.

        Who will leave out batches names with ``scan_bytes_max`` how many bytes may be looked at for that.
        """
        log = self._check(group, offset, until)
        last = self._last_index(group, log)
        scan_bytes_max = min(max(bytes_max, scan_bytes_max), EXTENT_BYTES_MAX)
        found = Extents(group, offset, last, min(bytes_max, EXTENT_BYTES_MAX), scan_bytes_max)
        if offset == self.end_of(group):
            return found
        for gap in log.gaps:
            if gap.first_offset <= offset < gap.end_offset:
                raise Damaged(group, gap.first_offset, gap.end_offset)
        staging = self._engine.store.staging
        index = log.index_near(offset)
        size = 0
        while index <= last and size < scan_bytes_max and len(found.parts) < PARTS_MAX:
            batch = log.recent.get(index)
            if batch is not None:
                if size or BatchView(batch).next_offset > offset:
                    found.parts.append(batch)
                    size += len(batch)
                index += 1
                continue
            segment = log.segment_of(index)
            if segment.flushed_index <= index:
                break
            if log.gap_at(index) is not None:
                if not found.parts:
                    raise self._damaged(group, log, index, offset)
                break
            part = _file_part(staging, log, segment, index)
            # All of the first may lie before the offset: it does not count.
            size += part.stop - part.start if found.parts else 0
            found.parts.append(part)
            index = segment.flushed_index
            behind = log.gap_after(segment.number, part.first_index)
            if behind is not None:
                part.stop = behind.start
                break
        return found

    # Waiting.

    def wait_for(self, positions: dict[int, int], callback: Grown, due_at: int) -> Waiter | None:
        """Call back, once, when the log of one of these groups goes beyond its offset; None: too many wait already.

        Groups that are there already are told of at once, before this returns.
        """
        if len(self._by_number) >= WAITERS_MAX or self._waited_groups + len(positions) > WAITED_GROUPS_MAX:
            return None
        self._number += 1
        waiter = Waiter(self._number, positions, callback, due_at)
        grown = [group for group, offset in positions.items() if self.end_of(group) > offset]
        if grown:
            waiter.over = True
            callback(grown)
            return waiter
        self._by_number[waiter.number] = waiter
        self._waited_groups += len(positions)
        heapq.heappush(self._due, (due_at, waiter.number))
        for group in positions:
            self._waiters.setdefault(group, {})[waiter.number] = waiter
        return waiter

    def cancel(self, waiter: Waiter) -> None:
        """It waits no more; its callback is not called."""
        if waiter.over:
            return
        waiter.over = True
        self._by_number.pop(waiter.number, None)
        self._waited_groups -= len(waiter.positions)
        for group in waiter.positions:
            waiting = self._waiters.get(group)
            if waiting is not None:
                waiting.pop(waiter.number, None)
                if not waiting:
                    del self._waiters[group]

    def applied(self, group: int, entries: list[Entry]) -> None:  # noqa: ARG002
        """A log may have grown: see who waits for it."""
        waiting = self._waiters.get(group)
        if waiting is None:
            return
        end = self.end_of(group)
        for waiter in list(waiting.values()):
            if not waiter.over and end > waiter.positions[group]:
                self.cancel(waiter)
                waiter.callback([group])

    def closed(self, group: int) -> None:
        """Whoever waits for it is told that nothing came, and asks anew."""
        for waiter in list(self._waiters.get(group, {}).values()):
            self.cancel(waiter)
            waiter.callback([])

    def tick(self, now: int) -> None:
        """Time is over for some."""
        due = self._due
        while due and due[0][0] <= now:
            waiter = self._by_number.get(heapq.heappop(due)[1])
            if waiter is not None:
                self.cancel(waiter)
                waiter.callback([])


def _file_part(staging: Staging, log: GroupLog, segment: Segment, index: int) -> FilePart:
    path = log.path(segment.file_name())
    rows = rows_of(staging, log, segment)
    number = find_row(rows, BY_INDEX, index)
    gap = log.gap_before(segment.number, index)
    if gap is not None and (number <= 0 or row_index(rows, number) < gap.next):
        return FilePart(path, gap.stop, segment.flushed, gap.next)
    if number > 0 and row_position(rows, number) < segment.flushed:
        return FilePart(path, row_position(rows, number), segment.flushed, row_index(rows, number))
    return FilePart(path, 0, segment.flushed, segment.first_index)
