"""All groups of a node: frames, beats, quiet groups, runs, and what breaks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from flockmq.log.batch import BatchBuilder
from flockmq.log.errors import DamageError
from flockmq.raft.codec import FrameError, encode_frame
from flockmq.raft.errors import SafetyError
from flockmq.raft.forwarder import Forwarder
from flockmq.raft.messages import Append, Heartbeat, Message
from flockmq.raft.ready import NOT_LEADER, Proposal, Refusal
from flockmq.raft.senders import COMMITTED, REFUSED, UNKNOWN
from flockmq.raft.settings import RaftSettings
from flockmq.raft.state import DAMAGED, FORGOTTEN, LEADER, SOUND, HardState
from raft_cluster import SETTINGS, batch
from raft_hosts import Hosts


def cluster(groups: int = 1, size: int = 3, settings: RaftSettings = SETTINGS) -> Hosts:
    hosts = Hosts(size, settings=settings)
    for group in range(1, groups + 1):
        hosts.bootstrap(group, tuple(range(1, size + 1)))
    for group in range(1, groups + 1):
        hosts.leader(group)
    hosts.run(300)
    return hosts


def quiet(hosts: Hosts) -> None:
    hosts.run(4_000)
    assert all(node.group(group).state.quiet for node in hosts.nodes.values() for group in node.host.groups)


def submit(forwarder: Forwarder, token: int, payload: bytes) -> None:
    builder = BatchBuilder()
    builder.add(b"t", b"c", 0, 0, payload)
    forwarder.submit(builder.build(note=forwarder.note()), token)


def test_groups_work_side_by_side() -> None:
    hosts = cluster(10)
    for group in range(1, 11):
        for number in range(3):
            hosts.propose(group, b"%d.%d" % (group, number))
    hosts.run(300)
    for group in range(1, 11):
        expected = [b"%d.%d" % (group, number) for number in range(3)]
        assert [node.payloads(group) for node in hosts.nodes.values()] == [expected] * 3


def test_one_frame_per_peer_and_turn() -> None:
    hosts = cluster(30)
    node = hosts[1]
    for group in node.host.groups:
        if node.group(group).state.role == LEADER:
            node.host.propose(group, batch(b"x"))
    turn = node.host.take_turn()
    assert sorted(receiver for receiver, _ in turn.frames) == [2, 3]


def test_the_answer_of_the_last_of_three_calls_for_no_turn() -> None:
    hosts = cluster()
    leader = hosts.leader(1)
    hosts.propose(1, b"x")
    while leader.take():
        pass
    appends, hosts.flying = hosts.flying, []
    for _, receiver, data in appends:
        hosts[receiver].host.receive(data)
        while hosts[receiver].take():
            pass
    (_, _, first), (_, _, second) = hosts.flying
    leader.host.receive(first)
    assert leader.host.has_work(), "a majority has it"
    while leader.take():
        pass
    assert leader.payloads(1) == [b"x"]
    leader.host.receive(second)
    assert not leader.host.has_work()


def test_no_turn_is_for_nothing() -> None:
    hosts = cluster()
    for node in hosts.nodes.values():
        node.slow_disk = True
    leader = hosts.leader(1)
    submit(hosts.forwarder(leader.id, 1), 7, b"x")
    leader.host.submitted(1)
    turns = Counter[int]()
    while any(node.host.has_work() or node.turns for node in hosts.nodes.values()) or hosts.flying:
        for node in hosts.nodes.values():
            frames, applied = len(hosts.flying), len(node.disks[1].applied)
            writes = len(node.turns)
            if node.take():
                turns[node.id] += 1
                assert (len(hosts.flying), len(node.disks[1].applied), len(node.turns)) != (frames, applied, writes)
        flying, hosts.flying = hosts.flying, []
        for _, receiver, data in flying:
            hosts[receiver].host.receive(data)
        for node in hosts.nodes.values():
            node.sync()
    assert [outcome.kind for outcome in leader.outcomes] == [COMMITTED]
    assert turns[leader.id] == 2, "it sends and writes; a majority has it: it answers"
    assert max(turns.values()) <= 3, "they write, answer, and hear that it is committed"


def test_who_is_still_writing_hears_meanwhile_that_it_is_committed() -> None:
    hosts = cluster(settings=replace(SETTINGS, commit_news_at_once=True))
    leader = hosts.leader(1)
    quick, slow = (node for node in hosts.nodes.values() if node is not leader)
    slow.slow_disk = True
    hosts.propose(1, b"x")
    hosts.settle()
    assert [b"x" in node.payloads(1) for node in (leader, quick, slow)] == [True, True, False]
    assert slow.group(1).state.commit == leader.group(1).state.commit
    assert not slow.host.has_work(), "it has nothing to say, and nothing to do before it has written"
    slow.sync()
    assert slow.take()
    assert slow.payloads(1)[-1] == b"x"
    for _, receiver, data in hosts.flying:
        hosts[receiver].host.receive(data)
    assert not leader.host.has_work(), "nobody lacks anything"


def test_who_waits_for_an_answer_gets_its_frame_first() -> None:
    hosts = cluster(settings=replace(SETTINGS, commit_news_at_once=True))
    leader = hosts.leader(1)
    for asking in (node for node in hosts.nodes.values() if node is not leader):
        submit(hosts.forwarder(asking.id, 1), 7, b"x")
        asking.host.submitted(1)
        answer: list[int] = []
        while not asking.outcomes:
            for node in hosts.nodes.values():
                before = len(hosts.flying)
                node.take()
                if node is leader:
                    answer = [receiver for _, receiver, _ in hosts.flying[before:]] or answer
            flying, hosts.flying = hosts.flying, []
            for _, receiver, data in flying:
                hosts[receiver].host.receive(data)
        assert len(answer) == 2
        assert answer[0] == asking.id
        hosts.settle()


def test_one_write_for_all_groups() -> None:
    hosts = cluster(30)
    node = hosts[1]
    led = [group for group in node.host.groups if node.group(group).state.role == LEADER]
    for group in led:
        node.host.propose(group, batch(b"x"))
    turn = node.host.take_turn()
    assert sorted(item.group for item in turn.writes) == sorted(led)
    assert turn.number > 0


def test_heartbeats_of_all_groups_share_a_frame() -> None:
    hosts = cluster(30)
    for group in range(1, 31):
        hosts.propose(group, b"x")
    hosts.run(300)
    hosts.frames.clear()
    hosts.run(1_500)
    frames = [frame for frame in hosts.frames if any(isinstance(message, Heartbeat) for message in frame.messages)]
    per_link = Counter((frame.sender, frame.receiver) for frame in frames)
    assert max(per_link.values()) <= 1_500 // SETTINGS.heartbeat_ms


def test_quiet_groups_cost_one_empty_frame_per_peer_and_beat() -> None:
    hosts = cluster(30)
    quiet(hosts)
    hosts.frames.clear()
    hosts.run(1_500)
    assert all(frame.messages == [] for frame in hosts.frames)
    assert len(hosts.frames) == 6 * 1_500 // SETTINGS.heartbeat_ms
    assert not hosts[1].host.has_work()


def test_groups_are_led_where_they_should_be_and_otherwise_spread_without_split_votes() -> None:
    hosts = Hosts(3)
    preferred = {group: group % 3 + 1 for group in range(1, 31)}
    for group, node in preferred.items():
        hosts.bootstrap(group, (1, 2, 3), node)
    hosts.run(2_500)
    assert {group: hosts.leader(group).id for group in preferred} == preferred
    terms = {group: hosts.leader(group).group(group).state.term for group in preferred}
    hosts.stop(1)
    hosts.run(3_000)
    orphans = [group for group, node in preferred.items() if node == 1]
    assert Counter(hosts.leader(group).id for group in orphans) == {2: 5, 3: 5}
    assert all(hosts.leader(group).group(group).state.term == terms[group] + 1 for group in orphans)


def test_a_new_leader_is_quiet_as_soon_as_all_know_of_it() -> None:
    hosts = cluster(10)
    hosts.run(5 * SETTINGS.heartbeat_ms)
    assert all(node.group(group).state.quiet for node in hosts.nodes.values() for group in node.host.groups)


def test_who_comes_back_has_to_answer_before_a_group_is_quiet_again() -> None:
    hosts = cluster(3)
    quiet(hosts)
    hosts.stop(3)
    hosts.run(1_500)
    hosts.start(3)
    for group in [1, 2, 3]:
        hosts[3].host.remove_group(group)
    hosts.run(3_000)
    led = [(node, group) for node in (hosts[1], hosts[2]) for group in (1, 2, 3) if hosts.leader(group) is node]
    assert len(led) == 3
    assert not any(node.group(group).state.quiet for node, group in led)
    for group in [1, 2, 3]:
        hosts[3].open(group)
    quiet(hosts)


def test_quiet_groups_of_a_dead_node_elect_new_leaders() -> None:
    hosts = cluster(30)
    quiet(hosts)
    hosts.stop(1)
    hosts.run(6_000)
    for group in range(1, 31):
        assert hosts.leader(group).id != 1


def test_quiet_groups_of_a_living_node_keep_their_leader_when_another_dies() -> None:
    hosts = cluster(10)
    quiet(hosts)
    leaders = {group: hosts.leader(group).id for group in range(1, 11)}
    hosts.stop(1)
    hosts.run(4_000)
    for group, leader in leaders.items():
        if leader != 1:
            assert hosts.leader(group).id == leader


def test_a_restart_is_noticed_by_its_new_boot_however_short() -> None:
    hosts = cluster(10)
    quiet(hosts)
    led = [group for group in range(1, 11) if hosts.leader(group).id == 1]
    hosts.stop(1)
    hosts.start(1)
    hosts.run(SETTINGS.heartbeat_ms)
    assert led
    assert all(hosts[2].group(group).state.leader != 1 for group in led)
    hosts.run(6_000)
    for group in range(1, 11):
        leader = hosts.leader(group)
        state = leader.group(group).state
        assert {node.group(group).state.leader for node in hosts.nodes.values()} == {leader.id}
        assert {node.group(group).state.commit for node in hosts.nodes.values()} == {state.commit}


def test_a_node_that_comes_back_gets_what_quiet_groups_wrote_without_it() -> None:
    hosts = cluster(5)
    hosts.stop(3)
    hosts.run(3_000)
    for group in range(1, 6):
        hosts.propose(group, b"x")
    hosts.run(6_000)
    hosts.start(3)
    hosts.run(2_000)
    assert [hosts[3].payloads(group) for group in range(1, 6)] == [[b"x"]] * 5


def test_a_quiet_leader_that_loses_its_quorum_steps_down() -> None:
    hosts = cluster(5)
    quiet(hosts)
    hosts.isolate(1)
    hosts.run(6_000)
    assert all(hosts[1].group(group).state.role != LEADER for group in range(1, 6))


def test_frames_of_an_earlier_start_are_not_heard() -> None:
    hosts = cluster()
    host = hosts[2].host
    term = hosts[2].group(1).state.term
    messages: list[Message] = [Heartbeat(1, 3, 2, term + 9, 0, 0, 0, False)]
    host.receive(encode_frame(3, 0, 2, 0, 1, messages))
    assert hosts[2].group(1).state.term == term
    host.receive(encode_frame(3, 1, 9, 0, 1_000, messages))
    assert hosts[2].group(1).state.term == term, "for somebody else"
    host.receive(encode_frame(3, 1, 2, 0, 1_000, messages))
    assert hosts[2].group(1).state.term == term + 9


def test_garbage_raises_and_changes_nothing() -> None:
    hosts = cluster()
    with pytest.raises(FrameError):
        hosts[1].host.receive(b"\0" * 100)
    hosts.propose(1, b"x")
    hosts.run(300)
    assert hosts[3].payloads(1) == [b"x"]


def test_groups_that_are_not_here_are_told_of() -> None:
    hosts = Hosts(3)
    for node in (1, 2):
        hosts[node].bootstrap(4, (1, 2, 3))
    hosts.leader(4)
    assert hosts[3].host.take_unknown() in ({4: 1}, {4: 2})
    assert hosts[3].host.take_unknown() == {}


def test_a_new_replica_begins_empty_and_without_a_vote_until_it_is_refilled() -> None:
    hosts = Hosts(4)
    hosts.bootstrap(1)
    leader = hosts.leader(1)
    for number in range(5):
        hosts.propose(1, b"%d" % number)
    hosts.run(1_500)
    assert isinstance(leader.host.change(1, (1, 2, 3), (4,)), Proposal)
    hosts.run(200)
    assert 1 in hosts[4].host.take_unknown()
    hosts[4].open(1, health=FORGOTTEN)
    hosts.run(1_500)
    assert hosts[4].payloads(1) == [b"0", b"1", b"2", b"3", b"4"]
    assert hosts[4].group(1).state.health == SOUND
    assert isinstance(leader.host.change(1, (1, 2, 3, 4)), Proposal)
    hosts.run(300)
    assert hosts[4].group(1).state.configuration.is_voter(4)


def test_leadership_moves_to_the_preferred_nodes() -> None:
    hosts = Hosts(3)
    for group in range(1, 13):
        hosts.bootstrap(group, preferred=group % 3 + 1)
    hosts.run(6_000)
    assert [hosts.leader(group).id for group in range(1, 13)] == [group % 3 + 1 for group in range(1, 13)]


@pytest.mark.parametrize("dead", [1, 2, 3])
def test_the_groups_of_a_node_that_dies_have_a_leader_soon(dead: int) -> None:
    """Whoever is next does not wait for the preferred one, which is gone: an election timeout and a quarter of it."""
    hosts = Hosts(3)
    for group in range(1, 13):
        hosts.bootstrap(group, preferred=group % 3 + 1)
    hosts.run(6_000)
    for group in range(1, 13):
        hosts.propose(group, b"x")  # awake
    hosts.run(200)
    orphans = [group for group in range(1, 13) if hosts.leader(group).id == dead]
    assert len(orphans) == 4
    hosts.stop(dead)
    hosts.run(SETTINGS.election_ms * 3 // 2)
    left = [hosts[number] for number in (1, 2, 3) if number != dead]
    leaders = [[node.id for node in left if node.group(group).state.role == LEADER] for group in orphans]
    assert sorted(map(len, leaders)) == [1, 1, 1, 1]
    assert {one for [one] in leaders} == {1, 2, 3} - {dead}, "spread over those that are left"


def test_runs_reach_the_leader_wherever_it_is() -> None:
    hosts = cluster()
    forwarders = {node: hosts.forwarder(node, 1) for node in (1, 2, 3)}
    for node, forwarder in forwarders.items():
        for number in range(3):
            submit(forwarder, number, b"%d.%d" % (node, number))
        hosts[node].host.submitted(1)
    hosts.run(300)
    for node in (1, 2, 3):
        outcomes = hosts[node].outcomes
        assert [(outcome.token, outcome.kind) for outcome in outcomes] == [(number, COMMITTED) for number in range(3)]
        mine = [payload for payload in hosts[1].payloads(1) if payload.startswith(b"%d." % node)]
        assert mine == [b"%d.%d" % (node, number) for number in range(3)]


def test_runs_survive_a_change_of_leader_once_each() -> None:
    hosts = cluster()
    leader = hosts.leader(1)
    sender = next(node for node in hosts.nodes.values() if node is not leader)
    forwarder = hosts.forwarder(sender.id, 1)
    leader.slow_disk = True
    for number in range(5):
        submit(forwarder, number, b"%d" % number)
    sender.host.submitted(1)
    hosts.settle()
    hosts.stop(leader.id)
    hosts.run(6_000)
    assert [outcome.kind for outcome in sender.outcomes] == [COMMITTED] * 5
    assert sender.payloads(1) == [b"%d" % number for number in range(5)]


@pytest.mark.parametrize("quiet_first", [False, True])
def test_without_a_majority_what_comes_later_is_refused_for_certain(quiet_first: bool) -> None:
    hosts = cluster()
    leader = hosts.leader(1)
    sender = next(node for node in hosts.nodes.values() if node is not leader)
    forwarder = hosts.forwarder(sender.id, 1)
    submit(forwarder, 1, b"before")
    sender.host.submitted(1)
    hosts.run(300)
    if quiet_first:
        quiet(hosts)
    for node in list(hosts.nodes):
        if node != sender.id:
            hosts.stop(node)
    submit(forwarder, 2, b"at once")
    sender.host.submitted(1)
    hosts.run(4_000)
    submit(forwarder, 3, b"later")
    sender.host.submitted(1)
    hosts.run(11_000)
    assert [(one.token, one.kind) for one in sender.outcomes] == [(1, COMMITTED), (2, UNKNOWN), (3, REFUSED)]


def test_a_frame_that_arrives_twice_forwards_nothing_twice() -> None:
    hosts = cluster()
    leader = hosts.leader(1)
    sender = next(node for node in hosts.nodes.values() if node is not leader)
    forwarder = hosts.forwarder(sender.id, 1)
    submit(forwarder, 1, b"x")
    sender.host.submitted(1)
    turn = sender.host.take_turn()
    frame = next(data for receiver, data in turn.frames if receiver == leader.id)
    before = leader.group(1).state.log.last_index
    leader.host.receive(frame)
    leader.host.receive(frame)
    assert leader.group(1).state.log.last_index == before + 1


def test_a_run_in_a_frame_that_comes_late_is_not_appended() -> None:
    """Its sender may have been told that it was refused, by the attempt in the frame that overtook it."""
    hosts = cluster()
    leader = hosts.leader(1)
    sender = next(node for node in hosts.nodes.values() if node is not leader)
    forwarder = hosts.forwarder(sender.id, 1)
    submit(forwarder, 1, b"x")
    sender.host.submitted(1)
    turn = sender.host.take_turn()
    late = next(data for receiver, data in turn.frames if receiver == leader.id)
    before = leader.group(1).state.log.last_index
    leader.host.receive(encode_frame(sender.id, sender.boot, leader.id, leader.boot, 9_999, []))
    leader.host.receive(late)
    assert leader.group(1).state.log.last_index == before


def test_a_full_link_holds_entries_back_until_it_has_room() -> None:
    hosts = cluster()
    leader = hosts.leader(1)
    other = 1 if leader.id != 1 else 2
    leader.host.pause(other)
    hosts.propose(1, b"x")
    hosts.run(300)
    assert hosts[other].payloads(1) == []
    leader.host.resume(other)
    hosts.run(300)
    assert hosts[other].payloads(1) == [b"x"]


def test_a_frame_is_not_filled_without_end() -> None:
    settings = replace(SETTINGS, window_bytes_max=1 << 30, append_bytes_max=1 << 22, uncommitted_bytes_max=1 << 30)
    hosts = Hosts(3, settings=settings)
    for group in (1, 2, 3, 4, 5, 6, 7, 8):
        hosts.bootstrap(group, preferred=1)
    hosts.run(4_000)
    for group in range(1, 9):
        for _ in range(2):
            assert isinstance(hosts[1].host.propose(group, batch(b"x" * 3_900_000)), Proposal)
    sizes = []
    while hosts[1].host.has_work():
        turn = hosts[1].host.take_turn()
        sizes += [len(data) for _, data in turn.frames]
        hosts.flying += [(1, receiver, data) for receiver, data in turn.frames]
        hosts[1].turns.append(turn)
    assert max(sizes) < 32 << 20
    hosts[1].sync()
    hosts.run(500)
    assert {len(hosts[3].payloads(group)) for group in range(1, 9)} == {2}


def test_damage_stops_one_group_and_no_other() -> None:
    hosts = cluster(2)
    node = hosts[1]

    class Damaged(type(node.disks[1].log)):  # type: ignore[misc]
        def entries(self, low: int, high: int, bytes_max: int) -> list[bytes]:
            raise DamageError("Entry 1 can't be read.", 1)

    log = Damaged()
    log.items = node.disks[1].log.items
    node.group(1).state.log.stable = log
    node.group(1).state.log.tail_bytes_max = 0
    node.group(1).state.log.trim()
    node.group(1).state.applied = 0
    node.group(1).state.dirty = True
    node.host.wake(1)
    hosts.run(300)
    assert isinstance(node.host.broken[1], DamageError)
    hosts.propose(2, b"x")
    hosts.run(3_000)
    assert node.payloads(2) == [b"x"]
    assert hosts.leader(1).id != 1


def test_a_broken_promise_stops_one_group() -> None:
    hosts = cluster(2)
    leader = hosts.leader(1)
    state = leader.group(1).state
    other = 1 if leader.id != 1 else 2
    forged: list[Message] = [Append(1, other, leader.id, state.term, 0, 0, [], 0, 0, 0)]
    leader.host.receive(encode_frame(other, 1, leader.id, leader.boot, 9_999, forged))
    assert isinstance(leader.host.broken[1], SafetyError)
    assert 2 not in leader.host.broken


def test_a_group_that_was_removed_is_gone() -> None:
    hosts = cluster()
    host = hosts[1].host
    host.remove_group(1)
    refusal = host.propose(1, batch(b"x"))
    assert isinstance(refusal, Refusal)
    assert refusal.code == NOT_LEADER
    assert not host.read(1, 1, hosts.now)
    assert isinstance(host.change(1, (1,)), Refusal)
    assert isinstance(host.transfer(1, 2), Refusal)
    host.wake(1)
    hosts[2].disks.pop(1, None)


def test_peers_that_share_no_group_any_more_are_forgotten() -> None:
    hosts = cluster()
    hosts.stop(3)
    for node in (1, 2):
        hosts[node].host.remove_group(1)
        hosts[node].disks.clear()
    hosts.run(70_000)
    assert sorted(hosts[1].host.peers) == [2]
    assert hosts[1].host.unreachable == set()


def test_only_talk_while_the_disk_has_no_room() -> None:
    hosts = cluster()
    leader = hosts.leader(1)
    hosts.propose(1, b"x")
    turn = leader.host.take_turn(may_write=False)
    assert (turn.number, turn.writes) == (0, [])
    assert len(turn.frames) == 2
    assert leader.host.has_work()
    assert leader.host.take_turn().number > 0


def test_what_was_said_to_a_former_life_does_not_make_a_damaged_replica_sound() -> None:
    """An old frame ends where the leader's log ended then; what was acknowledged after it and lost would be missed."""
    hosts = cluster()
    leader = hosts.leader(1)
    victim = hosts[leader.id % 3 + 1]
    hosts.propose(1, b"first")
    late = []
    while hosts[leader.id].take():
        late += [data for _, receiver, data in hosts.flying if receiver == victim.id]
    hosts.run(100)
    hosts.propose(1, b"acknowledged")
    hosts.run(100)
    hosts.stop(victim.id)
    for other in hosts.nodes:
        hosts.cuts.add((other, victim.id))
    del victim.disks[1].log.items[-1]
    victim.disks[1].hard = HardState(victim.disks[1].hard.term, victim.disks[1].hard.vote, DAMAGED)
    hosts.start(victim.id)
    assert late
    for data in late:
        victim.host.receive(data)
        hosts.run(100)
    assert victim.group(1).state.health == DAMAGED
    hosts.cuts.clear()
    hosts.run(1_000)
    assert victim.group(1).state.health == SOUND
    assert victim.payloads(1) == [b"first", b"acknowledged"]
