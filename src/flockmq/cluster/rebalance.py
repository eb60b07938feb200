"""Evening out: replicas over zones and nodes, leaders over replicas, with few moves.

```
 1 zones     a replica leaves a zone that has two more of its partition than another zone has
 2 replicas  from the node that has most to the one that has least, while they differ by 2 or more
 3 leaders   from the one that leads most to the one that leads least: directly, or by a chain of shared partitions
```
Each step makes something more even and nothing less even, so that it ends, and a cluster that is even stays as it is.
Only partitions that are whole and not moving take part, and none that was placed by advice (``advice.py``), unless
an operator asks for even numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.cluster.commands import SetTarget
from flockmq.cluster.loads import choose_leader
from flockmq.cluster.model import ALIVE

if TYPE_CHECKING:
    from flockmq.cluster.model import PartitionRecord
    from flockmq.cluster.tables import Tables

REBALANCE_MAX: Final = 10_000


def plan_rebalance(state: Tables, limit: int = REBALANCE_MAX, *, keeps_advised: bool = False) -> list[SetTarget]:
    """At most about so many commands (a chain of leaders is not cut), the ones that copy data first.

    With ``keeps_advised`` what advice placed stays there; it counts where it is.
    """
    if _is_even(state):
        return []
    balance = _Balance(state, keeps_advised)
    balance.spread_zones(limit)
    balance.even_replicas(limit)
    balance.even_leaders(limit)
    return balance.commands()


def _is_even(state: Tables) -> bool:
    """Whether there is nothing to do, as can be seen without a look at each partition."""
    cores = state.alive_cores()
    if len(cores) < 2:
        return True
    replicas = [state.loads.replicas.get(node.id, 0) for node in cores]
    leaders = [state.loads.leaders.get(node.id, 0) for node in cores]
    one_zone = all(node.zone == cores[0].zone for node in cores)
    return one_zone and max(replicas) - min(replicas) < 2 and max(leaders) - min(leaders) < 2


class _Balance:
    """A plan in the making."""

    def __init__(self, state: Tables, keeps_advised: bool) -> None:
        cores = state.alive_cores()
        self.loads = state.loads.copy()
        self.nodes = [node.id for node in cores]
        self.zones = {node.id: node.zone for node in cores}
        self.targets: dict[int, tuple[int, ...]] = {}
        self.leaders: dict[int, int] = {}
        self.changed: dict[int, PartitionRecord] = {}
        """What was changed, as it was; in the order of the changes."""
        self.partitions: dict[int, PartitionRecord] = {}
        self.groups_on: dict[int, dict[int, None]] = {node: {} for node in self.nodes}
        """Groups by node, in order."""
        alive = {node.id for node in state.nodes.values() if node.state == ALIVE}
        for partition in state.partitions():
            if partition.is_moving or not all(node in alive and node in self.zones for node in partition.target):
                continue
            if keeps_advised and partition.is_advised:
                continue
            self.partitions[partition.group] = partition
            self.targets[partition.group] = partition.target
            self.leaders[partition.group] = partition.preferred
            for node in partition.target:
                self.groups_on[node][partition.group] = None

    def commands(self) -> list[SetTarget]:
        """The plan, without what came back to where it was."""
        return [
            SetTarget(group, self.targets[group], self.leaders[group])
            for group, was in self.changed.items()
            if (was.target, was.preferred) != (self.targets[group], self.leaders[group])
        ]

    def spread_zones(self, limit: int) -> None:
        """Replicas of one partition in as many zones as there are."""
        if len(set(self.zones.values())) < 2:
            return
        for group in self.targets:
            moved = True
            while moved and len(self.changed) < limit:
                moved = self._spread(group)

    def _spread(self, group: int) -> bool:
        """Move the replica that gains most; whether one gained."""
        target = self.targets[group]
        best: tuple[int, int, int, int] | None = None
        for source in target:
            crowd = self._crowd(group, source)
            here = crowd.get(self.zones[source], 0)
            if not here:
                continue
            for sink in self.nodes:
                gain = crowd.get(self.zones[sink], 0) - here
                if gain < 0 and sink not in target:
                    rank = (gain, self.loads.replicas.get(sink, 0), sink, source)
                    if best is None or rank < best:
                        best = rank
        if best is None:
            return False
        self._move(group, best[3], best[2])
        return True

    def even_replicas(self, limit: int) -> None:
        """From the node that has most to the one that has least."""
        while len(self.changed) < limit and self._even_once():
            pass

    def _even_once(self) -> bool:
        counts = self.loads.replicas
        ranked = sorted(self.nodes, key=lambda node: (counts.get(node, 0), node))
        for source in reversed(ranked):
            for sink in ranked:
                if counts.get(source, 0) - counts.get(sink, 0) < 2:
                    break
                group = self._movable(source, sink)
                if group:
                    self._move(group, source, sink)
                    return True
        return False

    def _movable(self, source: int, sink: int) -> int:
        """A group that may go from one node to the other, rather one that the source does not lead; 0 for none."""
        led = 0
        elsewhere = self.groups_on[sink]
        same_zone = self.zones[source] == self.zones[sink]
        for group in self.groups_on[source]:
            if group in elsewhere:
                continue
            if not same_zone:
                crowd = self._crowd(group, source)
                if crowd.get(self.zones[sink], 0) > crowd.get(self.zones[source], 0):
                    continue
            if self.leaders[group] != source:
                return group
            led = led or group
        return led

    def _crowd(self, group: int, without: int) -> dict[str, int]:
        """How many replicas of a group each zone has, one node aside."""
        crowd: dict[str, int] = {}
        for node in self.targets[group]:
            if node != without:
                zone = self.zones[node]
                crowd[zone] = crowd.get(zone, 0) + 1
        return crowd

    def even_leaders(self, limit: int) -> None:
        """From the node that leads most to the one that leads least."""
        while len(self.changed) < limit and self._shift_leader():
            pass

    def _shift_leader(self) -> bool:
        counts = self.loads.leaders
        for source in sorted(self.nodes, key=lambda node: (-counts.get(node, 0), node)):
            chain = self._chain(source, counts.get(source, 0) - 2)
            for group, leader in chain:
                self._set(group, self.targets[group], leader)
            if chain:
                return True
        return False

    def _chain(self, source: int, most: int) -> list[tuple[int, int]]:
        """Groups and their new leaders: ``source`` leads one less then, some node with at most ``most`` one more."""
        came_from: dict[int, tuple[int, int]] = {source: (0, 0)}
        queue = [source]
        for node in queue:
            for group in self.groups_on[node]:
                if self.leaders[group] != node:
                    continue
                for follower in self.targets[group]:
                    if follower in came_from:
                        continue
                    came_from[follower] = (node, group)
                    if self.loads.leaders.get(follower, 0) <= most:
                        return _path(came_from, follower)
                    queue.append(follower)
        return []

    def _move(self, group: int, source: int, sink: int) -> None:
        target = tuple([sink if node == source else node for node in self.targets[group]])
        leader = self.leaders[group]
        if leader == source:
            leader = choose_leader(target, self.loads)
        del self.groups_on[source][group]
        self.groups_on[sink][group] = None
        self._set(group, target, leader)

    def _set(self, group: int, target: tuple[int, ...], leader: int) -> None:
        self.changed.setdefault(group, self.partitions[group])
        self.loads.move(self.targets[group], self.leaders[group], target, leader)
        self.targets[group] = target
        self.leaders[group] = leader


def _path(came_from: dict[int, tuple[int, int]], node: int) -> list[tuple[int, int]]:
    steps: list[tuple[int, int]] = []
    while True:
        before, group = came_from[node]
        if not group:
            return steps
        steps.append((group, node))
        node = before
