"""Positions of cursors that are no more go from partitions."""

from __future__ import annotations

from flockmq.durable.cursors.sweeping import ROUND_MS, CursorSweeper
from partition_cluster import PartitionCluster


def commit(cluster: PartitionCluster, name: bytes, offset: int) -> None:
    cluster.nodes[1].cursors.commit(1, name, offset)
    cluster.run(300)


def rounds(cluster: PartitionCluster, parts: list[CursorSweeper], count: int) -> None:
    for _ in range(count):
        for part in parts:
            part.tick(cluster.now)
        cluster.run(ROUND_MS)


def test_positions_without_a_cursor_go_after_two_rounds_from_all_replicas() -> None:
    cluster = PartitionCluster(nodes=3, groups=1)
    cluster.fill(1, 5)
    cluster.set_cursor("kept", hold=False)
    commit(cluster, b"default/kept#0", 3)
    commit(cluster, b"default/deleted#0", 4)
    parts = [CursorSweeper(node.engine, node.machines, node.layout, node.control) for node in cluster.nodes.values()]
    rounds(cluster, parts, 1)
    both = {b"default/kept#0": 3, b"default/deleted#0": 4}
    assert cluster.nodes[1].machines.by_group[1].cursors == both, "this node may not have heard of it yet"
    rounds(cluster, parts, 1)
    for node in cluster.nodes.values():
        assert node.machines.by_group[1].cursors == {b"default/kept#0": 3}
    assert cluster.leader(1).local.end(1) == 5


def test_a_cursor_that_was_heard_of_late_stays() -> None:
    cluster = PartitionCluster(nodes=3, groups=1)
    cluster.fill(1, 5)
    commit(cluster, b"default/new#0", 4)
    parts = [CursorSweeper(node.engine, node.machines, node.layout, node.control) for node in cluster.nodes.values()]
    rounds(cluster, parts, 1)
    cluster.set_cursor("new", hold=False)
    rounds(cluster, parts, 3)
    assert cluster.nodes[2].machines.by_group[1].cursors == {b"default/new#0": 4}
