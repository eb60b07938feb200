from __future__ import annotations

import random

import pytest

from flockmq.gossip.claims import GossipError, encode_claim, read_claims
from flockmq.gossip.lists import (
    ANSWER_BYTES_PER_S,
    ASK,
    ASK_FORMAT,
    ASK_TIMEOUT_MS,
    BODY_BYTES_MAX,
    BUSY,
    LINK_ACK,
    LINK_PING,
    LIST,
    LIST_FORMAT,
    SAME,
    Lists,
)
from flockmq.gossip.member import ALIVE, DEAD, Member
from flockmq.gossip.roster import Roster
from flockmq.gossip.settings import LAN


def node(number: int, incarnation: int = 0, state: int = ALIVE, cluster_id: int = 7) -> Member:
    return Member(number, 100, f"n{number}@h", f"h{number}", 16_000, incarnation, state, cluster_id=cluster_id)


class Post:
    """Carries messages between the sides, at once."""

    def __init__(self) -> None:
        self.sides: dict[int, Lists] = {}
        self.log: list[tuple[int, int, int]] = []

    def add(self, me: Member, *others: Member) -> Lists:
        roster = Roster(LAN, me, random.Random(me.node_id))
        lists = Lists(roster, Desk(self, me.node_id))
        for other in others:
            roster.hear(read_claims(encode_claim(other), 0, 1)[0], 0, list_of=9, spread=False)
        for peer, side in self.sides.items():
            side.linked[me.node_id] = 0
            lists.linked[peer] = 0
        self.sides[me.node_id] = lists
        return lists


class Desk:
    """One side's outbox."""

    def __init__(self, post: Post, node_id: int) -> None:
        self.post = post
        self.node_id = node_id

    def send(self, peer: int, channel: int, body: bytes) -> None:
        assert channel == 1
        assert len(body) <= BODY_BYTES_MAX
        self.post.log.append((self.node_id, body[0], len(body)))
        self.post.sides[peer].receive(self.node_id, body, 0)


def members_of(lists: Lists) -> dict[int, Member]:
    return lists._roster.members


def test_two_lists_become_one() -> None:
    post = Post()
    one = post.add(node(1), node(2), node(3), node(4))
    two = post.add(node(2), node(1), node(5), node(4, 3))
    assert one.ask(2, 0)
    assert sorted(members_of(one)) == sorted(members_of(two)) == [1, 2, 3, 4, 5]
    assert members_of(one)[4].incarnation == 3
    assert [kind for _, kind, _ in post.log] == [ASK, LIST, LIST]
    assert one.completed == 1
    assert one.asking == 0


def test_equal_lists_cost_one_small_question() -> None:
    post = Post()
    one = post.add(node(1), *[node(number) for number in range(2, 500)])
    post.add(node(2), *[node(number) for number in range(1, 500) if number != 2])
    one.ask(2, 0)
    assert [(kind, size) for _, kind, size in post.log] == [(ASK, ASK_FORMAT.size), (SAME, 1)]


def test_only_what_differs_travels() -> None:
    post = Post()
    one = post.add(node(1), *[node(number) for number in range(2, 1_000)])
    post.add(node(2), *[node(number, number == 77) for number in range(1, 1_000) if number != 2])
    one.ask(2, 0)
    assert members_of(one)[77].incarnation == 1
    assert sum(size for _, kind, size in post.log if kind == LIST) < 2_000


def test_long_lists_come_in_chunks() -> None:
    post = Post()
    one = post.add(node(1), node(2))
    post.add(node(2), *[node(number) for number in range(3, 3_000)])
    one.ask(2, 0)
    assert len(members_of(one)) == 2_999
    assert [kind for _, kind, _ in post.log].count(LIST) > 4


def test_a_list_that_calls_a_live_member_dead_makes_it_only_doubtful() -> None:
    post = Post()
    one = post.add(node(1), node(2), node(3))
    post.add(node(2), node(1), node(3, 0, DEAD))
    one.ask(2, 0)
    assert members_of(one)[3].state == ALIVE
    assert one._roster.accused == [3]


def test_one_question_at_a_time_and_not_for_ever() -> None:
    class Hole:
        def send(self, peer: int, channel: int, body: bytes) -> None:
            pass

    lists = Lists(Roster(LAN, node(1), random.Random(1)), Hole())
    assert not lists.ask(2, 0), "no link"
    lists.linked = {2: 0, 3: 0}
    assert lists.ask(2, 0)
    assert not lists.ask(3, ASK_TIMEOUT_MS - 1)
    assert lists.ask(3, ASK_TIMEOUT_MS)
    lists.link_lost(3)
    assert lists.ask(2, ASK_TIMEOUT_MS)


def test_a_node_that_answered_much_says_busy() -> None:
    post = Post()
    members = [node(number) for number in range(3, 10_000)]
    one = post.add(node(1), *members)
    two = post.add(node(2))
    question = ASK_FORMAT.pack(ASK, 7, *[0] * 64)
    post.sides[2] = Lists(two._roster, None)
    while not any(kind == BUSY for _, kind, _ in post.log):
        one.receive(2, question, 0)
    sent = sum(size for _, kind, size in post.log if kind == LIST)
    assert ANSWER_BYTES_PER_S <= sent < 2 * ANSWER_BYTES_PER_S
    one.receive(2, question, 2_000)
    assert post.log[-1][1] == LIST


def test_probes_by_link() -> None:
    post = Post()
    one = post.add(node(1))
    post.add(node(2))
    one.ping(2, 5)
    one.ping(3, 6)
    assert [kind for _, kind, _ in post.log] == [LINK_PING, LINK_ACK]
    assert one.receive(2, bytes([LINK_ACK]) + (9).to_bytes(4, "little"), 0) == 9


@pytest.mark.parametrize(
    "body",
    [
        b"",
        bytes([0]),
        bytes([99]),
        bytes(BODY_BYTES_MAX + 1),
        bytes([ASK]),
        bytes([LIST]),
        bytes([LINK_PING]),
        ASK_FORMAT.pack(ASK, 8, *[0] * 64),
        LIST_FORMAT.pack(LIST, 8, 0, 0),
        LIST_FORMAT.pack(LIST, 7, 0, 0) + b"x",
    ],
)
def test_what_can_not_be_ends_the_link(body: bytes) -> None:
    post = Post()
    one = post.add(node(1))
    with pytest.raises(GossipError):
        one.receive(2, body, 0)
    assert list(members_of(one)) == [1]
