"""Damage in files of one replica: others serve it and give it back."""

from __future__ import annotations

from functools import partial

import pytest

from flockmq.durable.calls import OK, Reply
from flockmq.durable.replicas.digests import BLOCK
from flockmq.durable.replicas.mending import MENDS_MAX
from flockmq.durable.replicas.scrubbing import DAY_MS, LOOKS_MAX, RATE_MS
from flockmq.errors import Damaged
from flockmq.log.batch import BatchView
from flockmq.log.checksum import crc32c
from flockmq.log.segment import Segment
from flockmq.log.survey import Inspection
from flockmq.peering.kinds import ENTRIES_CALL
from log_cases import append, batch_of
from partition_cluster import WALL_MS, Node, PartitionCluster

EVERYTHING = 1 << 20


def cluster_of(records: int, voters: tuple[int, ...] = (1, 2, 3)) -> PartitionCluster:
    cluster = PartitionCluster(nodes=3, groups=1, voters=voters)
    cluster.fill(1, records)
    for number in voters:
        forget_memory(cluster.nodes[number])
    return cluster


def forget_memory(node: Node) -> None:
    """Only files are left, for readers and for consensus."""
    forget_recent(node)
    raft = node.engine.replicas[1].node.state.log
    raft.tail_first += len(raft.tail)
    raft.term_before = raft.last_term
    raft.tail.clear()
    raft.tail_bytes = 0


def forget_recent(node: Node) -> None:
    """Only files are left, for readers."""
    node.store.request_checkpoint()
    node.write()
    node.store.groups[1].recent.clear()


def damage(node: Node, segment: Segment, position: int) -> bytes:
    """The file as it was."""
    path = node.store.groups[1].path(segment.file_name())
    whole = node.disk.read(path, 0, segment.length)
    node.disk.write(path, position, bytes((whole[position] ^ 8,)))
    node.disk.sync(path)
    return whole


def file_of(node: Node, segment: Segment) -> bytes:
    return node.disk.read(node.store.groups[1].path(segment.file_name()), 0, segment.length)


def events(node: Node, kind: str) -> list[dict[str, object]]:
    return [fields for one, fields in node.engine.events if one == kind]


def test_a_read_that_meets_damage_says_so_and_it_is_brought_back() -> None:
    cluster = cluster_of(100)
    node = cluster.nodes[2]
    log = node.store.groups[1]
    segment = log.segments[1]
    whole = damage(node, segment, 150)
    with pytest.raises(Damaged):
        node.local.read(1, segment.base_offset, EVERYTHING)
    cluster.run(500)
    assert file_of(node, segment) == whole
    assert log.gaps == []
    assert node.local.read(1, 0, EVERYTHING) == cluster.nodes[1].local.read(1, 0, EVERYTHING)
    [told] = events(node, "log_damaged")
    assert told["file"] == log.path(segment.file_name())
    assert len(events(node, "log_repaired")) == 1
    assert (node.scrubbing.mending.repaired, node.scrubbing.mending.damaged_batches()) == (1, 0)
    assert 1 not in node.engine.host.broken


def test_the_scrub_finds_what_no_reader_meets() -> None:
    cluster = cluster_of(100)
    node = cluster.nodes[3]
    segment = node.store.groups[1].segments[2]
    whole = damage(node, segment, 40)
    node.scrubbing.recall({"finished": [[1, 1]], "damaged": []})  # long ago
    cluster.run(65_000)
    assert file_of(node, segment) == whole
    assert node.scrubbing.finished_ms(1) > 1


def test_thousands_of_logs_without_files_are_not_all_looked_at_in_one_turn() -> None:
    cluster = PartitionCluster(nodes=1, groups=2 * LOOKS_MAX + 2, voters=(1,))
    scrubbing = cluster.nodes[1].scrubbing
    now, wall_ms = cluster.now + RATE_MS, WALL_MS + 30 * DAY_MS
    for looked_at in (LOOKS_MAX - 1, 2 * LOOKS_MAX - 1, 2 * LOOKS_MAX + 2):
        assert scrubbing.take(now, wall_ms) is None
        assert [scrubbing.finished_ms(group) for group in cluster.groups].count(wall_ms) == looked_at


