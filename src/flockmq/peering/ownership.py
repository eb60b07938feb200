"""One client id, one owner: how a node comes to own a session, and how it gives one away.

```
 CONNECT --> claim --> registrar (rendezvous of the client id over the nodes that are alive)
               |          |-- GRANT, no node had it -----------------------> session here, or a new one; CONNACK
               |          |-- GRANT, another node had it --> it REVOKEs ---> the session comes: chunks, INSTALLED, rest
               |          |                                  `-------------> or FOUND_NONE: ended, or never there
               |          `-- REFUSE: another user's --------------------------------------> CONNACK 0x85
               `-- no answer: asked again every half second, of the registrar of that moment;
                   after two seconds without news the node decides alone and registers what it has when it can
```
Every owner has an epoch; the higher one wins wherever two meet: the other's client is disconnected with 0x8E, and its
messages are sent on. So nothing here has to be exactly right at one moment: claims, grants and revocations may be lost,
come late, or come from registrars that see different members; what is registered after that puts it right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.node.ports import CLAIM_WAITS
from flockmq.peering.census import Census
from flockmq.peering.claiming import Claimant, Collector, Records
from flockmq.peering.giving import Giver
from flockmq.peering.rendezvous import Ranking
from flockmq.peering.scene import RoutesPort, Scene
from flockmq.peering.session_messages import (
    ABORT,
    ANSWER,
    ASK,
    CLAIM,
    FENCE,
    FENCED,
    FOR_DEPARTURE,
    FOUND_NONE,
    GRANT,
    HOLD_ON,
    INSTALLED,
    MOVE,
    MOVED,
    REFUSE,
    REGISTER,
    RELEASE,
    REVOKE,
    SYNC,
    SYNCED,
    WANT,
    Message,
    decode_messages,
)
from flockmq.peering.taking import Taker

if TYPE_CHECKING:
    import random

    from flockmq.node.broker import Broker
    from flockmq.peering.ports import Outbox
    from flockmq.session.connection import Connection
    from flockmq.session.session import Session


class Ownership:
    """This node's part of deciding which node has which session: claimant, owner, and registrar. Channel SESSIONS."""

    def __init__(
        self,
        broker: Broker,
        node_id: int,
        boot: int,
        outbox: Outbox,
        rng: random.Random,
        routes: RoutesPort | None = None,
        collector: Collector | None = None,
        records: Records | None = None,
    ) -> None:
        self.scene = Scene(broker, node_id, boot, outbox, rng, routes)
        self.registrar = self.scene.registrar
        self.claimant = Claimant(self.scene, self, collector, records)
        self.giver = Giver(self.scene, self.claimant)
        self.taker = Taker(self.scene, self.claimant, self.giver)
        self.census = Census(self.scene, self.claimant)

    # --- the broker's side ---

    def claim(self, connection: Connection, client_id: str, username: str | None, clean_start: bool, now: int) -> int:
        """See OwnerPort."""
        claimant = self.claimant
        outcome = claimant.claim(connection, client_id, username, clean_start, now)
        claim = claimant.inline
        if claim is None:
            return outcome
        self.work(now)
        claimant.inline = None
        return claim.epoch if claim.done else CLAIM_WAITS

    def ended(self, session: Session) -> None:
        """See OwnerPort."""
        client_id = session.client_id
        if self.claimant.collector is not None:
            self.claimant.collector.ended(session)
        if len(self.scene.ranking.members) > 1 or client_id in self.registrar.records:
            releases = self.scene.releases
            releases[client_id] = max(session.epoch, releases.get(client_id, 0))

    def owner_of(self, client_id: str) -> int:
        """Which node has a session, as far as this one knows: 0 when it is neither the owner nor the registrar."""
        if client_id in self.scene.node.sessions:
            return self.scene.me
        record = self.registrar.record_of(client_id)
        return record.owner if record is not None else 0

    def registrar_of(self, client_id: str) -> int:
        """Which node decides about a client id, and so knows where its session is."""
        return self.scene.ranking.first(client_id)

    def hints(self, after: str = "", count_max: int = 1_000) -> list[tuple[str, int, int]]:
        """Client ids that this node is the registrar of, in order, each with its owner and epoch; for operators."""
        found = [client_id for client_id in self.registrar.records if client_id > after]
        found.sort()
        hints: list[tuple[str, int, int]] = []
        for client_id in found[:count_max]:
            record = self.registrar.records[client_id]
            hints.append((client_id, record.owner, record.epoch))
        return hints

    # --- the component's side ---

    def peer_up(self, peer: int, now: int) -> None:
        """There is a link to this peer now."""
        scene = self.scene
        scene.linked.add(peer)
        self.registrar.link(peer)
        self.census.tell_all(peer)
        scene.post.say(peer, Message(WANT))
        if peer not in self.registrar.alive:
            self.set_members([*scene.ranking.members, peer], now)
        for departure in self.giver.departures.values():
            if departure.to == peer and departure.active:
                departure.repeat(scene.post, now)
        for claim in list(self.claimant.claims.values()):
            if not claim.granted and scene.ranking.first(claim.client_id) == peer:
                self.claimant.ask(claim)
        self.work(now)

    def peer_down(self, peer: int, now: int) -> None:
        """The link to this peer is lost."""
        self.scene.linked.discard(peer)
        self.registrar.unlink(peer, self.scene.wall_ms(now))
        self.work(now)

    def peer_dead(self, peer: int, now: int) -> None:
        """This peer is dead, or has left."""
        self.scene.linked.discard(peer)
        self.registrar.unlink(peer, self.scene.wall_ms(now))
        self.set_members([member for member in self.scene.ranking.members if member != peer], now)
        self.work(now)

    def set_members(self, members: list[int], now: int) -> None:
        """These nodes are alive (SUSPECT ones among them); this one is one of them, named or not."""
        scene = self.scene
        ranking = Ranking([*members, scene.me])
        if ranking.digest == scene.ranking.digest:
            return
        gone = self.registrar.alive - set(ranking.members)
        old = scene.ranking
        scene.ranking = ranking
        self.registrar.set_members(ranking, scene.wall_ms(now))
        self.census.sweep_wanted = True
        for peer in gone:
            self.taker.lose(peer, now)
            self.claimant.lose(peer, now)
            self.giver.lose(peer, now)
        for claim in list(self.claimant.claims.values()):
            if not claim.granted and old.first(claim.client_id) != ranking.first(claim.client_id):
                self.claimant.ask(claim)
        self.work(now)

    def receive(self, peer: int, body: bytes, now: int) -> None:
        """What the peer's component said."""
        for message in decode_messages(body):
            self.take(peer, message, now)
        self.work(now)

    def tick(self, now: int) -> None:
        """Time passes."""
        self.registrar.tick(now, self.scene.wall_ms(now))
        for claim in list(self.claimant.claims.values()):
            self.claimant.watch(claim, now)
        self.giver.tick(now)
        self.taker.tick(now)
        self.census.sweep()
        self.work(now)

    def flush(self, now: int) -> None:
        """A loop turn ends."""
        self.census.report()
        self.work(now)
        self.scene.post.flush()

    def work(self, now: int) -> None:
        """Do what this node said to itself, and see whether what others are waited for has happened."""
        own = self.scene.post.own
        while own:
            self.take(self.scene.me, own.pop(0), now)
        if self.taker.settling or self.giver.fencing:
            self.taker.settle(now)
            self.giver.settle(now)
            while own:
                self.take(self.scene.me, own.pop(0), now)

    def take(self, peer: int, message: Message, now: int) -> None:
        """One message, from whomever."""
        kind = message.kind
        if kind == CLAIM:
            self.registrar.on_claim(message, self.scene.wall_ms(now), now)
        elif kind == GRANT:
            self.claimant.on_grant(message, now)
        elif kind == REFUSE:
            self.claimant.on_refuse(message, now)
        elif kind == REVOKE:
            self.giver.on_revoke(message, now)
        elif kind == FOUND_NONE:
            self.claimant.on_found_none(message, now)
        elif kind == HOLD_ON:
            claim = self.claimant.claims.get(message.client_id)
            if claim is not None:
                claim.news_at = now
        elif kind == REGISTER:
            self.registrar.on_register(peer, message.data)
        elif kind == RELEASE:
            self.registrar.on_release(peer, message.data)
        elif kind == SYNC:
            self.registrar.on_sync(peer, message.nonce)
        elif kind == SYNCED:
            self.registrar.on_synced(peer, message.value)
        elif kind == WANT:
            self.census.tell_all(peer)
        elif kind == ASK:
            self.giver.on_ask(peer, message)
        elif kind == ANSWER:
            self.registrar.on_answer(peer, message, self.scene.wall_ms(now))
        elif kind == FENCE:
            fenced = Message(FENCED, flags=message.flags, nonce=message.nonce, node=message.node)
            self.scene.post.say(peer, fenced)
        elif kind == FENCED and message.flags & FOR_DEPARTURE:
            self.giver.on_fenced(message.node, peer, now)
        elif kind == FENCED:
            arrival = self.taker.arrivals.get((message.nonce, message.node))
            if arrival is not None:
                self.taker.on_fenced(arrival, peer, now)
        elif kind == MOVE:
            self.taker.on_move(peer, message, now)
        elif kind in (MOVED, INSTALLED, ABORT):
            departure = self.giver.departures.get(message.node)
            if departure is not None and departure.to == peer:
                self.giver.on_receipt(departure, message, now)
        # What a newer node says beyond that is not for this one.
