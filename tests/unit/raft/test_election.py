"""Electing leaders: Raft paper 5.1, 5.2, 5.4.1; thesis 4.2.3 (loyalty), 9.6 (pre-vote)."""

from __future__ import annotations

import pytest

from flockmq.raft.messages import Append, Heartbeat, VoteReply, VoteRequest
from flockmq.raft.roles import draw_campaign
from flockmq.raft.state import CANDIDATE, FOLLOWER, LEADER, PRE_CANDIDATE
from raft_cluster import GROUP, Cluster, Replica, said, with_log


def request(term: int, last_index: int = 0, last_term: int = 0, pre: bool = False, sender: int = 2) -> VoteRequest:
    return VoteRequest(GROUP, sender, 1, term, last_index, last_term, pre, False)


def fresh(cluster: Cluster | None = None) -> Replica:
    """A follower that is loyal to nobody."""
    replica = (cluster or Cluster())[1]
    replica.take()
    replica.state.loyal_until = 0
    return replica


def reply(replica: Replica) -> VoteReply:
    messages = [message for message in said(replica) if isinstance(message, VoteReply)]
    assert len(messages) == 1
    return messages[0]


def test_5_2_a_group_elects_exactly_one_leader() -> None:
    cluster = Cluster(5)
    cluster.run(4_000)
    assert len(cluster.leaders()) == 1
    leader = cluster.leaders()[0]
    assert [replica.state.leader for replica in cluster.replicas.values()] == [leader.id] * 5


@pytest.mark.parametrize("seed", range(20))
def test_5_2_there_is_never_more_than_one_leader_per_term(seed: int) -> None:
    cluster = Cluster(5, seed)
    leaders: dict[int, int] = {}
    for step in range(200):
        if step % 20 == 10:
            cluster.heal()
            cluster.isolate(*cluster.rng.sample(range(1, 6), 2))
        cluster.tick()
        cluster.turn()
        for leader in cluster.leaders():
            assert leaders.setdefault(leader.state.term, leader.id) == leader.id
    assert leaders


def test_5_2_a_leader_is_replaced_when_it_dies() -> None:
    cluster = Cluster()
    first = cluster.elect(1)
    first.crash()
    cluster.run(3_000)
    second = cluster.leaders()[-1]
    assert second.id != 1
    assert second.state.term > first.state.term


def test_5_2_heartbeats_keep_followers_from_campaigning() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    term = leader.state.term
    for _ in range(40):
        cluster.propose(b"x")  # else the group falls silent
        cluster.run(250)
    assert cluster.leaders() == [leader]
    assert leader.state.term == term


def test_5_2_a_candidate_asks_everybody_and_votes_for_itself() -> None:
    replica = fresh()
    replica.state.campaign_at = 0
    replica.node.on_tick()
    for node in (2, 3):
        replica.node.step(VoteReply(GROUP, node, 1, 1, True, True))
    requests = [message for message in said(replica) if isinstance(message, VoteRequest) and not message.pre]
    assert sorted(message.receiver for message in requests) == [2, 3]
    assert (replica.hard.term, replica.hard.vote) == (1, 1)
    assert replica.state.role == CANDIDATE


@pytest.mark.parametrize(
    ("size", "granted", "refused", "role"),
    [
        (1, 0, 0, LEADER),
        (3, 0, 0, CANDIDATE),
        (3, 1, 0, LEADER),
        (3, 0, 2, FOLLOWER),
        (5, 1, 1, CANDIDATE),
        (5, 2, 2, LEADER),
        (5, 1, 3, FOLLOWER),
    ],
)
def test_5_2_a_majority_decides(size: int, granted: int, refused: int, role: int) -> None:
    replica = fresh(Cluster(size))
    replica.state.campaign_at = 0
    replica.node.on_tick()
    for node in range(2, size + 1):
        replica.node.step(VoteReply(GROUP, node, 1, 1, True, True))
    said(replica)
    for number in range(granted + refused):
        replica.node.step(VoteReply(GROUP, number + 2, 1, 1, False, number < granted))
    assert replica.state.role == role


def test_5_2_one_vote_per_term_first_come_first_served() -> None:
    replica = fresh()
    replica.node.step(request(5, sender=2))
    assert reply(replica).granted
    replica.node.step(request(5, sender=3))
    assert not reply(replica).granted
    replica.node.step(request(5, sender=2))
    assert reply(replica).granted, "the same candidate may ask again"
    assert replica.hard.vote == 2


