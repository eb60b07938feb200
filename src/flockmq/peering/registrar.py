"""The one place that decides about a client id: knows the owner, gives the next one a higher epoch, revokes the last.

```
 CLAIM --> mine to decide? --no--> passed on, once
             | yes
             v
           another user's? --> REFUSE
             |
             v
           do I know all there is? (nodes came or went a moment ago) --no--> ASK those that have not told --> ANSWER
             | yes
             v
           record := claimant, epoch + 1          GRANT to the claimant, REVOKE to the last owner
```
Nothing waits here for a session to move: that is between the two nodes. A record is a hint with an epoch: should it be
wrong (its owner restarted), the revocation finds nothing, and the claimant begins anew. Epochs never stand still behind
the wall clock, so that of two owners after a partition the one whose client came last is likely to win.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.mqtt import reasons
from flockmq.peering.session_messages import (
    ASK,
    CHECKS_USER,
    CLEAN,
    GRANT,
    PASSED_ON,
    REFUSE,
    REVOKE,
    Message,
    decode_entries,
)

if TYPE_CHECKING:
    from flockmq.peering.rendezvous import Ranking
    from flockmq.peering.session_messages import Post

ASK_MS: Final = 500
"""How long nodes that have not told all yet are waited for."""
ASKS_MAX: Final = 10_000
RECORDS_MAX: Final = 4_000_000
SWEEP_BUDGET: Final = 5_000
"""Records looked at in one tick, to find those that are no longer true."""


class Record:
    """The owner of a client id."""

    def __init__(self, owner: int, epoch: int, user: int) -> None:
        self.owner = owner
        self.epoch = epoch
        self.user = user
        """A hash of the user name; 0 when it has none."""
        self.nonce = 0
        """The claim it was granted to; so that a claim that comes twice gets the same answer twice."""
        self.last_owner = 0
        self.last_nonce = 0
        self.stamp = 0
        """When it was last confirmed, counted in events."""


class Question:
    """A claim that waits for answers of nodes that may have the session."""

    def __init__(self, claim: Message, waits_for: set[int], until: int) -> None:
        self.claim = claim
        self.waits_for = waits_for
        self.until = until


class Registrar:
    """This node's part of deciding which node owns which client id."""

    def __init__(self, me: int, post: Post, ranking: Ranking) -> None:
        self.me = me
        self.post = post
        self.ranking = ranking
        self.alive: set[int] = {me}
        self.linked: set[int] = set()
        self.records: dict[str, Record] = {}
        self.told: dict[int, int] = {}
        """For each peer: the digest of the members for which it has told all its sessions."""
        self.boots: dict[int, int] = {}
        self.sync_began: dict[int, int] = {}
        self.questions: dict[int, Question] = {}
        self.asked: dict[tuple[int, int], int] = {}
        """Questions by claimant and nonce."""
        self.stamp = 0
        self.next_question = 0
        self.sweep_list: list[str] = []
        self.sweep_limits: dict[int, int] = {}
        self.sweep_wanted = False
        self.granted = 0
        self.refused = 0

    # --- claims ---

    def on_claim(self, claim: Message, wall_ms: int, now: int) -> None:
        """A node wants a client id."""
        client_id = claim.client_id
        first = self.ranking.first(client_id)
        if first != self.me and not claim.flags & PASSED_ON and first in self.linked:
            claim.flags |= PASSED_ON
            self.post.say(first, claim)
            return
        record = self.record_of(client_id)
        if record is not None and record.last_owner == claim.node and record.last_nonce == claim.nonce:
            return  # it was granted, and the next one has come since
        if record is not None and record.owner == claim.node and record.nonce == claim.nonce:
            self.tell(record, claim)
            return
        if (claim.node, claim.nonce) in self.asked:
            return
        waits_for = {peer for peer in self.linked if self.told.get(peer) != self.ranking.digest and peer != claim.node}
        if waits_for and len(self.questions) < ASKS_MAX:
            self.next_question += 1
            number = self.next_question
            self.questions[number] = Question(claim, waits_for, now + ASK_MS)
            self.asked[claim.node, claim.nonce] = number
            for peer in waits_for:
                self.post.say(peer, Message(ASK, client_id, nonce=number))
            return
        self.grant(claim, wall_ms)

    def record_of(self, client_id: str) -> Record | None:
        """What is known about a client id; what a dead node had has no owner."""
        record = self.records.get(client_id)
        if record is not None and record.owner not in self.alive:
            return None
        return record

    def grant(self, claim: Message, wall_ms: int) -> None:
        """Give a client id to the node that asks for it, unless it is another user's."""
        client_id = claim.client_id
        record = self.record_of(client_id)
        known = claim.epoch
        code = 0
        if record is not None:
            known = max(known, record.epoch)
            if claim.flags & CHECKS_USER and record.user != claim.user:
                code = reasons.CLIENT_IDENTIFIER_NOT_VALID
        elif len(self.records) >= RECORDS_MAX:
            code = reasons.SERVER_BUSY
        if code:
            self.refused += 1
            self.post.say(claim.node, Message(REFUSE, client_id, nonce=claim.nonce, value=code))
            return
        fresh = Record(claim.node, max(known + 1, wall_ms), claim.user)
        fresh.nonce = claim.nonce
        if record is not None:
            fresh.last_owner = record.owner
            fresh.last_nonce = record.nonce
        self.records[client_id] = fresh
        self.confirm(fresh)
        self.granted += 1
        self.tell(fresh, claim)

    def tell(self, record: Record, claim: Message) -> None:
        """Tell the new owner and the last one which node has the client id now."""
        last = record.last_owner if record.last_owner in self.alive else 0
        grant = Message(GRANT, claim.client_id, nonce=claim.nonce, epoch=record.epoch, node=last)
        self.post.say(claim.node, grant)
        if last and last != claim.node:
            self.revoke(last, claim.client_id, record, claim.flags & (CLEAN | CHECKS_USER))

    def revoke(self, loser: int, client_id: str, record: Record, flags: int) -> None:
        """Tell a node that the client id is another's."""
        message = Message(REVOKE, client_id, flags=flags, nonce=record.nonce, epoch=record.epoch, node=record.owner)
        message.user = record.user
        self.post.say(loser, message)

    def on_answer(self, peer: int, answer: Message, wall_ms: int) -> None:
        """A node says whether it has what was asked for."""
        question = self.questions.get(answer.nonce)
        if question is None or peer not in question.waits_for:
            return
        if answer.epoch:
            self.learn(peer, question.claim.client_id, answer.epoch, answer.user)
        question.waits_for.discard(peer)
        if not question.waits_for:
            self.answered(answer.nonce, question, wall_ms)

    def answered(self, number: int, question: Question, wall_ms: int) -> None:
        """All that will be known is known: decide."""
        del self.questions[number]
        claim = question.claim
        self.asked.pop((claim.node, claim.nonce), None)
        if claim.node in self.alive:
            self.grant(claim, wall_ms)

    def learn(self, peer: int, client_id: str, epoch: int, user: int) -> None:
        """A node has a client id under an epoch; an owner under a lower one has to give way."""
        record = self.record_of(client_id)
        if record is None:
            if len(self.records) >= RECORDS_MAX and client_id not in self.records:
                return
            record = Record(peer, epoch, user)
            self.records[client_id] = record
        elif record.owner == peer:
            record.epoch = max(record.epoch, epoch)
            record.user = user
        elif (epoch, peer) > (record.epoch, record.owner):
            loser = record.owner
            record = Record(peer, epoch, user)
            self.records[client_id] = record
            self.revoke(loser, client_id, record, 0)
        else:
            self.revoke(peer, client_id, record, 0)
            return
        self.confirm(record)

    def confirm(self, record: Record) -> None:
        """Note that a record is true as of now."""
        self.stamp += 1
        record.stamp = self.stamp

    # --- what owners tell on their own ---

    def on_register(self, peer: int, data: bytes) -> None:
        """A node lists client ids that it has. Epoch 0: it waits for one, and what is known of that shall stay."""
        for client_id, epoch, user in decode_entries(data):
            if epoch:
                self.learn(peer, client_id, epoch, user)
            else:
                record = self.records.get(client_id)
                if record is not None and record.owner == peer:
                    self.confirm(record)

    def on_release(self, peer: int, data: bytes) -> None:
        """A node has some client ids no more."""
        for client_id, epoch, _ in decode_entries(data):
            record = self.records.get(client_id)
            if record is not None and record.owner == peer and record.epoch <= epoch:
                del self.records[client_id]

    def on_sync(self, peer: int, boot: int) -> None:
        """A node begins to list all it has."""
        self.boots[peer] = boot
        self.sync_began[peer] = self.stamp

    def on_synced(self, peer: int, digest: int) -> None:
        """A node has listed all it has: what it did not name it does not have."""
        self.told[peer] = digest
        self.sweep_wanted = True
        began = self.sync_began.pop(peer, -1)
        if began >= 0:
            self.sweep_limits[peer] = began

    # --- members and time ---

    def set_members(self, ranking: Ranking, wall_ms: int) -> None:
        """Other nodes are there than before."""
        self.ranking = ranking
        self.alive = set(ranking.members)
        self.sweep_wanted = True
        self.stop_waiting(self.linked & self.alive, wall_ms)

    def link(self, peer: int) -> None:
        """A link is there: what the peer has it will list anew."""
        self.linked.add(peer)
        self.told.pop(peer, None)

    def unlink(self, peer: int, wall_ms: int) -> None:
        """A link is gone."""
        self.linked.discard(peer)
        self.told.pop(peer, None)
        self.sync_began.pop(peer, None)
        self.stop_waiting(self.linked, wall_ms)

    def stop_waiting(self, answering: set[int], wall_ms: int) -> None:
        """Nodes that can't answer are not waited for."""
        for number, question in list(self.questions.items()):
            question.waits_for &= answering
            if not question.waits_for:
                self.answered(number, question, wall_ms)

    def tick(self, now: int, wall_ms: int) -> None:
        """Decide what has waited long enough; look through some records."""
        for number, question in list(self.questions.items()):
            if question.until <= now:
                self.answered(number, question, wall_ms)
        self.sweep()

    def sweep(self) -> None:
        """Forget records of dead nodes, of client ids that others decide about, and that their owners did not name."""
        if not self.sweep_list:
            if not self.sweep_wanted:
                return
            self.sweep_wanted = False
            self.sweep_list = list(self.records)
        budget = self.ranking.affordable(SWEEP_BUDGET)
        taken = self.sweep_list[-budget:]
        del self.sweep_list[-budget:]
        for client_id in taken:
            record = self.records.get(client_id)
            if record is None:
                continue
            if self.is_outdated(client_id, record):
                del self.records[client_id]
        if not self.sweep_list and not self.sweep_wanted:
            self.sweep_limits = {}

    def is_outdated(self, client_id: str, record: Record) -> bool:
        """Whether a record is of a dead node, not named by its owner, or of a client id that others decide about.

        The last only if the owner sees the same members, and so has told them: else this node may soon be registrar.
        """
        owner = record.owner
        if owner not in self.alive or record.stamp <= self.sweep_limits.get(owner, -1):
            return True
        agrees = owner == self.me or self.told.get(owner) == self.ranking.digest
        return agrees and self.ranking.first(client_id) != self.me
