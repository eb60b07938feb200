from __future__ import annotations

import random

import pytest

from flockmq.errors import FlockError
from flockmq.gossip.lists import ASK, SAME
from flockmq.gossip.member import CHANGED, HAS_LEFT, LEFT, Member
from flockmq.gossip.messages import ACK, GOSSIP, HELLO, PING, decode
from flockmq.gossip.settings import LAN
from flockmq.gossip.swim import Swim
from swim_cases import Digest, address, member, run, say, swim, tick_out


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


def test_another_cluster_means_another_list() -> None:
    one = swim(member(2), member(3))
    one.adopt_cluster(8, 0)
    assert sorted(event.kind for event in one.take_events()) == [HAS_LEFT, HAS_LEFT]
    assert list(one.members) == [1]
    assert one.me.cluster_id == 8
    assert say(one, PING, sender=member(2), about=1) == []


def test_a_digest_that_can_not_be_read_costs_no_answer() -> None:
    def refuse(peer: int, digest: bytes, now: int) -> None:
        raise FlockError("no digest")

    one = swim(member(2), maps=Digest(on_digest=refuse))
    (answer,) = say(one, PING, sender=member(2), about=1, digest=b"x")
    assert answer.kind == ACK
    assert one.counters.malformed == 1


def test_names_that_can_not_be_told_are_refused_at_start() -> None:
    with pytest.raises(FlockError):
        Swim(LAN, Member(1, 1, "", "h", 1), random.Random(1), 0)


class Outbox:
    """Keeps what goes over links."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int]] = []

    def send(self, peer: int, channel: int, body: bytes) -> None:
        self.sent.append((peer, body[0]))


def test_a_list_that_stays_different_is_compared_over_the_link() -> None:
    outbox = Outbox()
    one = Swim(LAN, member(1), random.Random(1), 0, outbox)
    say(one, GOSSIP, sender=member(2), claims=[member(2)])
    one.peer_up(2, 0)
    one.receive(2, bytes([SAME]), 0)
    assert outbox.sent == [(2, ASK)]
    one.roster.news.take(10_000, 1)
    now = 2 * LAN.repair_interval_ms
    for turn, expected in ((0, 1), (1, 1), (2, 2)):
        say(one, PING, sender=member(2), about=1, differs=True, now=now + turn)
        one.tick(now + turn)
        assert len(outbox.sent) == expected, "only when several in a row differ"


def test_equal_lists_are_not_compared() -> None:
    outbox = Outbox()
    one = Swim(LAN, member(1), random.Random(1), 0, outbox)
    say(one, GOSSIP, sender=member(2), claims=[member(2)])
    one.peer_up(2, 0)
    one.receive(2, bytes([SAME]), 0)
    one.roster.news.take(10_000, 1)
    for now in range(2_000, 4_000, 10):
        say(one, PING, sender=member(2), about=1, differs=now % 30 == 0, now=now)
        one.tick(now)
        for _, body in one.take_datagrams():
            if decode(body).kind == PING:
                say(one, ACK, sender=member(2), sequence=decode(body).sequence, about=2, now=now)
    assert len(outbox.sent) == 1


def test_a_different_list_without_a_link_is_asked_for_by_greeting() -> None:
    one = swim(member(2))
    one.roster.news.take(10_000, 1)
    greetings = 0
    for now in range(0, 40, 10):
        say(one, PING, sender=member(2), about=1, differs=True, now=now)
        one.tick(now)
        greetings += sum(decode(body).kind == HELLO for _, body in one.take_datagrams())
    assert greetings == 1
