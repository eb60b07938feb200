"""The machines of all partitions that have a replica here, and the watchers that hear when they have moved on.

```
 engine: on_applied(group, ready) --> machine.apply(entry)... --> listeners: proposals that are done, readers that wait
         state_of(group)          <-- machine.encode()
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from flockmq.durable.machine.machine import PartitionMachine

if TYPE_CHECKING:
    from flockmq.raft.engine import RaftEngine
    from flockmq.raft.entry import Entry
    from flockmq.raft.ready import Ready
    from flockmq.raft.replicas import Replica


class Listener(Protocol):
    """A part of the node that follows machines."""

    def applied(self, group: int, entries: list[Entry]) -> None:
        """These entries are applied; none: the state jumped ahead, to that of a checkpoint."""

    def closed(self, group: int) -> None:
        """There is no replica of this group here any more."""


class Machines:
    """See the module."""

    def __init__(self) -> None:
        self.by_group: dict[int, PartitionMachine] = {}

    def opened(self, group: int, replica: Replica) -> PartitionMachine:
        """A replica runs here from now on; its checkpoint has the state to begin with."""
        machine = PartitionMachine(group)
        machine.decode(replica.state)
        self.by_group[group] = machine
        return machine

    def closed(self, group: int) -> None:
        """A replica runs here no more."""
        self.by_group.pop(group, None)

    def restored(self, group: int, ready: Ready, engine: RaftEngine) -> bool:
        """Take the state of a checkpoint that took the place of a log's begin; False when ``ready`` brings none."""
        machine = self.by_group.get(group)
        if machine is None or ready.install is None or not ready.restores:
            return False
        content = engine.replicas[group].checkpoints.content()
        assert content is not None, "it was installed just now"
        machine.decode(content.state)
        return True

    def applied(self, group: int, ready: Ready) -> bool:
        """Apply the entries of a group; False when there are none."""
        machine = self.by_group.get(group)
        if machine is None or not ready.committed:
            return False
        for entry in ready.committed:
            machine.apply(entry)
        return True

    def state_of(self, group: int) -> bytes:
        """The state of a group, for a checkpoint."""
        machine = self.by_group.get(group)
        return b"" if machine is None else machine.encode()
