"""Committed batches of the replicas here, by offset and by time, and waiting for more of them."""

from __future__ import annotations

import pytest

from flockmq.durable.logs import watching
from flockmq.errors import Behind, NoReplica, OffsetGone
from flockmq.log.batch import BatchView
from partition_cluster import WALL_MS, Node, PartitionCluster


def offsets(batches: list[bytes]) -> list[int]:
    return [view.base_offset + at for view in map(BatchView, batches) for at in range(view.count)]


def cluster_of(records: int, groups: int = 1) -> tuple[PartitionCluster, Node]:
    cluster = PartitionCluster(nodes=4, groups=groups)
    cluster.fill(1, records)
    return cluster, cluster.nodes[2]


def test_every_replica_reads_the_same_from_any_offset() -> None:
    cluster, _ = cluster_of(60)
    for offset in (0, 1, 30, 59):
        found = [cluster.nodes[number].local.read(1, offset, 1 << 20) for number in (1, 2, 3)]
        assert found[0] == found[1] == found[2]
        assert offsets(found[0]) == list(range(offset, 60))
    assert cluster.nodes[1].local.read(1, 60, 1 << 20) == []


def test_a_read_is_bounded_but_has_at_least_one_batch() -> None:
    _, node = cluster_of(10)
    assert offsets(node.local.read(1, 3, 1)) == [3]
    size = len(node.local.read(1, 0, 1)[0])
    assert offsets(node.local.read(1, 0, 3 * size)) == [0, 1, 2]


def test_a_whole_batch_comes_for_an_offset_within_it() -> None:
    cluster, node = cluster_of(1)
    cluster.publish(1, 1, b"a", b"b", b"c")
    cluster.run(200)
    assert offsets(node.local.read(1, 2, 1 << 20)) == [1, 2, 3]


def test_a_replica_that_is_behind_says_so_and_never_answers_short() -> None:
    cluster, _ = cluster_of(5)
    slow = next(number for number in (1, 2, 3) if number != cluster.leader(1).id)
    cluster.lost = lambda sender, receiver: receiver == slow
    cluster.fill(1, 5)
    local = cluster.nodes[slow].local
    leading = cluster.leader(1).local
    assert (leading.first(1), leading.end(1)) == (0, 10)
    with pytest.raises(Behind) as behind:
        local.read(1, 3, 1 << 20, until=10)
    assert behind.value.end == 5
    with pytest.raises(Behind):
        local.read(1, 7, 1 << 20)
    assert offsets(local.read(1, 3, 1 << 20)) == [3, 4]


def test_nodes_without_a_replica_name_those_that_have_one() -> None:
    cluster, _ = cluster_of(1)
    with pytest.raises(NoReplica) as nowhere:
        cluster.nodes[4].local.read(1, 0, 1)
    assert nowhere.value.replicas == (1, 2, 3)
    assert cluster.nodes[4].local.end(1) == -1


def test_by_time() -> None:
    cluster, node = cluster_of(3)
    cluster.run(2_000)
    later = cluster.now - cluster.start + WALL_MS
    cluster.fill(1, 2)
    assert node.local.offset_at(1, later) == 3
    assert node.local.offset_at(1, 0) == 0
    assert node.local.offset_at(1, later + 10**9) == 5


def test_watches_are_told_when_there_is_more() -> None:
    cluster, node = cluster_of(2, groups=2)
    watch = node.logs.watch({1: 2, 2: 0})
    assert watch is not None
    cluster.run(500)
    assert not watch.is_set
    cluster.fill(2, 1)
    assert watch.value == [2]
    cluster.fill(1, 1)
    assert watch.value == [2], "once"
    again = node.logs.watch({1: 2})
    assert again is not None
    assert again.value == [1], "there is more already"


def test_watches_can_be_cancelled_and_end_with_the_replica() -> None:
    _, node = cluster_of(2)
    one = node.logs.watch({1: 2})
    other = node.logs.watch({1: 2})
    assert one is not None
    assert other is not None
    other.cancel()
    other.cancel()
    node.closed(1)
    assert one.value == [], "the reader asks anew"
    assert not other.is_set


def test_watches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "WATCHES_MAX", 1)
    _, node = cluster_of(1)
    first = node.logs.watch({1: 1})
    assert first is not None
    assert node.logs.watch({1: 1}) is None
    first.cancel()
    assert node.logs.watch({1: 1}) is not None


def test_what_is_gone_says_where_to_go_on() -> None:
    cluster, node = cluster_of(60)
    cluster.set_topic(retention_bytes=4_096)
    cluster.run(15_000)
    first = node.local.first(1)
    assert 0 < first < 60
    with pytest.raises(OffsetGone) as gone:
        node.local.read(1, 0, 1)
    assert gone.value.first == first
