from __future__ import annotations

import pytest

from flockmq.errors import FlockError
from flockmq.gossip.member import DEAD, SUSPECT, Member
from flockmq.gossip.messages import ACK, GOSSIP, PING
from flockmq.gossip.seal import BODY_BYTES_MAX
from swim_cases import CLUSTER, Digest, address, member, run, say, swim


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


def test_the_maps_digest_travels_with_pings() -> None:
    heard: list[tuple[int, bytes, int]] = []
    maps = Digest(b"d" * 64, lambda peer, digest, now: heard.append((peer, digest, now)))
    one = swim(member(2), maps=maps)
    (answer,) = say(one, PING, sender=member(2), about=1, digest=b"theirs", now=4)
    assert answer.digest == b"d" * 64
    say(one, PING, sender=member(3), about=1, digest=b"a stranger's", now=4)
    assert heard == [(2, b"theirs", 4)]
    maps.own = b"d" * 65
    with pytest.raises(FlockError, match="65 bytes"):
        say(one, PING, sender=member(2), about=1)


def test_no_datagram_is_too_large_whatever_there_is_to_tell() -> None:
    one = swim(maps=Digest(b"d" * 64))
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
