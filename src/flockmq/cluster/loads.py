"""How many replicas and leaders each node has, and where the next ones go.

```
 choose: one node after another, each the best by
         fewest replicas of this partition in its zone, then fewest replicas at all, then fewest leaders, then id
 leader: of the chosen, the node that is to lead the fewest
```
Counted is where partitions *should* be (target, preferred), so that a plan sees what earlier plans will have done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flockmq.cluster.model import NodeRecord, PartitionRecord


class Loads:
    """Counts by node; a node that is missing has none."""

    def __init__(self) -> None:
        self.replicas: dict[int, int] = {}
        self.leaders: dict[int, int] = {}
        self.partitions = 0

    def add(self, partition: PartitionRecord) -> None:
        """Count a partition."""
        self.partitions += 1
        self._change(partition.target, partition.preferred, 1)

    def remove(self, partition: PartitionRecord) -> None:
        """Count it no more."""
        self.partitions -= 1
        self._change(partition.target, partition.preferred, -1)

    def move(self, target: tuple[int, ...], preferred: int, new_target: tuple[int, ...], new_preferred: int) -> None:
        """A partition should be elsewhere."""
        self._change(target, preferred, -1)
        self._change(new_target, new_preferred, 1)

    def copy(self) -> Loads:
        """To plan on, without touching this one."""
        loads = Loads()
        loads.replicas = dict(self.replicas)
        loads.leaders = dict(self.leaders)
        loads.partitions = self.partitions
        return loads

    def _change(self, target: tuple[int, ...], preferred: int, by: int) -> None:
        for node in target:
            self.replicas[node] = self.replicas.get(node, 0) + by
        self.leaders[preferred] = self.leaders.get(preferred, 0) + by


def choose(
    candidates: list[NodeRecord], loads: Loads, count: int, kept: tuple[int, ...], zones: dict[int, str]
) -> tuple[int, ...]:
    """``kept`` and the nodes to add to it until there are ``count``, or no candidate is left.

    ``zones`` is asked for the zones of ``kept``, which may be nodes that are no candidates.
    """
    chosen = list(kept)
    used: dict[str, int] = {}
    for node in kept:
        zone = zones.get(node, "")
        used[zone] = used.get(zone, 0) + 1
    while len(chosen) < count:
        best: NodeRecord | None = None
        best_rank = (0, 0, 0, 0)
        for candidate in candidates:
            if candidate.id in chosen:
                continue
            rank = (
                used.get(candidate.zone, 0),
                loads.replicas.get(candidate.id, 0),
                loads.leaders.get(candidate.id, 0),
                candidate.id,
            )
            if best is None or rank < best_rank:
                best = candidate
                best_rank = rank
        if best is None:
            break
        chosen.append(best.id)
        used[best.zone] = used.get(best.zone, 0) + 1
    return tuple(chosen)


def choose_leader(nodes: tuple[int, ...], loads: Loads) -> int:
    """Which of these should lead; 0 when there are none."""
    best = 0
    best_rank = (0, 0)
    for place, node in enumerate(nodes):
        rank = (loads.leaders.get(node, 0), place)
        if not best or rank < best_rank:
            best = node
            best_rank = rank
    return best
