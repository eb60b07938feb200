"""Changing members: Raft paper section 6; thesis chapter 4."""

from __future__ import annotations

import pytest

from flockmq.raft.configuration import Configuration
from flockmq.raft.messages import VoteRequest
from flockmq.raft.ready import Proposal, Refusal
from flockmq.raft.state import LEADER
from raft_cluster import GROUP, Cluster, Replica


def change(leader: Replica, voters: tuple[int, ...], learners: tuple[int, ...] = ()) -> Proposal:
    outcome = leader.node.change(voters, learners)
    assert isinstance(outcome, Proposal), outcome.reason
    return outcome


def refusal(leader: Replica, voters: tuple[int, ...], learners: tuple[int, ...] = ()) -> str:
    outcome = leader.node.change(voters, learners)
    assert isinstance(outcome, Refusal)
    return outcome.reason


def with_learners(*nodes: int, size: int = 3) -> tuple[Cluster, Replica]:
    """A cluster led by node 1, and learners that have caught up."""
    cluster = Cluster(size)
    leader = cluster.elect(1)
    for node in nodes:
        cluster.add(node)
    change(leader, leader.state.configuration.voters, nodes)
    cluster.run(1_500)
    return cluster, leader


def configurations(cluster: Cluster) -> set[Configuration]:
    return {replica.state.configuration for replica in cluster.replicas.values()}


def test_thesis_4_2_1_a_learner_gets_everything_and_decides_nothing() -> None:
    cluster, leader = with_learners(4)
    cluster.propose(b"a")
    cluster.run(200)
    assert cluster[4].payloads == [b"a"]
    cluster.isolate(1, 4)
    proposal = cluster.propose(b"b", node=1)
    cluster.settle()
    assert leader.state.commit < proposal.index
    cluster[4].state.campaign_at = 0
    cluster.run(200)
    assert cluster[4].state.role != LEADER


def test_thesis_4_2_1_a_new_voter_must_have_caught_up() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.run(1_500)
    cluster.add(4)
    assert "add it as a learner first" in refusal(leader, (1, 2, 3, 4))
    cluster.isolate(4)
    change(leader, (1, 2, 3), (4,))
    cluster.run(1_500)
    assert "let it catch up" in refusal(leader, (1, 2, 3, 4), ())
    cluster.heal()
    cluster.run(1_500)
    change(leader, (1, 2, 3, 4))
    cluster.run(200)
    assert configurations(cluster) == {Configuration((1, 2, 3, 4))}


def test_6_a_change_of_voters_goes_through_a_joint_configuration() -> None:
    cluster, leader = with_learners(4)
    change(leader, (1, 2, 4))
    assert leader.state.configuration == Configuration((1, 2, 4), (1, 2, 3))
    cluster.run(200)
    assert leader.state.configuration == Configuration((1, 2, 4))
    assert leader.state.role == LEADER
    cluster.propose(b"a")
    cluster.run(200)
    assert cluster[4].payloads == [b"a"]


@pytest.mark.parametrize("reachable", [(1, 4, 5), (1, 2, 3)], ids=["new voters alone", "old voters alone"])
def test_6_a_joint_decision_needs_both_majorities(reachable: tuple[int, ...]) -> None:
    cluster, leader = with_learners(4, 5, size=3)
    change(leader, (1, 4, 5))
    cluster.isolate(*reachable)
    joint = leader.state.configuration_index
    cluster.run(400)
    assert leader.state.commit < joint
    cluster.heal()
    cluster.run(500)
    assert leader.state.configuration == Configuration((1, 4, 5))


def test_6_a_configuration_counts_as_soon_as_it_is_in_the_log() -> None:
    cluster, leader = with_learners(4)
    change(leader, (1, 2, 4))
    cluster.turn()
    cluster.turn()
    assert leader.state.commit < leader.state.configuration_index
    assert cluster[2].state.configuration.is_joint


def test_6_a_configuration_that_is_removed_from_the_log_is_undone() -> None:
    cluster, leader = with_learners(4)
    cluster.isolate(1)
    change(leader, (1, 2, 4))
    cluster.settle()
    assert leader.state.configuration.is_joint
    cluster.elect(2)
    cluster.heal()
    cluster.run(500)
    assert configurations(cluster) == {Configuration((1, 2, 3), (), (4,))}


