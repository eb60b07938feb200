"""Which QoS 2 records a leader may append: those of clients that its partition knows, and of no older epoch.

```
 ADOPT in the log --> the machine knows the client and its epoch
 the leader puts ADOPT or RELEASE into its log --> note: the epoch counts from now on, not from when it is applied
 a run arrives at the leader --> admits(group, batch): ADMITTED
                                  |-- a position   there is a record of an older epoch, or of a client that the
                                  |                partition does not know: nothing is appended
                                  `-- ASK_LATER    this leader does not know yet what its log says
```
Without that a publish that was on its way when its node was given up could be appended after its client has published
it again elsewhere. A client is known as long as its session touches the partition, so nothing depends on time.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from flockmq.durable.machine.control_bodies import ADOPT, RELEASE, Statement
from flockmq.log.batch import BatchView
from flockmq.log.columns import PACKET_ID, SESSION_EPOCH
from flockmq.log.header import columns_of
from flockmq.raft.senders import ADMITTED, ASK_LATER

if TYPE_CHECKING:
    from flockmq.durable.machine.machines import Machines
    from flockmq.raft.engine import RaftEngine


class Fences:
    """One per node."""

    def __init__(self, engine: RaftEngine, machines: Machines) -> None:
        self._engine = engine
        self._machines = machines
        self._pending: dict[int, dict[bytes, int]] = {}
        """Group -> client -> epoch of a statement that this node put into the log and has not applied."""
        self.refused = 0

    def note(self, group: int, statement: Statement) -> None:
        """A statement goes into the log of a group that this node leads."""
        known = self.epoch_of(group, statement.client)
        counts = statement.what == ADOPT or (statement.what == RELEASE and known > 0)
        if counts and statement.epoch > known:
            self._pending.setdefault(group, {})[statement.client] = statement.epoch

    def applied(self, group: int) -> None:
        """A group has moved on."""
        pending = self._pending.get(group)
        if pending is None:
            return
        machine = self._machines.by_group.get(group)
        if machine is None or not self._engine.is_leader(group):
            del self._pending[group]
            return
        for client in [client for client, epoch in pending.items() if machine.epoch_of(client) >= epoch]:
            del pending[client]
        if not pending:
            del self._pending[group]

    def closed(self, group: int) -> None:
        """There is no replica of this group here any more."""
        self._pending.pop(group, None)

    def epoch_of(self, group: int, client: bytes) -> int:
        """The oldest epoch of a client that still counts in a group; 0: the client is not known there."""
        machine = self._machines.by_group.get(group)
        epoch = 0 if machine is None else machine.epoch_of(client)
        pending = self._pending.get(group)
        return epoch if pending is None else max(epoch, pending.get(client, 0))

    def admits(self, group: int, batch: bytes) -> int:
        """Whether the leader of a group may append a run; if not, the position of the first record that must not."""
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
            epoch = epochs[position]
            if epoch and not 0 < oldest[names[position]] <= epoch:
                self.refused += 1
                return position
        return ADMITTED
