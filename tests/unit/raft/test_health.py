"""Replicas that lost something: they neither vote nor campaign until all of it is back."""

from __future__ import annotations

import pytest

from flockmq.raft.messages import VoteReply, VoteRequest
from flockmq.raft.ready import Proposal
from flockmq.raft.state import DAMAGED, FORGOTTEN, LEADER, SOUND, HardState
from raft_cluster import GROUP, Cluster, Replica, said


def lose(replica: Replica, health: int, keep: int = 0) -> None:
    """The replica starts again with a part of its log, and knows it."""
    replica.crash()
    del replica.log.items[keep:]
    replica.hard = HardState(0, 0, FORGOTTEN) if health == FORGOTTEN else HardState(replica.hard.term, 0, DAMAGED)
    replica.start()


def written(cluster: Cluster, count: int = 5) -> Replica:
    leader = cluster.elect(1)
    for number in range(count):
        cluster.propose(b"%d" % number)
    cluster.run(200)
    return leader


@pytest.mark.parametrize("health", [DAMAGED, FORGOTTEN])
@pytest.mark.parametrize("pre", [True, False])
def test_an_impaired_replica_does_not_vote(health: int, pre: bool) -> None:
    replica = Cluster()[1]
    replica.hard = HardState(0, 0, health)
    replica.start()
    replica.take()
    replica.state.loyal_until = 0
    replica.node.step(VoteRequest(GROUP, 2, 1, 5, 9, 4, pre, False))
    replies = [message for message in said(replica) if isinstance(message, VoteReply)]
    assert [reply.granted for reply in replies] == [False]


@pytest.mark.parametrize("health", [DAMAGED, FORGOTTEN])
def test_an_impaired_replica_does_not_campaign(health: int) -> None:
    cluster = Cluster(1)
    cluster[1].hard = HardState(0, 0, health)
    cluster[1].start()
    cluster.run(10_000)
    assert cluster[1].state.term == 0


def test_what_it_acknowledged_before_is_not_lost_with_its_vote() -> None:
    """Entry x is on 1 and 3. 3 loses it and 1 is down: 2 must not become leader without x."""
    cluster = Cluster()
    cluster.elect(1)
    cluster.isolate(2)
    cluster.propose(b"x", node=1)
    cluster.settle()
    assert cluster[1].payloads == [b"x"]
    lose(cluster[3], DAMAGED, keep=1)
    cluster[1].crash()
    cluster.heal()
    cluster.run(10_000)
    assert cluster.leaders() == []
    cluster[1].start()
    cluster.run(5_000)
    assert [replica.payloads for replica in cluster.replicas.values()] == [[b"x"]] * 3


def test_a_damaged_replica_is_sound_when_it_has_what_its_leader_had() -> None:
    cluster = Cluster()
    leader = written(cluster)
    cluster.isolate(3)
    lose(cluster[3], DAMAGED, keep=2)
    cluster.heal()
    cluster.run(500)
    assert cluster[3].log.items == leader.log.items
    assert cluster[3].hard.health == SOUND


def test_it_is_not_sound_before_that_is_durable() -> None:
    cluster = Cluster()
    written(cluster)
    lose(cluster[3], DAMAGED, keep=2)
    cluster[3].slow_disk = True
    cluster.run(500)
    assert cluster[3].state.log.last_index == 6
    assert cluster[3].state.health == DAMAGED
    cluster[3].sync()
    cluster.settle()
    assert cluster[3].state.health == SOUND


def test_entries_that_are_not_committed_must_be_back_as_well() -> None:
    """An acknowledgement of its former life may still be on its way to the leader, and commit them."""
    cluster = Cluster()
    leader = written(cluster)
    cluster.lost = lambda message: type(message).__name__ == "AppendReply" or message.receiver == 2
    cluster.propose(b"y")
    cluster.settle()
    assert leader.state.commit < leader.state.log.last_index
    lose(cluster[3], DAMAGED, keep=2)
    cluster.run(300)
    assert cluster[3].state.refill_to == leader.state.log.last_index


