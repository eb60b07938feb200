from __future__ import annotations

import random

import pytest

from flockmq.errors import FlockError
from flockmq.gossip.claims import encode_claim
from flockmq.gossip.greeting import CONTACTS_MAX, HELLOS_PER_S
from flockmq.gossip.member import (
    ALIVE,
    CHANGED,
    DEAD,
    DIED,
    HAS_LEFT,
    JOINED,
    LEFT,
    SUSPECT,
    SUSPECTED,
    Member,
)
from flockmq.gossip.messages import (
    ACK,
    GOSSIP,
    HEAD,
    HELLO,
    NACK,
    PING,
    PING_REQ,
    VERSION,
    WELCOME,
    Datagram,
    decode,
)
from flockmq.gossip.probing import RELAYS_MAX
from flockmq.gossip.seal import BODY_BYTES_MAX
from flockmq.gossip.settings import LAN
from flockmq.gossip.swim import Swim

CLUSTER = 7


def member(number: int, incarnation: int = 0, state: int = ALIVE, boot: int = 100) -> Member:
    return Member(number, boot, f"n{number}@h{number}", f"h{number}", 16_000, incarnation, state, "0.1.0", 0, CLUSTER)


def address(number: int) -> tuple[str, int]:
    return (f"h{number}", 16_000)


def swim(*others: Member, number: int = 1, now: int = 0) -> Swim:
    made = Swim(LAN, member(number), random.Random(number), now)
    for other in others:
        say(made, GOSSIP, sender=other, claims=[other], now=now)
    made.take_datagrams()
    made.take_events()
    return made


def say(
    to: Swim,
    kind: int,
    *,
    sender: Member,
    claims: list[Member] | None = None,
    sequence: int = 0,
    about: int = 0,
    now: int = 0,
    digest: bytes = b"",
    cluster_id: int = CLUSTER,
) -> list[Datagram]:
    """Let a node say something; what comes back at once."""
    head = HEAD.pack(
        VERSION,
        kind,
        cluster_id,
        sender.node_id,
        sender.boot,
        sender.incarnation,
        sequence,
        about,
        to.view,
        len(digest),
    )
    body = head + digest + b"".join(encode_claim(claim, sender.node_id) for claim in claims or [])
    to.receive_datagram(body, address(sender.node_id), now)
    return [decode(body) for _, body in to.take_datagrams()]


def run(one: Swim, until: int) -> list[tuple[tuple[str, int], Datagram]]:
    """Tick as a driver does; all that is sent."""
    sent: list[tuple[tuple[str, int], Datagram]] = []
    now = one.wake_at
    while now <= until:
        one.tick(now)
        sent += [(to, decode(body)) for to, body in one.take_datagrams()]
        now += 50
    return sent


def test_a_ping_is_answered_to_where_it_came_from() -> None:
    one = swim(member(2))
    (answer,) = say(one, PING, sender=member(2), sequence=5, about=1)
    assert (answer.kind, answer.sequence, answer.about, answer.sender) == (ACK, 5, 1, 1)


def test_a_ping_for_somebody_else_at_this_address_is_not_answered() -> None:
    assert say(swim(member(2)), PING, sender=member(2), about=99) == []


def test_nodes_of_another_cluster_are_not_heard() -> None:
    one = swim()
    assert say(one, HELLO, sender=member(2), claims=[member(2)], cluster_id=8) == []
    assert one.counters.foreign == 1
    assert list(one.members) == [1]


def test_garbage_is_counted() -> None:
    one = swim()
    one.receive_datagram(b"GET / HTTP/1.1\r\n\r\n" * 10, ("x", 1), 0)
    assert one.counters.malformed == 1
    assert one.take_datagrams() == []


def test_an_earlier_life_is_not_heard() -> None:
    one = swim(member(2, boot=200))
    assert say(one, PING, sender=member(2, boot=100), about=1) == []
    assert one.counters.outdated == 1


def test_a_greeting_is_answered_with_some_of_the_list() -> None:
    one = swim(*[member(number) for number in range(2, 40)])
    (welcome,) = say(one, HELLO, sender=member(50), claims=[member(50)])
    assert welcome.kind == WELCOME
    assert welcome.claims[0].node_id == 1
    assert len({claim.node_id for claim in welcome.claims}) > 5
    assert [event.kind for event in one.take_events()] == [JOINED]
    assert one.state_of(50) == ALIVE
    assert one.state_of(51) == DEAD


def test_a_stranger_that_pings_is_asked_who_it_is() -> None:
    kinds = [answer.kind for answer in say(swim(), PING, sender=member(2), about=1)]
    assert sorted(kinds) == [ACK, HELLO]


