"""Reads without entries: Raft paper section 8; thesis 6.4 (read index), 6.4.1 (lease)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flockmq.raft.reads import READS_MAX, has_lease
from flockmq.raft.state import LEADER
from raft_cluster import SETTINGS, Cluster, Replica

NO_LEASE = replace(SETTINGS, lease=False)


def ask(replica: Replica, number: int = 1) -> None:
    replica.node.read(number, replica.cluster.now + replica.clock_error_ms)


def answers(replica: Replica) -> list[tuple[int, int]]:
    return [(answer.number, answer.index) for answer in replica.reads]


def leading(settings: object = SETTINGS) -> tuple[Cluster, Replica]:
    assert isinstance(settings, type(SETTINGS))
    cluster = Cluster(settings=settings)
    leader = cluster.elect(1)
    cluster.propose(b"a")
    cluster.run(200)
    return cluster, leader


def test_8_a_read_sees_all_that_was_committed_before_it() -> None:
    cluster, leader = leading(NO_LEASE)
    ask(leader)
    assert answers(leader) == []
    cluster.settle()
    assert answers(leader) == [(1, leader.state.commit)]


def test_8_a_follower_sends_reads_away() -> None:
    cluster, _ = leading()
    ask(cluster[2])
    cluster.settle()
    assert answers(cluster[2]) == [(1, -1)]


def test_thesis_6_4_a_fresh_leader_first_commits_an_entry_of_its_term() -> None:
    cluster = Cluster()
    leader = cluster[1]
    cluster.lost = lambda message: type(message).__name__ == "AppendReply"
    leader.state.campaign_at = 0
    for replica in cluster.replicas.values():
        replica.state.loyal_until = 0
    cluster.run(50)
    assert leader.state.role == LEADER
    ask(leader)
    cluster.settle()
    assert answers(leader) == []
    cluster.heal()
    cluster.run(300)
    assert answers(leader) == [(1, leader.state.term_start)]


def test_thesis_6_4_a_leader_that_was_replaced_answers_no_read() -> None:
    cluster, old = leading(NO_LEASE)
    cluster.isolate(1)
    cluster.elect(2)
    cluster.propose(b"b", node=2)
    cluster.settle()
    assert old.state.role == LEADER
    ask(old)
    cluster.run(300)
    assert answers(old) == []
    cluster.heal()
    cluster.run(500)
    assert answers(old) == [(1, -1)]


def test_thesis_6_4_answers_to_an_earlier_round_confirm_nothing() -> None:
    cluster, leader = leading(NO_LEASE)
    cluster.tick(150)
    leader.take()
    earlier, cluster.flying = cluster.flying, []
    ask(leader)
    leader.take()
    cluster.flying.clear()
    for message in earlier:
        cluster.arrive(message)
    cluster.lost = lambda message: type(message).__name__ == "Heartbeat"
    cluster.settle()
    assert leader.state.round_confirmed > 0
    assert answers(leader) == []


def test_thesis_6_4_reads_share_rounds() -> None:
    cluster, leader = leading(NO_LEASE)
    before = leader.state.round
    for number in range(100):
        ask(leader, number)
    cluster.settle()
    assert [number for number, _ in answers(leader)] == list(range(100))
    assert leader.state.round == before + 1


def test_thesis_6_4_reads_that_come_during_a_round_wait_for_the_next() -> None:
    cluster, leader = leading(NO_LEASE)
    before = leader.state.round
    ask(leader, 1)
    leader.take()
    ask(leader, 2)
    leader.take()
    assert leader.state.round == before + 1
    cluster.settle()
    assert [number for number, _ in answers(leader)] == [1, 2]
    assert leader.state.round == before + 2


def test_a_lone_voter_confirms_itself() -> None:
    cluster = Cluster(1, settings=NO_LEASE)
    cluster.run(200)
    ask(cluster[1])
    cluster.settle()
    assert answers(cluster[1]) == [(1, 1)]


def test_too_many_reads_are_sent_away() -> None:
    cluster, leader = leading(NO_LEASE)
    cluster.isolate(1)
    for number in range(READS_MAX + 1):
        ask(leader, number)
    leader.take()
    assert answers(leader) == [(READS_MAX, -1)]


def test_thesis_6_4_1_a_lease_answers_at_once() -> None:
    cluster, leader = leading()
    before = leader.state.round
    ask(leader)
    leader.take()
    assert answers(leader) == [(1, leader.state.commit)]
    assert leader.state.round == before
    cluster.settle()


def test_thesis_6_4_1_a_lease_is_shorter_than_loyalty_on_the_fastest_clock() -> None:
    assert 0 < SETTINGS.lease_ms <= (SETTINGS.election_ms - 2 * SETTINGS.tick_ms) // 2


def test_thesis_6_4_1_a_lease_ends_by_itself() -> None:
    cluster, leader = leading()
    cluster.isolate(1)
    cluster.run(SETTINGS.lease_ms + SETTINGS.heartbeat_ms + SETTINGS.tick_ms)
    assert leader.state.role == LEADER
    assert not has_lease(leader.state, cluster.now)


def test_thesis_6_4_1_a_process_that_stood_still_has_no_lease() -> None:
    """Between the last tick and the read the process was paused: only the clock now tells."""
    cluster, leader = leading()
    assert has_lease(leader.state, cluster.now)
    assert not has_lease(leader.state, cluster.now + 300)


@pytest.mark.parametrize("jump", [-1_000, -60, -40, -20])
def test_thesis_6_4_1_a_clock_that_jumps_back_prolongs_no_lease(jump: int) -> None:
    cluster, leader = leading()
    cluster.isolate(1)
    held = 0
    for _ in range(20):
        leader.clock_error_ms += jump
        cluster.run(50)
        held += 50
        if not has_lease(leader.state, cluster.now + leader.clock_error_ms):
            break
    assert held <= SETTINGS.lease_ms


def test_thesis_6_4_1_a_clock_that_jumps_ahead_ends_the_lease() -> None:
    cluster, leader = leading()
    cluster.isolate(1)
    leader.clock_error_ms += 5_000
    cluster.tick()
    assert not has_lease(leader.state, cluster.now + leader.clock_error_ms)


def test_thesis_6_4_1_no_lease_once_somebody_was_told_to_campaign() -> None:
    """The voters will not be loyal then, and the message may be late."""
    cluster, leader = leading()
    cluster.lost = lambda message: type(message).__name__ == "TimeoutNow"
    assert leader.node.transfer(2) is None
    cluster.run(1_500)
    assert leader.state.role == LEADER
    assert leader.state.transfer_to == 0
    assert not has_lease(leader.state, cluster.now)
    ask(leader)
    cluster.settle()
    assert answers(leader) == [(1, leader.state.commit)]


@pytest.mark.parametrize("seed", range(10))
def test_thesis_6_4_1_no_other_leader_while_a_lease_holds(seed: int) -> None:
    cluster = Cluster(3, seed)
    cluster.elect(1)
    for step in range(300):
        cluster.tick()
        for _ in range(3):
            cluster.turn()
        if step % 40 == 20:
            cluster.heal()
            cluster.isolate(cluster.rng.randint(1, 3))
        if step % 7 == 0:
            cluster[cluster.rng.randint(1, 3)].clock_error_ms += cluster.rng.choice([-100, 30, 500])
        holding = [
            replica for replica in cluster.leaders() if has_lease(replica.state, cluster.now + replica.clock_error_ms)
        ]
        assert len(holding) <= 1
        if holding:
            assert cluster.leaders()[-1] is holding[0], "a later leader exists"
