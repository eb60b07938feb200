"""Handing leadership over: thesis 3.10."""

from __future__ import annotations

from flockmq.raft.messages import TimeoutNow
from flockmq.raft.ready import Proposal, Refusal
from flockmq.raft.state import FOLLOWER, FORGOTTEN, LEADER, HardState
from raft_cluster import GROUP, Cluster, batch


def test_thesis_3_10_the_target_leads_at_once() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.run(200)
    assert leader.node.transfer(3) is None
    cluster.settle()
    assert cluster.leaders() == [cluster[3]]
    assert leader.state.role == FOLLOWER


def test_thesis_3_10_the_target_first_gets_the_whole_log() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.run(200)
    cluster[3].slow_disk = True
    cluster.propose(b"a")
    cluster.settle()
    assert leader.node.transfer(3) is None
    cluster.settle()
    assert leader.state.role == LEADER
    cluster[3].sync()
    cluster[3].slow_disk = False
    cluster.run(200)
    assert cluster.leaders() == [cluster[3]]
    assert cluster[3].payloads == [b"a"]


def test_thesis_3_10_proposals_wait_meanwhile() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.isolate(3)
    cluster.propose(b"a")
    cluster.settle()
    leader.node.transfer(3)
    refusal = leader.node.propose(batch(b"b"))
    assert isinstance(refusal, Refusal)
    assert refusal.leader == 3


def test_thesis_3_10_a_transfer_that_takes_too_long_is_given_up() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.isolate(3)
    leader.node.transfer(3)
    cluster.run(1_100)
    assert leader.state.role == LEADER
    cluster.propose(b"a")


def test_a_replica_that_lost_something_is_not_handed_leadership() -> None:
    """It would not campaign, and the group would take no proposals meanwhile, again and again."""
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.propose(b"a")
    cluster.run(200)
    cluster[3].crash()
    cluster[3].hard = HardState(0, 0, FORGOTTEN)
    del cluster[3].log.items[:]
    cluster[3].start()
    cluster.run(500)
    assert leader.state.progress[3].match == leader.state.log.last_index
    refusal = leader.node.transfer(3)
    assert isinstance(refusal, Refusal)
    assert "refilled" in refusal.reason
    assert isinstance(leader.node.propose(batch(b"b")), Proposal)


def test_only_voters_can_be_handed_leadership() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    for replica, target, text in ((leader, 9, "not a voter"), (leader, 1, "leads already"), (cluster[2], 3, "ask it")):
        refusal = replica.node.transfer(target)
        assert refusal is not None
        assert text in refusal.reason
    leader.state.transfer_to = 2
    refusal = leader.node.transfer(3)
    assert refusal is not None
    assert "already" in refusal.reason


def test_only_the_leader_of_the_term_can_ask_for_a_campaign() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.run(200)
    cluster[3].node.step(TimeoutNow(GROUP, 2, 3, leader.state.term))
    cluster[3].node.step(TimeoutNow(GROUP, 1, 3, leader.state.term - 1))
    assert cluster[3].state.role == FOLLOWER
    assert cluster[3].state.term == leader.state.term


def test_an_order_to_lead_that_comes_late_is_void() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.run(200)
    term = leader.state.term
    cluster.isolate(3)
    assert leader.node.transfer(3) is None
    cluster.run(1_500)
    assert cluster.leaders() == [leader]
    assert leader.state.term == term + 1
    cluster.heal()
    cluster.run(200)
    cluster[3].node.step(TimeoutNow(GROUP, 1, 3, term))
    cluster.run(200)
    assert cluster.leaders() == [leader]
    assert leader.state.term == term + 1
