"""Batches, heads and states of partitions, asked for on a node that has none of them."""

from __future__ import annotations

import pytest

from flockmq.durable.logs import fetching
from flockmq.durable.logs.fetching import Fetched, ReplicaStatus, TooLarge
from flockmq.durable.logs.reading import Behind, Gone, NotHere
from flockmq.log.batch import BatchView
from flockmq.raft.state import LEADER
from partition_cluster import WALL_MS, PartitionCluster


def fetch(cluster: PartitionCluster, number: int, offset: int, **more: int) -> Fetched:
    told: list[Fetched] = []
    cluster.nodes[number].fetching.fetch(1, offset, 1 << 20, told.append, cluster.now, **more)
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
        assert found.batches == cluster.leader(1).reader.read(1, 30, 1)
    monkeypatch.setattr(fetching, "BATCH_BYTES_MAX", 3_000)
    assert isinstance(fetch(cluster, 4, 30).error, TooLarge)


def test_a_fetch_at_the_end_waits_for_more() -> None:
    cluster = PartitionCluster(nodes=4, groups=1)
    cluster.fill(1, 2)
    told: list[Fetched] = []
    cluster.nodes[4].fetching.fetch(1, 2, 1 << 20, told.append, cluster.now, wait_ms=2_000)
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
    assert isinstance(gone.error, Gone)
    assert gone.first == gone.error.first > 0
    told: list[Fetched] = []
    cluster.nodes[4].fetching.fetch(77, 0, 1, told.append, cluster.now)
    assert isinstance(told[0].error, NotHere)


def test_a_dead_replica_is_passed_over() -> None:
    cluster = PartitionCluster(nodes=4, groups=1)
    cluster.fill(1, 3)
    cluster.kill(1)
    cluster.run(3_000)
    assert len(fetch(cluster, 4, 0).batches) == 3


def test_heads_times_and_statuses() -> None:
    cluster = PartitionCluster(nodes=4, groups=3)
    cluster.fill(1, 3)
    cluster.run(1_000)
    later = cluster.now - cluster.start + WALL_MS
    cluster.fill(1, 2)
    cluster.fill(3, 1)
    asked = cluster.nodes[4].fetching
    heads: list[tuple[dict[int, tuple[int, int]], list[int]]] = []
    times: list[tuple[dict[int, int], list[int]]] = []
    statuses: list[list[ReplicaStatus] | None] = []
    asked.heads([1, 2, 3], lambda found, missing: heads.append((found, missing)), cluster.now)
    asked.times([1, 2], later, lambda found, missing: times.append((found, missing)), cluster.now)
    leader = cluster.leader(1).id
    asked.statuses(leader, [1, 99], statuses.append, cluster.now)
    asked.statuses(4, [1], statuses.append, cluster.now)
    cluster.run(1_000)
    assert heads == [({1: (0, 5), 2: (0, 0), 3: (0, 1)}, [])]
    assert times == [({1: 3, 2: 0}, [])]
    assert statuses[0] == []
    found = statuses[1]
    assert found is not None
    assert [(status.group, status.role, status.end, status.leader) for status in found] == [(1, LEADER, 5, leader)]
    log = cluster.leader(1).engine.host.groups[1].state.log
    assert (found[0].last_term, found[0].last) == (log.last_term, log.last_index)


def ask_heads(cluster: PartitionCluster, number: int, group: int = 1) -> list[dict[int, tuple[int, int]]]:
    told: list[dict[int, tuple[int, int]]] = []
    cluster.nodes[number].fetching.heads([group], lambda found, missing: told.append(found), cluster.now)
    return told


def leads(cluster: PartitionCluster) -> bool:
    return any(node.running and node.engine.is_leader(1) for node in cluster.nodes.values())


def test_a_new_leader_tells_the_end_only_when_it_knows_all_that_was_acknowledged() -> None:
    cluster = PartitionCluster(nodes=3, groups=1)
    old = cluster.leader(1)
    cluster.fill(1, 3)
    sent = cluster.publish(old.id, 1, b"acknowledged")
    while not sent.outcomes:
        cluster.turn()
    cluster.flying = []  # nobody else hears that it is committed
    cluster.kill(old.id)
    while not leads(cluster):
        cluster.now += 50
        for number in cluster.alive():
            cluster.nodes[number].tick(cluster.now)
        for _ in range(4):
            if not leads(cluster):
                cluster.turn()
    new = cluster.leader(1)
    assert new.reader.end_of(1) == 3, "it has the entry, and does not know yet that it is committed"
    told = ask_heads(cluster, new.id)
    assert told == []
    cluster.run(500)
    assert told == [{1: (0, 4)}]


def test_a_leader_that_stood_still_tells_nothing_before_it_heard_the_others() -> None:
    cluster = PartitionCluster(nodes=3, groups=1)
    cluster.fill(1, 3)
    cluster.run(5_000)
    old = cluster.leader(1)
    assert ask_heads(cluster, old.id) == [{1: (0, 3)}]
    old.running = False  # it is stopped, not gone: nobody has told it anything
    cluster.run(5_000)
    cluster.publish(cluster.leader(1).id, 1, b"meanwhile")
    cluster.run(200)
    old.running = True
    assert old.engine.is_leader(1), "as far as it knows"
    told = ask_heads(cluster, old.id)
    assert told == []
    old.tick(cluster.now)
    assert told == [], "its clock has jumped: it has heard nobody since"
    cluster.run(1_000)
    assert told == [{1: (0, 4)}]