def test_5_2_a_vote_survives_a_restart() -> None:
    replica = fresh()
    replica.node.step(request(5, sender=2))
    said(replica)
    replica.crash()
    replica.start()
    replica.state.loyal_until = 0
    replica.node.step(request(5, sender=3))
    assert not reply(replica).granted


def test_5_2_a_vote_is_not_told_before_it_is_durable() -> None:
    replica = fresh()
    replica.slow_disk = True
    replica.node.step(request(5, sender=2))
    assert said(replica) == []
    replica.sync()
    assert reply(replica).granted


def test_5_2_votes_are_not_asked_for_before_the_own_one_is_durable() -> None:
    replica = fresh()
    replica.slow_disk = True
    replica.state.campaign_at = 0
    replica.node.on_tick()
    replica.node.step(VoteReply(GROUP, 2, 1, 1, True, True))
    assert all(isinstance(message, VoteRequest) and message.pre for message in said(replica))
    replica.sync()
    assert [message.receiver for message in said(replica)] == [2, 3]


def test_5_2_a_lone_voter_leads_only_when_its_vote_is_durable() -> None:
    """A learner could else get entries of a term that a crash undoes, and that is then begun again with others."""
    replica = fresh(Cluster(1))
    replica.slow_disk = True
    replica.state.campaign_at = 0
    replica.node.on_tick()
    said(replica)
    assert replica.state.role == CANDIDATE
    replica.sync()
    assert replica.state.role == LEADER


def test_5_2_a_candidate_follows_a_leader_of_its_term() -> None:
    replica = fresh()
    replica.state.campaign_at = 0
    replica.node.on_tick()
    replica.node.step(VoteReply(GROUP, 2, 1, 1, True, True))
    assert replica.state.role == CANDIDATE
    replica.node.step(Append(GROUP, 3, 1, 1, 0, 0, [], 0, 0, 0))
    assert (replica.state.role, replica.state.leader, replica.state.term) == (FOLLOWER, 3, 1)


def test_5_2_timeouts_are_drawn_at_random_between_one_and_two() -> None:
    waits = {Cluster(1, seed)[1].state.campaign_wait for seed in range(200)}
    assert len(waits) > 100
    assert min(waits) >= 1_000
    assert max(waits) < 2_000


def test_5_2_a_replica_that_is_not_preferred_waits_longer() -> None:
    replica = fresh()
    usual = {draw(replica) for _ in range(50)}
    replica.state.priority = 2
    assert min(draw(replica) for _ in range(50)) >= min(usual) + 250
    assert max(draw(replica) for _ in range(50)) < 2_500


def test_5_2_replicas_take_turns_behind_the_preferred_one() -> None:
    cluster = Cluster(3)
    for replica in cluster.replicas.values():
        replica.state.preferred = 2
        replica.state.loyal_until = 0
    waits = {number: {draw(cluster[number]) for _ in range(50)} for number in (1, 2, 3)}
    assert max(waits[2]) < 1_250 < min(waits[1] | waits[3])
    for number in (1, 3):
        cluster[number].state.unreachable.add(2)
    waits = {number: {draw(cluster[number]) for _ in range(50)} for number in (1, 3)}
    first, second = sorted(waits.values(), key=min)
    assert max(first) < 1_250 < min(second)


def test_a_group_that_was_made_just_now_waits_for_nobody() -> None:
    cluster = Cluster(3)
    for replica in cluster.replicas.values():
        replica.state.preferred = 2
        replica.node.draw_campaign()
        replica.node.begin()
    cluster.run(450)
    assert [leader.id for leader in cluster.leaders()] == [2]


def draw(replica: Replica) -> int:
    draw_campaign(replica.state)
    return replica.state.campaign_wait


@pytest.mark.parametrize(
    ("last_index", "last_term", "granted"),
    [(3, 2, True), (4, 2, True), (1, 3, True), (2, 2, False), (9, 1, False), (0, 0, False)],
)
@pytest.mark.parametrize("pre", [True, False])
def test_5_4_1_only_an_up_to_date_log_gets_votes(last_index: int, last_term: int, granted: bool, pre: bool) -> None:
    replica = with_log(1, 2, 2)
    replica.state.loyal_until = 0
    replica.node.step(request(9, last_index, last_term, pre))
    assert reply(replica).granted is granted


def test_5_1_a_later_term_makes_everybody_a_follower() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    leader.node.step(Heartbeat(GROUP, 2, 1, leader.state.term + 1, 0, 0, 0, False))
    assert (leader.state.role, leader.state.leader) == (FOLLOWER, 2)