def test_one_whose_incarnation_is_newer_than_known_is_asked() -> None:
    kinds = [answer.kind for answer in say(swim(member(2)), PING, sender=member(2, 3), about=1)]
    assert sorted(kinds) == [ACK, HELLO]


def test_greetings_are_bounded() -> None:
    one = swim()
    answers = 0
    for number in range(2, 1_000):
        answers += len(say(one, PING, sender=member(number), about=99))
    assert answers == HELLOS_PER_S


def test_a_suspect_is_told_in_the_ping_and_answers_with_the_contradiction() -> None:
    one, two = swim(member(2), member(3)), swim(member(1), member(3), number=2)
    say(one, GOSSIP, sender=member(3), claims=[member(2, 0, SUSPECT)])
    pings = [said for to, said in run(one, 20_000) if to == address(2) and said.kind == PING]
    assert pings
    for ping in pings:
        assert (ping.claims[0].node_id, ping.claims[0].state) == (2, SUSPECT)
    (answer,) = say(two, PING, sender=member(1), about=2, claims=[member(2, 0, SUSPECT)])
    assert (answer.kind, answer.claims[0].node_id, answer.claims[0].incarnation) == (ACK, 2, 1)
    assert two.health == 1


def test_the_dead_are_told_so_when_they_speak() -> None:
    one = swim(member(2), member(3))
    say(one, GOSSIP, sender=member(3), claims=[member(2, 0, DEAD)])
    answers = say(one, PING, sender=member(2), about=1)
    assert any(claim.node_id == 2 and claim.state == DEAD for answer in answers for claim in answer.claims)


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


def test_contact_points_are_greeted_until_one_answers() -> None:
    one = swim()
    one.join([address(2), address(3)], 0)
    sent = run(one, 5_000)
    assert {to for to, said in sent if said.kind == HELLO} == {address(2), address(3)}
    assert len(sent) >= 8
    for to, said in sent[-2:]:
        who = member(int(to[0][1:]))
        say(one, WELCOME, sender=who, claims=[who], sequence=said.sequence, now=5_000)
    assert not [said for _, said in run(one, 5_400) if said.kind == HELLO]


def test_a_contact_point_that_is_the_node_itself_is_left_alone() -> None:
    one = swim()
    one.join([address(1)], 0)
    one.tick(0)
    ((to, body),) = one.take_datagrams()
    one.receive_datagram(body, to, 1)
    assert run(one, 10_000) == []


def test_contact_points_are_bounded_and_new_ones_count_more_than_silent_ones() -> None:
    one = swim()
    one.join([address(number) for number in range(2, 1_000)], 0)
    one.tick(0)
    greeted = [to for to, _ in one.take_datagrams()]
    assert len(greeted) == CONTACTS_MAX
    assert address(999) in greeted


def test_a_contact_point_may_answer_from_another_address() -> None:
    one = swim()
    one.join([("a-name", 16_000)], 0)
    one.tick(0)
    ((to, body),) = one.take_datagrams()
    assert to == ("a-name", 16_000)
    say(one, WELCOME, sender=member(2), claims=[member(2)], sequence=decode(body).sequence)
    sent = run(one, 3_000)
    assert sent
    assert not [said for _, said in sent if said.kind == HELLO]


def test_the_first_run_is_never_late() -> None:
    one = swim(member(2))
    one.tick(60_000)
    assert one.counters.stalls == 0
    one.adopt_cluster(8, 120_000)
    one.tick(180_000)
    assert one.counters.stalls == 0


def test_a_link_to_a_dead_member_lets_it_contradict() -> None:
    one = swim(member(2), member(3))
    say(one, GOSSIP, sender=member(3), claims=[member(2, 0, DEAD)])
    one.peer_up(2, 0)
    ((to, body),) = one.take_datagrams()
    hello = decode(body)
    assert (to, hello.kind) == (address(2), HELLO)
    assert (2, DEAD) in [(claim.node_id, claim.state) for claim in hello.claims]
    assert 2 not in one.lists.linked


def test_the_dead_are_tried_again_and_those_who_left_are_not() -> None:
    one = swim(member(2), member(3))
    say(one, GOSSIP, sender=member(3), claims=[member(2, 0, DEAD)])
    say(one, GOSSIP, sender=member(3), claims=[member(3, 0, LEFT)])
    greeted = [to for to, said in run(one, 10_000) if said.kind == HELLO]
    assert len(greeted) >= 5
    assert set(greeted) == {address(2)}
    assert one.forget(2)
    assert run(one, 20_000) == []


def test_whose_address_somebody_else_has_now_is_not_tried_again() -> None:
    one = swim(member(2), member(3))
    say(one, GOSSIP, sender=member(3), claims=[Member(9, 101, "n2@h2", "h2", 16_000, cluster_id=CLUSTER)])
    assert one.state_of(2) == DEAD
    assert address(2) not in [to for to, said in run(one, 1_900) if said.kind == HELLO]


