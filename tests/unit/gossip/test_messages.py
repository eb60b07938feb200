from __future__ import annotations

import pytest

from flockmq.gossip.claims import GossipError, encode_claim
from flockmq.gossip.member import Member
from flockmq.gossip.messages import ACK, HEAD, HEAD_BYTES, PING, VERSION, decode
from flockmq.gossip.seal import BODY_BYTES_MAX


def head(version: int = VERSION, kind: int = PING, sender: int = 3, incarnation: int = 5, size: int = 0) -> bytes:
    return HEAD.pack(version, kind, 2, sender, 4, incarnation, 6, 7, 8, size)


def test_all_fields_arrive() -> None:
    claim = encode_claim(Member(9, 1, "n", "h", 1))
    datagram = decode(head(kind=ACK, size=3) + b"abc" + claim + claim)
    assert (datagram.kind, datagram.cluster_id, datagram.sender, datagram.boot) == (ACK, 2, 3, 4)
    assert (datagram.incarnation, datagram.sequence, datagram.about, datagram.view) == (5, 6, 7, 8)
    assert datagram.digest == b"abc"
    assert [said.node_id for said in datagram.claims] == [9, 9]
    assert len(head()) == HEAD_BYTES


@pytest.mark.parametrize(
    "body",
    [
        b"",
        head()[:-1],
        head(version=2),
        head(kind=0),
        head(kind=8),
        head(sender=0),
        head(incarnation=1 << 31),
        head(size=1),
        head(size=65) + bytes(65),
        head() + b"x",
        head() + bytes(BODY_BYTES_MAX),
    ],
)
def test_what_is_no_datagram(body: bytes) -> None:
    with pytest.raises(GossipError):
        decode(body)
