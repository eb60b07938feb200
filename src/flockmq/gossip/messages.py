"""Datagrams between members, before they are sealed.

```
 version u8 | type u8 | cluster u64 | sender u64 | boot u64 | incarnation u32 | sequence u32 | about u64 | view u64
 | digest length u8 | digest | claims up to the end
```
| type | about | asks for |
| --- | --- | --- |
| PING | the node that is meant; any other at that address keeps silent | ACK |
| PING_REQ | the node to ping | ACK if it answered, NACK if not |
| ACK | the node that is alive: the sender, or the one that it was asked to ping | |
| NACK | the node that did not answer; the helper itself lives | |
| GOSSIP | | |
| HELLO | | WELCOME; the first claim is the sender's own |
| WELCOME | | ; the first claim is the sender's own, then some of the members |

``view`` stands for the whole list of live members as the sender sees it (``roster.py``), ``digest`` is that of the
owned maps. Both travel with each datagram, so two nodes notice with the next ping that they differ.
"""

from __future__ import annotations

import struct
from typing import Final

from flockmq.gossip.claims import HEAD_BYTES as CLAIM_BYTES_MIN
from flockmq.gossip.claims import Claim, GossipError, read_claims
from flockmq.gossip.member import INCARNATION_MAX
from flockmq.gossip.seal import BODY_BYTES_MAX

VERSION: Final = 1
PING: Final = 1
PING_REQ: Final = 2
ACK: Final = 3
NACK: Final = 4
GOSSIP: Final = 5
HELLO: Final = 6
WELCOME: Final = 7

HEAD: Final = struct.Struct("<BBQQQIIQQB")
HEAD_BYTES: Final = 51
DIGEST_BYTES_MAX: Final = 64
CLAIMS_MAX: Final = BODY_BYTES_MAX // CLAIM_BYTES_MIN


class Datagram:
    """What one datagram says."""

    def __init__(
        self,
        kind: int,
        cluster_id: int,
        sender: int,
        boot: int,
        incarnation: int,
        sequence: int,
        about: int,
        view: int,
        digest: bytes,
        claims: list[Claim],
    ) -> None:
        self.kind = kind
        self.cluster_id = cluster_id
        self.sender = sender
        self.boot = boot
        self.incarnation = incarnation
        self.sequence = sequence
        self.about = about
        self.view = view
        self.digest = digest
        self.claims = claims


def decode(body: bytes) -> Datagram:
    """Read a datagram; GossipError if it is none."""
    if len(body) < HEAD_BYTES or len(body) > BODY_BYTES_MAX:
        raise GossipError("A datagram is too short or too long.")
    version, kind, cluster_id, sender, boot, incarnation, sequence, about, view, size = HEAD.unpack_from(body)
    if version != VERSION or not PING <= kind <= WELCOME:
        raise GossipError("A datagram is of another version, or of no known type.")
    claims_at = HEAD_BYTES + size
    if size > DIGEST_BYTES_MAX or claims_at > len(body) or incarnation > INCARNATION_MAX or sender == 0:
        raise GossipError("A datagram's head is wrong.")
    claims = read_claims(body, claims_at, CLAIMS_MAX)
    return Datagram(
        kind, cluster_id, sender, boot, incarnation, sequence, about, view, body[HEAD_BYTES:claims_at], claims
    )
