"""The logs of partitions as delivery sees them: committed batches by offset, where they begin and end, who leads.

```
 PartitionLogs (port) <-- EngineLogs: replicas that run on this node, no further than what is applied here
 Placement (port) <------ cluster state: which nodes hold a replica of a partition
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from flockmq.errors import FlockError, OffsetGone

if TYPE_CHECKING:
    from flockmq.raft.engine import RaftEngine

NOT_HERE: Final = -1
"""Instead of an offset: this node has no replica of the partition."""


class Unreadable(FlockError):  # noqa: N818
    """The replica here can't serve this now; another one may."""


class PartitionLogs(Protocol):
    """The replicas of this node."""

    def groups(self) -> list[int]:
        """All partitions with a replica here."""

    def is_here(self, group: int) -> bool:
        """Whether this node has a replica that works."""

    def is_leader(self, group: int) -> bool:
        """Whether this node leads the partition."""

    def knows_all(self, group: int) -> bool:
        """Whether this node leads the partition, and knows all that was committed before it did."""

    def term_of(self, group: int) -> int:
        """The term that the replica here is in."""

    def leader_of(self, group: int) -> int:
        """Who leads it, as far as this node knows; 0: unknown."""

    def first(self, group: int) -> int:
        """The oldest offset that is still there."""

    def end(self, group: int) -> int:
        """The offset behind the last record that is committed and applied here; ``NOT_HERE`` without a replica."""

    def read(self, group: int, offset: int, bytes_max: int) -> list[bytes]:
        """Committed batches from the one that holds ``offset`` on; OffsetGone, or Unreadable."""

    def offset_at(self, group: int, time_ms: int) -> int:
        """The first record that is not older."""

    def lost_until(self, group: int, offset: int) -> int:
        """The end of damaged records that begin at or before an offset, if there is no other replica; 0: no such."""


class Placement(Protocol):
    """Where replicas are."""

    def replicas_of(self, group: int) -> tuple[int, ...]:
        """The nodes that hold a replica; empty when the partition is unknown."""


class EngineLogs:
    """The replicas that an engine runs."""

    def __init__(self, engine: RaftEngine) -> None:
        self.engine = engine

    def groups(self) -> list[int]:
        """All but cluster state, which is no partition."""
        return [group for group in self.engine.replicas if group]

    def is_here(self, group: int) -> bool:
        """Whether a replica works here."""
        engine = self.engine
        return group in engine.replicas and group not in engine.host.broken and not engine.stopped

    def is_leader(self, group: int) -> bool:
        """Whether it leads."""
        return self.engine.is_leader(group)

    def knows_all(self, group: int) -> bool:
        """Whether it leads, and nothing of earlier terms is left to apply."""
        return self.engine.knows_all(group)

    def term_of(self, group: int) -> int:
        """Its term."""
        return self.engine.replicas[group].node.state.term

    def leader_of(self, group: int) -> int:
        """Who does."""
        return self.engine.leader_of(group)

    def first(self, group: int) -> int:
        """The oldest offset."""
        return self.engine.replicas[group].log.first_offset

    def end(self, group: int) -> int:
        """The offset behind what is applied."""
        return self.engine.committed_offset(group) if self.is_here(group) else NOT_HERE

    def read(self, group: int, offset: int, bytes_max: int) -> list[bytes]:
        """Batches up to what is applied."""
        replica = self.engine.replicas.get(group)
        if replica is None or not self.is_here(group):
            raise Unreadable(f"There is no replica of partition {group} here.")
        try:
            return replica.log.read(offset, replica.node.state.applied, bytes_max)
        except OffsetGone:
            raise
        except (FlockError, OSError) as error:
            raise Unreadable(f"The replica of partition {group} can't be read here: {error}") from error

    def offset_at(self, group: int, time_ms: int) -> int:
        """The first record since then."""
        replica = self.engine.replicas[group]
        try:
            return replica.log.offset_at(time_ms, replica.node.state.applied)
        except (FlockError, OSError) as error:
            raise Unreadable(f"The replica of partition {group} can't be read here: {error}") from error

    def lost_until(self, group: int, offset: int) -> int:
        """As far as it is known."""
        replica = self.engine.replicas.get(group)
        if replica is None or len(replica.node.state.configuration.members()) > 1:
            return 0
        for gap in replica.log.gaps:
            if gap.first_offset <= offset < gap.end_offset:
                return gap.end_offset
        return 0


class GoneBefore(FlockError):  # noqa: N818
    """No replica has this offset any more: retention took it away. ``first`` is the oldest that is left."""

    def __init__(self, group: int, offset: int, first: int) -> None:
        super().__init__(f"Offset {offset} of partition {group} is gone; the oldest is {first}.")
        self.first = first