def test_the_log_that_was_not_read_for_longest_is_read_next() -> None:
    cluster = PartitionCluster(nodes=1, groups=4, voters=(1,))
    node = cluster.nodes[1]
    for group in cluster.groups:
        cluster.fill(group, 20)
    node.store.request_checkpoint()
    node.write()
    now, wall_ms = cluster.now + RATE_MS, WALL_MS + 30 * DAY_MS
    node.scrubbing.recall({"finished": [[1, 30], [2, 10], [3, wall_ms], [4, 20]], "damaged": []})
    order: list[int] = []
    for later in range(0, 2 * RATE_MS, 50):
        if (work := node.scrubbing.take(now + later, wall_ms)) is not None:
            order += [work.group] if work.group not in order else []
            work.perform(node.disk)
            node.scrubbing.done(work, now + later, wall_ms)
    assert order == [2, 4, 1]


def test_what_was_damaged_before_a_restart_is_looked_at_at_once() -> None:
    cluster = cluster_of(100, (1,))
    node = cluster.nodes[1]
    segment = node.store.groups[1].segments[1]
    damage(node, segment, 150)
    node.scrubbing.suspect(1, segment.first_index)
    cluster.run(500)
    known = node.scrubbing.remember()
    assert known["damaged"] == [[1, node.store.groups[1].gaps[0].first]]
    node.store.groups[1].gaps.clear()
    node.scrubbing.recall(known)
    cluster.run(500)
    assert node.scrubbing.remember() == known


def test_a_leader_does_not_send_what_it_can_not_read_and_fetches_it() -> None:
    cluster = cluster_of(100)
    cluster.lead(1, 1)
    cluster.kill(3)
    cluster.fill(1, 50)
    leader = cluster.nodes[1]
    forget_memory(leader)
    log = leader.store.groups[1]
    segment = next(one for one in log.segments if one.base_offset > 100)
    whole = damage(leader, segment, 150)
    cluster.restart(3)
    cluster.run(5_000)
    assert file_of(leader, segment) == whole
    assert not any(node.engine.host.broken for node in cluster.nodes.values())
    assert cluster.nodes[3].local.end(1) == leader.local.end(1)


def test_nothing_is_mended_without_a_replica_that_has_it_and_the_rest_is_read() -> None:
    cluster = cluster_of(100, (1,))
    node = cluster.nodes[1]
    segment = node.store.groups[1].segments[1]
    damage(node, segment, 150)
    node.scrubbing.suspect(1, segment.first_index)
    cluster.run(3_000)
    [gap] = node.store.groups[1].gaps
    with pytest.raises(Damaged) as caught:
        node.local.read(1, gap.first_offset, EVERYTHING)
    assert (caught.value.first, caught.value.end) == (gap.first_offset, gap.end_offset)
    with pytest.raises(Damaged):
        node.local.extents(1, gap.first_offset, EVERYTHING)
    before = node.local.read(1, 0, EVERYTHING)
    assert BatchView(before[-1]).next_offset == gap.first_offset
    behind = node.local.read(1, gap.end_offset, EVERYTHING)
    assert BatchView(behind[0]).base_offset == gap.end_offset
    assert BatchView(behind[-1]).next_offset == node.local.end(1)
    assert "no other replica" in str(events(node, "log_damaged")[0]["message"])


