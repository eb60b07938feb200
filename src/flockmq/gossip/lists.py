"""Push and pull of the list of members over a link, when two nodes' lists differ, and only the part that differs.

```
 asker                                       answerer
   | ASK: a digest for each of 64 buckets -->  |   the same? --> SAME
   | <-- LIST: its members of differing buckets, in chunks     too busy? --> BUSY
   | merge; what the answerer lacks or has older:
   | LIST ---------------------------------->  | merge
```
Costs nothing that grows with the cluster while lists agree: an ASK is 0.5 KB. A node asks one other at a time, and
answers with a bounded number of bytes a second; a busy one sends the asker elsewhere.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from flockmq.gossip.claims import CLAIM_BYTES_MAX, GossipError, encode_claim, read_claims
from flockmq.gossip.claims import HEAD_BYTES as CLAIM_BYTES_MIN
from flockmq.gossip.member import Member, is_newer
from flockmq.gossip.roster import BUCKETS

if TYPE_CHECKING:
    from flockmq.gossip.ports import Outbox
    from flockmq.gossip.roster import Roster

MEMBERS_CHANNEL: Final = 1
ASK: Final = 1
LIST: Final = 2
SAME: Final = 3
BUSY: Final = 4
LINK_PING: Final = 5
LINK_ACK: Final = 6

ASK_FORMAT: Final = struct.Struct("<BQ64Q")
LIST_FORMAT: Final = struct.Struct("<BQBQ")
PING_FORMAT: Final = struct.Struct("<BI")

IS_LAST: Final = 1
WANTS_ANSWER: Final = 2
CHUNK_BYTES: Final = 32_768
BODY_BYTES_MAX: Final = CHUNK_BYTES + CLAIM_BYTES_MAX + 64
CLAIMS_MAX: Final = BODY_BYTES_MAX // CLAIM_BYTES_MIN
ANSWER_BYTES_PER_S: Final = 4_194_304
ASK_TIMEOUT_MS: Final = 5_000
SPREAD_MAX: Final = 32
"""So much of what a list told is passed on as news; a node that lacks more sees that by the digest and asks."""


class Lists:
    """This node's side of all exchanges of lists."""

    def __init__(self, roster: Roster, outbox: Outbox | None) -> None:
        self._roster = roster
        self.outbox = outbox
        self.linked: dict[int, int] = {}
        """Peers with a link."""
        self.asking = 0
        self.asked_at = 0
        self.completed = 0
        """Exchanges that ran to their end, or found no difference."""
        self._heard: dict[int, Member] = {}
        self._allowance = ANSWER_BYTES_PER_S
        self._allowance_at = 0

    def ask(self, peer: int, now: int) -> bool:
        """Compare lists with this peer; whether the question was sent."""
        outbox = self.outbox
        if outbox is None or peer not in self.linked:
            return False
        if self.asking and now - self.asked_at < ASK_TIMEOUT_MS:
            return False
        self.asking = peer
        self.asked_at = now
        self._heard = {}
        outbox.send(peer, MEMBERS_CHANNEL, ASK_FORMAT.pack(ASK, self._roster.me.cluster_id, *self._roster.buckets))
        return True

    def link_lost(self, peer: int) -> None:
        """The link is gone, and with it what was under way."""
        self.linked.pop(peer, None)
        if self.asking == peer:
            self._finish()

    def send_own(self) -> None:
        """Tell all that have a link what this node is now, surely: it leaves."""
        outbox = self.outbox
        if outbox is None:
            return
        head = LIST_FORMAT.pack(LIST, self._roster.me.cluster_id, 0, 0)
        body = head + encode_claim(self._roster.me)
        for peer in self.linked:
            outbox.send(peer, MEMBERS_CHANNEL, body)

    def ping(self, peer: int, sequence: int) -> None:
        """A probe by link, if there is one: datagrams may not get through where links do."""
        if self.outbox is not None and peer in self.linked:
            self.outbox.send(peer, MEMBERS_CHANNEL, PING_FORMAT.pack(LINK_PING, sequence))

    def receive(self, peer: int, body: bytes, now: int) -> int:
        """What a peer said; the sequence of a probe that it acknowledges, or -1."""
        if not body or len(body) > BODY_BYTES_MAX:
            raise GossipError("A message about members is empty or too long.")
        kind = body[0]
        if kind == ASK:
            self._answer(peer, body, now)
        elif kind == LIST:
            self._merge(peer, body, now)
        elif kind in {SAME, BUSY}:
            if peer == self.asking:
                self.completed += kind == SAME
                self._finish()
        elif kind in {LINK_PING, LINK_ACK}:
            if len(body) != PING_FORMAT.size:
                raise GossipError("A probe by link has the wrong length.")
            if kind == LINK_ACK:
                return int.from_bytes(body[1:5], "little")
            if self.outbox is not None:
                self.outbox.send(peer, MEMBERS_CHANNEL, bytes([LINK_ACK]) + body[1:])
        else:
            raise GossipError(f"There is no message about members of type {kind}.")
        return -1

    def _finish(self) -> None:
        self.asking = 0
        self._heard = {}

    def _check_cluster(self, cluster_id: int) -> None:
        if cluster_id != self._roster.me.cluster_id:
            raise GossipError("The other node belongs to another cluster.")

    def _answer(self, peer: int, body: bytes, now: int) -> None:
        if len(body) != ASK_FORMAT.size:
            raise GossipError("A question for the list of members has the wrong length.")
        fields = ASK_FORMAT.unpack(body)
        self._check_cluster(fields[1])
        outbox = self.outbox
        if outbox is None:
            return
        differing = 0
        for bucket in range(BUCKETS):
            if fields[2 + bucket] != self._roster.buckets[bucket]:
                differing |= 1 << bucket
        if not differing:
            outbox.send(peer, MEMBERS_CHANNEL, bytes([SAME]))
            return
        earned = (now - self._allowance_at) * ANSWER_BYTES_PER_S // 1_000
        self._allowance_at = now
        self._allowance = min(ANSWER_BYTES_PER_S, self._allowance + max(0, earned))
        if self._allowance <= 0:
            outbox.send(peer, MEMBERS_CHANNEL, bytes([BUSY]))
            return
        chosen = [member for member in self._roster.members.values() if (differing >> member.node_id % BUCKETS) & 1]
        self._allowance -= self._send_list(peer, chosen, differing, WANTS_ANSWER)

    def _send_list(self, peer: int, members: list[Member], differing: int, flags: int) -> int:
        outbox = self.outbox
        assert outbox is not None
        cluster_id = self._roster.me.cluster_id
        source = self._roster.me.node_id
        sent = 0
        parts: list[bytes] = []
        size = 0
        for member in members:
            claim = encode_claim(member, source)
            parts.append(claim)
            size += len(claim)
            if size >= CHUNK_BYTES:
                head = LIST_FORMAT.pack(LIST, cluster_id, flags, differing)
                outbox.send(peer, MEMBERS_CHANNEL, head + b"".join(parts))
                sent += size
                parts = []
                size = 0
        head = LIST_FORMAT.pack(LIST, cluster_id, flags | IS_LAST, differing)
        outbox.send(peer, MEMBERS_CHANNEL, head + b"".join(parts))
        return sent + size

    def _merge(self, peer: int, body: bytes, now: int) -> None:
        if len(body) < LIST_FORMAT.size:
            raise GossipError("A list of members is cut off.")
        _, cluster_id, flags, differing = LIST_FORMAT.unpack_from(body)
        self._check_cluster(cluster_id)
        claims = read_claims(body, LIST_FORMAT.size, CLAIMS_MAX)
        roster = self._roster
        answering = peer == self.asking and flags & WANTS_ANSWER != 0
        told = len(roster.news)
        # A newcomer learns all from a list; to pass all of it on would tell the others what they know.
        newcomer = self.completed == 0
        for claim in claims:
            spread = not newcomer and len(roster.news) < told + SPREAD_MAX
            roster.hear(claim, now, list_of=peer, spread=spread)
            if answering and len(self._heard) < roster.settings.members_max:
                self._heard[claim.node_id] = Member(
                    claim.node_id, claim.boot, "", "", 0, claim.incarnation, claim.state
                )
        if answering and flags & IS_LAST:
            self._answer_back(peer, differing)

    def _answer_back(self, peer: int, differing: int) -> None:
        heard = self._heard
        lacking: list[Member] = []
        for member in self._roster.members.values():
            if (differing >> member.node_id % BUCKETS) & 1:
                theirs = heard.get(member.node_id)
                if theirs is None or is_newer(member.boot, member.incarnation, member.state, theirs):
                    lacking.append(member)
        self._finish()
        self.completed += 1
        if lacking:
            self._send_list(peer, lacking, differing, 0)
