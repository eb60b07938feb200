from __future__ import annotations

import pytest

from flockmq.gossip.claims import CLAIM_BYTES_MAX, HEAD_BYTES, Claim, GossipError, encode_claim, read_claims
from flockmq.gossip.member import ALIVE, DEAD, EDGE, INCARNATION_MAX, LEFT, SUSPECT, Member

MEMBER = Member(77, 1_700_000_000_000, "räume@höst", "10.0.0.7", 16_000, 3, ALIVE, "0.1.0", EDGE, 9)


@pytest.mark.parametrize("state", [ALIVE, SUSPECT, DEAD, LEFT])
def test_a_claim_comes_back_as_it_went(state: int) -> None:
    member = MEMBER.with_claim(4, state)
    (claim,) = read_claims(encode_claim(member, 5), 0, 1)
    assert claim.to_member(9) == member
    assert claim.source == (5 if state == SUSPECT else 0)


@pytest.mark.parametrize("state", [SUSPECT, DEAD, LEFT])
def test_a_brief_claim_has_no_details(state: int) -> None:
    data = encode_claim(MEMBER.with_claim(4, state), 5, brief=True)
    (claim,) = read_claims(data, 0, 1)
    assert (claim.node_id, claim.boot, claim.incarnation, claim.state) == (77, MEMBER.boot, 4, state)
    assert len(data) <= HEAD_BYTES + 8
    with pytest.raises(GossipError):
        claim.to_member(9)


def test_many_claims_follow_on_each_other() -> None:
    states = [ALIVE, DEAD, SUSPECT, ALIVE]
    data = b"head" + b"".join(encode_claim(MEMBER.with_claim(turn, state)) for turn, state in enumerate(states))
    assert [claim.state for claim in read_claims(data, 4, 4)] == states
    with pytest.raises(GossipError, match="more than 3"):
        read_claims(data, 4, 3)


@pytest.mark.parametrize("brief", [False, True])
def test_a_claim_cut_anywhere_is_refused(brief: bool) -> None:
    data = encode_claim(MEMBER.with_claim(1, SUSPECT), 5, brief=brief)
    for size in range(1, len(data)):
        with pytest.raises(GossipError):
            read_claims(data[:size], 0, 9)


def test_heads_that_can_not_be() -> None:
    good = bytearray(encode_claim(MEMBER))
    for place, value in ((0, 0x10), (20, 0xFF)):
        bad = bytearray(good)
        bad[place] = value
        with pytest.raises(GossipError):
            read_claims(bytes(bad), 0, 9)
    with pytest.raises(GossipError):
        read_claims(encode_claim(Member(0, 1, "n", "h", 1)), 0, 9)
    with pytest.raises(GossipError, match="name and address"):
        read_claims(encode_claim(MEMBER, brief=True), 0, 9)
    with pytest.raises(GossipError):
        read_claims(encode_claim(MEMBER.with_claim(INCARNATION_MAX + 1, ALIVE)), 0, 9)


@pytest.mark.parametrize(
    "details",
    [b"", b"12345", b"\x80\x3e\x00\x01\x01\x00n", b"\x80\x3e\x00\x01\x01\x00nhx", b"\x80\x3e\x00\x01\x01\x00\xffh"],
)
def test_details_that_do_not_add_up(details: bytes) -> None:
    with pytest.raises(GossipError):
        Claim(1, 1, 1, ALIVE, 0, details).to_member(1)


@pytest.mark.parametrize(
    ("name", "host", "version"), [("", "h", ""), ("n", "", ""), ("n" * 256, "h", ""), ("n", "h", "v" * 64)]
)
def test_what_can_not_be_told_is_refused_before_it_is_sent(name: str, host: str, version: str) -> None:
    with pytest.raises(GossipError, match="can't be told"):
        encode_claim(Member(1, 1, name, host, 1, version=version))


def test_the_largest_claim() -> None:
    largest = Member(1, 1, "n" * 255, "h" * 255, 1, 1, SUSPECT, "v" * 63)
    assert len(encode_claim(largest, 1)) == CLAIM_BYTES_MAX
