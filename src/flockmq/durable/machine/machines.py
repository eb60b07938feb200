"""The machines of all partitions that have a replica here, and who wants to know that they have moved on.

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
    """Whoever follows machines."""

    def applied(self, group: int, entries: list[Entry]) -> None:
        """These entries are applied; none: the state jumped ahead, to that of a checkpoint."""

    def closed(self, group: int) -> None:
        """There is no replica of this group here any more."""


class Machines:
    """See the module."""

    def __init__(self) -> None:
        self.by_group: dict[int, PartitionMachine] = {}
        self.by_client: dict[bytes, set[int]] = {}
        """Clients with unreleased QoS 2 ids, each with the groups of this node that know them."""
        self.listeners: list[Listener] = []

    def opened(self, group: int, replica: Replica) -> PartitionMachine:
        """A replica runs here from now on; its checkpoint has the state to begin with."""
        machine = PartitionMachine(group, self.by_client)
        machine.decode(replica.state)
        self.by_group[group] = machine
        return machine

    def closed(self, group: int) -> None:
        """A replica runs here no more."""
        machine = self.by_group.pop(group, None)
        if machine is not None:
            machine.close()
        for listener in self.listeners:
            listener.closed(group)

    def applied(self, group: int, ready: Ready, engine: RaftEngine) -> None:
        """A group has something to apply."""
        machine = self.by_group.get(group)
        if machine is None:
            return
        if ready.install is not None and ready.restores:
            content = engine.replicas[group].checkpoints.content()
            assert content is not None, "it was installed just now"
            machine.decode(content.state)
            for listener in self.listeners:
                listener.applied(group, [])
        entries = ready.committed
        if not entries:
            return
        for entry in entries:
            machine.apply(entry)
        for listener in self.listeners:
            listener.applied(group, entries)

    def state_of(self, group: int) -> bytes:
        """The state of a group, for a checkpoint."""
        machine = self.by_group.get(group)
        return b"" if machine is None else machine.encode()
