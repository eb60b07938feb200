"""Retention on every replica, with checkpoints, cursors that hold, restarts and followers that lack entries."""

from __future__ import annotations

from typing import Final

from flockmq.durable.cursors.cursors import Moved, lost_of
from flockmq.log.batch import BatchBuilder, stamp
from flockmq.log.settings import StoreSettings
from partition_cluster import Node, PartitionCluster

LARGE: Final = StoreSettings(journal_bytes=1 << 22, commit_bytes=1 << 20, segment_bytes=1 << 20)
"""Segments that nothing here fills."""


def checkpoint_index(node: Node, group: int) -> int:
    checkpoint = node.engine.replicas[group].checkpoints.latest()
    return 0 if checkpoint is None else checkpoint.index


def commit(cluster: PartitionCluster, name: bytes, offset: int) -> None:
    told: list[Moved] = []
    cluster.nodes[1].cursors.commit(1, name, offset).then(told.append)
    cluster.run(300)
    assert told[0].offset == offset


def publish_for(cluster: PartitionCluster, seconds: int) -> None:
    """A record every four seconds."""
    for _ in range(seconds // 4):
        cluster.fill(1, 1)
        cluster.run(3_900)


def check_kept(cluster: PartitionCluster) -> None:
    """With records every four seconds that are kept for 20: none is gone that is younger, none there after 25 and a
    little."""
    for node in cluster.nodes.values():
        assert 5 <= node.local.end(1) - node.local.first(1) <= 7


def test_old_segments_go_everywhere_once_a_checkpoint_stands_for_them() -> None:
    cluster = PartitionCluster(groups=1)
    cluster.fill(1, 60)
    cluster.set_topic(retention_bytes=6_000)
    cluster.run(25_000)
    for node in cluster.nodes.values():
        log = node.store.groups[1]
        assert 0 < log.first_offset < 60
        assert 6_000 <= log.size() < 6_000 + 4_096, "what is asked for, and less than a segment more"
        assert log.first - 1 <= checkpoint_index(node, 1)
        assert node.retention_sweeper.bytes_removed > 0


def test_by_age() -> None:
    cluster = PartitionCluster(groups=1)
    cluster.fill(1, 40)
    cluster.set_topic(retention_ms=60_000)
    cluster.run(30_000)
    assert cluster.nodes[1].local.first(1) == 0
    cluster.run(60_000)
    assert (cluster.nodes[1].local.first(1), cluster.nodes[1].local.end(1)) == (40, 40)
    cluster.fill(1, 2)
    assert (cluster.nodes[1].local.first(1), cluster.nodes[1].local.end(1)) == (40, 42)


def test_a_limit_smaller_than_a_segment_keeps_that_much() -> None:
    cluster = PartitionCluster(groups=1)
    cluster.fill(1, 60)
    cluster.set_topic(retention_bytes=1_000)
    cluster.run(25_000)
    for node in cluster.nodes.values():
        assert 0 < node.store.groups[1].first_offset < 60
        assert 1_000 <= node.store.groups[1].size() < 1_000 + 4_096
        assert node.local.end(1) == 60


def test_a_small_topic_has_small_segments() -> None:
    cluster = PartitionCluster(groups=1, store=LARGE)
    cluster.set_topic(retention_bytes=400_000)
    cluster.run(12_000)
    for _ in range(50):
        cluster.publish(cluster.leader(1).id, 1, cluster.rng.randbytes(20_000))
        cluster.settle()
    assert all(one.length <= 100_000 for node in cluster.nodes.values() for one in node.store.groups[1].segments)
    cluster.run(25_000)
    for node in cluster.nodes.values():
        assert 400_000 <= node.store.groups[1].size() < 500_000
        assert node.local.end(1) == 50


def test_a_replica_knows_what_its_topic_keeps_before_anything_is_written() -> None:
    cluster = PartitionCluster(groups=1, store=LARGE)
    cluster.set_topic(retention_bytes=400_000)
    cluster.kill(1)
    cluster.restart(1)
    log = cluster.nodes[1].store.groups[1]
    builder = BatchBuilder()
    builder.add(b"t", b"c", 1, 1, cluster.rng.randbytes(60_000))
    for _ in range(3):
        log.append([stamp(builder.build(), log.term, log.last_index() + 1, log.next_offset())])
    assert max(segment.length for segment in log.segments) < 100_000


def test_by_age_while_records_keep_coming() -> None:
    cluster = PartitionCluster(groups=1, store=LARGE)
    cluster.set_topic(retention_ms=20_000)
    publish_for(cluster, 72)
    check_kept(cluster)


def test_an_age_that_is_changed_holds_for_what_is_there_and_what_comes() -> None:
    cluster = PartitionCluster(groups=1, store=LARGE)
    cluster.set_topic(retention_ms=7 * 86_400_000)
    publish_for(cluster, 40)
    cluster.set_topic(retention_ms=20_000)
    publish_for(cluster, 72)
    check_kept(cluster)
    for number in (1, 2, 3):
        cluster.kill(number)
    for number in (1, 2, 3):
        cluster.restart(number)
    cluster.run(3_000)
    publish_for(cluster, 72)
    check_kept(cluster)
    cluster.set_topic()
    publish_for(cluster, 60)
    assert all(len(node.store.groups[1].segments) < 10 for node in cluster.nodes.values()), "it rolls no more"


def test_by_age_while_entries_without_records_keep_coming() -> None:
    cluster = PartitionCluster(groups=1, store=LARGE)
    cluster.set_cursor("busy", hold=False)
    cluster.fill(1, 5)
    cluster.set_topic(retention_ms=20_000)
    for number in range(600):
        cluster.nodes[1].cursors.reset(1, b"default/busy#0", number % 5)
        cluster.run(50)
    assert all(node.local.first(1) == 5 for node in cluster.nodes.values())
    assert all(len(node.store.groups[1].segments) < 4 for node in cluster.nodes.values())


def test_many_groups_forget_together() -> None:
    cluster = PartitionCluster(groups=40)
    for group in cluster.groups:
        cluster.fill(group, 1)
    cluster.set_topic(retention_ms=20_000)
    cluster.run(15_000)
    before = {number: node.store.generation for number, node in cluster.nodes.items()}
    cluster.run(25_000)
    for number, node in cluster.nodes.items():
        assert all(node.local.first(group) == 1 for group in cluster.groups)
        assert node.store.generation - before[number] <= 12, "the store writes down all logs each time"


def test_a_cursor_holds_what_it_needs_until_it_has_moved_on() -> None:
    cluster = PartitionCluster(groups=1)
    cluster.fill(1, 60)
    cluster.set_cursor("slow", hold=True)
    cluster.set_cursor("free", hold=False)
    commit(cluster, b"default/slow#0", 10)
    cluster.set_topic(retention_bytes=8_000)
    cluster.run(25_000)
    assert all(node.local.first(1) <= 10 for node in cluster.nodes.values())
    commit(cluster, b"default/slow#0", 60)
    cluster.run(25_000)
    assert all(node.local.first(1) > 10 for node in cluster.nodes.values())


def test_a_cursor_that_holds_and_was_nowhere_yet_keeps_everything() -> None:
    cluster = PartitionCluster(groups=1)
    cluster.fill(1, 60)
    cluster.set_cursor("new", hold=True)
    cluster.set_topic(retention_bytes=8_000)
    cluster.run(25_000)
    assert cluster.nodes[1].local.first(1) == 0


def test_beyond_its_bound_a_log_forgets_what_a_cursor_needs_and_says_so() -> None:
    cluster = PartitionCluster(groups=1)
    cluster.fill(1, 60)
    cluster.set_cursor("slow", hold=True)
    commit(cluster, b"default/slow#0", 3)
    cluster.set_topic(retention_bytes=1_500)
    cluster.run(25_000)
    node = cluster.nodes[1]
    first = node.local.first(1)
    assert first > 3
    assert 4 * 1_500 <= node.store.groups[1].size() < 4 * 1_500 + 4_096
    events = [event for event in node.events.take() if event.kind == "cursor_overrun"]
    lost = sum(int(str(event.fields["lost"])) for event in events)
    assert lost == first - 3 == node.retention_sweeper.records_lost
    told = node.cursors.positions([1], [b"default/slow#0"])
    cluster.run(300)
    assert lost_of(told.value.found[0].offset, first) == first - 3


def test_a_restart_after_retention_has_the_same_state() -> None:
    cluster = PartitionCluster(groups=1)
    cluster.fill(1, 60)
    cluster.set_cursor("slow", hold=False)
    commit(cluster, b"default/slow#0", 33)
    cluster.set_topic(retention_bytes=6_000)
    cluster.run(25_000)
    before = cluster.nodes[1].machines.by_group[1].encode()
    for number in (1, 2, 3):
        cluster.kill(number)
    for number in (1, 2, 3):
        cluster.restart(number)
    cluster.run(5_000)
    for node in cluster.nodes.values():
        assert node.machines.by_group[1].cursors == {b"default/slow#0": 33}
        assert node.local.end(1) == 60
    assert b"default/slow#0" in before


def test_a_follower_that_lacks_what_is_gone_is_filled_by_checkpoint_and_entries() -> None:
    cluster = PartitionCluster(groups=1)
    cluster.fill(1, 5)
    slow = next(number for number in (1, 2, 3) if number != cluster.leader(1).id)
    cluster.kill(slow)
    cluster.fill(1, 60)
    cluster.set_cursor("c", hold=False)
    cluster.run(300)
    told: list[Moved] = []
    cluster.leader(1).cursors.commit(1, b"default/c#0", 50).then(told.append)
    cluster.run(300)
    cluster.set_topic(retention_bytes=6_000)
    cluster.run(25_000)
    assert cluster.leader(1).local.first(1) > 5
    cluster.restart(slow)
    cluster.run(10_000)
    node = cluster.nodes[slow]
    assert node.machines.by_group[1].cursors == {b"default/c#0": 50}
    assert node.local.end(1) == 65
    first = node.local.first(1)
    assert node.local.read(1, first, 1 << 20) == cluster.leader(1).local.read(1, first, 1 << 20)


def test_groups_are_looked_at_in_turns() -> None:
    cluster = PartitionCluster(nodes=3, groups=40)
    keeper = cluster.nodes[1].retention_sweeper
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
