from __future__ import annotations

import pytest

from flockmq.cluster.commands import ForgetNode, NodeSeen, NodeStateChanged, RemoveNode, ReplaceNode
from flockmq.cluster.model import ALIVE, DEAD, EDGE, LEFT
from flockmq.cluster.placement import next_moves
from flockmq.cluster.policy import SeenMember, decide
from flockmq.raft.configuration import Configuration
from policy_cluster import World

SEAT_MS = 31_000
AUTOCLEAN_MS = 301_000


@pytest.mark.parametrize(("cores", "voters"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 5), (6, 5), (9, 5)])
def test_how_many_vote(cores: int, voters: int) -> None:
    world = World(cores)
    world.calm()
    assert len(world.current.voters) == voters
    assert world.current.learners == ()
    assert world.decide().configuration is None
    assert world.decide().commands == []
    assert bool(world.decide().warning) is (voters == 2)


def test_edge_nodes_never_vote() -> None:
    world = World(2)
    world.start(3, role=EDGE)
    world.calm()
    assert world.voters() == (1, 2)
    assert world.machine.state.nodes[3].role == EDGE


def test_voters_are_in_different_zones() -> None:
    world = World(6, zones=("c", "a", "a", "a", "a", "b"))
    world.calm()
    world.current = Configuration((1,))
    world.dead(1)
    world.says(1, ALIVE)
    world.calm()
    assert {5, 6} < set(world.current.voters)


def test_a_newcomer_learns_first_and_votes_when_it_has_caught_up() -> None:
    world = World(1)
    world.round()
    world.start(2)
    world.round()
    learning = world.decide(frozenset())
    assert learning.configuration == Configuration((1,), (), (2,))
    world.current = learning.configuration
    assert world.decide(frozenset()).configuration is None
    assert world.decide(frozenset({2})).configuration == Configuration((1, 2))


def test_one_newcomer_does_not_wait_for_another() -> None:
    world = World(3)
    world.round()
    world.current = Configuration((1,), (), (2, 3))
    assert world.decide(frozenset({3})).configuration == Configuration((1, 3), (), (2,))
    world.current = Configuration((1, 2, 3), (), (4, 5))
    world.start(4)
    world.start(5)
    world.round()
    world.current = Configuration((1, 2, 3), (), (4, 5))
    assert world.decide(frozenset({4})).configuration is None, "four voters are no better than three"


def test_no_step_while_another_is_under_way() -> None:
    world = World(3)
    world.round()
    world.current = Configuration((1, 2), (1,))
    assert world.decide().configuration is None


def test_before_anybody_is_known_nothing_changes() -> None:
    world = World(3)
    world.current = Configuration((1, 2, 3))
    assert world.decide().configuration is None
    world.leading_ms = 0
    world.machine.node(1)
    assert world.decide().configuration is None, "voters that are not in cluster state yet keep their seats"


def test_a_restart_costs_no_seat() -> None:
    world = World(4)
    world.calm()
    world.dead(3)
    world.calm()
    assert world.voters() == (1, 2, 3)
    world.says(3, ALIVE)
    world.calm()
    assert world.voters() == (1, 2, 3)


def test_a_spare_node_takes_the_seat_of_a_dead_one() -> None:
    world = World(4)
    world.calm()
    world.dead(3)
    world.round()
    world.wait(SEAT_MS)
    world.calm()
    assert world.voters() == (1, 2, 4)
    world.says(3, ALIVE)
    world.calm()
    assert world.voters() == (1, 2, 4), "who comes back is the spare one now"


def test_without_a_spare_node_the_seat_is_kept_until_autoclean() -> None:
    world = World(3)
    world.calm()
    world.dead(3)
    world.round()
    world.wait(SEAT_MS)
    world.calm()
    assert world.voters() == (1, 2, 3)
    world.wait(AUTOCLEAN_MS)
    world.calm()
    assert world.voters() == (1, 2)
    assert list(world.machine.state.nodes) == [1, 2]


def test_without_autoclean_nobody_is_forgotten() -> None:
    world = World(3, autoclean=False)
    world.calm()
    world.dead(3)
    world.round()
    world.wait(100 * AUTOCLEAN_MS)
    world.calm()
    assert world.voters() == (1, 2, 3)
    assert world.decide().gone == ()


def test_of_five_voters_the_dead_lose_their_seats_first() -> None:
    world = World(5)
    world.calm()
    world.dead(5)
    world.round()
    world.wait(AUTOCLEAN_MS - 10_000)
    world.dead(4)
    world.round()
    world.wait(10_000)
    world.calm()
    assert world.voters() == (1, 2, 3)


def test_two_of_five_dead_for_long_leave_three() -> None:
    world = World(5)
    world.calm()
    world.dead(2, 4)
    world.round()
    world.wait(AUTOCLEAN_MS)
    world.calm()
    assert world.voters() == (1, 3, 5)


def test_who_leaves_gives_up_its_seat_at_once() -> None:
    world = World(3)
    world.calm()
    world.says(3, LEFT)
    world.round()
    assert world.machine.state.nodes[3].state == LEFT
    assert world.decide().gone == (3,)
    world.calm()
    assert world.voters() == (1, 2)
    assert 3 not in world.machine.state.nodes, "nothing depends on it"


