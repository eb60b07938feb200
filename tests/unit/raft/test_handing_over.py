"""When leadership may go elsewhere, and to whom."""

from __future__ import annotations

from flockmq.raft.handing_over import can_go_to, successor
from raft_cluster import Cluster


def test_a_leader_hands_over_to_who_has_everything() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.isolate(3)
    cluster.propose(b"x", 1)
    cluster.settle()
    state = leader.state
    assert can_go_to(state, 2)
    assert not can_go_to(state, 3), "it lacks an entry"
    assert not can_go_to(state, 9), "it is no member"
    assert not can_go_to(cluster[2].state, 1), "only a leader has something to hand over"
    state.transfer_to = 2
    assert not can_go_to(state, 2), "it is being done"


def test_the_successor_is_the_one_who_has_most_of_those_that_answer() -> None:
    cluster = Cluster()
    state = cluster.elect(1).state
    cluster.isolate(2)
    cluster.propose(b"x", 1)
    cluster.settle()
    assert successor(state, set()) == 3
    assert successor(state, {3}) == 2
    assert successor(state, {2, 3}) == 0