def test_a_replica_that_has_the_same_damage_does_not_give_it_away() -> None:
    cluster = cluster_of(100)
    wholes = {}
    for number in (1, 2):
        node = cluster.nodes[number]
        wholes[number] = damage(node, node.store.groups[1].segments[1], 150)
    for number in (1, 2):
        cluster.nodes[number].scrubbing.suspect(1, cluster.nodes[number].store.groups[1].segments[1].first_index)
    cluster.run(4_000)
    for number in (1, 2):
        node = cluster.nodes[number]
        assert file_of(node, node.store.groups[1].segments[1]) == wholes[number]


def test_gaps_that_no_replica_can_fill_do_not_keep_others_waiting() -> None:
    cluster = cluster_of(100)
    node = cluster.nodes[2]
    log = node.store.groups[1]
    lost = [index for segment in log.segments[1:5] for index in range(segment.first_index, segment.next_index, 2)]
    assert len(lost) > MENDS_MAX
    for one in cluster.nodes.values():
        for index in lost:
            damage_entry(one, index)
    last = log.segments[6]
    whole = damage_entry(node, last.first_index + 1)
    node.scrubbing.scrub_now([1])
    cluster.run(10_000)
    assert [gap.first for gap in log.gaps] == lost
    assert file_of(node, last) == whole


def damage_entry(node: Node, index: int) -> bytes:
    """The body of its batch; all batches of a segment are of the same length here. The file as it was."""
    segment = node.store.groups[1].segment_of(index)
    size = segment.length // (segment.next_index - segment.first_index)
    return damage(node, segment, (index - segment.first_index) * size + 150)


def test_a_restart_that_can_not_apply_waits_for_the_entry_and_goes_on() -> None:
    cluster = cluster_of(100)
    cluster.lead(1, 1)
    node = cluster.nodes[2]
    state = node.engine.replicas[1].node.state
    whole = damage(node, node.store.groups[1].segments[1], 150)
    state.applied = node.store.groups[1].segments[1].first_index - 1  # as after a start
    state.dirty = True
    node.engine.host.mended(1)
    cluster.run(2_000)
    assert file_of(node, node.store.groups[1].segments[1]) == whole
    assert state.applied == state.commit
    assert 1 not in node.engine.host.broken


def test_replicas_that_differ_are_told_and_left_alone() -> None:
    cluster = cluster_of(100)
    node = cluster.nodes[2]
    other = cluster.nodes[1]
    for one in (node, other):
        one.scrubbing.scrub_now([1])
    cluster.run(1_000)
    assert node.scrubbing.digests.differing(1) == (0, 0)
    known = node.scrubbing.digests.of(1).digests
    known.set(1, known.get(1) ^ 1)
    other.scrubbing.scrub_now([1])
    cluster.run(1_000)
    assert other.scrubbing.digests.differing(1) == (1, BLOCK)
    [told] = events(other, "log_differs")
    assert (told["partition"], told["first_entry"]) == (1, BLOCK)
    assert other.statuses.here(1).differs == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("is_urgent", [True, False])
