from __future__ import annotations

import pytest

from flockmq.gossip.member import ALIVE, DEAD, DIED, SUSPECT, SUSPECTED
from flockmq.gossip.messages import ACK, GOSSIP, NACK, PING, PING_REQ, decode
from flockmq.gossip.probing import RELAYS_MAX
from flockmq.gossip.settings import LAN
from swim_cases import address, member, run, say, swim


def test_silence_leads_to_detours_then_suspicion_then_death() -> None:
    one = swim(*[member(number) for number in range(2, 6)])
    sent = run(one, 1_000)
    kinds = [said.kind for _, said in sent]
    assert kinds.count(PING_REQ) >= 3
    assert SUSPECTED in [event.kind for event in one.take_events()]
    run(one, 200_000)
    died = [event for event in one.take_events() if event.kind == DIED]
    assert len(died) == 4
    assert one.alive() == [one.me]


def test_nobody_is_called_dead_without_two_last_pings() -> None:
    one = swim(member(2), member(3))
    say(one, GOSSIP, sender=member(3), claims=[member(2, 0, SUSPECT)])
    last_pings = 0
    for now in range(0, 60_000, 50):
        one.tick(now)
        for to, body in one.take_datagrams():
            last_pings += to == address(2) and decode(body).kind == PING
            if to == address(3) and decode(body).kind == PING:
                say(one, ACK, sender=member(3), sequence=decode(body).sequence, about=3, now=now)
        if one.state_of(2) == DEAD:
            break
    assert one.state_of(2) == DEAD
    assert last_pings >= 2
    assert one.state_of(3) == ALIVE


def test_an_answer_by_detour_saves_the_target() -> None:
    one = swim(*[member(number) for number in range(2, 6)])
    for now in range(0, 30_000, 50):
        one.tick(now)
        for to, body in one.take_datagrams():
            said = decode(body)
            if said.kind == PING_REQ:
                helper = member(int(to[0][1:]))
                say(one, ACK, sender=helper, sequence=said.sequence, about=said.about, now=now)
    assert one.take_events() == []


@pytest.mark.parametrize(("helpers_answer", "health"), [(True, 0), (False, 3)])
def test_helpers_that_say_no_show_that_this_node_hears_well(helpers_answer: bool, health: int) -> None:
    one = swim(*[member(number) for number in range(2, 6)])
    while not one.counters.probes_failed:
        now = one.wake_at
        one.tick(now)
        for to, body in one.take_datagrams():
            said = decode(body)
            if said.kind == PING_REQ and helpers_answer:
                helper = member(int(to[0][1:]))
                say(one, NACK, sender=helper, sequence=said.sequence, about=said.about, now=now)
    assert one.health == health


def test_a_node_that_hears_badly_probes_more_slowly() -> None:
    def probes_of(score: int) -> int:
        one = swim(*[member(number) for number in range(2, 6)])
        for now in range(0, 2_400, 50):
            one.roster.health.score = score
            one.tick(now)
            for to, body in one.take_datagrams():
                said = decode(body)
                if said.kind == PING:
                    say(one, ACK, sender=member(int(to[0][1:])), sequence=said.sequence, about=said.about, now=now)
        return one.counters.probes

    assert probes_of(0) >= 4
    assert probes_of(8) == 1


def test_helpers_ping_and_pass_on_the_answer_or_say_no() -> None:
    one = swim(member(2), member(3))
    (ping,) = say(one, PING_REQ, sender=member(2), sequence=9, about=3)
    assert (ping.kind, ping.about) == (PING, 3)
    (passed,) = say(one, ACK, sender=member(3), sequence=ping.sequence, about=3)
    assert (passed.kind, passed.sequence, passed.about) == (ACK, 9, 3)
    assert say(one, ACK, sender=member(3), sequence=ping.sequence, about=3) == []
    say(one, PING_REQ, sender=member(2), sequence=10, about=3)
    refused = [said for to, said in run(one, LAN.ping_timeout_ms + 50) if said.kind == NACK]
    assert [(said.sequence, said.about) for said in refused] == [(10, 3)]
    (unknown,) = say(one, PING_REQ, sender=member(2), sequence=11, about=99)
    assert unknown.kind == NACK


def test_help_is_bounded() -> None:
    one = swim(member(2), member(3))
    for sequence in range(RELAYS_MAX):
        say(one, PING_REQ, sender=member(2), sequence=sequence, about=3)
    (refused,) = say(one, PING_REQ, sender=member(2), sequence=1, about=3)
    assert refused.kind == NACK


def test_time_that_was_not_seen_counts_against_nobody() -> None:
    one = swim(member(2), member(3))
    while not any(decode(body).kind == PING for _, body in one.take_datagrams()):
        one.tick(one.wake_at)
    one.tick(one.wake_at + 60_000)
    assert one.counters.stalls == 1
    assert one.take_events() == []
    assert one.health >= 1


def test_a_long_stall_does_not_end_a_suspects_time() -> None:
    one = swim(member(2), member(3))
    say(one, GOSSIP, sender=member(3), claims=[member(2, 0, SUSPECT)])
    one.tick(one.wake_at)
    stalled_until = one.wake_at + 600_000
    one.tick(stalled_until)
    run(one, stalled_until + LAN.suspicion_min_ms(3) * 3 // 4)
    assert one.state_of(2) == SUSPECT


def test_a_suspicion_that_was_heard_after_a_stall_is_not_lengthened_by_it() -> None:
    one = swim(member(2), member(3))
    one.tick(one.wake_at)
    now = one.wake_at + 600_000
    say(one, GOSSIP, sender=member(3), claims=[member(2, 0, SUSPECT)], now=now)
    one.tick(now)
    run(one, now + LAN.suspicion_min_ms(3) * (LAN.suspicion_max_mult + 1))
    assert one.state_of(2) == DEAD


def test_the_first_run_is_never_late() -> None:
    one = swim(member(2))
    one.tick(60_000)
    assert one.counters.stalls == 0
    one.adopt_cluster(8, 120_000)
    one.tick(180_000)
    assert one.counters.stalls == 0


def test_a_lost_link_makes_its_peer_the_next_to_be_probed() -> None:
    one = swim(*[member(number) for number in range(2, 30)])
    one.peer_up(17, 0)
    one.peer_down(17, 0)
    first = next(to for to, said in run(one, 1_000) if said.kind == PING)
    assert first == address(17)
