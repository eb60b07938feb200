"""A node on its way into a cluster: the words of its peers, and the decision that follows from them.

```
 discovery: listed, answered --.                                   .--> decision: BOOTSTRAP | JOIN | WAIT
                                +--> words, promises --> decide() --+
 links: peer_up/down, receive --'                                   '--> take_ballot --> disk --> kept --> flush: say it
```
The rules are in `formation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.peering.formation import (
    BOOTSTRAP,
    FORMATION,
    WAIT,
    Ballot,
    Decision,
    Listing,
    Rules,
    Standing,
    Word,
    decide,
    decode_word,
    encode_word,
    promises,
)

if TYPE_CHECKING:
    from flockmq.peering.contact import Contact
    from flockmq.peering.ports import Outbox

CONTACTS_MAX: Final = 1_000
"""Most contacts taken from one listing."""


class Formation:
    """A component of every node, with a cluster or without.

    After BOOTSTRAP the owner mints an id (and claims it where the plugin can hold a claim), after JOIN it takes that of
    the peer; in both cases it writes the id to disk and then calls `belong`.
    """

    def __init__(
        self,
        node_id: int,
        cluster_id: int,
        has_data: bool,
        ballot: Ballot,
        rules: Rules,
        outbox: Outbox,
        now: int,
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.has_data = has_data
        self.rules = rules
        self.ballot = ballot
        self.decision = Decision(WAIT, ballot, "Starting.")
        self._outbox = outbox
        self._kept = True
        self._said: Word | None = None
        self._up: set[int] = set()
        self._untold: set[int] = set()
        self._words: dict[int, Word] = {}
        self._promises: dict[int, int] = {}  # peer -> since when its promise to this node's attempt is known
        self._own_promise_at = now
        self._listed: list[Contact] = []
        self._listing_begun = -1
        self._answers: dict[Contact, int] = {}
        self._claim = 0
        self._look()

    def listed(self, contacts: list[Contact], begun: int) -> None:
        """Take a listing that began at that time, after this node had registered itself. Failed ones do not count."""
        self._listed = contacts[:CONTACTS_MAX]
        self._listing_begun = begun
        self._look()

    def answered(self, contact: Contact, node_id: int) -> None:
        """Learn which node answers at a contact (it may be this node)."""
        if len(self._answers) >= 2 * CONTACTS_MAX:
            listed = set(self._listed)
            self._answers = {known: node for known, node in self._answers.items() if known in listed}
        self._answers[contact] = node_id
        self._look()

    def silent(self) -> list[Contact]:
        """Listed contacts that no node in sight stands behind: the ones to call."""
        found = []
        for contact in self._listed:
            node_id = self._answers.get(contact, 0)
            if node_id != self.node_id and node_id not in self._words:
                found.append(contact)
        return found

    def take_ballot(self) -> Ballot | None:
        """The ballot that must be on disk before this node sends another word; None: it is on disk."""
        return None if self._kept else self.ballot

    def kept(self, ballot: Ballot, now: int) -> None:
        """This ballot is on disk."""
        if ballot == self.ballot and not self._kept:
            self._kept = True
            self._own_promise_at = now
            self._look()

    def belong(self, cluster_id: int) -> None:
        """The node's cluster id is on disk; tell it to peers from now on."""
        self.cluster_id = cluster_id
        self._look()

    def claimed(self, cluster_id: int) -> None:
        """The registry of the discovery plugin has a claim of a cluster that was formed there before."""
        self._claim = cluster_id
        self._look()

    def peer_up(self, peer: int, now: int) -> None:  # noqa: ARG002  (the shape of all components)
        """A new peer hears this node's word at the end of the turn."""
        self._up.add(peer)
        self._untold.add(peer)
        self._forget(peer)
        self._look()

    def peer_down(self, peer: int, now: int) -> None:  # noqa: ARG002
        """The link is lost: the peer's word and promise no longer count."""
        self._up.discard(peer)
        self._untold.discard(peer)
        self._forget(peer)
        self._look()

    def peer_dead(self, peer: int, now: int) -> None:
        """As when the link is lost."""
        self.peer_down(peer, now)

    def receive(self, peer: int, body: bytes, now: int) -> None:
        """A peer's word."""
        if peer not in self._up:
            return
        word = decode_word(body)
        self._words[peer] = word
        if promises(word, self.node_id, self.ballot.attempt):
            self._promises.setdefault(peer, now)
        else:
            self._promises.pop(peer, None)
        self._look()

    def tick(self, now: int) -> None:
        """Nothing here waits for time."""

    def flush(self, now: int) -> None:  # noqa: ARG002
        """Tell new peers this node's word, and all of them when it is another one; never before it is on disk."""
        if not self._kept:
            return
        word = Word(self.cluster_id, self.rules.expect, self.ballot, self.rules.is_edge)
        if word != self._said:
            self._said = word
            self._untold.update(self._up)
        if self._untold:
            for peer in sorted(self._untold):
                self._outbox.send(peer, FORMATION, encode_word(word))
            self._untold.clear()

    def _forget(self, peer: int) -> None:
        self._words.pop(peer, None)
        self._promises.pop(peer, None)

    def _look(self) -> None:
        """Decide again. A node that has been told to bootstrap stays with that: it may have minted already."""
        if self.decision.kind == BOOTSTRAP and not self.cluster_id and not self._claim:
            return
        me = Standing(self.node_id, self.cluster_id, self.has_data, self.ballot)
        decision = decide(me, self._words, self._listing(), self.rules)
        if decision.kind == BOOTSTRAP and self._claim:
            reason = (
                f"Cluster {self._claim:016x} was formed here before and none of its nodes answers; start them, or, if "
                "that cluster is gone for good, delete its claim where the discovery plugin keeps it."
            )
            decision = Decision(WAIT, decision.ballot, reason)
        if decision.ballot != self.ballot:
            if decision.ballot.attempt != self.ballot.attempt:
                self._promises.clear()
            self.ballot = decision.ballot
            self._kept = False
        self.decision = decision

    def _listing(self) -> Listing:
        begun = self._listing_begun
        covers = sum(1 for since in self._promises.values() if since < begun)
        if self._kept and self.ballot.promised_to == self.node_id and self._own_promise_at < begun:
            covers += 1
        answering = [self._answers.get(contact, 0) for contact in self._listed]
        behind = tuple(dict.fromkeys([node_id for node_id in answering if node_id in self._words]))
        return Listing(begun >= 0, len(self.silent()), covers, behind)