@pytest.mark.parametrize("is_begun", [True, False])
def test_a_segment_that_is_cut_while_it_is_read_is_read_anew(is_urgent: bool, is_begun: bool) -> None:
    """What was read of it may be old, new or between; none of that is damage, or differs."""
    cluster = cluster_of(100, (1,))
    node = cluster.nodes[1]
    log = node.store.groups[1]
    segment = log.segments[-1]
    log.settle(segment.first_index)
    if is_urgent:
        node.scrubbing.suspect(1, segment.first_index)
    else:
        node.scrubbing.scrub_now([1])
    work = next_of(node, segment)
    if is_begun:
        work.stop_index -= 1  # as with a piece that ends before the segment does
        work.perform(node.disk)
        work.stop_index += 1
        node.scrubbing.done(work, cluster.now, WALL_MS)
    log.truncate_from(segment.first_index + 1)
    while log.last < 130:
        append(log, batch_of(b"of another leader" * 50), term=9)
    forget_recent(node)
    log.settle(log.last)
    if not is_begun:
        work.perform(node.disk)
        node.scrubbing.done(work, cluster.now, WALL_MS)
    for _ in range(1_000):
        if (again := node.scrubbing.take(cluster.now, WALL_MS)) is not None:
            again.perform(node.disk)
            node.scrubbing.done(again, cluster.now, WALL_MS)
        cluster.now += 50
    assert (log.gaps, events(node, "log_damaged")) == ([], [])
    assert not node.scrubbing.is_looking_at(1)
    assert not node.scrubbing.is_due(1)
    marks = b"".join([batch[4:8] for batch in log.entries(log.first, log.last + 1, EVERYTHING)])
    for block in range(1, (log.last + 1) // BLOCK):
        at = 4 * (block * BLOCK - log.first)
        assert node.scrubbing.digests.of(1).digests.get(block) in (0, crc32c(marks[at : at + 4 * BLOCK]))


def next_of(node: Node, segment: Segment) -> Inspection:
    """The work that reads a segment, when everything before it has been read."""
    while True:
        work = node.scrubbing.take(node.cluster.now, WALL_MS)
        if work is not None:
            if work.number == segment.number:
                return work
            work.perform(node.disk)
            node.scrubbing.done(work, node.cluster.now, WALL_MS)
        node.cluster.now += 50


def test_many_blocks_that_differ_are_told_in_one_event() -> None:
    cluster = cluster_of(200)
    node = cluster.nodes[2]
    other = cluster.nodes[1]
    for one in (node, other):
        one.scrubbing.scrub_now([1])
    cluster.run(1_000)
    known = node.scrubbing.digests.of(1).digests
    for block in (1, 2, 4):
        known.set(block, known.get(block) ^ 1)
    other.scrubbing.scrub_now([1])
    cluster.run(1_000)
    assert other.scrubbing.digests.differing(1) == (3, BLOCK)
    [told] = events(other, "log_differs")
    assert (told["blocks"], told["first_entry"], told["last_entry"]) == (3, BLOCK, 5 * BLOCK - 1)


def test_a_log_that_goes_on_far_behind_costs_no_memory_for_what_it_skipped() -> None:
    cluster = cluster_of(100, (1,))
    node = cluster.nodes[1]
    scrub_all(node)
    log = node.store.groups[1]
    far = 10**15
    log.reset(far - 1, 1, far)
    append(log, *[batch_of(b"%d" % number) for number in range(BLOCK)])
    forget_recent(node)
    log.settle(log.last)
    scrub_all(node)
    assert node.scrubbing.digests.of(1).digests.get(far // BLOCK)
    assert not node.scrubbing.digests.of(1).digests.get(1)


def scrub_all(node: Node) -> None:
    """Read all files of the group, without anything else that the node does."""
    node.scrubbing.scrub_now([1])
    while node.scrubbing.is_due(1):
        node.cluster.now += 50
        if (work := node.scrubbing.take(node.cluster.now, WALL_MS)) is not None:
            work.perform(node.disk)
            node.scrubbing.done(work, node.cluster.now, WALL_MS)


def lie(node: Node, body: bytes) -> Reply:
    """Another entry than the one that was asked for."""
    first = int.from_bytes(body[8:16], "little")
    return Reply(OK, node.store.groups[1].entries(first - 1, first, 1)[0])


def test_what_comes_must_be_what_was_lost() -> None:
    cluster = cluster_of(100)
    node = cluster.nodes[2]
    log = node.store.groups[1]
    segment = log.segments[1]
    spoiled = bytearray(damage(node, segment, 150))
    spoiled[150] ^= 8
    for one in (cluster.nodes[1], cluster.nodes[3]):
        one.asking.serve_replica(ENTRIES_CALL, partial(lie, one))
    node.scrubbing.suspect(1, segment.first_index)
    cluster.run(1_500)
    assert file_of(node, segment) == bytes(spoiled)
    assert len(log.gaps) == 1
    assert events(node, "log_differs")
