"""Reads that a quorum confirms: each gets an answer, also where none can confirm it any more."""

from __future__ import annotations

from flockmq.durable.state.read_index import read_index
from flockmq.log.errors import DamageError
from partition_cluster import PartitionCluster


def test_a_leader_among_others_confirms() -> None:
    cluster = PartitionCluster(nodes=3, groups=1)
    told: list[bool] = []
    read_index(cluster.leader(1).engine, 1, cluster.now).then(told.append)
    cluster.run(300)
    assert told == [True]


def test_a_read_of_a_replica_that_stops_is_refused() -> None:
    cluster = PartitionCluster(nodes=3, groups=2)
    leader = cluster.leader(1)
    for number in [number for number in cluster.nodes if number != leader.id]:
        cluster.kill(number)
    told: list[bool] = []
    engine = leader.engine
    read_index(engine, 1, cluster.now + 10_000).then(told.append)  # no lease lasts that long
    engine.host.break_group(1, DamageError("a batch can't be read"))
    cluster.run(10_000)
    assert told == [False]
