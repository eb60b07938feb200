"""Batches of partitions, asked for on a node that has none of them."""

from __future__ import annotations

import pytest

from delivery_world import World, numbered
from flockmq.durable.logs import fetching
from flockmq.durable.logs.fetching import Fetched
from flockmq.errors import Behind, FlockError, NoReplica, OffsetGone, TooLarge
from flockmq.log.batch import BatchView
from partition_cluster import PartitionCluster


def fetch(cluster: PartitionCluster, number: int, offset: int, **more: int) -> Fetched:
    told: list[Fetched] = []
    cluster.nodes[number].logs.fetch(1, offset, 1 << 20, **more).then(told.append)
    cluster.run(6_000)
    assert len(told) == 1
    return told[0]


def test_any_node_reads_any_partition() -> None:
    cluster = PartitionCluster(nodes=4, groups=1)
    cluster.fill(1, 20)
    for number in cluster.nodes:
        found = fetch(cluster, number, 7)
        assert found.error is None
        assert [BatchView(batch).base_offset for batch in found.batches] == list(range(7, 20))
        assert (found.first, found.end) == (0, 20)


def test_a_batch_that_is_larger_than_an_answer_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "ANSWER_BYTES_MAX", 3_000)
    cluster = PartitionCluster(nodes=4, groups=1)
    cluster.publish(1, 1, *[b"%04d" % number + b"x" * 400 for number in range(40)])
    cluster.publish(1, 1, b"small")
    cluster.run(300)
    for number in cluster.nodes:
        found = fetch(cluster, number, 30)
        assert found.error is None
        assert [BatchView(batch).base_offset for batch in found.batches] == [0]
        assert (found.first, found.end) == (0, 41)
        assert found.batches == cluster.leader(1).local.read(1, 30, 1)
    monkeypatch.setattr(fetching, "BATCH_BYTES_MAX", 3_000)
    assert isinstance(fetch(cluster, 4, 30).error, TooLarge)


def test_a_reader_asks_again_after_a_fetch_that_could_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PartitionCluster(nodes=4, groups=1)
    cluster.fill(1, 3)
    history = cluster.nodes[4].logs.history
    with monkeypatch.context() as full:
        full.setattr("flockmq.tasks.TASKS_MAX", 0)
        with pytest.raises(FlockError, match="tasks wait"):
            history.read(1, 0)
    assert history.read(1, 0) is None
    cluster.run(500)
    assert history.read(1, 0) is not None


def test_a_fetch_at_the_end_waits_for_more() -> None:
    cluster = PartitionCluster(nodes=4, groups=1)
    cluster.fill(1, 2)
    told: list[Fetched] = []
    cluster.nodes[4].logs.fetch(1, 2, 1 << 20, wait_ms=2_000).then(told.append)
    cluster.run(500)
    assert told == []
    cluster.fill(1, 1)
    assert [BatchView(batch).base_offset for batch in told[0].batches] == [2]
    assert fetch(cluster, 4, 3, wait_ms=500).batches == []


def test_errors_come_as_they_are() -> None:
    cluster = PartitionCluster(nodes=4, groups=1)
    cluster.fill(1, 60)
    assert isinstance(fetch(cluster, 4, 99).error, Behind)
    cluster.set_topic(retention_bytes=4_096)
    cluster.run(25_000)
    gone = fetch(cluster, 4, 0)
    assert isinstance(gone.error, OffsetGone)
    assert gone.first == gone.error.first > 0
    told: list[Fetched] = []
    cluster.nodes[4].logs.fetch(77, 0, 1).then(told.append)
    assert isinstance(told[0].error, NoReplica)


def test_a_dead_replica_is_passed_over() -> None:
    cluster = PartitionCluster(nodes=4, groups=1)
    cluster.fill(1, 3)
    cluster.kill(1)
    cluster.run(3_000)
    assert len(fetch(cluster, 4, 0).batches) == 3


def test_what_one_replica_has_removed_comes_from_another() -> None:
    world = World(3)
    world.create("plant", 5, on=(1, 2))
    for number in range(4):
        world.commit(5, *numbered(b"plant/a", 1, number))
    world[1].replicas.kept[5] = 3
    for number in (1, 3):
        found = world[number].logs.fetch(5, 0, 1 << 20)
        world.settle()
        assert found.value.error is None
        assert [BatchView(batch).base_offset for batch in found.value.batches] == [0, 1, 2, 3]
    world[2].replicas.kept[5] = 2
    gone = world[3].logs.fetch(5, 0, 1 << 20)
    world.settle()
    assert isinstance(gone.value.error, OffsetGone)
    assert gone.value.error.first == 2, "the oldest offset of all replicas"
