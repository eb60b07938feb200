"""How the replicas on a node are, for operators: role, progress, size and damage of each.

```
 ask(node_id, groups) --> STATUS --> one ReplicaStatus for each replica that runs there; None: no answer
```
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Final

from flockmq.peering.fields import U32, U64
from flockmq.peering.fields import Reader as Fields
from flockmq.peering.kinds import STATUS
from flockmq.raft.state import DAMAGED, FORGOTTEN, LEADER

if TYPE_CHECKING:
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.replicas.scrubbing import Scrubbing
    from flockmq.peering.calls import Calls
    from flockmq.raft.engine import RaftEngine
    from flockmq.tasks import Running, Task

GROUPS_MAX: Final = 1_024
"""Partitions in one question."""
LEADING: Final = 1
FOLLOWING: Final = 2
LEARNING: Final = 3
"""Roles of replicas; 0: the replica has stopped."""
_STATUS: Final = struct.Struct("<QBQQQQQQ????QQIQQIQQ")


@dataclass(slots=True)
class ReplicaStatus:
    """How a replica of a partition is; the fields are sent in this order."""

    node: int
    role: int
    leader: int
    """The leader that it follows; 0 when it knows of none."""
    term: int
    first: int
    end: int
    bytes: int
    group: int = 0
    is_broken: bool = False
    """Whether the replica has stopped."""
    is_lost: bool = False
    """Whether it lost what it had, its vote as well; it can't vote until a leader has refilled it."""
    is_refilled: bool = False
    """Whether its log was cut at damage; it can't vote either until a leader has sent the rest again."""
    is_scrubbing: bool = False
    """Whether an operator waits for it to be read and verified."""
    last: int = 0
    """The last entry of its log, committed or not."""
    last_term: int = 0
    damaged: int = 0
    """Batches that its files do not give back."""
    damaged_first: int = 0
    damaged_end: int = 0
    """The damaged batches are between ``damaged_first`` and this offset."""
    differs: int = 0
    """Blocks of entries that another replica has otherwise."""
    differs_at: int = 0
    """The first entry of the first such block."""
    scrubbed_ms: int = 0
    """When all of it had been read and verified; 0: not since its node started."""

    @property
    def may_vote(self) -> bool:
        """Whether it has all that it ever acknowledged."""
        return not self.is_lost and not self.is_refilled

    @property
    def problem(self) -> str:
        """What is wrong with the replica, as a sentence; empty: nothing."""
        if self.is_broken:
            return "This replica has stopped; the log of its node says why."
        if self.differs:
            return (
                f"Entries from {self.differs_at} on differ from those of another replica although checksums fit; "
                "nothing is changed by itself, see the log of its node."
            )
        if self.is_refilled:
            return "Its disk lost entries; it does not vote until its leader has sent them again."
        if self.damaged:
            what = "1 batch is" if self.damaged == 1 else f"{self.damaged:,} batches are"
            return (
                f"{what} damaged on its disk, between offsets {self.damaged_first} and {self.damaged_end}; another "
                "replica is asked for the bytes, which are written back."
            )
        return ""


class Statuses:
    """Asks nodes how their replicas are, and tells other nodes."""

    def __init__(
        self, node_id: int, engine: RaftEngine, machines: Machines, calls: Calls, scrubbing: Scrubbing
    ) -> None:
        self._node_id = node_id
        self._engine = engine
        self._machines = machines
        self._calls = calls
        self._scrubbing = scrubbing
        calls.serve(STATUS, self._serve)

    def ask(self, node_id: int, groups: list[int]) -> Running[list[ReplicaStatus] | None]:
        """How the replicas of some partitions (at most 1,024) on one node are; None: it did not answer."""
        return self._calls.tasks.start("replica status", self._ask(node_id, groups[:GROUPS_MAX]))

    def _ask(self, node_id: int, groups: list[int]) -> Task[list[ReplicaStatus] | None]:
        question = U32.pack(len(groups)) + b"".join([U64.pack(group) for group in groups])
        if node_id == self._node_id:
            return _decode(self._serve(question))
        answer = yield from self._calls.ask(node_id, STATUS, question)
        return None if answer is None else _decode(answer)

    def _serve(self, body: bytes) -> bytes:
        fields = Fields(body)
        groups = [fields.u64() for _ in range(fields.count(GROUPS_MAX, 8))]
        found = [status for status in [self.here(group) for group in groups] if status is not None]
        return b"".join([_STATUS.pack(*astuple(status)) for status in found])

    def here(self, group: int) -> ReplicaStatus | None:
        """How the replica of a partition on this node is; None without one."""
        engine = self._engine
        replica = engine.replicas.get(group)
        if replica is None:
            return None
        state = replica.node.state
        log = replica.log
        machine = self._machines.by_group.get(group)
        scrubbing = self._scrubbing
        damaged, damaged_first, damaged_end = scrubbing.mending.damaged(group)
        differs, differs_at = scrubbing.digests.differing(group)
        is_broken = group in engine.host.broken or bool(engine.stopped)
        is_refilled = state.health == DAMAGED
        return ReplicaStatus(
            node=self._node_id,
            role=0 if is_broken else LEADING if state.role == LEADER else FOLLOWING,
            leader=state.leader,
            term=state.term,
            first=log.first_offset,
            end=min(machine.end_offset, log.end_offset) if machine is not None else 0,
            bytes=log.size(),
            group=group,
            is_broken=is_broken,
            is_lost=state.health == FORGOTTEN,
            is_refilled=is_refilled,
            is_scrubbing=scrubbing.is_due(group),
            last=state.log.last_index,
            last_term=state.log.last_term,
            damaged=damaged or int(is_refilled),
            damaged_first=damaged_first,
            damaged_end=damaged_end,
            differs=differs,
            differs_at=differs_at,
            scrubbed_ms=scrubbing.finished_ms(group),
        )


def _decode(body: bytes) -> list[ReplicaStatus] | None:
    if len(body) % _STATUS.size:
        return None
    return [ReplicaStatus(*fields) for fields in _STATUS.iter_unpack(body)]