def test_a_few_of_a_large_cluster_try_the_dead() -> None:
    greeted = 0
    for number in range(100):
        one = swim(*[member(other) for other in range(200, 400)], number=number + 1)
        say(one, GOSSIP, sender=member(201), claims=[member(200, 0, DEAD)])
        one.tick(one._greeter.revive_at)
        greeted += sum(decode(body).kind == HELLO for _, body in one.take_datagrams())
    assert 0 < greeted < 20


def test_who_leaves_tells_it_and_is_done() -> None:
    one = swim(*[member(number) for number in range(2, 6)])
    assert not one.has_left(0)
    one.leave(0)
    sent = [(address(0), decode(body)) for _, body in one.take_datagrams()] + run(one, 2_000)
    told = [claim for _, said in sent for claim in said.claims]
    assert [claim.state for claim in told if claim.node_id == 1] == [LEFT] * LAN.retransmits(5)
    assert not [said for _, said in sent if said.kind == PING]
    assert one.has_left(2_000)
    two = swim(member(1), number=2)
    say(two, GOSSIP, sender=member(1), claims=[member(1, 0, LEFT)])
    assert [event.kind for event in two.take_events()] == [HAS_LEFT]


def test_a_change_of_this_node_reaches_others() -> None:
    one, two = swim(member(2)), swim(member(1), number=2)
    one.update_me(0, "h1", 16_001, "0.2.0", 1)
    for _, body in [pair for _ in range(10) for pair in tick_out(one)]:
        two.receive_datagram(body, address(1), 0)
    assert [event.kind for event in two.take_events()] == [CHANGED]
    assert (two.members[1].port, two.members[1].version, two.members[1].role) == (16_001, "0.2.0", 1)


def tick_out(one: Swim) -> list[tuple[tuple[str, int], bytes]]:
    one.tick(one.wake_at)
    return one.take_datagrams()


def test_another_cluster_means_another_list() -> None:
    one = swim(member(2), member(3))
    one.adopt_cluster(8, 0)
    assert sorted(event.kind for event in one.take_events()) == [HAS_LEFT, HAS_LEFT]
    assert list(one.members) == [1]
    assert one.me.cluster_id == 8
    assert say(one, PING, sender=member(2), about=1) == []


def test_the_maps_digest_travels_with_pings() -> None:
    heard: list[tuple[int, bytes, int]] = []
    one = swim(member(2))
    one.digest = b"d" * 64
    one.on_digest = lambda peer, digest, now: heard.append((peer, digest, now))
    (answer,) = say(one, PING, sender=member(2), about=1, digest=b"theirs", now=4)
    assert answer.digest == b"d" * 64
    say(one, PING, sender=member(3), about=1, digest=b"a stranger's", now=4)
    assert heard == [(2, b"theirs", 4)]
    one.digest = b"d" * 65
    with pytest.raises(FlockError, match="65 bytes"):
        say(one, PING, sender=member(2), about=1)


def test_a_digest_that_can_not_be_read_costs_no_answer() -> None:
    def refuse(peer: int, digest: bytes, now: int) -> None:
        raise FlockError("no digest")

    one = swim(member(2))
    one.on_digest = refuse
    (answer,) = say(one, PING, sender=member(2), about=1, digest=b"x")
    assert answer.kind == ACK
    assert one.counters.malformed == 1


def test_no_datagram_is_too_large_whatever_there_is_to_tell() -> None:
    one = swim()
    one.digest = b"d" * 64
    for number in range(2, 400):
        other = Member(number, 100, "n" * (number % 255 + 1), "h" * 255, 16_000, cluster_id=CLUSTER)
        say(one, GOSSIP, sender=other, claims=[other])
    say(one, GOSSIP, sender=member(500), claims=[member(500), member(1, 0, SUSPECT)])
    sizes = []
    for now in range(0, 5_000, 50):
        one.tick(now)
        sizes += [len(body) for _, body in one.take_datagrams()]
    assert max(sizes) <= BODY_BYTES_MAX
    assert max(sizes) > BODY_BYTES_MAX - 300, "news should fill datagrams"


def test_a_lost_link_makes_its_peer_the_next_to_be_probed() -> None:
    one = swim(*[member(number) for number in range(2, 30)])
    one.peer_up(17, 0)
    one.peer_down(17, 0)
    first = next(to for to, said in run(one, 1_000) if said.kind == PING)
    assert first == address(17)


def test_names_that_can_not_be_told_are_refused_at_start() -> None:
    with pytest.raises(FlockError):
        Swim(LAN, Member(1, 1, "", "h", 1), random.Random(1), 0)
