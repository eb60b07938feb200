"""The leader's side of replication: Raft paper 5.3; thesis 10.2.1 (pipelining)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flockmq.log.batch import BatchView
from flockmq.raft.messages import Append, AppendReply, Heartbeat, HeartbeatReply, Message
from flockmq.raft.progress import PROBE, REPLICATE
from flockmq.raft.ready import BUSY, NOT_ALLOWED, NOT_LEADER, Proposal, Refusal
from flockmq.raft.state import LEADER
from raft_cluster import GROUP, SETTINGS, Cluster, batch, said


def appends(messages: list[Message], receiver: int) -> list[Append]:
    return [message for message in messages if isinstance(message, Append) and message.receiver == receiver]


def test_5_3_proposals_reach_everybody_in_order() -> None:
    cluster = Cluster(5)
    cluster.elect(1)
    expected = [b"%d" % number for number in range(20)]
    for payload in expected:
        cluster.propose(payload)
    cluster.run(200)
    assert [replica.payloads for replica in cluster.replicas.values()] == [expected] * 5


def test_5_3_replica_logs_are_the_same_bytes() -> None:
    cluster = Cluster()
    cluster.elect(1)
    for number in range(5):
        cluster.propose(b"%d" % number)
    cluster.elect(2)
    cluster.propose(b"last")
    cluster.run(200)
    assert cluster[1].log.items == cluster[2].log.items == cluster[3].log.items


def test_5_3_offsets_are_dense_and_survive_a_change_of_leader() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    first = leader.node.propose(batch(b"a", b"b", b"c"))
    assert isinstance(first, Proposal)
    cluster.run(100)
    cluster.elect(2)
    second = cluster.propose(b"d")
    assert (first.base_offset, second.base_offset) == (0, 3)
    cluster.run(100)
    assert [BatchView(item).base_offset for item in cluster[3].log.items] == [0, 0, 3, 3]


def test_5_3_proposals_of_one_turn_share_an_append() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    for number in range(10):
        cluster.propose(b"%d" % number)
    sent = appends(said(leader), 2)
    assert [len(message.entries) for message in sent] == [10]


def test_5_3_the_leader_asks_one_question_per_term_not_per_entry() -> None:
    """Figure 7 f: 300 entries of a term that the leader never saw."""
    cluster = Cluster()
    cluster.elect(1)
    cluster.isolate(1)
    for number in range(300):
        cluster.propose(b"%d" % number, node=1)
    cluster.run(100)
    cluster.elect(2)
    cluster.propose(b"x", node=2)
    cluster.heal()
    cluster.delivered.clear()
    cluster.run(400)
    refusals = [message for message in cluster.delivered if isinstance(message, AppendReply) and not message.ok]
    assert len(refusals) <= 2
    assert cluster[1].log.items == cluster[2].log.items


def test_5_3_a_follower_that_was_down_catches_up() -> None:
    cluster = Cluster(settings=replace(SETTINGS, append_bytes_max=500, tail_bytes_max=1_000))
    cluster.elect(1)
    cluster[3].crash()
    for number in range(100):
        cluster.propose(b"%d" % number)
        cluster.settle()
    cluster[3].start()
    cluster.run(1_000)
    assert cluster[3].log.items == cluster[1].log.items


def test_thesis_10_2_1_appends_are_sent_ahead_of_their_answers() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.propose(b"a")
    first = appends(said(leader), 2)
    cluster.propose(b"b")
    second = appends(said(leader), 2)
    assert first[0].prev_index + 1 == second[0].prev_index


def test_thesis_10_2_1_a_leader_sends_before_its_own_disk_has_it() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    leader.slow_disk = True
    proposal = cluster.propose(b"a")
    assert appends(said(leader), 2)[0].entries[0].index == proposal.index


def test_thesis_10_2_1_a_leader_counts_itself_only_when_durable() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    leader.slow_disk = True
    cluster[3].crash()
    proposal = cluster.propose(b"a")
    cluster.settle()
    assert leader.state.progress[2].match == proposal.index
    assert leader.state.commit == proposal.index - 1
    leader.sync()
    assert leader.state.commit == proposal.index


def test_thesis_10_2_1_followers_commit_without_the_leaders_disk_but_it_applies_nothing() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    leader.slow_disk = True
    proposal = cluster.propose(b"a")
    cluster.run(200)
    assert leader.state.commit == proposal.index
    assert cluster[2].payloads == [b"a"]
    assert leader.payloads == []
    leader.sync()
    cluster.settle()
    assert leader.payloads == [b"a"]


def test_the_window_bounds_what_is_sent_ahead() -> None:
    cluster = Cluster(settings=replace(SETTINGS, append_bytes_max=1_000, window_bytes_max=5_000))
    leader = cluster.elect(1)
    cluster.cut(1, 2)
    size = len(batch(b"x" * 500))
    for _ in range(50):
        cluster.propose(b"x" * 500)
    cluster.settle()
    progress = leader.state.progress[2]
    assert 5_000 <= progress.sent_bytes < 5_000 + 1_000 + size
    cluster.heal()
    cluster.run(500)
    assert progress.sent_bytes == 0
    assert cluster[2].log.items == leader.log.items


@pytest.mark.parametrize("kind", [Append, AppendReply])
def test_a_lost_message_is_noticed_by_the_next_heartbeat(kind: type[Message]) -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.run(150)
    cluster.lost = lambda message: isinstance(message, kind) and 3 in (message.sender, message.receiver)
    proposal = cluster.propose(b"a")
    cluster.settle()
    assert leader.state.progress[3].match < proposal.index
    cluster.heal()
    cluster.run(300)
    assert leader.state.progress[3].match == proposal.index
    assert leader.state.progress[3].state == REPLICATE


def test_a_slow_disk_is_no_lost_append() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.run(150)
    cluster[3].slow_disk = True
    cluster.propose(b"a")
    cluster.delivered.clear()
    cluster.run(900)
    assert len(appends(cluster.delivered, 3)) == 1
    cluster[3].sync()
    cluster.run(200)
    assert leader.state.progress[3].match == leader.state.log.last_index


def test_a_follower_that_rejected_one_append_is_probed() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.run(150)
    last = leader.state.log.last_index
    leader.node.step(AppendReply(GROUP, 2, 1, leader.state.term, False, last + 5, last, leader.state.term, 0, False))
    assert leader.state.progress[2].state == PROBE
    cluster.propose(b"a")
    cluster.run(200)
    assert leader.state.progress[2].state == REPLICATE


def test_a_probe_without_entries_whose_answer_is_lost_is_settled_by_a_heartbeat() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.run(150)
    last = leader.state.log.last_index
    leader.node.step(AppendReply(GROUP, 2, 1, leader.state.term, False, last + 5, last, leader.state.term, 0, False))
    cluster.lost = lambda message: isinstance(message, AppendReply)
    cluster.settle()
    assert leader.state.progress[2].state == PROBE
    cluster.heal()
    cluster.propose(b"a")
    cluster.run(300)
    assert leader.state.progress[2].state == REPLICATE
    assert cluster[2].log.items == leader.log.items


def test_a_follower_that_lost_entries_unnoticed_gets_them_again() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    for number in range(5):
        cluster.propose(b"%d" % number)
    cluster.run(150)
    cluster[3].crash()
    del cluster[3].log.items[2:]
    cluster[3].start()
    cluster.run(1_000)
    assert cluster[3].log.items == leader.log.items


def test_a_restarted_follower_with_the_whole_log_learns_what_is_committed() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.propose(b"a")
    cluster.run(150)
    cluster[3].crash()
    cluster[3].start()
    assert cluster[3].state.commit == 0
    cluster.run(400)
    assert cluster[3].state.commit == leader.state.commit
    assert cluster[3].payloads == [b"a"]


def test_late_refusals_change_nothing() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.propose(b"a")
    cluster.run(150)
    match = leader.state.progress[2].match
    leader.node.step(AppendReply(GROUP, 2, 1, leader.state.term, False, match, 0, 0, 0, False))
    assert leader.state.progress[2].state == REPLICATE
    assert leader.state.progress[2].match == match


def test_an_answer_from_beyond_the_log_is_ignored() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    term = leader.state.term
    leader.node.step(AppendReply(GROUP, 2, 1, term, True, 99, 0, 0, 0, False))
    leader.node.step(HeartbeatReply(GROUP, 3, 1, term, 99, 99, 99, 99))
    assert leader.state.progress[2].match < 99
    assert leader.state.commit < 99
    assert leader.state.round_confirmed < 99


def test_answers_of_strangers_are_ignored() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    leader.node.step(AppendReply(GROUP, 8, 1, leader.state.term, True, 1, 0, 0, 0, False))
    leader.node.step(HeartbeatReply(GROUP, 8, 1, leader.state.term, 1, 1, 1, 1))
    assert leader.state.role == LEADER
    assert 8 not in leader.state.progress


def test_a_full_link_gets_no_entries_but_heartbeats() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    leader.state.congested.add(2)
    cluster.propose(b"a")
    cluster.delivered.clear()
    cluster.run(200)
    assert appends(cluster.delivered, 2) == []
    assert cluster[2].state.leader == 1
    assert leader.state.held_back
    leader.state.congested.clear()
    leader.state.dirty = True
    cluster.run(200)
    assert cluster[2].payloads == [b"a"]


def test_only_leaders_take_proposals() -> None:
    cluster = Cluster()
    cluster.elect(1)
    refusal = cluster[2].node.propose(batch(b"a"))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.leader) == (NOT_LEADER, 1)


def test_a_leader_takes_in_no_more_than_it_may() -> None:
    cluster = Cluster(settings=replace(SETTINGS, uncommitted_bytes_max=1_000, entry_bytes_max=5_000))
    leader = cluster.elect(1)
    cluster.isolate(1)
    codes = []
    for _ in range(10):
        outcome = leader.node.propose(batch(b"x" * 300))
        codes.append(outcome.code if isinstance(outcome, Refusal) else 0)
    assert codes[0] == 0
    assert codes[-1] == BUSY
    cluster.heal()
    cluster.run(300)
    assert isinstance(leader.node.propose(batch(b"x" * 300)), Proposal)
    large = leader.node.propose(batch(b"x" * 6_000))
    assert isinstance(large, Refusal)
    assert large.code == NOT_ALLOWED


def test_a_member_that_is_sent_entries_needs_no_heartbeats() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.run(300)
    beats: list[Message] = []

    def lost(message: Message) -> bool:
        if isinstance(message, Heartbeat) and message.receiver == 3:
            beats.append(message)
        return isinstance(message, AppendReply) and message.sender == 3

    cluster.lost = lost
    for _ in range(30):
        cluster.propose(b"x")
        cluster.settle()
        cluster.tick(50)
        cluster.settle()
    assert beats == []
    assert cluster[3].state.lease_round_seen >= leader.state.round - 1, "appends tell of rounds as well"
    assert leader.state.role == LEADER
    cluster.run(300)
    assert beats


@pytest.mark.parametrize("at_once", [True, False])
def test_followers_hear_at_once_what_is_committed_where_that_is_asked_for(at_once: bool) -> None:
    cluster = Cluster(settings=replace(SETTINGS, commit_news_at_once=at_once))
    cluster.elect(1)
    cluster.run(200)
    cluster.propose(b"alone")
    cluster.settle()  # no time passes
    assert [b"alone" in replica.payloads for replica in cluster.replicas.values()] == [True, at_once, at_once]
