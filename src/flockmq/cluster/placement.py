"""Where partitions should move: to more nodes, away from lost ones, and evenly. Plans are ``SetTarget`` commands.

```
 next_moves = plan_repair      replicas of nodes that are gone go to others, or away when there is no other
            , plan_growth      as many replicas as the topic wants and the nodes allow; fewer when it wants fewer
            , plan_rebalance   replicas apart by zone, then even by node, then leaders even (rebalance.py)
```
A plan is short (``limit``) and made again when it is done, so what has happened meanwhile is always seen. A partition
that is moving is left alone until it has arrived, unless it moves to a node that is gone. The same state gives the same
plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.cluster.commands import SetTarget
from flockmq.cluster.loads import choose, choose_leader
from flockmq.cluster.model import ALIVE, LEFT
from flockmq.cluster.rebalance import plan_rebalance

if TYPE_CHECKING:
    from flockmq.cluster.loads import Loads
    from flockmq.cluster.model import PartitionRecord
    from flockmq.cluster.tables import Tables

MOVES_AT_ONCE: Final = 8


def effective_factor(wanted: int, cores: int) -> int:
    """How many replicas a topic gets, with so many core nodes alive."""
    return max(1, min(wanted, cores))


def next_moves(state: Tables, gone: tuple[int, ...] = (), moving_max: int = MOVES_AT_ONCE) -> list[SetTarget]:
    """What to do next, so that at most so many partitions move at once; nodes that are ``gone`` will not come back."""
    room = moving_max - sum(1 for partition in state.moving() if _can_move(state, partition))
    if room <= 0:
        return []
    moves = plan_repair(state, gone, room)
    if not moves:
        moves = plan_growth(state, room)
    if not moves and not _is_waiting(state):
        moves = plan_rebalance(state, room, keeps_advised=True)
    return moves


def _can_move(state: Tables, partition: PartitionRecord) -> bool:
    """Whether a move can be finished by nodes that are alive; one that can't must not keep others from moving."""
    alive = [node for node in partition.replicas if _is_alive(state, node)]
    return 2 * len(alive) > len(partition.replicas) and all(_is_alive(state, node) for node in partition.target)


def _is_alive(state: Tables, node: int) -> bool:
    found = state.nodes.get(node)
    return found is not None and found.state == ALIVE


def _all_leave(state: Tables, nodes: tuple[int, ...]) -> bool:
    return all(node in state.nodes and state.nodes[node].state == LEFT for node in nodes)


def _is_waiting(state: Tables) -> bool:
    """Whether a node with replicas is away: it may come back, so nothing is evened out now."""
    return any(node.state != ALIVE and state.loads.replicas.get(node.id, 0) for node in state.nodes.values())


def plan_repair(state: Tables, gone: tuple[int, ...], limit: int = MOVES_AT_ONCE) -> list[SetTarget]:
    """Replicas on nodes that are gone, elsewhere.

    A partition that has no other replica waits for its node, unless that takes its leave and so is there to give.
    """
    moves: list[SetTarget] = []
    if not gone:
        return moves
    loads = state.loads.copy()
    candidates = [node for node in state.alive_cores() if node.id not in gone]
    zones = {node.id: node.zone for node in state.nodes.values()}
    for topic in state.topics.values():
        for partition in topic.partitions:
            if len(moves) >= limit:
                return moves
            kept = tuple([node for node in partition.target if node not in gone])
            if len(kept) == len(partition.target) or not (kept or _all_leave(state, partition.target)):
                continue
            target = choose(candidates, loads, min(len(partition.target), topic.replication_factor), kept, zones)
            if target:
                moves.append(_moved(partition, target, loads))
    return moves


def plan_growth(state: Tables, limit: int = MOVES_AT_ONCE) -> list[SetTarget]:
    """More replicas where a topic wants more than it has and there are nodes for them; fewer where it wants fewer."""
    moves: list[SetTarget] = []
    loads = state.loads.copy()
    candidates = state.alive_cores()
    zones = {node.id: node.zone for node in state.nodes.values()}
    for topic in state.topics.values():
        for partition in topic.partitions:
            if len(partition.target) == topic.replication_factor or partition.is_moving:
                continue
            if len(moves) >= limit:
                return moves
            if len(partition.target) > topic.replication_factor:
                target = _fewer(state, partition, topic.replication_factor, loads)
            else:
                target = choose(candidates, loads, topic.replication_factor, partition.target, zones)
            if len(target) != len(partition.target):
                moves.append(_moved(partition, target, loads))
    return moves


def _moved(partition: PartitionRecord, target: tuple[int, ...], loads: Loads) -> SetTarget:
    """The command for a move, counted in ``loads``."""
    preferred = partition.preferred if partition.preferred in target else choose_leader(target, loads)
    loads.move(partition.target, partition.preferred, target, preferred)
    return SetTarget(partition.group, target, preferred)


def _fewer(state: Tables, partition: PartitionRecord, count: int, loads: Loads) -> tuple[int, ...]:
    """The replicas that stay: alive first, then of a zone not chosen yet, then the leader, then the least loaded."""
    chosen: list[int] = []
    zones: dict[str, int] = {}
    while len(chosen) < count:
        best = 0
        best_rank = (False, 0, False, 0, 0)
        for node_id in partition.target:
            node = state.nodes.get(node_id)
            if node_id in chosen:
                continue
            rank = (
                node is None or node.state != ALIVE,
                zones.get(node.zone, 0) if node is not None else 0,
                node_id != partition.preferred,
                loads.replicas.get(node_id, 0),
                node_id,
            )
            if not best or rank < best_rank:
                best = node_id
                best_rank = rank
        chosen.append(best)
        known = state.nodes.get(best)
        if known is not None:
            zones[known.zone] = zones.get(known.zone, 0) + 1
    return tuple([node for node in partition.target if node in chosen])
