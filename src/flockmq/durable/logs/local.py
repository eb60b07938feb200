"""The logs of the replicas on this node: committed batches by offset and by time, where a log begins and ends.

```
 read(group, offset, bytes_max) --> whole batches from the one that holds the offset on, no further than what is applied
        |-- OffsetGone  retention removed the offset here; another replica may still have it
        |-- Behind      this replica is not that far yet: wait, or ask another one
        |-- Damaged     the file does not give the batch back: ask another replica, this one is being mended
        `-- NoReplica   no replica here, or none that can be read
 extents(group, offset, bytes_max) --> Extents: what to read from which file, or bytes --> scanning, in a thread
```
A replica never answers short: ``until`` is how far the log was committed when the question was asked, and a replica
that is not so far raises ``Behind``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from flockmq.durable.logs.name_tests import name_test
from flockmq.durable.state.read_index import read_index
from flockmq.errors import Behind, Damaged, FlockError, NoReplica, OffsetGone
from flockmq.log.errors import DamageError
from flockmq.log.extents import EXTENT_BYTES_MAX, Extents, fill
from flockmq.raft.speaking import speaking_for

if TYPE_CHECKING:
    from flockmq.durable.machine.machines import Machines
    from flockmq.log.group import GroupLog
    from flockmq.log.names import Found
    from flockmq.raft.engine import RaftEngine
    from flockmq.raft.replicas import Replica
    from flockmq.tasks import Promise

NOT_HERE: Final = -1
"""Instead of an offset: this node has no replica of the partition."""
READ_BYTES_MAX: Final = 1_048_576
"""Most that is read in one piece on the event loop (a single larger batch is read as it is)."""


class Placement(Protocol):
    """Where replicas are: cluster state."""

    def replicas_of(self, group: int) -> tuple[int, ...]:
        """The nodes that hold a replica; empty when the partition is unknown."""


class LocalLogs(Protocol):
    """The replicas of this node; ``EngineLogs`` outside of tests."""

    def groups(self) -> list[int]:
        """All partitions with a replica here."""

    def is_here(self, group: int) -> bool:
        """Whether this node has a replica that works."""

    def is_leader(self, group: int) -> bool:
        """Whether this node leads the partition."""

    def term_of(self, group: int) -> int:
        """The term of the replica here."""

    def leader_of(self, group: int) -> int:
        """The node that leads the partition, as far as this node knows; 0: unknown."""

    def speaking_for(self, groups: list[int], now: int) -> set[int]:
        """Partitions that this node leads, of which it knows all that is committed, and that no other node can lead at
        ``now``, the present."""

    def confirm(self, group: int, now: int) -> Promise[bool]:
        """A promise of True once a quorum has confirmed that this node leads and has applied all that is committed."""

    def first(self, group: int) -> int:
        """The oldest offset; NoReplica without a replica."""

    def end(self, group: int) -> int:
        """The offset behind the last record that is committed and can be read here; ``NOT_HERE`` without a replica."""

    def committed_end(self, group: int) -> int:
        """At the leader: also what its own slow disk has not yet, and followers can read already."""

    def read(self, group: int, offset: int, bytes_max: int, until: int = 0) -> list[bytes]:
        """Whole batches from the one that holds ``offset`` on: at least one if there is any, then as many as fit."""

    def offset_at(self, group: int, time_ms: int) -> int:
        """The offset of the first committed record that is not older; the end when all are."""

    def find(self, group: int, offset: int, filters: tuple[bytes, ...]) -> Found:
        """Where the next committed record may be, from an offset on that is here, that one of the filters matches."""

    def closed(self, group: int) -> int:
        """Where the segment begins that is written to; all before it is in closed ones."""

    def lost_until(self, group: int, offset: int) -> int:
        """The end of damaged records around an offset that no other replica has; 0: another replica may have them."""


class EngineLogs:
    """The replicas that an engine runs."""

    def __init__(self, engine: RaftEngine, machines: Machines, placement: Placement) -> None:
        self._engine = engine
        self._machines = machines
        self._placement = placement

    def groups(self) -> list[int]:
        """All groups but cluster state, which is no partition."""
        return list(self._machines.by_group)

    def is_here(self, group: int) -> bool:
        """See LocalLogs."""
        engine = self._engine
        has_replica = group in engine.replicas and group in self._machines.by_group
        return has_replica and group not in engine.host.broken and not engine.stopped

    def is_leader(self, group: int) -> bool:
        """See LocalLogs."""
        return self._engine.is_leader(group)

    def term_of(self, group: int) -> int:
        """See LocalLogs."""
        return self._engine.replicas[group].node.state.term

    def leader_of(self, group: int) -> int:
        """See LocalLogs."""
        return self._engine.leader_of(group)

    def speaking_for(self, groups: list[int], now: int) -> set[int]:
        """See LocalLogs."""
        return set(speaking_for(self._engine.host, [group for group in groups if self.is_here(group)], now))

    def confirm(self, group: int, now: int) -> Promise[bool]:
        """See LocalLogs."""
        return read_index(self._engine, group, now)

    def first(self, group: int) -> int:
        """See LocalLogs."""
        return self._replica(group).log.first_offset

    def end(self, group: int) -> int:
        """See LocalLogs."""
        if not self.is_here(group):
            return NOT_HERE
        # While a snapshot's entries are on their way the log may end before what is applied.
        return min(self._machines.by_group[group].end_offset, self._engine.replicas[group].log.end_offset)

    def committed_end(self, group: int) -> int:
        """See LocalLogs."""
        end = self.end(group)
        if end == NOT_HERE:
            return end
        state = self._engine.replicas[group].node.state
        return max(end, state.log.offset_at(state.commit + 1))

    def read(self, group: int, offset: int, bytes_max: int, until: int = 0) -> list[bytes]:
        """See LocalLogs."""
        log = self._check(group, offset, until)
        try:
            return log.read(offset, self._last_index(group, log), min(bytes_max, READ_BYTES_MAX))
        except OffsetGone:
            raise
        except DamageError as error:
            raise self._damaged(group, log, error.index, offset) from None
        except (FlockError, OSError) as error:
            raise NoReplica(self._placement.replicas_of(group), named(group)) from error

    def offset_at(self, group: int, time_ms: int) -> int:
        """See LocalLogs."""
        log = self._replica(group).log
        try:
            return log.offset_at(time_ms, self._last_index(group, log))
        except (FlockError, OSError) as error:
            gap = log.gap_at(error.index) if isinstance(error, DamageError) else None
            if gap is not None and self._is_only(group):
                return gap.first_offset  # no replica has it: the reader is told
            raise NoReplica(self._placement.replicas_of(group), named(group)) from None

    def find(self, group: int, offset: int, filters: tuple[bytes, ...]) -> Found:
        """See LocalLogs."""
        log = self._replica(group).log
        return log.find_names(offset, self.end(group), [name_test(one) for one in filters])

    def closed(self, group: int) -> int:
        """See LocalLogs."""
        log = self._replica(group).log
        return log.segments[-1].base_offset if log.segments else log.end_offset

    def lost_until(self, group: int, offset: int) -> int:
        """See LocalLogs."""
        if group in self._engine.replicas and self._is_only(group):
            for gap in self._engine.replicas[group].log.gaps:
                if gap.first_offset <= offset < gap.end_offset:
                    return gap.end_offset
        return 0

    def extents(self, group: int, offset: int, bytes_max: int, until: int = 0, scan_bytes_max: int = 0) -> Extents:
        """Where the batches are that ``read`` would give, for a reader with time to read files.

        A reader that leaves out batches names with ``scan_bytes_max`` how many bytes may be looked at for that.
        """
        log = self._check(group, offset, until)
        scan_bytes_max = min(max(bytes_max, scan_bytes_max), EXTENT_BYTES_MAX)
        last = self._last_index(group, log)
        found = Extents(group, offset, last, min(bytes_max, EXTENT_BYTES_MAX), scan_bytes_max)
        if offset < self.end(group):
            for gap in log.gaps:
                if gap.first_offset <= offset < gap.end_offset:
                    raise Damaged(gap.first_offset, gap.end_offset, named(group))
            damaged_at = fill(found, log, self._engine.store.staging)
            if damaged_at:
                raise self._damaged(group, log, damaged_at, offset)
        return found

    def _replica(self, group: int) -> Replica:
        if not self.is_here(group):
            raise NoReplica(self._placement.replicas_of(group), named(group))
        return self._engine.replicas[group]

    def _check(self, group: int, offset: int, until: int) -> GroupLog:
        log = self._replica(group).log
        end = self.end(group)
        if offset > end or until > end:
            raise Behind(end, max(offset, until), named(group))
        if offset < log.first_offset:
            raise OffsetGone(log.first_offset, f"Offset {offset} of {named(group)}")
        return log

    def _last_index(self, group: int, log: GroupLog) -> int:
        return min(self._machines.by_group[group].applied, log.last)

    def _damaged(self, group: int, log: GroupLog, index: int, offset: int) -> Damaged:
        gap = log.gap_at(index)
        if gap is None or gap.end_offset <= offset:
            return Damaged(offset, offset + 1, named(group))
        return Damaged(gap.first_offset, gap.end_offset, named(group))

    def _is_only(self, group: int) -> bool:
        """Whether there is no other replica than the one here."""
        return len(self._engine.replicas[group].node.state.configuration.members()) <= 1


def named(group: int) -> str:
    """A partition in the sentences of errors."""
    return f"partition group {group}"
