"""Retention on every replica, with checkpoints, cursors that hold, restarts and followers that lack entries."""

from __future__ import annotations

from flockmq.durable.cursors import Moved
from partition_cluster import Node, PartitionCluster


def checkpoint_index(node: Node, group: int) -> int:
    checkpoint = node.engine.replicas[group].checkpoints.latest()
    return 0 if checkpoint is None else checkpoint.index


def commit(cluster: PartitionCluster, name: bytes, offset: int) -> None:
    told: list[Moved] = []
    cluster.nodes[1].cursors.commit(1, name, offset, told.append, cluster.now)
    cluster.run(300)
    assert told[0].offset == offset


def test_old_segments_go_everywhere_once_a_checkpoint_stands_for_them() -> None:
    cluster = PartitionCluster(groups=1)
    cluster.fill(1, 60)
    cluster.set_topic(retention_bytes=6_000)
    cluster.run(25_000)
    for node in cluster.nodes.values():
        log = node.store.groups[1]
        assert 0 < log.first_offset < 60
        assert log.size() <= 6_000
        assert log.first - 1 <= checkpoint_index(node, 1)
        assert node.keeper.bytes_removed > 0


def test_by_age() -> None:
    cluster = PartitionCluster(groups=1)
    cluster.fill(1, 40)
    cluster.set_topic(retention_ms=60_000)
    cluster.run(30_000)
    assert cluster.nodes[1].reader.first_of(1) == 0
    cluster.run(60_000)
    assert cluster.nodes[1].reader.heads([1]) == {1: (40, 40)}
    cluster.fill(1, 2)
    assert cluster.nodes[1].reader.heads([1]) == {1: (40, 42)}


def test_a_cursor_holds_what_it_needs_until_it_has_moved_on() -> None:
    cluster = PartitionCluster(groups=1)
    cluster.fill(1, 60)
    cluster.set_cursor("slow", hold=True)
    cluster.set_cursor("free", hold=False)
    commit(cluster, b"default/slow", 10)
    cluster.set_topic(retention_bytes=8_000)
    cluster.run(25_000)
    assert all(node.reader.first_of(1) <= 10 for node in cluster.nodes.values())
    commit(cluster, b"default/slow", 60)
    cluster.run(25_000)
    assert all(node.reader.first_of(1) > 10 for node in cluster.nodes.values())


def test_a_cursor_that_holds_and_was_nowhere_yet_keeps_everything() -> None:
    cluster = PartitionCluster(groups=1)
    cluster.fill(1, 60)
    cluster.set_cursor("new", hold=True)
    cluster.set_topic(retention_bytes=8_000)
    cluster.run(25_000)
    assert cluster.nodes[1].reader.first_of(1) == 0


def test_beyond_its_bound_a_log_forgets_what_a_cursor_needs_and_says_so() -> None:
    cluster = PartitionCluster(groups=1)
    cluster.fill(1, 60)
    cluster.set_cursor("slow", hold=True)
    commit(cluster, b"default/slow", 3)
    cluster.set_topic(retention_bytes=1_500)
    cluster.run(25_000)
    node = cluster.nodes[1]
    first = node.reader.first_of(1)
    assert first > 3
    events = [event for event in node.events.take() if event.kind == "cursor_overrun"]
    lost = sum(int(str(event.fields["lost"])) for event in events)
    assert lost == first - 3 == node.keeper.records_lost
    told = []
    node.cursors.positions([1], [b"default/slow"], lambda found, missing: told.extend(found), cluster.now)
    cluster.run(300)
    assert told[0].lost == cluster.leader(1).reader.first_of(1) - 3


def test_a_restart_after_retention_has_the_same_state() -> None:
    cluster = PartitionCluster(groups=1)
    cluster.fill(1, 60)
    cluster.set_cursor("slow", hold=False)
    commit(cluster, b"default/slow", 33)
    cluster.set_topic(retention_bytes=6_000)
    cluster.run(25_000)
    before = cluster.nodes[1].machines.by_group[1].encode()
    for number in (1, 2, 3):
        cluster.kill(number)
    for number in (1, 2, 3):
        cluster.restart(number)
    cluster.run(5_000)
    for node in cluster.nodes.values():
        assert node.machines.by_group[1].cursors == {b"default/slow": 33}
        assert node.reader.end_of(1) == 60
    assert b"default/slow" in before


def test_a_follower_that_lacks_what_is_gone_is_filled_by_checkpoint_and_entries() -> None:
    cluster = PartitionCluster(groups=1)
    cluster.fill(1, 5)
    slow = next(number for number in (1, 2, 3) if number != cluster.leader(1).id)
    cluster.kill(slow)
    cluster.fill(1, 60)
    cluster.set_cursor("c", hold=False)
    cluster.run(300)
    told: list[Moved] = []
    cluster.leader(1).cursors.commit(1, b"default/c", 50, told.append, cluster.now)
    cluster.run(300)
    cluster.set_topic(retention_bytes=6_000)
    cluster.run(25_000)
    assert cluster.leader(1).reader.first_of(1) > 5
    cluster.restart(slow)
    cluster.run(10_000)
    node = cluster.nodes[slow]
    assert node.machines.by_group[1].cursors == {b"default/c": 50}
    assert node.reader.end_of(1) == 65
    first = node.reader.first_of(1)
    assert node.reader.read(1, first, 1 << 20) == cluster.leader(1).reader.read(1, first, 1 << 20)


def test_groups_are_looked_at_in_turns() -> None:
    cluster = PartitionCluster(nodes=3, groups=40)
    keeper = cluster.nodes[1].keeper
    looked: list[int] = []
    for _ in range(300):
        before = len(keeper._line)
        cluster.now += 100
        keeper.tick(cluster.now)
        looked.append(before - len(keeper._line))
    assert max(looked) <= 2


def test_logs_without_records_are_left_alone() -> None:
    cluster = PartitionCluster(groups=2)
    cluster.fill(2, 3)
    cluster.set_topic(retention_ms=60_000)
    cluster.run(90_000)
    for node in cluster.nodes.values():
        assert checkpoint_index(node, 1) == 0
        assert checkpoint_index(node, 2) > 0
        assert node.store.groups[1].first == 1
