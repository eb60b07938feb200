from __future__ import annotations

from flockmq.cluster.commands import NodeSeen, NodeStateChanged, SetTarget
from flockmq.cluster.model import DEAD
from flockmq.cluster.rebalance import plan_rebalance
from state_cases import Machine, spread


def zones_of(machine: Machine, nodes: tuple[int, ...]) -> list[str]:
    return sorted(machine.state.nodes[node].zone for node in nodes)


def test_what_is_even_stays() -> None:
    machine = Machine(3)
    machine.topic("t", shards=9)
    assert plan_rebalance(machine.state) == []
    assert plan_rebalance(Machine(1).state) == []


def test_no_more_replicas_move_than_must() -> None:
    machine = Machine(3)
    machine.topic("t", shards=12)
    machine.node(4)
    before = {partition.group: partition.target for partition in machine.state.partitions()}
    moves = plan_rebalance(machine.state)
    changed = sum(len(set(move.target) - set(before[move.group])) for move in moves)
    assert changed == 9, "a quarter of 36"
    leaders = {partition.group: partition.preferred for partition in machine.state.partitions()}
    assert sum(1 for move in moves if leaders[move.group] != move.preferred) == 3, "a quarter of 12"
    machine.follow(moves)
    machine.follow(plan_rebalance(machine.state))
    assert spread(machine.state.loads.replicas, [1, 2, 3, 4]) == 0
    assert spread(machine.state.loads.leaders, [1, 2, 3, 4]) == 0


def test_leaders_move_along_a_chain() -> None:
    """1 leads both partitions it shares with 2, 2 leads the one it shares with 3; 3 leads nothing."""
    machine = Machine(3)
    groups = [partition.group for partition in machine.topic("t", shards=3).partitions]
    for group, target, leader in zip(groups, [(1, 2), (1, 2), (2, 3)], [1, 1, 2], strict=True):
        machine.done(SetTarget(group, target, leader))
    machine.arrive()
    state = machine.state
    assert [state.loads.leaders.get(node, 0) for node in (1, 2, 3)] == [2, 1, 0]
    moves = [move for move in plan_rebalance(state) if set(move.target) == set(state.partition(move.group).target)]
    machine.follow(moves)
    machine.follow(plan_rebalance(state))
    assert [state.loads.leaders.get(node, 0) for node in (1, 2, 3)] == [1, 1, 1]


def test_a_new_zone_is_used() -> None:
    machine = Machine(2, zones=("a",))
    machine.topic("t", shards=4, replication_factor=2)
    machine.node(3, zone="b")
    moves = plan_rebalance(machine.state)
    assert all(zones_of(machine, move.target) == ["a", "b"] for move in moves)
    assert len(moves) == 4
    machine.follow(moves)
    assert plan_rebalance(machine.state) == []


def test_zones_are_looked_at_though_all_is_even() -> None:
    machine = Machine()
    for node, zone in enumerate("aabb", 1):
        machine.node(node, zone=zone)
    first, second = machine.topic("t", shards=2, replication_factor=2).partitions
    machine.done(SetTarget(first.group, (1, 2), 1))
    machine.done(SetTarget(second.group, (3, 4), 3))
    machine.arrive()
    machine.follow(plan_rebalance(machine.state))
    assert all(zones_of(machine, partition.target) == ["a", "b"] for partition in machine.state.partitions())


def test_a_single_replica_may_go_to_any_zone() -> None:
    machine = Machine(1, zones=("a",))
    machine.topic("t", shards=4, replication_factor=1)
    machine.node(2, zone="b")
    machine.follow(plan_rebalance(machine.state))
    assert machine.state.loads.replicas == {1: 2, 2: 2}


def test_evenness_does_not_cost_a_zone() -> None:
    """The only node of zone b has more than the others, and keeps it."""
    machine = Machine()
    machine.node(1, zone="a")
    machine.node(2, zone="b")
    machine.topic("t", shards=6, replication_factor=2)
    machine.node(3, zone="a")
    machine.follow(plan_rebalance(machine.state))
    assert all(zones_of(machine, partition.target) == ["a", "b"] for partition in machine.state.partitions())
    assert [machine.state.loads.replicas[node] for node in (1, 2, 3)] == [3, 6, 3]
    assert [machine.state.loads.leaders[node] for node in (1, 2, 3)] == [2, 2, 2]


def test_what_moves_or_is_not_whole_is_left_alone() -> None:
    machine = Machine(2)
    topic = machine.topic("t", shards=4, replication_factor=1)
    machine.node(3)
    machine.node(4)
    moving = topic.partitions[0].group
    machine.done(SetTarget(moving, (4,)))
    machine.done(NodeStateChanged(2, DEAD))
    broken = [partition.group for partition in topic.partitions if partition.target == (2,)]
    touched = [move.group for move in plan_rebalance(machine.state)]
    assert moving not in touched
    assert not set(broken) & set(touched)


def test_the_plan_is_as_long_as_asked() -> None:
    machine = Machine(1)
    machine.topic("t", shards=30, replication_factor=1)
    machine.done(NodeSeen(2, "b@h", "h", 1))
    assert len(plan_rebalance(machine.state, 4)) == 4
    assert len(plan_rebalance(machine.state)) == 15
