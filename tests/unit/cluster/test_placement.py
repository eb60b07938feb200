from __future__ import annotations

from flockmq.cluster.commands import AlterTopic, ForgetNode, NodeStateChanged, SetTarget
from flockmq.cluster.model import ALIVE, DEAD, LEFT
from flockmq.cluster.placement import MOVES_AT_ONCE, effective_factor, next_moves, plan_growth, plan_repair
from state_cases import Machine, spread


def test_effective_factor() -> None:
    assert [effective_factor(3, cores) for cores in (0, 1, 2, 3, 4)] == [1, 1, 2, 3, 3]


def test_topics_grow_as_nodes_join() -> None:
    machine = Machine(1)
    machine.topic("t", shards=4)
    machine.topic("single", replication_factor=1)
    assert plan_growth(machine.state) == []
    machine.node(2)
    machine.node(3)
    moves = plan_growth(machine.state)
    assert [sorted(move.target) for move in moves] == [[1, 2, 3]] * 4
    assert all(move.preferred == 1 for move in moves), "growth moves no leader, evening out does"
    machine.follow(moves)
    assert plan_growth(machine.state) == []
    machine.node(4)
    assert plan_growth(machine.state) == []


def test_a_topic_that_wants_fewer_keeps_nodes_that_are_alive_apart_and_leading() -> None:
    machine = Machine(4, zones=("a", "b"))
    partition = machine.topic("t", replication_factor=4).partitions[0]
    machine.done(SetTarget(partition.group, (1, 2, 3, 4), 4))
    machine.done(NodeStateChanged(2, DEAD))
    machine.done(AlterTopic("t", replication_factor=2))
    (move,) = plan_growth(machine.state)
    assert 4 in move.target
    assert 2 not in move.target
    assert {machine.state.nodes[node].zone for node in move.target} == {"a", "b"}
    assert move.preferred == 4


def test_the_leader_stays_when_nothing_else_decides_and_the_dead_go_when_something_must() -> None:
    machine = Machine(3)
    first, second = machine.topic("t", shards=2).partitions
    for partition in (first, second):
        machine.done(SetTarget(partition.group, (1, 2, 3), 3))
    machine.done(AlterTopic("t", replication_factor=1))
    assert [move.target for move in plan_growth(machine.state)] == [(3,), (3,)]
    machine.done(NodeStateChanged(3, DEAD))
    assert sorted(move.target for move in plan_growth(machine.state)) == [(1,), (2,)]


def test_lost_replicas_are_rebuilt_elsewhere() -> None:
    machine = Machine(4)
    machine.topic("t", shards=8)
    machine.done(NodeStateChanged(2, DEAD))
    assert plan_repair(machine.state, ()) == []
    moves = plan_repair(machine.state, (2,), 100)
    assert len(moves) == 6
    machine.follow(moves)
    assert machine.state.loads.replicas[2] == 0
    assert spread(machine.state.loads.replicas, [1, 3, 4]) == 0
    machine.done(ForgetNode(2))


def test_without_a_spare_node_a_partition_shrinks_and_grows_again() -> None:
    machine = Machine(3)
    machine.topic("t")
    machine.done(NodeStateChanged(3, LEFT))
    machine.follow(plan_repair(machine.state, (3,)))
    assert sorted(machine.state.partitions()[0].replicas) == [1, 2]
    machine.node(4)
    machine.follow(next_moves(machine.state, (3,)))
    assert sorted(machine.state.partitions()[0].replicas) == [1, 2, 4]


def test_a_partition_that_lost_all_its_replicas_waits_for_them() -> None:
    machine = Machine(2)
    group = machine.topic("t", replication_factor=1).partitions[0].group
    machine.done(SetTarget(group, (1,)))
    machine.done(NodeStateChanged(1, DEAD))
    assert plan_repair(machine.state, (1,)) == []


def test_a_node_that_leaves_gives_away_what_only_it_has() -> None:
    machine = Machine(1)
    machine.topic("t", replication_factor=1)
    machine.done(NodeStateChanged(1, LEFT))
    assert plan_repair(machine.state, (1,)) == [], "there is nobody to give it to"
    machine.node(2)
    assert plan_repair(machine.state, (1,)) == [SetTarget(1, (2,), 2)]


def test_growth_leaves_alone_what_moves() -> None:
    machine = Machine(3)
    group = machine.topic("t", replication_factor=2).partitions[0].group
    machine.done(AlterTopic("t", replication_factor=3))
    machine.done(SetTarget(group, (2, 3)))
    assert plan_growth(machine.state) == []
    machine.arrive()
    assert [sorted(move.target) for move in plan_growth(machine.state)] == [[1, 2, 3]]


def test_a_move_to_a_node_that_died_is_planned_again() -> None:
    machine = Machine(5)
    group = machine.topic("t").partitions[0].group
    machine.done(SetTarget(group, (1, 2, 4)))
    machine.done(NodeStateChanged(4, DEAD))
    (move,) = plan_repair(machine.state, (4,))
    assert move.group == group
    assert 4 not in move.target
    assert len(move.target) == 3


def test_only_so_many_partitions_move_at_once() -> None:
    machine = Machine(1)
    machine.topic("t", shards=20)
    machine.node(2)
    moves = next_moves(machine.state)
    assert len(moves) == MOVES_AT_ONCE
    for move in moves[:3]:
        machine.done(move)
    assert len(next_moves(machine.state)) == MOVES_AT_ONCE - 3
    for move in moves[3:]:
        machine.done(move)
    assert next_moves(machine.state) == []


def test_moves_that_can_not_be_finished_keep_nobody_waiting() -> None:
    machine = Machine(2)
    machine.topic("t", shards=8)
    machine.topic("u", shards=4)
    machine.node(3)
    for move in next_moves(machine.state):
        machine.done(move)
    assert next_moves(machine.state) == []
    machine.done(NodeStateChanged(3, DEAD))
    machine.node(4)
    assert [move.group for move in next_moves(machine.state)] == [9, 10, 11, 12]


def test_new_nodes_get_partitions_and_leaders_unasked() -> None:
    machine = Machine(3)
    machine.topic("t", shards=8)
    machine.node(4)
    for _ in range(20):
        machine.follow(next_moves(machine.state, moving_max=2))
    assert next_moves(machine.state) == []
    assert spread(machine.state.loads.replicas, [1, 2, 3, 4]) == 0
    assert spread(machine.state.loads.leaders, [1, 2, 3, 4]) == 0


def test_nothing_is_evened_out_while_a_node_may_come_back() -> None:
    machine = Machine(3)
    machine.topic("t", shards=8)
    machine.done(NodeStateChanged(3, DEAD))
    machine.node(4)
    assert next_moves(machine.state) == []
    machine.done(NodeStateChanged(3, ALIVE))
    assert next_moves(machine.state) != []
