"""How the replicas on a node are, asked for on another one."""

from __future__ import annotations

from flockmq.durable.replicas.status import LEADING
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
    assert (found.node, found.group, found.role, found.end, found.leader) == (leader, 1, LEADING, 5, leader)
    assert (found.may_vote, found.problem) == (True, "")
    log = cluster.leader(1).engine.host.groups[1].state.log
    assert (found.last_term, found.last) == (log.last_term, log.last_index)
