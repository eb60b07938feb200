"""Statements into logs: together, and told apart from what another leader wrote there."""

from __future__ import annotations

from flockmq.durable.machine import control as control_module
from flockmq.durable.machine.control_bodies import ADOPT, COMMIT, CursorCommand, Statement
from flockmq.durable.machine.sink_bodies import sweep_body
from flockmq.log.batch import CURSOR, MARKER, SINK, BatchView
from partition_cluster import PartitionCluster


def kinds(cluster: PartitionCluster, group: int) -> list[int]:
    log = cluster.leader(group).store.groups[group]
    return [BatchView(entry).kind for entry in log.entries(1, log.last + 1, 1 << 20)]


def test_one_batch_per_turn_and_kind() -> None:
    cluster = PartitionCluster(groups=1)
    leader = cluster.leader(1)
    told: list[bool] = []
    for number in range(20):
        leader.control.move(1, [CursorCommand(COMMIT, b"c%d" % number, 0)], cluster.now).then(told.append)
        leader.control.mark(1, [Statement(ADOPT, b"c%d" % number, 5, [])], cluster.now).then(told.append)
    assert told == []
    cluster.run(100)
    assert told == [True] * 40
    assert kinds(cluster, 1).count(CURSOR) == kinds(cluster, 1).count(MARKER) == 1
    assert len(leader.machines.by_group[1].cursors) == len(leader.machines.by_group[1].fences) == 20


def test_a_batch_that_became_large_is_followed_by_another() -> None:
    cluster = PartitionCluster(groups=1)
    leader = cluster.leader(1)
    told: list[bool] = []
    ids = list(range(1, 30_000))
    for number in range(12):
        leader.control.mark(1, [Statement(ADOPT, b"c%d" % number, 5, ids)], cluster.now).then(told.append)
        cluster.settle()
    cluster.run(200)
    assert told == [True] * 12
    assert kinds(cluster, 1).count(MARKER) >= 3


def test_only_the_leader_takes_statements() -> None:
    cluster = PartitionCluster(groups=1)
    other = next(node for node in cluster.nodes.values() if not node.engine.is_leader(1))
    told: list[bool] = []
    other.control.move(1, [CursorCommand(COMMIT, b"c", 0)], cluster.now).then(told.append)
    other.control.mark(1, [Statement(ADOPT, b"c", 5, [])], cluster.now).then(told.append)
    other.control.mark(99, [Statement(ADOPT, b"c", 5, [])], cluster.now).then(told.append)
    assert told == [False] * 3


def test_what_another_leader_replaced_is_not_called_done() -> None:
    cluster = PartitionCluster(groups=1)
    leader = cluster.leader(1)
    told: list[bool] = []
    cluster.lost = lambda sender, receiver: leader.id in (sender, receiver)
    leader.control.move(1, [CursorCommand(COMMIT, b"lost", 0)], cluster.now).then(told.append)
    cluster.run(4_000)
    cluster.lost = lambda sender, receiver: False
    cluster.fill(1, 3)
    cluster.run(2_000)
    assert told == [False]
    assert b"lost" not in leader.machines.by_group[1].cursors


def test_what_takes_too_long_is_given_up() -> None:
    cluster = PartitionCluster(groups=1)
    leader = cluster.leader(1)
    told: list[bool] = []
    cluster.lost = lambda sender, receiver: True
    leader.control.move(1, [CursorCommand(COMMIT, b"c", 0)], cluster.now).then(told.append)
    cluster.run(control_module.GIVE_UP_MS + 200)
    assert told == [False]


def test_a_group_that_is_closed_leaves_nobody_waiting() -> None:
    cluster = PartitionCluster(groups=1)
    leader = cluster.leader(1)
    told: list[bool] = []
    cluster.lost = lambda sender, receiver: True
    leader.control.move(1, [CursorCommand(COMMIT, b"c", 0)], cluster.now).then(told.append)
    cluster.settle()
    leader.control.move(1, [CursorCommand(COMMIT, b"d", 0)], cluster.now).then(told.append)
    leader.engine.close_group(1)
    leader.closed(1)
    assert told == [False, False]
    assert 1 not in leader.machines.by_group


def test_a_batch_of_its_own_is_told_when_it_is_applied() -> None:
    cluster = PartitionCluster(groups=1)
    leader = cluster.leader(1)
    other = next(node for node in cluster.nodes.values() if node is not leader)
    told: list[bool] = []
    other.control.put(1, SINK, sweep_body(1), cluster.now).then(told.append)
    assert told == [False]
    leader.control.put(1, SINK, sweep_body(1), cluster.now).then(told.append)
    assert told == [False]
    cluster.run(100)
    assert told == [False, True]
    assert kinds(cluster, 1).count(SINK) == 1
