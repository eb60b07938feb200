"""One node of membership and what others say to it, for the tests of its parts."""

from __future__ import annotations

import random
from collections.abc import Callable

from flockmq.gossip.claims import encode_claim
from flockmq.gossip.member import ALIVE, Member
from flockmq.gossip.messages import GOSSIP, HEAD, VERSION, Datagram, decode
from flockmq.gossip.settings import LAN
from flockmq.gossip.swim import Swim

CLUSTER = 7


def member(number: int, incarnation: int = 0, state: int = ALIVE, boot: int = 100) -> Member:
    return Member(number, boot, f"n{number}@h{number}", f"h{number}", 16_000, incarnation, state, "0.1.0", 0, CLUSTER)


def address(number: int) -> tuple[str, int]:
    return (f"h{number}", 16_000)


class Digest:
    """Owned maps of which nothing but the digest matters."""

    def __init__(self, digest: bytes = b"", on_digest: Callable[[int, bytes, int], None] | None = None) -> None:
        self.own = digest
        self.heard = on_digest

    def digest(self) -> bytes:
        return self.own

    def on_digest(self, peer: int, digest: bytes, now: int) -> None:
        if self.heard is not None:
            self.heard(peer, digest, now)


def swim(*others: Member, number: int = 1, now: int = 0, maps: Digest | None = None) -> Swim:
    made = Swim(LAN, member(number), random.Random(number), now, maps=maps)
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
    differs: bool = False,
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
        to.view ^ int(differs),
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


def tick_out(one: Swim) -> list[tuple[tuple[str, int], bytes]]:
    one.tick(one.wake_at)
    return one.take_datagrams()