def test_another_leader_means_another_goal() -> None:
    cluster = Cluster(5)
    written(cluster)
    cluster.isolate(5)
    lose(cluster[5], DAMAGED)
    cluster.heal()
    cluster.lost = lambda message: type(message).__name__ == "Append" and message.receiver == 5
    cluster.run(300)
    assert cluster[5].state.refill_to == 6
    cluster.elect(2)
    cluster.propose(b"z")
    cluster.run(300)
    assert cluster[5].state.refill_to >= 7
    cluster.heal()
    cluster.run(500)
    assert cluster[5].state.health == SOUND


def test_a_damaged_replica_is_refilled_although_its_leader_thinks_it_has_everything() -> None:
    cluster = Cluster()
    leader = written(cluster)
    assert leader.state.progress[3].match == 6
    lose(cluster[3], DAMAGED, keep=1)
    cluster.propose(b"more")
    cluster.run(500)
    assert cluster[3].log.items == leader.log.items


def test_a_replica_that_forgot_its_vote_is_refilled_but_decides_nothing() -> None:
    cluster = Cluster()
    leader = written(cluster)
    lose(cluster[3], FORGOTTEN)
    cluster.run(1_000)
    assert cluster[3].log.items == leader.log.items
    assert cluster[3].state.health == FORGOTTEN
    leader.crash()
    cluster.run(8_000)
    assert cluster.leaders() == []


def test_it_votes_again_after_it_was_a_learner() -> None:
    cluster = Cluster()
    leader = written(cluster)
    lose(cluster[3], FORGOTTEN)
    cluster.run(1_500)
    assert isinstance(leader.node.change((1, 2), (3,)), Proposal)
    cluster.run(1_500)
    assert cluster[3].hard.health == SOUND
    assert isinstance(leader.node.change((1, 2, 3)), Proposal)
    cluster.run(500)
    leader.crash()
    cluster.run(4_000)
    assert cluster.leaders()
    assert cluster.leaders()[-1].state.role == LEADER


def test_a_leader_hears_of_lost_votes_although_the_answer_to_its_last_append_is_lost() -> None:
    cluster = Cluster()
    former = written(cluster)
    lose(cluster[3], FORGOTTEN)
    cluster.run(1_500)
    cluster.lost = lambda message: type(message).__name__ == "AppendReply" and message.sender == 3
    assert former.node.transfer(2) is None
    cluster.run(1_000)
    cluster.heal()
    cluster.run(1_000)
    leader = cluster[2].state
    assert leader.role == LEADER
    assert (leader.progress[3].match, leader.progress[3].impaired) == (leader.log.last_index, True)


def test_having_been_a_learner_once_upon_a_time_does_not_count() -> None:
    """The log that refills it has the entry with which it was added; that was in its former life."""
    cluster = Cluster()
    leader = written(cluster)
    cluster.add(4)
    assert isinstance(leader.node.change((1, 2, 3), (4,)), Proposal)
    cluster.run(1_500)
    assert isinstance(leader.node.change((1, 2, 3, 4)), Proposal)
    cluster.run(1_500)
    lose(cluster[4], FORGOTTEN)
    cluster.run(1_500)
    assert cluster[4].log.items == leader.log.items
    assert cluster[4].state.health == FORGOTTEN


def test_a_new_replica_becomes_sound_as_a_learner() -> None:
    cluster = Cluster()
    leader = written(cluster)
    cluster.add(4, FORGOTTEN)
    assert isinstance(leader.node.change((1, 2, 3), (4,)), Proposal)
    cluster.run(1_500)
    assert cluster[4].hard.health == SOUND


def test_health_survives_a_restart() -> None:
    cluster = Cluster()
    written(cluster)
    cluster.isolate(3)
    lose(cluster[3], DAMAGED)
    cluster[3].node.step(VoteRequest(GROUP, 2, 3, 9, 9, 9, False, True))
    cluster.settle()
    assert (cluster[3].hard.term, cluster[3].hard.health) == (9, DAMAGED)
