"""Datagrams that leave this node: what stands in their heads, and the news that rides on them.

```
 head and digests | own claim (greetings, and answers to outdated talk) | what is held of the receiver, if not alive
 | news, the least told first | some of the members (WELCOME)                              up to 1,400 bytes sealed
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.errors import FlockError
from flockmq.gossip.claims import encode_claim
from flockmq.gossip.member import ALIVE, DEAD
from flockmq.gossip.messages import DIGEST_BYTES_MAX, GOSSIP, HEAD, HEAD_BYTES, VERSION, WELCOME
from flockmq.gossip.seal import BODY_BYTES_MAX

if TYPE_CHECKING:
    import random

    from flockmq.gossip.ports import Digests
    from flockmq.gossip.roster import Roster
    from flockmq.gossip.settings import GossipSettings

Address = tuple[str, int]


class Speaker:
    """Makes datagrams and keeps them until they are taken."""

    def __init__(self, settings: GossipSettings, roster: Roster, rng: random.Random, maps: Digests | None) -> None:
        self.settings = settings
        self.roster = roster
        self._maps = maps
        self.out: list[tuple[Address, bytes]] = []
        self._rng = rng
        self._sequence = int(rng.random() * 0x7FFF_FFFF)

    def next_sequence(self) -> int:
        """A number by which an answer is known."""
        self._sequence = (self._sequence + 1) & 0x7FFF_FFFF
        return self._sequence

    def send(
        self, address: Address, receiver: int, kind: int, sequence: int, about: int, *, own_first: bool = False
    ) -> None:
        """Queue a datagram, with as much news as fits; ``receiver`` is 0 if the node there is not known."""
        roster = self.roster
        me = roster.me
        digest = self._maps.digest() if self._maps is not None else b""
        if len(digest) > DIGEST_BYTES_MAX:
            raise FlockError(f"A digest of {len(digest)} bytes is over the limit of {DIGEST_BYTES_MAX}.")
        head = HEAD.pack(
            VERSION,
            kind,
            me.cluster_id,
            me.node_id,
            me.boot,
            me.incarnation,
            sequence,
            about,
            roster.view,
            len(digest),
        )
        parts = [head, digest]
        room = BODY_BYTES_MAX - HEAD_BYTES - len(digest)
        if own_first:
            claim = encode_claim(me)
            parts.append(claim)
            room -= len(claim)
        if receiver:
            known = roster.members.get(receiver)
            if known is not None and known.state != ALIVE:  # the buddy rule
                claim = encode_claim(known, me.node_id, brief=True)
                parts.append(claim)
                room -= len(claim)
        if len(roster.news):
            limit = self.settings.retransmits(len(roster.live) + 1)
            for claim in roster.news.take(room, limit):
                parts.append(claim)
                room -= len(claim)
        if kind == WELCOME:
            self._add_some_members(parts, room)
        self.out.append((address, b"".join(parts)))

    def _add_some_members(self, parts: list[bytes], room: int) -> None:
        """Some other members: a random stretch of the list."""
        roster = self.roster
        size = len(roster.live)
        if not size:
            return
        place = int(self._rng.random() * size)
        for step in range(min(size, 32)):
            claim = encode_claim(roster.members[roster.live[(place + step) % size]], roster.me.node_id)
            if len(claim) > room:
                return
            parts.append(claim)
            room -= len(claim)

    def send_to(self, node_id: int, kind: int, sequence: int, about: int) -> None:
        """Queue a datagram for a member."""
        member = self.roster.members[node_id]
        self.send((member.host, member.port), node_id, kind, sequence, about)

    def tell_accused(self) -> None:
        """Tell a member that a list calls it dead; if it lives, it contradicts to all."""
        roster = self.roster
        if not roster.accused:
            return
        accused = roster.accused
        roster.accused = []
        me = roster.me
        for node_id in accused:
            known = roster.members.get(node_id)
            if known is None or not known.is_live:
                continue
            head = HEAD.pack(VERSION, GOSSIP, me.cluster_id, me.node_id, me.boot, me.incarnation, 0, 0, roster.view, 0)
            said = known.with_claim(known.incarnation, DEAD)
            self.out.append(((known.host, known.port), head + encode_claim(said, brief=True)))
