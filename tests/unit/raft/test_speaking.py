"""Whether a leader may speak for its group without asking a quorum: only if no member had time to give it up."""

from __future__ import annotations

import pytest

from flockmq.raft.codec import decode_frame
from flockmq.raft.messages import HeartbeatReply
from flockmq.raft.speaking import speaking_for
from flockmq.raft.state import LEADER
from raft_hosts import Hosts, Node


def quiet(size: int = 3) -> tuple[Hosts, Node]:
    """A group without work, and its leader."""
    hosts = Hosts(size)
    hosts.bootstrap(1, tuple(range(1, size + 1)))
    hosts.propose(1, b"x")
    hosts.run(4_000)
    leader = hosts.leader(1)
    assert leader.group(1).state.quiet
    return hosts, leader


def others(hosts: Hosts, node: Node) -> list[int]:
    return [number for number in hosts.nodes if number != node.id]


def speaks(hosts: Hosts, node: Node) -> bool:
    return speaking_for(node.host, [1], hosts.now) == [1]


def hears(hosts: Hosts, node: Node, number: int) -> bool:
    return hosts.now - node.host.peers[number].heard_raw < hosts.settings.gap_ms


@pytest.mark.parametrize("size", [1, 3, 5])
def test_a_leader_speaks_for_a_quiet_group_and_does_not_wake_it(size: int) -> None:
    hosts, leader = quiet(size)
    for _ in range(20):
        assert speaks(hosts, leader)
        hosts.run(500)
    assert leader.group(1).state.quiet
    assert not any(speaks(hosts, hosts[number]) for number in others(hosts, leader))


def test_a_leader_speaks_for_no_group_that_it_has_not() -> None:
    hosts, leader = quiet()
    assert speaking_for(leader.host, [7, 1], hosts.now) == [1]


def test_a_leader_at_work_speaks_for_its_group() -> None:
    hosts, leader = quiet()
    for _ in range(10):
        hosts.propose(1, b"y")
        hosts.run(200)
        assert not leader.group(1).state.quiet
        assert speaks(hosts, leader)


def test_a_new_leader_speaks_once_a_quorum_has_answered() -> None:
    hosts, leader = quiet()
    hosts.stop(leader.id)
    new = hosts.leader(1)
    assert new.id != leader.id
    assert not speaks(hosts, new)
    hosts.run(500)
    assert speaks(hosts, new)


def test_a_leader_that_hands_over_does_not_speak() -> None:
    hosts, leader = quiet()
    assert leader.host.transfer(1, others(hosts, leader)[0]) is None
    assert not speaks(hosts, leader)


def test_a_leader_that_was_cut_off_does_not_speak() -> None:
    hosts, leader = quiet()
    for number in others(hosts, leader):
        hosts.cuts |= {(leader.id, number), (number, leader.id)}
    hosts.run(hosts.settings.gap_ms + 50)
    assert leader.group(1).state.role == LEADER
    assert not speaks(hosts, leader)
    assert leader.group(1).state.quiet, "there is no member to ask"


def test_a_leader_that_stood_still_does_not_speak_when_it_hears_a_member_again() -> None:
    """The member has another leader by then, which this one does not hear."""
    hosts, leader = quiet()
    leader.running = False
    hosts.run(5_000)
    new = hosts.leader(1)
    member = next(number for number in others(hosts, leader) if number != new.id)
    hosts.cuts |= {(leader.id, new.id), (new.id, leader.id)}
    leader.running = True
    while not hears(hosts, leader, member):
        hosts.tick()
        hosts.turn()
    assert leader.group(1).state.role == LEADER, "as far as it knows"
    assert not speaks(hosts, leader)
    assert not leader.group(1).state.quiet, "the member is asked, and tells of the later term"
    hosts.run(200)
    assert leader.group(1).state.role != LEADER


def answers_in_flight(hosts: Hosts, leader: Node) -> list[tuple[int, int, bytes]]:
    return [
        part
        for part in hosts.flying
        if part[1] == leader.id and any(isinstance(one, HeartbeatReply) for one in decode_frame(part[2]).messages)
    ]


def test_answers_of_members_from_before_a_gap_do_not_count() -> None:
    hosts, leader = quiet()
    leader.host.wake(1)
    hosts.run(50)
    late: list[tuple[int, int, bytes]] = []
    while not late:
        hosts.tick()
        while hosts.flying or any(node.take() for node in hosts.running()):
            late += answers_in_flight(hosts, leader)
            flying, hosts.flying = hosts.flying, []
            for part in flying:
                if part not in late:
                    hosts.arrive(part)
    for number in others(hosts, leader):
        hosts[number].running = False
    hosts.run(hosts.settings.gap_ms)
    for part in late:
        hosts.arrive(part)
    assert all(hears(hosts, leader, number) for number in others(hosts, leader))
    assert leader.group(1).state.role == LEADER
    assert not speaks(hosts, leader)
    for number in others(hosts, leader):
        hosts[number].running = True
    hosts.run(300)
    assert speaks(hosts, leader)


def test_a_quiet_group_is_woken_to_answer_after_a_gap() -> None:
    """The gap was too short for an election, and for the nodes to be held for lost."""
    hosts, leader = quiet()
    members = others(hosts, leader)
    hosts.cuts |= {(number, leader.id) for number in members}
    hosts.run(hosts.settings.gap_ms + 100)
    hosts.cuts.clear()
    hosts.run(200)
    assert not leader.host.unreachable
    assert leader.group(1).state.quiet
    assert not speaks(hosts, leader)
    hosts.run(200)
    assert speaks(hosts, leader)


def test_a_member_that_was_restarted_has_to_answer_again() -> None:
    hosts, leader = quiet()
    members = others(hosts, leader)
    for number in members:
        hosts.stop(number)
        hosts.start(number)
    while not all(leader.host.peers[number].boot == hosts[number].boot for number in members):
        hosts.tick()
        hosts.turn()
    assert not speaks(hosts, leader)


def test_a_leader_that_gave_up_handing_over_speaks_again_in_a_later_term() -> None:
    """The node that was told to lead may hear of it late."""
    hosts, leader = quiet()
    target = others(hosts, leader)[0]
    term = leader.group(1).state.term
    hosts.cuts |= {(leader.id, target), (target, leader.id)}
    assert leader.host.transfer(1, target) is None
    spoke: set[tuple[int, bool]] = set()
    for _ in range(40):
        hosts.run(50)
        spoke.add((leader.group(1).state.term, speaks(hosts, leader)))
    assert (term, True) not in spoke
    assert leader.group(1).state.role == LEADER
    assert leader.group(1).state.term == term + 1
    assert speaks(hosts, leader)
