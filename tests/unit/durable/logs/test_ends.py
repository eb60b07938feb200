"""The end of a partition, from a leader that a quorum confirms."""

from __future__ import annotations

from partition_cluster import PartitionCluster


def ask(cluster: PartitionCluster, number: int, group: int = 1) -> list[int]:
    told: list[int] = []
    cluster.nodes[number].ends.ask(group, told.append, cluster.now)
    return told


def test_any_node_learns_the_end() -> None:
    cluster = PartitionCluster(nodes=4, groups=2)
    cluster.fill(1, 20)
    told = [ask(cluster, number) for number in cluster.nodes]
    empty = ask(cluster, 4, 2)
    cluster.run(1_000)
    assert told == [[20]] * 4
    assert empty == [0]


def test_a_leader_that_is_cut_off_is_not_believed() -> None:
    cluster = PartitionCluster(nodes=3, groups=1)
    cluster.fill(1, 3)
    old = cluster.leader(1)
    cluster.lost = lambda sender, receiver: old.id in (sender, receiver)
    cluster.run(1_000)  # its lease is over
    told = ask(cluster, old.id)
    cluster.run(4_000)
    assert told == [-1], "its followers may have gone on without it"
    others = [number for number in cluster.nodes if number != old.id]
    answers = [ask(cluster, number) for number in others]
    cluster.run(1_000)
    assert answers == [[3], [3]]


def test_nobody_can_tell_without_a_quorum() -> None:
    cluster = PartitionCluster(nodes=3, groups=1)
    cluster.fill(1, 3)
    leader = cluster.leader(1)
    for number in cluster.nodes:
        if number != leader.id:
            cluster.kill(number)
    cluster.run(1_000)
    told = ask(cluster, leader.id)
    cluster.run(4_000)
    assert told == [-1]