def test_6_the_next_leader_finishes_a_joint_change() -> None:
    cluster, leader = with_learners(4)
    change(leader, (2, 3, 4))
    cluster.turn()
    cluster.turn()
    leader.crash()
    cluster.run(4_000)
    second = cluster.leaders()[-1]
    assert second.id != 1
    assert second.state.configuration == Configuration((2, 3, 4))
    cluster.propose(b"a")
    cluster.run(300)
    assert second.payloads == [b"a"]


def test_6_a_leader_that_is_removed_leads_until_that_is_committed() -> None:
    cluster, leader = with_learners(4)
    change(leader, (2, 3, 4))
    cluster.run(100)
    assert leader.state.role != LEADER
    assert not leader.state.configuration.is_voter(1)
    cluster.run(3_000)
    assert cluster.leaders()[-1].id in (2, 3, 4)


def test_6_a_removed_node_can_not_disturb_the_group() -> None:
    cluster, leader = with_learners()
    cluster.isolate(3)
    change(leader, (1, 2))
    cluster.run(500)
    term = leader.state.term
    cluster.heal()
    for _ in range(10):
        cluster.propose(b"x")
        cluster.run(500)
    assert leader.state.role == LEADER
    assert leader.state.term == term


@pytest.mark.parametrize("wanted", [(1, 2), (1, 2, 3, 4), (2, 3)])
def test_6_only_one_change_at_a_time(wanted: tuple[int, ...]) -> None:
    cluster, leader = with_learners(4)
    change(leader, (1, 2, 4))
    assert "not finished" in refusal(leader, wanted)
    cluster.run(500)
    change(leader, (1, 2))


def test_6_learners_alone_are_one_change_too() -> None:
    cluster, leader = with_learners(4)
    cluster.isolate(1)
    change(leader, (1, 2, 3), ())
    cluster.settle()
    assert "not finished" in refusal(leader, (1, 2, 3), (4,))


def test_thesis_4_1_a_fresh_leader_changes_nothing_before_it_knows_what_is_committed() -> None:
    _, leader = with_learners(4)
    leader.state.commit = leader.state.term_start - 1
    leader.state.configurations = [(0, leader.state.configuration)]
    assert "elected just now" in refusal(leader, (1, 2))


def test_thesis_4_2_2_voters_that_leave_still_campaign_until_their_successors_are_known() -> None:
    """Only they may have the entry that names the new voters, who can't be elected without it."""
    cluster, leader = with_learners(4)
    cluster.run(100)
    change(leader, (4,), (1, 2, 3))
    cluster.settle_until(lambda: leader.state.configuration == Configuration((4,), (), (1, 2, 3)))
    cluster.isolate(4)
    cluster.run(300)
    assert cluster[2].state.configuration == Configuration((4,), (), (1, 2, 3))
    assert cluster[4].state.configuration.is_joint
    leader.crash()
    cluster.heal()
    cluster.run(8_000)
    leading = cluster.leaders()[-1]
    assert leading.id == 4
    assert leading.state.configuration == Configuration((4,), (), (1, 2, 3))


def test_a_voter_can_become_a_learner() -> None:
    cluster, leader = with_learners()
    change(leader, (1, 2), (3,))
    cluster.run(500)
    assert leader.state.configuration == Configuration((1, 2), (), (3,))
    cluster.propose(b"a")
    cluster.run(300)
    assert cluster[3].payloads == [b"a"]


def test_a_configuration_survives_a_restart() -> None:
    cluster, leader = with_learners(4)
    change(leader, (1, 2, 4))
    cluster.run(500)
    cluster[2].crash()
    cluster[2].start()
    assert cluster[2].state.configuration == Configuration((1, 2, 4))


@pytest.mark.parametrize(
    ("voters", "learners", "text"),
    [((), (2,), "at least one voter"), (tuple(range(1, 40)), (), "at most 31 voters")],
)
def test_impossible_groups_are_refused(voters: tuple[int, ...], learners: tuple[int, ...], text: str) -> None:
    _, leader = with_learners()
    assert text in refusal(leader, voters, learners)


def test_only_a_leader_changes_members() -> None:
    cluster, _ = with_learners()
    assert "Only the leader" in refusal(cluster[2], (1, 2))


def test_a_replica_without_configuration_neither_campaigns_nor_is_asked() -> None:
    cluster = Cluster()
    stranger = cluster.add(9)
    cluster.run(5_000)
    assert stranger.state.term == 0
    asked = [message for message in cluster.delivered if isinstance(message, VoteRequest) and message.receiver == 9]
    assert asked == []
    assert stranger.state.group == GROUP
