"""Cursors, moved and asked for from any node of three."""

from __future__ import annotations

from flockmq.durable.cursors.cursors import (
    DONE,
    REFUSED_CURSOR,
    UNREACHABLE,
    Cursors,
    Moved,
    Positions,
    lag_of,
    lost_of,
)
from flockmq.log.batch import CURSOR, BatchView
from flockmq.log.starts import EARLIEST, LATEST, OFFSET, TIME, Start
from partition_cluster import WALL_MS, PartitionCluster

NAME = b"default/spark"


def commit(cluster: PartitionCluster, cursors: Cursors, group: int, offset: int) -> Moved:
    told: list[Moved] = []
    cursors.commit(group, NAME, offset).then(told.append)
    cluster.run(500)
    assert len(told) == 1
    return told[0]


def reset(cluster: PartitionCluster, number: int, start: Start) -> Moved:
    """As an operator does it: where is that, and then put the cursor there."""
    node = cluster.nodes[number]
    located = node.logs.locate([1], start)
    cluster.run(500)
    told: list[Moved] = []
    node.cursors.reset(1, NAME, located.value[1].offset).then(told.append)
    cluster.run(500)
    assert len(told) == 1
    return told[0]


def positions(cluster: PartitionCluster, cursors: Cursors, names: list[bytes]) -> Positions:
    told: list[Positions] = []
    cursors.positions(cluster.groups, names).then(told.append)
    cluster.run(4_000)
    assert len(told) == 1
    return told[0]


def test_a_commit_from_any_node_is_known_on_all_of_them() -> None:
    cluster = PartitionCluster(nodes=4, groups=1)
    cluster.fill(1, 5)
    for number, node in cluster.nodes.items():
        moved = commit(cluster, node.cursors, 1, number)
        assert (moved.code, moved.offset) == (DONE, number)
    for number in (1, 2, 3):
        assert cluster.nodes[number].machines.by_group[1].cursors == {NAME: 4}


def test_commits_go_forwards_and_not_beyond_the_end() -> None:
    cluster = PartitionCluster(groups=1)
    cluster.fill(1, 5)
    cursors = cluster.nodes[2].cursors
    assert commit(cluster, cursors, 1, 4).offset == 4
    assert commit(cluster, cursors, 1, 2).offset == 4, "it has been further"
    refused = commit(cluster, cursors, 1, 6)
    assert refused.code == REFUSED_CURSOR
    assert "no offset 6" in refused.reason


def test_a_reader_at_a_replica_that_is_ahead_of_the_leader_may_commit() -> None:
    cluster = PartitionCluster(groups=1)
    cluster.fill(1, 2)
    leader = cluster.leader(1)
    cluster.lost = lambda sender, receiver: receiver == leader.id
    cluster.publish(leader.id, 1, b"x")
    cluster.settle()
    assert leader.local.end(1) == 2
    told: list[Moved] = []
    leader.cursors.commit(1, NAME, 3).then(told.append)
    cluster.settle()
    assert told == [], "it stands behind the record in the log"
    cluster.lost = lambda sender, receiver: False
    cluster.run(1_000)
    assert [(moved.code, moved.offset) for moved in told] == [(DONE, 3)]


def test_a_reset_finds_its_place_by_offset_and_by_time() -> None:
    cluster = PartitionCluster(groups=1)
    cluster.fill(1, 3)
    cluster.run(5_000)
    later = cluster.now - cluster.start + WALL_MS
    cluster.fill(1, 2)
    assert reset(cluster, 3, Start(LATEST)).offset == 5
    assert reset(cluster, 3, Start(EARLIEST)).offset == 0
    assert reset(cluster, 3, Start(OFFSET, 2)).offset == 2
    assert reset(cluster, 3, Start(OFFSET, 99)).offset == 5
    told: list[Moved] = []
    cluster.nodes[3].cursors.reset(1, NAME, 99).then(told.append)
    cluster.run(500)
    assert told[0].offset == 5, "it is put no further than the end"
    assert reset(cluster, 3, Start(TIME, later)).offset == 3
    assert cluster.nodes[1].machines.by_group[1].cursors == {NAME: 3}


