"""Lets the logs of partitions that this node leads begin consumer groups, and forget those that were deleted.

```
 cluster state: group, generation --> the log has no such generation? --> OPEN with the offset of its start
 the log has a group that the cluster state does not have, seen twice --> DROP
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.durable.machine.group_bodies import dropping, opening
from flockmq.errors import FlockError
from flockmq.log.starts import EARLIEST, LATEST, TIME, parse_start

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.cluster.groups import ConsumerGroup
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.logs.local import LocalLogs
    from flockmq.durable.machine.control import Control
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.state.group_directory import GroupDirectory


class Opening:
    """See the module. ``opened`` hears of (partition, group) that have begun."""

    def __init__(
        self,
        calls: PartitionCalls,
        machines: Machines,
        control: Control,
        local: LocalLogs,
        directory: GroupDirectory,
        opened: Callable[[int, int], None],
    ) -> None:
        self._calls = calls
        self._machines = machines
        self._control = control
        self._local = local
        self._directory = directory
        self._opened = opened
        self._under_way: set[tuple[int, int]] = set()
        self._complete: dict[int, tuple[int, int]] = {}
        """Partition -> version of the cluster state whose groups the log has all begun."""
        self._unknown: dict[int, set[int]] = {}
        """Groups without a record in the cluster state, by partition, as the last sweep found them."""

    def look(self, partition: int, version: tuple[int, int]) -> None:
        """Begin all groups of a partition that this node leads, as of a version of the cluster state."""
        if self._complete.get(partition) != version:
            begun = [self.begin(partition, group) for group in self._directory.of_partition(partition)]
            if all(begun):
                self._complete[partition] = version

    def begin(self, partition: int, group: ConsumerGroup) -> bool:
        """Let the log begin the present generation of a group; False while it has not."""
        known = self._machines.by_group[partition].groups.groups.get(group.id)
        if known is not None and known.generation >= group.generation:
            return True
        key = (partition, group.id)
        floor = self._start_of(partition, group) if key not in self._under_way else -1
        if floor >= 0:
            self._under_way.add(key)
            statement = opening(group.id, group.generation, floor)
            told = self._control.settle(partition, [statement], self._calls.now)
            told.then(lambda _done: self._begun(partition, group.id))
        return False

    def _begun(self, partition: int, group_id: int) -> None:
        self._under_way.discard((partition, group_id))
        self._opened(partition, group_id)

    def _start_of(self, partition: int, group: ConsumerGroup) -> int:
        """Where a generation begins in a partition; -1: that can't be read now."""
        place = self._directory.place_of(partition)
        if place is None:
            return -1
        try:
            first = self._local.first(partition)
            end = self._local.committed_end(partition)
            start = parse_start(group.reset_to).of_shard(place.shard)
            if start.what == EARLIEST:
                return first
            if start.what == LATEST:  # as of the command: a partition that is younger is read from its beginning
                return min(self._local.offset_at(partition, group.reset_ms), end)
            if start.what == TIME:
                return min(self._local.offset_at(partition, start.value), end)
        except (FlockError, ValueError):
            return -1
        return min(max(start.value, first), end)

    def sweep(self) -> None:
        """Let logs forget groups that were deleted."""
        for partition, machine in self._machines.by_group.items():
            if not machine.groups.groups or not self._calls.engine.knows_all(partition):
                self._unknown.pop(partition, None)
                continue
            there = {group.id for group in self._directory.of_partition(partition)}
            unknown = set(machine.groups.groups) - there
            gone = unknown & self._unknown.get(partition, set())
            self._unknown[partition] = unknown
            if gone:
                self._control.settle(partition, [dropping(one) for one in sorted(gone)], self._calls.now)
