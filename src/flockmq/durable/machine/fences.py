"""Which epochs of clients count no more: a leader refuses what an owner that has been replaced still wants to append.

```
 another owner asks for a client's packet ids --> note(client, epoch), on every node that is alive
 a leader puts a statement of a newer epoch into its log --> note(client, epoch)
 a run arrives at the leader --> admits(group, batch): ADMITTED
                                  |-- a position   there is a QoS 2 record of an older epoch: nothing is appended
                                  `-- ASK_LATER    this leader does not know yet what its log says
```
Without that a publish that was on its way when its node was given up could be appended after its client has published
it again elsewhere. Where a partition knows packet ids of the client, its log has the epoch as well (``machine.py``).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from flockmq.log.batch import BatchView
from flockmq.log.columns import PACKET_ID, SESSION_EPOCH
from flockmq.log.header import columns_of
from flockmq.raft.senders import ADMITTED, ASK_LATER

if TYPE_CHECKING:
    from flockmq.durable.machine.machines import Machines
    from flockmq.raft.engine import RaftEngine

KEPT_MS: Final = 600_000
FENCES_MAX: Final = 200_000


class Fences:
    """One per node."""

    def __init__(self, engine: RaftEngine, machines: Machines) -> None:
        self._engine = engine
        self._machines = machines
        self._fences: dict[bytes, tuple[int, int]] = {}
        """Client -> epoch, and until when that is kept; oldest first."""
        self.refused = 0

    def note(self, client: bytes, epoch: int, now: int) -> None:
        """Another owner has the client: older epochs count no more."""
        fences = self._fences
        known = fences.pop(client, None)
        if known is not None:
            epoch = max(epoch, known[0])
        fences[client] = (epoch, now + KEPT_MS)
        while fences:
            oldest = next(iter(fences))
            if len(fences) <= FENCES_MAX and fences[oldest][1] > now:
                break
            del fences[oldest]

    def epoch_of(self, group: int, client: bytes) -> int:
        """The oldest epoch of a client that still counts in a group."""
        known = self._fences.get(client)
        epoch = 0 if known is None else known[0]
        machine = self._machines.by_group.get(group)
        return epoch if machine is None else max(epoch, machine.epoch_of(client))

    def admits(self, group: int, batch: bytes) -> int:
        """Whether the leader of a group may append a run; if not, the position of the first record that is too old."""
        mask = columns_of(batch)
        if not mask & PACKET_ID or not mask & SESSION_EPOCH:
            return ADMITTED
        if not self._engine.is_leader(group):
            return ASK_LATER
        state = self._engine.host.groups[group].state
        if state.applied < state.term_start:
            return ASK_LATER  # its log may hold epochs that are not applied
        view = BatchView(batch)
        columns = view.columns()
        epochs: tuple[int, ...] = struct.unpack_from(f"<{view.count}Q", columns.data, columns.spans["session_epoch"][0])
        names: tuple[int, ...] = struct.unpack_from(f"<{view.count}i", columns.data, columns.spans["client"][0])
        oldest = [self.epoch_of(group, client) for client in view.clients()]
        for position in range(view.count):
            if 0 < epochs[position] < oldest[names[position]]:
                self.refused += 1
                return position
        return ADMITTED