def test_what_one_turn_brings_is_one_control_batch() -> None:
    cluster = PartitionCluster(groups=1)
    cluster.fill(1, 3)
    leader = cluster.leader(1)
    before = leader.machines.by_group[1].applied
    told: list[Moved] = []
    for number in range(50):
        for node in cluster.nodes.values():
            node.cursors.commit(1, b"default/c%d" % number, 3).then(told.append)
    cluster.run(200)
    assert [moved.code for moved in told] == [DONE] * 150
    entries = leader.store.groups[1].entries(before + 1, leader.store.groups[1].last + 1, 1 << 20)
    kinds = [BatchView(entry).kind for entry in entries]
    assert kinds.count(CURSOR) <= 2, "those of the leader itself, and those that came from others"


def test_positions_lag_and_what_was_lost() -> None:
    cluster = PartitionCluster(nodes=4, groups=2)
    cluster.fill(1, 8)
    cluster.fill(2, 3)
    commit(cluster, cluster.nodes[4].cursors, 1, 5)
    found, missing = positions(cluster, cluster.nodes[4].cursors, [NAME])
    assert missing == []
    by_group = {position.group: position for position in found}
    assert (by_group[1].offset, by_group[2].offset) == (5, -1)
    assert (lag_of(5, 0, 8), lost_of(5, 0)) == (3, 0)
    assert (lag_of(-1, 0, 3), lost_of(-1, 7)) == (3, 0), "it was never moved"
    assert (lag_of(5, 20, 30), lost_of(5, 20)) == (10, 15)


def test_all_cursors_of_a_group_without_names_and_groups_without_a_leader() -> None:
    cluster = PartitionCluster(groups=1)
    cluster.fill(1, 1)
    commit(cluster, cluster.nodes[1].cursors, 1, 1)
    found, _ = positions(cluster, cluster.nodes[1].cursors, [])
    assert [position.name for position in found] == [NAME]
    cluster.kill(2)
    cluster.kill(3)
    cluster.run(5_000)
    found, missing = positions(cluster, cluster.nodes[1].cursors, [])
    assert (found, missing) == ([], [1])
    assert commit_fails(cluster).code == UNREACHABLE


def commit_fails(cluster: PartitionCluster) -> Moved:
    told: list[Moved] = []
    cluster.nodes[1].cursors.commit(1, NAME, 1).then(told.append)
    cluster.run(4_000)
    return told[0]


def test_a_commit_survives_the_death_of_the_leader() -> None:
    cluster = PartitionCluster(groups=1)
    cluster.fill(1, 4)
    dead = cluster.leader(1).id
    other = next(number for number in cluster.nodes if number != dead)
    cluster.kill(dead)
    told: list[Moved] = []
    cluster.nodes[other].cursors.commit(1, NAME, 4).then(told.append)
    cluster.run(3_000)
    assert [moved.code for moved in told] == [DONE]
    cluster.restart(dead)
    cluster.run(3_000)
    assert cluster.nodes[dead].machines.by_group[1].cursors == {NAME: 4}


def test_deleting_a_cursor_forgets_its_position() -> None:
    cluster = PartitionCluster(groups=1)
    cluster.fill(1, 4)
    cursors = cluster.nodes[1].cursors
    commit(cluster, cursors, 1, 4)
    told: list[Moved] = []
    cursors.delete(1, NAME).then(told.append)
    cluster.run(500)
    assert told[0].code == DONE
    assert cluster.leader(1).machines.by_group[1].cursors == {}


def test_names_and_positions_are_checked_before_they_leave() -> None:
    cluster = PartitionCluster(groups=1)
    told: list[Moved] = []
    cluster.nodes[1].cursors.commit(1, b"", 0).then(told.append)
    cluster.nodes[1].cursors.commit(1, b"x" * 2_000, 0).then(told.append)
    cluster.nodes[1].cursors.commit(1, b"x", -1).then(told.append)
    assert [moved.code for moved in told] == [REFUSED_CURSOR] * 3