def test_5_1_an_earlier_term_is_told_the_present_one() -> None:
    replica = fresh()
    replica.node.step(Heartbeat(GROUP, 2, 1, 5, 0, 0, 0, False))
    said(replica)
    replica.node.step(Append(GROUP, 3, 1, 4, 0, 0, [], 0, 0, 0))
    replica.node.step(request(3, sender=3))
    assert [message.term for message in said(replica)] == [5, 5]
    assert replica.state.leader == 2


def test_5_1_an_old_leader_steps_down_when_it_is_back() -> None:
    cluster = Cluster()
    old = cluster.elect(1)
    cluster.isolate(1)
    cluster.propose(b"lost", node=1)
    cluster.run(900)
    cluster.elect(2)
    cluster.propose(b"kept", node=2)
    cluster.heal()
    cluster.run(500)
    assert old.state.role == FOLLOWER
    assert [replica.payloads for replica in cluster.replicas.values()] == [[b"kept"]] * 3


def test_thesis_9_6_a_pre_vote_changes_nothing() -> None:
    replica = fresh()
    replica.node.step(request(7, pre=True))
    answer = reply(replica)
    assert (answer.granted, answer.pre, answer.term) == (True, True, 7)
    assert (replica.state.term, replica.state.vote, replica.hard.term) == (0, 0, 0)


def test_thesis_9_6_a_node_that_was_cut_off_raises_no_term() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    term = leader.state.term
    cluster.isolate(3)
    for _ in range(20):
        cluster.propose(b"x")
        cluster.run(500)
    assert cluster[3].state.role == PRE_CANDIDATE or cluster[3].state.role == FOLLOWER
    cluster.heal()
    cluster.run(2_000)
    assert cluster.leaders() == [leader]
    assert leader.state.term == term


def test_thesis_9_6_a_pre_vote_about_the_present_term_is_refused_with_that_term() -> None:
    replica = fresh()
    replica.node.step(request(5, sender=2))
    said(replica)
    replica.node.step(request(5, pre=True, sender=3))
    answer = reply(replica)
    assert (answer.granted, answer.term) == (False, 5)


@pytest.mark.parametrize("pre", [True, False])
def test_thesis_4_2_3_who_hears_a_leader_ignores_candidates(pre: bool) -> None:
    cluster = Cluster()
    cluster.elect(1)
    follower = cluster[3]
    term = follower.state.term
    follower.node.step(VoteRequest(GROUP, 2, 3, term + 1, 99, 99, pre, False))
    assert said(follower) == []
    assert follower.state.term == term


def test_thesis_4_2_3_loyalty_ends_with_the_election_timeout() -> None:
    cluster = Cluster()
    cluster.elect(1).crash()
    follower = cluster[3]
    cluster.tick(1_000)
    follower.node.step(VoteRequest(GROUP, 2, 3, follower.state.term + 1, 99, 99, False, False))
    assert any(isinstance(message, VoteReply) and message.granted for message in said(follower))


def test_thesis_4_2_3_a_node_is_loyal_after_a_restart_too() -> None:
    """It may have answered a leader's round just before, and the leader's lease rests on that."""
    replica = Cluster()[1]
    replica.node.step(request(5))
    assert said(replica) == []
    replica.cluster.tick(1_000)
    replica.node.step(request(5))
    assert reply(replica).granted


def test_thesis_4_2_3_a_leader_is_loyal_to_itself() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    leader.node.step(VoteRequest(GROUP, 2, 1, leader.state.term + 1, 99, 99, False, False))
    assert leader.state.role == LEADER


def test_thesis_4_2_3_a_leader_that_asks_for_votes_leads_no_more() -> None:
    cluster = Cluster()
    cluster.elect(1)
    follower = cluster[3]
    follower.node.step(VoteRequest(GROUP, 1, 3, follower.state.term + 1, 99, 99, True, False))
    assert reply(follower).granted


def test_thesis_6_2_a_leader_without_a_quorum_steps_down() -> None:
    cluster = Cluster(5)
    leader = cluster.elect(1)
    cluster.isolate(1, 2)
    cluster.run(2_500)
    assert leader.state.role != LEADER
    assert cluster.leaders()


def test_thesis_6_2_a_leader_with_a_quorum_stays() -> None:
    cluster = Cluster(5)
    leader = cluster.elect(1)
    cluster.isolate(4, 5)
    cluster.propose(b"x")
    cluster.run(1_500)
    assert leader.state.role == LEADER
