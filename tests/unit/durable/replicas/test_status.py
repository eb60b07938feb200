"""How the replicas on a node are, asked for on another one."""

from __future__ import annotations

from partition_cluster import PartitionCluster


def test_statuses() -> None:
    cluster = PartitionCluster(nodes=4, groups=3)
    cluster.fill(1, 5)
    asked = cluster.nodes[4].statuses
    leader = cluster.leader(1).id
    there = asked.ask(leader, [1, 99])
    here = asked.ask(4, [1])
    unreachable = asked.ask(77, [1])
    cluster.run(1_000)
    assert here.value == [], "it has none"
    assert unreachable.value is None
    [found] = there.value
    assert (found.group, found.role_name, found.end, found.leader) == (1, "leader", 5, leader)
    log = cluster.leader(1).engine.host.groups[1].state.log
    assert (found.last_term, found.last) == (log.last_term, log.last_index)
