"""Which node should lead which partition, so that each carries about as much: advice from what was measured.

```
 bytes/s of each partition, its leader and copies --> while it helps:
     the node that leads most gives a partition to a node that has a copy, or swaps it for a smaller one
     (or, where that ends in a corner: all are dealt out anew, the largest first)
 --> Advice: every measured partition and its leader, those that stay, too (else they would be moved to make up for it)
```
Only leaders move, copies stay: that costs nothing but a moment. Pure and repeatable: the same figures give the same
advice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from flockmq.cluster.advice import ENTRIES_MAX, Advice, LeaderAdvice

LEAST_GAIN: Final = 0.02
"""As a part of what a node carries on average: a move for less is not worth the moment without a leader."""
ANEW_GAIN: Final = 0.05
"""By how much less the busiest node must carry for all leaders to be dealt out anew."""
SWAPS_MAX: Final = 64
"""Of a node's partitions, the largest ones that are tried for swaps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A partition and what it carried."""

    namespace: str
    topic: str
    shard: int
    group: int
    leader: str
    copies: tuple[str, ...]
    """Names of the nodes that could lead it."""
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class _Change:
    """Partitions that get another leader, and by how much that helps."""

    gain: float
    moves: tuple[tuple[Measured, str], ...]


def even_leaders(partitions: Sequence[Measured], nodes: Iterable[str] = ()) -> list[str]:
    """The leader that each partition should have, in their order. ``nodes`` may name some that have none of them."""
    names = sorted({*nodes, *(name for one in partitions for name in (one.leader, *one.copies))} - {""})
    mean = sum(one.bytes_per_s for one in partitions) / max(1, len(names))
    now = {one: one.leader for one in partitions}
    moved = _refined(now, names, LEAST_GAIN * mean)
    anew = _refined(_dealt(partitions, names, LEAST_GAIN * mean), names, LEAST_GAIN * mean)
    highest = [max(node_loads(leaders, names).values(), default=0.0) for leaders in (moved, anew)]
    # Dealing anew gets out of corners that single moves don't, but moves more: only where it is worth it.
    chosen = anew if highest[1] < highest[0] - ANEW_GAIN * mean else moved
    return [chosen[one] for one in partitions]


def _refined(leaders: Mapping[Measured, str], nodes: Sequence[str], least: float) -> dict[Measured, str]:
    """These leaders with all changes that help."""
    found = dict(leaders)
    for _ in range(10 * len(found)):
        change = _best_change(found, node_loads(found, nodes), least)
        if change is None:
            break
        found.update(change.moves)
    return found


def _dealt(partitions: Sequence[Measured], nodes: Sequence[str], least: float) -> dict[Measured, str]:
    """The largest first, each to the node that has least so far; its leader has precedence if it is near that."""
    loads = dict.fromkeys(nodes, 0.0)
    found = {}
    for one in sorted(partitions, key=lambda one: (-one.bytes_per_s, one.namespace, one.topic, one.shard)):
        able = one.copies if one.leader and one.copies else (one.leader,)
        leader = min(able, key=lambda name: (loads.get(name, 0.0) - (least if name == one.leader else 0.0), name))
        found[one] = leader
        if leader:
            loads[leader] += one.bytes_per_s
    return found


def node_loads(leaders: Mapping[Measured, str], nodes: Iterable[str] = ()) -> dict[str, float]:
    """Bytes a second of each node, with these leaders."""
    loads = dict.fromkeys(nodes, 0.0)
    for partition, leader in leaders.items():
        if leader:
            loads[leader] = loads.get(leader, 0.0) + partition.bytes_per_s
    return loads


def _best_change(leaders: Mapping[Measured, str], loads: Mapping[str, float], least: float) -> _Change | None:
    """What makes the busiest node that can be helped less busy, without making another one as busy."""
    led: dict[str, list[Measured]] = {name: [] for name in loads}
    for partition, leader in leaders.items():
        if leader:
            led[leader].append(partition)
    for of_node in led.values():
        of_node.sort(key=lambda one: (-one.bytes_per_s, one.namespace, one.topic, one.shard))
    for source in sorted(loads, key=lambda name: (-loads[name], name)):
        changes = list(_changes(source, led, loads))
        best = max(changes, key=lambda change: change.gain, default=None)
        if best is not None and best.gain > least:
            return best
    return None


def _changes(source: str, led: Mapping[str, Sequence[Measured]], loads: Mapping[str, float]) -> Iterable[_Change]:
    for partition in led[source]:
        for sink in partition.copies:
            gap = loads[source] - loads.get(sink, 0.0)
            if sink == source or gap <= 0:
                continue
            # What moves must be less than the gap, best half of it.
            moved = partition.bytes_per_s
            yield _Change(min(moved, gap - moved), ((partition, sink),))
            for other in led[sink][:SWAPS_MAX]:
                if source in other.copies:
                    moved = partition.bytes_per_s - other.bytes_per_s
                    yield _Change(min(moved, gap - moved), ((partition, sink), (other, source)))


def advise(partitions: Sequence[Measured], leaders: Sequence[str], made_at: str) -> Advice:
    """The advice that makes these the leaders: moves first, then the largest ones that stay."""
    pairs = [(one, leader) for one, leader in zip(partitions, leaders, strict=True) if leader]
    pairs.sort(key=lambda pair: (pair[0].leader == pair[1], -pair[0].bytes_per_s))
    return Advice(made_at=made_at, leaders=[_entry(one, leader) for one, leader in pairs[:ENTRIES_MAX]])


def _entry(partition: Measured, leader: str) -> LeaderAdvice:
    rate = f"{partition.bytes_per_s:,.0f} B/s"
    return LeaderAdvice(
        namespace=partition.namespace,
        topic=partition.topic,
        shard=partition.shard,
        group=partition.group,
        to_node=leader,
        why=f"{rate}, stays" if leader == partition.leader else f"{rate}, from {partition.leader or 'no node'}",
    )


def skew(values: Iterable[float]) -> float:
    """The largest as a multiple of the mean: 1 is even."""
    found = list(values)
    mean = sum(found) / len(found) if found else 0.0
    return max(found) / mean if mean else 1.0