def test_no_step_that_the_living_can_not_decide() -> None:
    world = World(3)
    world.calm()
    world.machine.done(NodeStateChanged(2, LEFT))
    world.machine.done(NodeStateChanged(3, LEFT))
    world.says(2, LEFT)
    world.says(3, LEFT)
    decision = world.decide()
    assert decision.gone == (2, 3)
    assert decision.configuration is None


def test_what_gossip_says_goes_into_cluster_state() -> None:
    world = World(2)
    assert world.decide().commands == [NodeSeen(1, "n1@h", "h", 1), NodeSeen(2, "n2@h", "h", 2)]
    world.round()
    assert world.decide().commands == []
    world.members[2] = SeenMember(2, "n2@h", "elsewhere", 2)
    world.members[1].state = DEAD
    world.current = Configuration((2,))
    assert world.decide().commands == [NodeStateChanged(1, DEAD), NodeSeen(2, "n2@h", "elsewhere", 2)]


def test_a_left_node_stays_left_until_it_is_seen() -> None:
    world = World(2)
    world.calm()
    world.current = Configuration((1, 2), (1,))  # it has a seat, so it can't be forgotten yet
    world.says(2, LEFT)
    world.round()
    world.says(2, DEAD)
    assert world.decide().commands == []
    world.says(2, ALIVE)
    assert world.decide().commands == [NodeSeen(2, "n2@h", "h", 2)]


def test_a_new_leader_waits_for_news_of_nodes_it_has_not_heard_of() -> None:
    world = World(3)
    world.calm()
    del world.members[3]
    world.leading_ms = 5_000
    assert world.decide().commands == []
    world.leading_ms = 30_000
    assert world.decide().commands == [NodeStateChanged(3, DEAD)]


def test_a_node_with_a_new_disk_takes_over_at_once() -> None:
    world = World(3)
    world.calm()
    group = world.machine.topic("t").partitions[0].group
    world.dead(3)
    world.start(33, name="n3@h")
    first = world.round()
    assert first.commands == [NodeStateChanged(3, DEAD), NodeSeen(33, "n3@h", "h", 33)]
    second = world.decide()
    assert second.commands == [ReplaceNode(3, 33)]
    assert second.gone == (3,)
    world.calm()
    assert world.voters() == (1, 2, 33)
    assert sorted(world.machine.state.partition(group).target) == [1, 2, 33]
    assert 3 in world.machine.state.nodes, "it is a replica still"
    world.machine.arrive()
    assert world.decide().commands == [ForgetNode(3)]


def test_two_alive_with_one_name_are_not_asked_for_again_and_again() -> None:
    world = World(2)
    world.round()
    world.start(7, name="n2@h")
    assert world.decide().commands == []


def test_lost_nodes_go_when_their_replicas_have_gone() -> None:
    world = World(4)
    world.calm()
    world.machine.topic("t", shards=4)
    world.dead(2)
    world.round()
    assert world.decide().gone == ()
    world.wait(AUTOCLEAN_MS)
    decision = world.round()
    assert decision.gone == (2,)
    world.calm()
    assert 2 in world.machine.state.nodes
    while moves := next_moves(world.machine.state, decision.gone):
        world.machine.follow(moves)
    world.calm()
    assert 2 not in world.machine.state.nodes


def test_a_leader_that_cluster_state_holds_dead_keeps_its_seat() -> None:
    world = World(5)
    world.calm()
    world.dead(1, 2)
    world.round()
    world.wait(AUTOCLEAN_MS)
    world.says(1, ALIVE)
    assert world.leader == 1
    world.round()
    assert 1 in world.voters()


def test_who_takes_its_leave_votes_until_another_does() -> None:
    world = World(4)
    world.calm()
    world.machine.topic("t", shards=4)
    world.says(2, LEFT)
    world.members[2].is_leaving = True
    first = world.round()
    assert first.commands == [NodeStateChanged(2, LEFT)]
    assert first.gone == ()
    world.round()
    assert world.current == Configuration((1, 2, 3), (), (4,)), "who will follow learns while the leaving one votes"
    world.calm()
    assert world.voters() == (1, 3, 4)
    gone = world.decide().gone
    assert gone == (2,)
    assert 2 in world.machine.state.nodes
    while moves := next_moves(world.machine.state, gone):
        world.machine.follow(moves)
    assert world.decide().commands == [ForgetNode(2)]


def test_a_leader_that_takes_its_leave_gives_its_seat_away() -> None:
    world = World(3)
    world.calm()
    world.says(1, LEFT)
    world.members[1].is_leaving = True
    world.machine.done(NodeStateChanged(1, LEFT))
    ready = frozenset(world.current.learners)
    decision = decide(
        1,
        list(world.members.values()),
        world.machine.state,
        world.current,
        ready,
        world.machine.wall_ms,
        60_000,
        world.settings,
    )
    assert decision.configuration == Configuration((2, 3))


def test_a_node_that_an_operator_removed_is_forgotten_at_once() -> None:
    world = World(4)
    world.calm()
    world.dead(3)
    world.round()
    world.machine.done(RemoveNode(3))
    world.calm()
    assert world.voters() == (1, 2, 4)
    assert list(world.machine.state.nodes) == [1, 2, 4]
    world.says(3, ALIVE)
    world.calm()
    assert list(world.machine.state.nodes) == [1, 2, 4, 3], "if it comes back, it is a new one"
