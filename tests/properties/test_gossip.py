"""Membership under any input: hostile bytes never break it, and the order in which claims arrive does not matter."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from flockmq.errors import FlockError
from flockmq.gossip.claims import encode_claim, read_claims
from flockmq.gossip.lists import ASK_FORMAT, LIST_FORMAT
from flockmq.gossip.member import ALIVE, Member, is_newer
from flockmq.gossip.messages import HEAD, VERSION
from flockmq.gossip.roster import Roster
from flockmq.gossip.seal import BODY_BYTES_MAX
from flockmq.gossip.settings import LAN
from flockmq.gossip.swim import Swim

CLUSTER = 7
ME = Member(1, 100, "n1@h1", "h1", 16_000, cluster_id=CLUSTER)

small = st.integers(0, 6)
u64 = st.one_of(small, st.integers(0, 2**64 - 1))
incarnations = st.one_of(st.integers(0, 3), st.integers(0, 2**31 - 1))
words = st.text(min_size=1, max_size=20)


@st.composite
def members(draw: st.DrawFn) -> Member:
    node_id = draw(st.integers(1, 6))
    return Member(
        node_id,
        draw(st.sampled_from([99, 100, 101])),
        draw(words),
        draw(words),
        draw(st.integers(1, 65_535)),
        draw(incarnations),
        draw(st.integers(0, 3)),
        draw(st.sampled_from(["", "0.1.0"])),
        draw(st.integers(0, 255)),
        CLUSTER,
    )


@st.composite
def claim_bytes(draw: st.DrawFn) -> bytes:
    member = draw(members())
    return encode_claim(member, draw(u64), brief=member.state != ALIVE and draw(st.booleans()))


@st.composite
def datagrams(draw: st.DrawFn) -> bytes:
    head = HEAD.pack(
        VERSION,
        draw(st.integers(1, 7)),
        draw(st.sampled_from([CLUSTER, CLUSTER, CLUSTER, 8])),
        draw(u64),
        draw(st.integers(99, 101)),
        draw(incarnations),
        draw(st.integers(0, 2**32 - 1)),
        draw(u64),
        draw(u64),
        0,
    )
    return head + b"".join(draw(st.lists(claim_bytes(), max_size=8))) + draw(st.sampled_from([b"", b"", b"tail"]))


@st.composite
def link_messages(draw: st.DrawFn) -> bytes:
    kind = draw(st.integers(0, 7))
    if kind == 0:
        return draw(st.binary(max_size=600))
    if kind == 1:
        return ASK_FORMAT.pack(1, CLUSTER, *draw(st.lists(u64, min_size=64, max_size=64)))
    head = LIST_FORMAT.pack(2, CLUSTER, draw(st.integers(0, 3)), draw(u64))
    return head + b"".join(draw(st.lists(claim_bytes(), max_size=8)))


class Outbox:
    """Takes everything."""

    def send(self, peer: int, channel: int, body: bytes) -> None:
        assert body


def check_sound(swim: Swim) -> None:
    """What must hold of a list of members whatever was heard."""
    roster = swim.roster
    assert roster.members[1] is swim.me
    assert swim.me.boot == 100
    live = {node_id for node_id, member in roster.members.items() if member.is_live and node_id != 1}
    assert live == set(roster.live)
    assert len(roster.live) == len(live)
    assert {node_id for node_id, member in roster.members.items() if not member.is_live} == set(roster.gone)
    assert set(roster.suspicions) == {node_id for node_id in live if roster.members[node_id].state == 1}
    fresh = Roster(LAN, swim.me, random.Random(0))
    for member in roster.members.values():
        if member.node_id != 1:
            fresh._put(None, member)
    assert fresh.view == roster.view
    assert fresh.buckets == roster.buckets
    for _, body in swim.take_datagrams():
        assert len(body) <= BODY_BYTES_MAX


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("bytes"), st.binary(max_size=200)),
            st.tuples(st.just("datagram"), datagrams()),
            st.tuples(st.just("link"), link_messages()),
            st.tuples(st.just("tick"), st.integers(0, 20_000)),
        ),
        max_size=25,
    )
)
def test_whatever_arrives_the_list_stays_sound(steps: list[tuple[str, bytes | int]]) -> None:
    swim = Swim(LAN, ME, random.Random(1), 0, Outbox())
    swim.peer_up(2, 0)
    now = 0
    for kind, what in steps:
        if isinstance(what, int):
            now += what
            swim.tick(now)
        elif kind == "link":
            try:
                swim.receive(2, what, now)
            except FlockError:
                swim.peer_down(2, now)
                swim.peer_up(2, now)
        else:
            swim.receive_datagram(what, ("h2", 16_000), now)
        check_sound(swim)


@given(
    st.lists(st.tuples(st.integers(2, 4), st.integers(0, 2), st.integers(0, 2), st.integers(0, 3)), max_size=12),
    st.randoms(),
)
def test_the_order_of_claims_does_not_matter(claims: list[tuple[int, int, int, int]], shuffler: random.Random) -> None:
    made = [
        Member(number, boot, f"n{number}", f"h{number}", 16_000, incarnation, state, cluster_id=CLUSTER)
        for number, boot, incarnation, state in claims
    ]
    expected: dict[int, Member] = {}
    for member in made:
        known = expected.get(member.node_id)
        if known is None or is_newer(member.boot, member.incarnation, member.state, known):
            expected[member.node_id] = member
    shuffler.shuffle(made)
    roster = Roster(LAN, ME, random.Random(1))
    for member in made:
        roster.hear(read_claims(encode_claim(member, 9), 0, 1)[0], 0)
    assert {node_id: member for node_id, member in roster.members.items() if node_id != 1} == expected
