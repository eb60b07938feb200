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
from flockmq.raft.state import DAMAGED, FORGOTTEN, ROLE_NAMES

if TYPE_CHECKING:
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.replicas.scrubbing import Scrubbing
    from flockmq.peering.calls import Calls
    from flockmq.raft.engine import RaftEngine
    from flockmq.tasks import Running, Task

GROUPS_MAX: Final = 1_024
"""Partitions in one question."""
_STATUS: Final = struct.Struct("<QB??QQQQQQQQQIIQQIQQ??")


@dataclass(slots=True)
class ReplicaStatus:
    """How a replica of a partition is; the fields are sent in this order."""

    group: int
    role: int
    is_broken: bool
    """Whether the replica has stopped."""
    is_lost: bool
    """Whether the replica is empty or lacks what it acknowledged; it can't vote until a leader has refilled it."""
    term: int
    leader: int
    """The node that it follows; 0: unknown."""
    first: int
    end: int
    commit: int
    applied: int
    last: int
    """The last entry of its log, applied or not."""
    last_term: int
    bytes: int
    segments: int
    damaged: int
    """Batches that its files do not give back."""
    damaged_first: int
    damaged_end: int
    """The damaged batches are between ``damaged_first`` and this offset."""
    differs: int
    """Blocks of entries that another replica has otherwise."""
    differs_at: int
    """The first entry of the first such block."""
    scrubbed_ms: int
    """When all of it had been read and verified; 0: not since its node started."""
    is_scrubbing: bool
    """Whether an operator waits for that."""
    is_refilled: bool
    """Whether its log was cut at damage and its leader has not sent all of it again."""

    @property
    def role_name(self) -> str:
        """For people."""
        return ROLE_NAMES[min(self.role, len(ROLE_NAMES) - 1)]


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
        return ReplicaStatus(
            group=group,
            role=state.role,
            is_broken=group in engine.host.broken or bool(engine.stopped),
            is_lost=state.health == FORGOTTEN,
            term=state.term,
            leader=state.leader,
            first=log.first_offset,
            end=min(machine.end_offset, log.end_offset) if machine is not None else 0,
            commit=state.commit,
            applied=state.applied,
            last=state.log.last_index,
            last_term=state.log.last_term,
            bytes=log.size(),
            segments=len(log.segments),
            damaged=damaged,
            damaged_first=damaged_first,
            damaged_end=damaged_end,
            differs=differs,
            differs_at=differs_at,
            scrubbed_ms=scrubbing.finished_ms(group),
            is_scrubbing=scrubbing.is_due(group),
            is_refilled=state.health == DAMAGED,
        )


def _decode(body: bytes) -> list[ReplicaStatus] | None:
    if len(body) % _STATUS.size:
        return None
    return [ReplicaStatus(*fields) for fields in _STATUS.iter_unpack(body)]
