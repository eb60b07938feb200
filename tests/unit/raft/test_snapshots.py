"""Snapshots: Raft paper section 7, figure 13."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flockmq.raft.configuration import Configuration
from flockmq.raft.messages import Append, AppendReply, Checkpoint, SnapshotChunk, SnapshotMeta, SnapshotReply
from flockmq.raft.progress import SNAPSHOT
from raft_cluster import GROUP, SETTINGS, Cluster, Replica, entry, said, with_log

SMALL = replace(SETTINGS, snapshot_chunk_bytes=8, tail_bytes_max=1, append_bytes_max=1)


def behind(keep: int = 0) -> tuple[Cluster, Replica]:
    """Node 3 was down while ten entries were committed, and their log was compacted."""
    cluster = Cluster(settings=SMALL)
    leader = cluster.elect(1)
    cluster[3].crash()
    for number in range(10):
        cluster.propose(b"payload-%d" % number)
        cluster.settle()
    cluster.run(100)
    leader.snapshot(keep)
    return cluster, leader


def content(cluster: Cluster, node: int) -> bytes:
    return cluster[node].snapshots.content + b"".join(cluster[node].payloads)


def meta(index: int, term: int, size: int = 0) -> SnapshotMeta:
    return SnapshotMeta(index, term, index, Configuration((1, 2, 3)), index, term, size, 0)


def chunk(term: int, what: SnapshotMeta) -> SnapshotChunk:
    return SnapshotChunk(GROUP, 2, 1, term, what, 0, b"", what.index, 1)


def test_7_a_follower_far_behind_gets_a_snapshot_in_pieces() -> None:
    cluster, leader = behind()
    cluster[3].start()
    cluster.run(500)
    assert cluster[3].snapshots.pieces == -(-90 // 8)
    assert content(cluster, 3) == b"".join(leader.payloads)
    assert cluster[3].state.log.last_index == leader.state.log.last_index
    cluster.propose(b"more")
    cluster.run(200)
    assert cluster[3].payloads == [b"more"]


def test_7_retained_entries_follow_as_they_are_and_are_not_applied_again() -> None:
    cluster, leader = behind(keep=4)
    cluster[3].start()
    cluster.run(500)
    assert cluster[3].log.items[-4:] == leader.log.items[-4:]
    assert cluster[3].log.base == leader.log.base
    assert content(cluster, 3) == b"".join(leader.payloads)
    assert cluster[3].payloads == []


def test_7_a_leader_whose_oldest_entry_is_damaged_sends_a_snapshot_and_goes_on_when_it_is_back() -> None:
    cluster, leader = behind(keep=4)
    leader.log.spoiled = {leader.log.base + 1}
    cluster[3].start()
    cluster.run(500)
    assert cluster[3].log.base == leader.log.base
    assert cluster[3].log.items == []
    leader.log.spoiled.clear()
    cluster.run(500)
    assert cluster[3].log.items == leader.log.items
    assert content(cluster, 3) == b"".join(leader.payloads)


def test_7_a_restart_in_the_middle_of_the_refill_goes_on() -> None:
    cluster, leader = behind(keep=6)
    cluster[3].start()
    cluster.lost = lambda message: isinstance(message, Append) and message.prev_index > leader.log.base + 2
    cluster.run(500)
    assert cluster[3].state.log.last_index < cluster[3].checkpoint.index
    cluster[3].crash()
    cluster[3].start()
    cluster.heal()
    cluster.run(500)
    assert cluster[3].log.items == leader.log.items
    cluster.propose(b"more")
    cluster.run(200)
    assert cluster[3].payloads == [b"more"]


def test_7_a_lost_piece_is_sent_again_and_nothing_else() -> None:
    cluster, _ = behind()
    lost: list[SnapshotChunk] = []

    def lose(message: object) -> bool:
        if isinstance(message, SnapshotChunk) and message.position == 24 and not lost:
            lost.append(message)
            return True
        return False

    cluster.lost = lose
    cluster[3].start()
    cluster.run(1_500)
    sent = [message for message in cluster.delivered if isinstance(message, SnapshotChunk)]
    assert [message.position for message in sent] == list(range(0, 90, 8))


def test_7_a_transfer_goes_on_after_a_new_leader_with_the_same_snapshot() -> None:
    cluster, leader = behind()
    cluster[2].snapshot()
    cluster.lost = lambda message: isinstance(message, SnapshotChunk) and message.position > 40
    cluster[3].start()
    cluster.run(500)
    assert len(cluster[3].snapshots.buffer) == 48
    cluster.heal()
    leader.crash()
    cluster.delivered.clear()
    cluster.elect(2)
    cluster.run(1_000)
    sent = [message.position for message in cluster.delivered if isinstance(message, SnapshotChunk)]
    assert sent[:2] == [0, 48], "one question where it stands, then on from there"
    assert cluster[3].state.log.last_index == cluster[2].state.log.last_index


def test_7_a_snapshot_that_arrived_damaged_is_asked_for_anew() -> None:
    cluster, leader = behind()
    cluster.lost = lambda message: isinstance(message, SnapshotChunk) and message.position > 40
    cluster[3].start()
    cluster.run(500)
    cluster[3].snapshots.buffer = b"x" + cluster[3].snapshots.buffer[1:]
    cluster.heal()
    cluster.run(1_500)
    assert content(cluster, 3) == b"".join(leader.payloads)


def test_7_a_snapshot_never_replaces_what_is_newer() -> None:
    replica = with_log(1, 1, 1, 1)
    replica.node.step(Append(GROUP, 2, 1, 1, 4, 1, [], 4, 4, 0))
    said(replica)
    replica.node.step(chunk(1, meta(3, 1)))
    replies = said(replica)
    assert replica.terms() == [1, 1, 1, 1]
    assert [(type(reply), reply.index) for reply in replies if isinstance(reply, AppendReply)] == [(AppendReply, 4)]


def test_7_a_log_that_has_the_snapshots_last_entry_is_kept() -> None:
    replica = with_log(1, 1, 1, 1)
    replica.node.step(chunk(2, meta(3, 1)))
    said(replica)
    assert replica.terms() == [1, 1, 1, 1]
    assert replica.state.commit == 3


def test_7_a_log_that_differs_is_replaced() -> None:
    replica = with_log(1, 1, 1, 1)
    replica.node.step(chunk(3, meta(3, 2)))
    said(replica)
    assert (replica.log.base, replica.log.base_term, replica.log.items) == (3, 2, [])
    assert (replica.state.commit, replica.state.applied) == (3, 3)
    assert replica.state.configuration == Configuration((1, 2, 3))


def test_7_a_snapshot_is_acknowledged_when_it_is_durable() -> None:
    replica = with_log(1)
    replica.slow_disk = True
    replica.node.step(chunk(2, meta(5, 2)))
    assert said(replica) == []
    assert replica.state.log.durable == 0
    replica.sync()
    reply = said(replica)[0]
    assert isinstance(reply, SnapshotReply)
    assert reply.is_durable


def test_7_entries_behind_a_snapshot_that_is_being_written_wait_for_it() -> None:
    replica = with_log(1)
    replica.slow_disk = True
    replica.node.step(chunk(2, meta(5, 2)))
    replica.take()
    replica.node.step(Append(GROUP, 2, 1, 2, 5, 2, [entry(6, 2)], 6, 6, 0))
    replica.take()
    assert replica.applied == []
    replica.sync()
    said(replica)
    assert [applied.index for applied in replica.applied] == [6]
    assert (replica.log.base, len(replica.log.items)) == (5, 1)


def test_7_a_snapshot_that_is_still_being_saved_is_not_installed() -> None:
    replica = with_log(1)
    replica.snapshots.saving = 2
    for expected in ([], [], [SnapshotReply]):
        replica.node.step(chunk(2, meta(5, 2)))
        assert [type(message) for message in said(replica)] == expected


def test_7_without_a_snapshot_that_helps_the_leader_waits_for_one() -> None:
    cluster, leader = behind()
    leader.snapshots.checkpoint = None
    cluster[3].start()
    cluster.run(500)
    assert leader.state.progress[3].state != SNAPSHOT
    leader.snapshots.checkpoint = leader.checkpoint
    cluster.run(500)
    assert cluster[3].state.log.last_index == leader.state.log.last_index


@pytest.mark.parametrize("answer", ["durable heartbeat", "acknowledgement"])
def test_7_a_follower_that_turns_out_to_have_enough_gets_entries(answer: str) -> None:
    cluster, leader = behind(keep=5)
    cluster[3].start()
    cluster.lost = lambda message: isinstance(message, SnapshotChunk)
    cluster.run(300)
    progress = leader.state.progress[3]
    assert progress.state == SNAPSHOT
    last = leader.state.log.last_index
    leader.node.step(AppendReply(GROUP, 3, 1, leader.state.term, True, last, 0, 0, 0, False))
    assert progress.state != SNAPSHOT
    assert answer


def test_7_a_snapshot_older_than_what_is_applied_refills_the_log_and_leaves_the_state() -> None:
    node = Cluster()[1].node
    node.step(chunk(2, SnapshotMeta(5, 1, 5, Configuration((1, 2, 3)), 9, 1)))
    first = node.take_ready()
    assert (first.restores, node.state.applied, node.state.log.last_index) == (True, 9, 5)
    node.persisted(first.number)
    node.step(chunk(3, SnapshotMeta(7, 1, 7, Configuration((1, 2, 3)), 8, 1)))
    second = node.take_ready()
    assert second.install is not None
    assert (second.restores, node.state.applied, node.state.log.last_index) == (False, 9, 7)


def test_7_a_follower_that_has_the_snapshot_already_gets_another_when_more_is_gone_meanwhile() -> None:
    cluster, leader = behind(keep=6)
    cluster[3].start()
    cluster.lost = lambda message: isinstance(message, SnapshotChunk)
    cluster.run(300)
    sent = leader.state.progress[3].snapshot
    assert sent is not None
    leader.log.compact(sent.index + 3)
    leader.node.step(AppendReply(GROUP, 3, 1, leader.state.term, True, sent.index, 0, 0, 0, False))
    chunks = [message for message in said(leader) if isinstance(message, SnapshotChunk)]
    assert [message.meta.index for message in chunks] == [leader.log.base]


def test_7_a_snapshot_begins_with_what_the_disk_has_not_with_what_memory_has_for_a_moment() -> None:
    cluster, leader = behind()
    leader.state.log.tail_bytes_max = 1_000_000
    for number in range(4):
        cluster.propose(b"more-%d" % number)
        cluster.settle()
    old = leader.checkpoint
    index = leader.state.applied
    content = b"".join(leader.payloads)
    checkpoint = Checkpoint(index, leader.state.term, old.configuration, len(content), sum(content))
    leader.checkpoint, leader.snapshots.checkpoint, leader.snapshots.content = checkpoint, checkpoint, content
    leader.log.compact(index - 1)
    assert leader.state.log.first_index() == old.index + 1, "memory has more than the disk"
    cluster[3].start()
    cluster.run(500)
    assert cluster[3].log.base == leader.log.base
    assert cluster[3].log.items == leader.log.items
