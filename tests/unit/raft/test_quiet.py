"""Groups without work: when they fall silent, what wakes them, and that nobody is lost meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flockmq.raft.messages import Heartbeat, VoteRequest
from flockmq.raft.reads import has_lease
from flockmq.raft.state import FOLLOWER, LEADER
from raft_cluster import GROUP, SETTINGS, Cluster, Replica


def silent(settings: object = SETTINGS) -> tuple[Cluster, Replica]:
    assert isinstance(settings, type(SETTINGS))
    cluster = Cluster(settings=settings)
    leader = cluster.elect(1)
    cluster.propose(b"a")
    cluster.run(3_000)
    assert all(replica.state.quiet for replica in cluster.replicas.values())
    return cluster, leader


def test_a_quiet_group_says_nothing() -> None:
    cluster, leader = silent()
    cluster.delivered.clear()
    cluster.run(60_000)
    assert cluster.delivered == []
    assert leader.state.role == LEADER


def test_a_group_with_work_is_not_quiet() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    for _ in range(30):
        cluster.propose(b"a")
        cluster.run(500)
        assert not leader.state.quiet


@pytest.mark.parametrize("lost", ["Append", "Heartbeat", "HeartbeatReply"])
def test_a_group_falls_silent_only_when_all_reachable_members_hold_the_final_commit(lost: str) -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.run(200)
    cluster.lost = lambda message: type(message).__name__ == lost and 3 in (message.sender, message.receiver)
    cluster.propose(b"a")
    cluster.delivered.clear()
    cluster.run(4_000)
    assert not [message for message in cluster.delivered if isinstance(message, Heartbeat) and message.quiet]
    cluster.heal()
    cluster.run(4_000)
    assert leader.state.quiet


def test_members_that_can_not_be_reached_are_not_waited_for() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster[3].crash()
    cluster.propose(b"a")
    cluster.run(4_000)
    assert not leader.state.quiet
    leader.state.unreachable.add(3)
    cluster.run(3_000)
    assert leader.state.quiet


def test_a_group_that_can_reach_no_quorum_does_not_fall_silent() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    leader.state.unreachable.update({2, 3})
    cluster.isolate(1)
    cluster.run(3_000)
    assert not leader.state.quiet
    assert leader.state.role != LEADER


def test_a_quiet_group_has_no_lease() -> None:
    cluster, leader = silent()
    assert not has_lease(leader.state, cluster.now)
    leader.node.read(1, cluster.now)
    assert not leader.state.quiet
    leader.take()
    assert leader.reads == []
    cluster.settle()
    assert [answer.index for answer in leader.reads] == [leader.state.commit]


def test_a_proposal_wakes_everybody() -> None:
    cluster, leader = silent()
    cluster.propose(b"b")
    cluster.settle()
    assert not any(replica.state.quiet for replica in cluster.replicas.values())
    assert leader.state.commit == leader.state.log.last_index


def test_a_follower_that_missed_the_last_word_wakes_its_leader() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.propose(b"a")
    cluster.lost = lambda message: isinstance(message, Heartbeat) and message.quiet and message.receiver == 3
    for _ in range(60):
        cluster.run(50)
        if leader.state.quiet:
            break
    assert not cluster[3].state.quiet
    cluster.heal()
    cluster.run(2_500)
    assert leader.state.role == LEADER
    assert leader.state.term == 1
    assert cluster[3].state.leader == 1


def test_a_follower_that_is_not_level_does_not_fall_silent() -> None:
    cluster, _ = silent()
    follower = cluster[3]
    follower.node.step(Heartbeat(GROUP, 1, 3, 1, 9, 9, 9, True))
    assert not follower.state.quiet


def test_quiet_followers_stay_loyal() -> None:
    cluster, _ = silent()
    cluster.run(10_000)
    follower = cluster[3]
    follower.node.step(VoteRequest(GROUP, 2, 3, 9, 99, 9, False, False))
    assert follower.state.term == 1
    assert follower.state.quiet


def test_a_lost_leader_is_replaced_soon() -> None:
    cluster, leader = silent()
    leader.crash()
    for node in (2, 3):
        cluster[node].node.leader_is_lost()
    cluster.run(1_500)
    assert cluster.leaders()


def test_a_leader_that_is_told_that_it_is_lost_knows_better() -> None:
    _, leader = silent()
    leader.node.leader_is_lost()
    assert leader.state.role == LEADER


def test_a_leader_that_wakes_without_a_quorum_steps_down() -> None:
    cluster, leader = silent()
    cluster.isolate(1)
    leader.node.wake()
    cluster.run(2_500)
    assert leader.state.role != LEADER


def test_a_follower_that_is_woken_campaigns_when_nobody_speaks() -> None:
    cluster, leader = silent(replace(SETTINGS, quiet_after_ms=500))
    leader.crash()
    for node in (2, 3):
        cluster[node].node.wake()
    assert cluster[2].state.role == FOLLOWER
    cluster.run(5_000)
    assert cluster.leaders()
