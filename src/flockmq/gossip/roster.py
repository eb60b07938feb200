"""The list of members and the rules by which claims change it. What is sent when is decided elsewhere.

```
                 newer claim by gossip, or own finding
   (unknown) --> ALIVE <-----------> SUSPECT --> DEAD --> forgotten after dead_keep_ms
                   |  '--<-- incarnation + 1 --<---'          a later boot replaces all of an earlier one at once
                   '--> LEFT --> forgotten after left_keep_ms
```
*Whole lists* are hearsay: what they call dead, and this node holds alive, is not taken over. The accused is told
(``accused``) and looked at (``check_soon``): if it lives it contradicts, if not the own probes find out. So two halves
of a cluster that held each other dead can exchange lists without declaring live nodes dead.

*Addresses*: only one process can hold an address. Of two nodes at one address the one that was started first is dead
(its disk was replaced, now it has a new id). The same name at two addresses is a CONFLICT for people to solve.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.gossip.broadcasts import Broadcasts
from flockmq.gossip.claims import Claim, GossipError, encode_claim
from flockmq.gossip.health import LocalHealth
from flockmq.gossip.member import (
    ALIVE,
    ALIVE_AGAIN,
    CHANGED,
    CONFLICT,
    DEAD,
    DIED,
    HAS_LEFT,
    INCARNATION_MAX,
    JOINED,
    LEFT,
    SUSPECT,
    SUSPECTED,
    Member,
    MemberEvent,
    fingerprint,
    is_newer,
)
from flockmq.gossip.probe_order import ProbeOrder
from flockmq.gossip.suspicion import Suspicion

if TYPE_CHECKING:
    import random

    from flockmq.gossip.settings import GossipSettings

BUCKETS: Final = 64
ACCUSED_MAX: Final = 256
EVENTS_MAX: Final = 100_000


class Roster:
    """All members that this node knows, itself among them."""

    def __init__(self, settings: GossipSettings, me: Member, rng: random.Random) -> None:
        self.settings = settings
        self.me = me
        self.rng = rng
        self.members: dict[int, Member] = {me.node_id: me}
        self.order = ProbeOrder(rng)
        self.live = self.order.live
        """Others that are alive or suspected."""
        self.gone: dict[int, int] = {}
        """Dead and left ones and since when; the longest gone first."""
        self.suspicions: dict[int, Suspicion] = {}
        self.news = Broadcasts()
        self.health = LocalHealth(settings.health_max)
        self.events: list[MemberEvent] = []
        self.hurry = False
        """A suspect's time got shorter."""
        self.accused: list[int] = []
        """Members that a list calls dead although they seem alive; to be told."""
        self.buckets: list[int] = [0] * BUCKETS
        self.view = 0
        """Stands for all live members and their incarnations: the same on two nodes whose lists are the same."""
        self.full = 0
        """Members that were refused because there are too many."""
        self.unreadable = 0
        """Claims whose details could not be read."""
        self._names: dict[str, int] = {me.name: me.node_id}
        self._addresses: dict[tuple[str, int], int] = {(me.host, me.port): me.node_id}
        self._conflict_boot = 0
        self._toggle(me)

    # What claims do

    def hear(self, claim: Claim, now: int, *, list_of: int = 0, spread: bool = True) -> bool:
        """Take in what gossip says, or another node's list; whether that was outdated talk about this node, which then
        needs an answer.
        """
        if claim.node_id == self.me.node_id:
            return self._hear_of_myself(claim)
        known = self.members.get(claim.node_id)
        try:
            if known is None or claim.boot > known.boot:
                self._meet(known, claim, now, spread=spread)
            elif claim.state == SUSPECT and known.state == SUSPECT and claim.incarnation == known.incarnation:
                self.confirm(known, claim.source)
            elif is_newer(claim.boot, claim.incarnation, claim.state, known):
                self._update(known, claim, now, list_of=list_of, spread=spread)
        except GossipError:
            self.unreadable += 1
        return False

    def _hear_of_myself(self, claim: Claim) -> bool:
        me = self.me
        if claim.boot > me.boot:
            if claim.boot != self._conflict_boot:  # once is enough
                self._conflict_boot = claim.boot
                self._tell(CONFLICT, me)
            return False
        if claim.boot < me.boot:
            return True
        if claim.incarnation > me.incarnation or (
            claim.incarnation == me.incarnation and claim.state not in {ALIVE, me.state}
        ):
            if claim.incarnation >= INCARNATION_MAX:
                return False
            self.change_me(me.with_claim(claim.incarnation + 1, me.state))
            if claim.state != ALIVE:
                self.health.worse()
            return True
        return claim.state != me.state

    def change_me(self, me: Member) -> None:
        """This node itself has changed: gossip the change."""
        old = self.me
        self._toggle(old)
        if self._addresses.get((old.host, old.port)) == old.node_id:
            del self._addresses[(old.host, old.port)]
        if self._names.get(old.name) == old.node_id:
            del self._names[old.name]
        self.me = me
        self.members[me.node_id] = me
        self._names[me.name] = me.node_id
        self._addresses[(me.host, me.port)] = me.node_id
        self._toggle(me)
        self.news.put(me.node_id, encode_claim(me))

    def _meet(self, known: Member | None, claim: Claim, now: int, *, spread: bool) -> None:
        """A node, or a life of a node, that was not known."""
        if not claim.details:
            return  # of a node never met; its details come by other ways, or do not matter
        if known is None and len(self.members) >= self.settings.members_max and not self._forget_longest_gone():
            self.full += 1
            return
        member = claim.to_member(self.me.cluster_id)
        if known is not None:
            self._bury_former_life(known)
        if member.state >= DEAD:
            self._put(known, member)
            self.gone[member.node_id] = now
            self._bound_gone()
            return
        fresh = member if member.state == ALIVE else member.with_claim(member.incarnation, ALIVE)
        self._put(known, fresh)
        self.order.enter(fresh.node_id)
        self._tell(JOINED, fresh)
        if spread:
            self.news.put(fresh.node_id, encode_claim(fresh))
        self._check_identity(fresh, now, speaks_itself=False)
        if member.state == SUSPECT and self.members[member.node_id].is_live:
            self.suspect(fresh, fresh.incarnation, claim.source, now)

    def _bury_former_life(self, known: Member) -> None:
        """The node was started anew: its former life is over, and the users of membership must hear that."""
        self.suspicions.pop(known.node_id, None)
        self.news.drop(known.node_id)
        if known.is_live:
            self._exit(known)
            self._tell(DIED, known.with_claim(known.incarnation, DEAD))
        self.gone.pop(known.node_id, None)

    def _update(self, known: Member, claim: Claim, now: int, *, list_of: int, spread: bool) -> None:
        """Newer word of a life that is known."""
        state = claim.state
        if state == ALIVE:
            self._alive(known, claim.to_member(self.me.cluster_id), now, spread=spread)
        elif state == SUSPECT:
            if not known.is_live:
                self._alive(known, known.with_claim(claim.incarnation, ALIVE), now, spread=False)
                known = self.members[known.node_id]
            self.suspect(known, claim.incarnation, claim.source, now)
        elif state == DEAD and list_of and known.is_live:
            self._doubt(known, list_of)
        else:
            self.end(known.with_claim(claim.incarnation, state), now, spread=spread)

    def _alive(self, known: Member, member: Member, now: int, *, spread: bool) -> None:
        node_id = known.node_id
        self.suspicions.pop(node_id, None)
        self._put(known, member)
        if spread:
            self.news.put(node_id, encode_claim(member))
        if known.is_live:
            if known.state == SUSPECT:
                self._tell(ALIVE_AGAIN, member)
            if not known.same_details(member):
                self._tell(CHANGED, member)
                self._check_identity(member, now, speaks_itself=True)
        else:
            del self.gone[node_id]
            self.order.enter(member.node_id)
            self._tell(ALIVE_AGAIN if known.state == DEAD else JOINED, member)
            self._check_identity(member, now, speaks_itself=True)

    def _doubt(self, known: Member, list_of: int) -> None:
        """A list calls it dead; see for ourselves, and let it contradict."""
        if known.state == SUSPECT:
            self.confirm(known, list_of)
        if len(self.accused) < ACCUSED_MAX:
            self.accused.append(known.node_id)
        self.order.look_at(known.node_id)

    def suspect(self, known: Member, incarnation: int, source: int, now: int) -> None:
        """A node, perhaps this one, had no answer from a live member."""
        node_id = known.node_id
        if known.state == SUSPECT and known.incarnation == incarnation:
            self.confirm(known, source)
            return
        settings = self.settings
        nodes = len(self.live) + 1
        least = settings.suspicion_min_ms(nodes)
        needed = min(settings.suspicion_mult - 2, nodes - 2)
        self.suspicions[node_id] = Suspicion(source, least, least * settings.suspicion_max_mult, needed, now)
        self.hurry = True
        suspected = known.with_claim(incarnation, SUSPECT)
        self._put(known, suspected)
        self._tell(SUSPECTED, suspected)
        self.news.put(node_id, encode_claim(suspected, source, brief=True))
        # Some of the nodes that hear of it look for themselves, about as many as confirmations count, twice over.
        if source != self.me.node_id and self.rng.random() * nodes < 2 * needed + 2:
            self.order.look_at(node_id)

    def confirm(self, known: Member, source: int) -> None:
        """Another one suspects it independently."""
        suspicion = self.suspicions.get(known.node_id)
        if suspicion is not None and suspicion.confirm(source):
            self.hurry = True
            self.news.put(known.node_id, encode_claim(known, source, brief=True))

    def end(self, member: Member, now: int, *, spread: bool) -> None:
        """A member is dead, or has left."""
        node_id = member.node_id
        known = self.members[node_id]
        self.suspicions.pop(node_id, None)
        self._put(known, member)
        if known.is_live:
            self._exit(known)
            self._tell(DIED if member.state == DEAD else HAS_LEFT, member)
        self.gone.pop(node_id, None)
        self.gone[node_id] = now
        self._bound_gone()
        if spread:
            self.news.put(node_id, encode_claim(member, brief=True))

    # Bookkeeping

    def _put(self, known: Member | None, member: Member) -> None:
        if known is not None:
            self._toggle(known)
        self._toggle(member)
        self.members[member.node_id] = member

    def _toggle(self, member: Member) -> None:
        """Put a live member into the digest, or take it out."""
        if member.state <= SUSPECT:
            print_ = fingerprint(member.node_id, member.boot, member.incarnation)
            self.buckets[member.node_id % BUCKETS] ^= print_
            self.view ^= print_

    def _exit(self, known: Member) -> None:
        self.order.leave(known.node_id)
        if self._addresses.get((known.host, known.port)) == known.node_id:
            del self._addresses[(known.host, known.port)]
        if self._names.get(known.name) == known.node_id:
            del self._names[known.name]

    def _check_identity(self, member: Member, now: int, *, speaks_itself: bool) -> None:
        """No other node can be at its address, and no other should have its name.

        If it contradicted, or told of a change, it lives for sure: then two nodes tell the same address as theirs.
        """
        address = (member.host, member.port)
        other_id = self._addresses.get(address, member.node_id)
        if other_id != member.node_id:
            other = self.members[other_id]
            if speaks_itself:
                self._tell(CONFLICT, member)
                return
            if other.boot > member.boot:  # the claim is of a node that was there before
                self.end(member.with_claim(member.incarnation, DEAD), now, spread=True)
                return
            if other_id == self.me.node_id:
                self._tell(CONFLICT, member)
                return
            if other.is_live:
                self.end(other.with_claim(other.incarnation, DEAD), now, spread=True)
        self._addresses[address] = member.node_id
        namesake = self._names.get(member.name, member.node_id)
        if namesake != member.node_id and self.members[namesake].is_live:
            self._tell(CONFLICT, member)
        else:
            self._names[member.name] = member.node_id

    def is_replaced(self, member: Member) -> bool:
        """Whether another node lives at its address."""
        return self._addresses.get((member.host, member.port), member.node_id) != member.node_id

    def _tell(self, kind: int, member: Member) -> None:
        if len(self.events) < EVENTS_MAX:
            self.events.append(MemberEvent(kind, member))

    def forget(self, node_id: int) -> bool:
        """Drop all memory of a dead or left member."""
        if node_id not in self.gone:
            return False
        del self.gone[node_id]
        del self.members[node_id]
        self.news.drop(node_id)
        return True

    def forget_old(self, now: int) -> None:
        """Drop members that have been gone for long."""
        settings = self.settings
        old: list[int] = []
        for node_id, since in self.gone.items():
            keep = settings.left_keep_ms if self.members[node_id].state == LEFT else settings.dead_keep_ms
            if now - since >= keep:
                old.append(node_id)
        for node_id in old:
            self.forget(node_id)

    def _bound_gone(self) -> None:
        if len(self.gone) > self.settings.dead_max:
            self._forget_longest_gone()

    def _forget_longest_gone(self) -> bool:
        for node_id in self.gone:
            return self.forget(node_id)
        return False
