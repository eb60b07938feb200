"""One client id, one owner: how a node comes to own a session, and how it gives one away.

```
 CONNECT --> claim --> registrar (rendezvous of the client id over the nodes that are alive)
               |          |-- GRANT, nobody had it ------------------------> session here, or a new one; CONNACK
               |          |-- GRANT, another node had it --> it REVOKEs ---> the session comes: chunks, INSTALLED, rest
               |          |                                  `-------------> or FOUND_NONE: ended, or never there
               |          `-- REFUSE: another user's --------------------------------------> CONNACK 0x85
               `-- no answer: asked again every half second, of whoever is the registrar by then;
                   after two seconds without news the node decides alone and registers what it has when it can
```
Every owner has an epoch; the higher one wins wherever two meet: the other's client is disconnected with 0x8E, and its
messages are sent on. So nothing here has to be exactly right at one moment: claims, grants and revocations may be lost,
come late, or come from registrars that see different members; what is registered after that puts it right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt import reasons
from flockmq.node.connecting import refuse
from flockmq.node.lifecycle import disconnect, end_session
from flockmq.node.ports import CLAIM_BUSY, CLAIM_WAITS
from flockmq.peering.fields import malformed
from flockmq.peering.moves import (
    Arrival,
    Departure,
    add_late,
    expiry_of,
    put_back,
    put_in,
    put_together,
    take_out,
    unsent,
    without,
)
from flockmq.peering.registrar import Registrar
from flockmq.peering.rendezvous import Ranking, hash64
from flockmq.peering.session_codec import SESSION_BYTES_MAX, decode_rest, decode_session
from flockmq.peering.session_messages import (
    ABORT,
    ANSWER,
    ASK,
    CHECKS_USER,
    CHUNK_BYTES_MAX,
    CLAIM,
    CLEAN,
    FENCE,
    FENCED,
    FOUND_NONE,
    GRANT,
    HOLD_ON,
    HOP,
    HOPS,
    INSTALLED,
    IS_REST,
    MOVE,
    MOVED,
    REFUSE,
    REGISTER,
    RELEASE,
    REVOKE,
    SYNC,
    SYNCED,
    Message,
    Post,
    decode_messages,
    encode_entry,
)
from flockmq.session.connection import AUTHENTICATING, Connection
from flockmq.session.timers import GRAIN_MS

if TYPE_CHECKING:
    import random

    from flockmq.node.broker import Broker
    from flockmq.peering.ports import Outbox
    from flockmq.peering.wills import WillCopies
    from flockmq.session.session import Session

CLAIMS_MAX: Final = 10_000
"""Clients that wait for an answer to their claim; beyond it they are refused with Server busy."""
CLAIM_MS: Final = 2_000
"""Longest wait without news before a node decides alone."""
CLAIM_MS_MAX: Final = 8_000
"""Longest wait whatever comes: a client must have its CONNACK."""
CLAIM_RETRY_MS: Final = 500
ROUTES_MS: Final = 1_000
"""Longest wait for other nodes to know the routes of a session that came."""
DEPARTURES_MAX: Final = 64
"""Sessions that leave at once; others wait for their turn, as they are."""
ARRIVING_BYTES_MAX: Final = 268_435_456
"""Most bytes of sessions that are half here. Chunks beyond it are not taken, and so come again."""
ARRIVAL_CHUNKS_MAX: Final = SESSION_BYTES_MAX // CHUNK_BYTES_MAX * 5 // 4
ARRIVAL_MS_MAX: Final = 90_000
"""After this long without a chunk nothing more is expected: the old owner has given up before."""
FINISHED_MAX: Final = 10_000
SWEEP_BUDGET: Final = 5_000
"""Sessions looked at in one tick, to register those that have a new registrar."""
ENTRIES_BYTES: Final = 131_072


class RoutesPort(Protocol):
    """What a session that came waits for: that messages to it come here, from wherever they are published."""

    def mark(self) -> int:
        """A version that all subscriptions made so far are in; -1 while it has not been told to the others yet."""

    def is_known(self, mark: int) -> bool:
        """Whether every node that is ALIVE has this version."""


class Claim:
    """A client id that this node wants, or gets without having asked (then there is no connection)."""

    def __init__(self, client_id: str, nonce: int, connection: Connection | None, now: int) -> None:
        self.client_id = client_id
        self.nonce = nonce
        self.connection = connection
        self.flags = 0
        self.user = 0
        self.known_epoch = 0
        self.granted = False
        self.epoch = 0
        self.origin = 0
        """The node that has the session, or says that it has none."""
        self.waits = True
        """For the registrar, then for the origin."""
        self.arrivals = 0
        self.began_at = now
        self.news_at = now
        self.retry_at = now + CLAIM_RETRY_MS
        self.superseded: Message | None = None
        """A revocation that came before the session did: carried out when it is there."""
        self.next: Connection | None = None
        """A client that came after that: claims anew then."""
        self.next_flags = 0
        self.next_user = 0
        self.done = False


class Ownership:
    """This node's part of deciding who has which session: claimant, owner, and registrar. See the module."""

    def __init__(
        self,
        broker: Broker,
        node_id: int,
        boot: int,
        outbox: Outbox,
        rng: random.Random,
        routes: RoutesPort | None = None,
        wills: WillCopies | None = None,
    ) -> None:
        self.broker = broker
        self.node = broker.node
        self.me = node_id
        self.boot = boot
        self.post = Post(node_id, outbox)
        self.routes = routes
        self.wills = wills
        self.ranking = Ranking([node_id])
        self.registrar = Registrar(node_id, self.post, self.ranking)
        self.registrar.wills = wills
        self.linked: set[int] = set()
        self.claims: dict[str, Claim] = {}
        self.departures: dict[int, Departure] = {}
        self.leaving: dict[str, Departure] = {}
        """Departures by client id."""
        self.arrivals: dict[tuple[int, int], Arrival] = {}
        self.arriving_bytes = 0
        self.settling: dict[tuple[int, int], Arrival] = {}
        """Arrivals that wait for routes to become known."""
        self.finished: dict[tuple[int, int], bool] = {}
        self.next_nonce = rng.getrandbits(48) << 8
        self.inline: Claim | None = None
        self.registers: dict[str, bool] = {}
        self.releases: dict[str, int] = {}
        # the owner's sweep: register what has a new registrar
        self.swept = self.ranking
        self.sweep_list: list[str] = []
        self.sweep_full: set[int] = set()
        """Nodes that are to hear of everything that is theirs to decide."""
        self.sweep_wanted = False
        self.sweeping = False
        # counters
        self.claims_made = 0
        self.claims_alone = 0
        """Claims that this node decided by itself, because the registrar could not be asked."""
        self.claims_busy = 0
        self.sessions_in = 0
        self.sessions_out = 0
        self.sessions_kept = 0
        """Sessions that should have left and stayed, because the new owner died."""
        self.sessions_unreadable = 0

    # --- the broker's side ---

    def claim(self, connection: Connection, client_id: str, username: str | None, clean_start: bool, now: int) -> int:
        """See OwnerPort."""
        session = self.node.sessions.get(client_id)
        if len(self.ranking.members) == 1 and client_id not in self.claims and client_id not in self.leaving:
            known = session.epoch if session is not None else 0
            return max(known + 1, self.wall_ms(now))
        flags = (CLEAN if clean_start else 0) | (0 if self.node.gate_is_open else CHECKS_USER)
        user = user_key(username)
        known_claim = self.claims.get(client_id)
        if known_claim is not None:
            self.join(known_claim, connection, flags, user, now)
            return CLAIM_WAITS
        if len(self.claims) >= CLAIMS_MAX:
            self.claims_busy += 1
            return CLAIM_BUSY
        self.next_nonce += 1
        claim = Claim(client_id, self.next_nonce, connection, now)
        claim.flags = flags
        claim.user = user
        claim.known_epoch = session.epoch if session is not None else 0
        self.claims[client_id] = claim
        self.claims_made += 1
        self.inline = claim
        self.ask(claim)
        self.work(now)
        self.inline = None
        return claim.epoch if claim.done else CLAIM_WAITS

    def join(self, claim: Claim, connection: Connection, flags: int, user: int, now: int) -> None:
        """Another client of this node comes with a client id that is being claimed already: it takes over the claim."""
        if claim.superseded is not None:
            previous = claim.next
            claim.next = connection
            claim.next_flags = flags
            claim.next_user = user
        else:
            previous = claim.connection
            claim.connection = connection
            claim.user = user
            claim.flags = flags
        if previous is not None:
            self.turn_away(previous, claim.client_id, now)

    def turn_away(self, connection: Connection, client_id: str, now: int) -> None:
        """A client that waits for its CONNACK has been overtaken by another one with its client id."""
        if connection.phase == AUTHENTICATING:
            text = "Another connection with this client id came meanwhile"
            refuse(self.node, connection, client_id, reasons.SERVER_BUSY, text, now)

    def changed(self, session: Session) -> None:
        """See OwnerPort."""
        if self.wills is not None:
            self.wills.changed(session)

    def ended(self, session: Session) -> None:
        """See OwnerPort."""
        if self.wills is not None:
            self.wills.changed(session)
        client_id = session.client_id
        if len(self.ranking.members) > 1 or client_id in self.registrar.records:
            self.releases[client_id] = max(session.epoch, self.releases.get(client_id, 0))

    def owner_of(self, client_id: str) -> int:
        """Which node has a session, as far as this one knows: 0 when it is neither the owner nor the registrar."""
        if client_id in self.node.sessions:
            return self.me
        record = self.registrar.record_of(client_id)
        return record.owner if record is not None else 0

    def hints(self, after: str = "", count_max: int = 1_000) -> list[tuple[str, int, int]]:
        """Client ids that this node is the registrar of, in order, each with its owner and epoch; for operators."""
        found = [client_id for client_id in self.registrar.records if client_id > after]
        found.sort()
        hints: list[tuple[str, int, int]] = []
        for client_id in found[:count_max]:
            record = self.registrar.records[client_id]
            hints.append((client_id, record.owner, record.epoch))
        return hints

    def wall_ms(self, now: int) -> int:
        """The calendar's clock, for epochs."""
        return max(now + self.node.wall_offset_ms, 1)

    # --- the component's side ---

    def peer_up(self, peer: int, now: int) -> None:
        """There is a link to this peer now."""
        self.linked.add(peer)
        self.registrar.link(peer)
        self.sweep_full.add(peer)
        self.sweep_wanted = True
        if peer not in self.registrar.alive:
            self.set_members([*self.ranking.members, peer], now)
        for departure in self.departures.values():
            if departure.to == peer and departure.active:
                departure.repeat(self.post, now)
        for claim in list(self.claims.values()):
            if not claim.granted and self.ranking.first(claim.client_id) == peer:
                self.ask(claim)
        self.work(now)

    def peer_down(self, peer: int, now: int) -> None:
        """The link to this peer is lost."""
        self.linked.discard(peer)
        self.registrar.unlink(peer, now, self.wall_ms(now))
        self.work(now)

    def peer_dead(self, peer: int, now: int) -> None:
        """This peer is dead, or has left."""
        self.linked.discard(peer)
        self.registrar.unlink(peer, now, self.wall_ms(now))
        self.set_members([member for member in self.ranking.members if member != peer], now)
        self.work(now)

    def set_members(self, members: list[int], now: int) -> None:
        """These nodes are alive (SUSPECT ones among them); this one is one of them, named or not."""
        ranking = Ranking([*members, self.me])
        if ranking.digest == self.ranking.digest:
            return
        gone = self.registrar.alive - set(ranking.members)
        old = self.ranking
        self.ranking = ranking
        self.registrar.set_members(ranking, now, self.wall_ms(now))
        self.sweep_wanted = True
        for peer in gone:
            self.lose(peer, now)
        for claim in list(self.claims.values()):
            if not claim.granted and old.first(claim.client_id) != ranking.first(claim.client_id):
                self.ask(claim)
        self.work(now)

    def lose(self, peer: int, now: int) -> None:
        """A node is gone, with the sessions that it had or was sending, and without those it was to get."""
        for arrival in list(self.arrivals.values()):
            if arrival.peer == peer:
                self.finish_arrival(arrival, now)
        for claim in list(self.claims.values()):
            if claim.granted and claim.origin == peer:
                claim.waits = False
                self.look_at(claim, now)
        for departure in list(self.departures.values()):
            if departure.to == peer:
                self.keep(departure, now)

    def receive(self, peer: int, body: bytes, now: int) -> None:
        """What the peer's component said."""
        for message in decode_messages(body):
            self.take(peer, message, now)
        self.work(now)

    def tick(self, now: int) -> None:
        """Time passes."""
        self.registrar.tick(now, self.wall_ms(now))
        for claim in list(self.claims.values()):
            self.watch(claim, now)
        for departure in list(self.departures.values()):
            if departure.until <= now:
                self.keep(departure, now)
            elif departure.active and departure.retry_at <= now and departure.to in self.linked:
                departure.repeat(self.post, now)
        self.start_departures(now)
        for arrival in list(self.arrivals.values()):
            if now - arrival.touched_at >= ARRIVAL_MS_MAX:
                self.finish_arrival(arrival, now)
        self.sweep()
        self.work(now)

    def flush(self, now: int) -> None:
        """A loop turn ends."""
        self.report()
        self.work(now)
        self.post.flush()

    def work(self, now: int) -> None:
        """Do what this node said to itself, and see whether routes have become known."""
        own = self.post.own
        while own:
            self.take(self.me, own.pop(0), now)
        if self.settling:
            for arrival in list(self.settling.values()):
                if not arrival.said_installed:
                    self.see_routes(arrival, now)
                elif arrival.fences_until <= now or not arrival.fences & self.linked:
                    self.finish_arrival(arrival, now)
            while own:
                self.take(self.me, own.pop(0), now)

    def take(self, peer: int, message: Message, now: int) -> None:
        """One message, from whomever."""
        kind = message.kind
        if kind == CLAIM:
            self.registrar.on_claim(message, self.wall_ms(now), now)
        elif kind == GRANT:
            self.on_grant(message, now)
        elif kind == REFUSE:
            self.on_refuse(message, now)
        elif kind == REVOKE:
            self.on_revoke(message, now)
        elif kind == FOUND_NONE:
            self.on_found_none(message, now)
        elif kind == HOLD_ON:
            claim = self.claims.get(message.client_id)
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
        elif kind == ASK:
            self.on_ask(peer, message)
        elif kind == ANSWER:
            self.registrar.on_answer(peer, message, self.wall_ms(now), now)
        elif kind == FENCE:
            self.post.say(peer, Message(FENCED, nonce=message.nonce, node=message.node))
        elif kind == FENCED:
            arrival = self.arrivals.get((message.nonce, message.node))
            if arrival is not None:
                self.on_fenced(arrival, peer, now)
        elif kind == MOVE:
            self.on_move(peer, message, now)
        elif kind in (MOVED, INSTALLED, ABORT):
            departure = self.departures.get(message.node)
            if departure is not None and departure.to == peer:
                self.on_receipt(departure, message, now)
        # What a newer node says beyond that is not for this one.

    # --- as claimant ---

    def ask(self, claim: Claim) -> None:
        """Send a claim to whoever decides; when there is no link to it, later."""
        registrar = self.ranking.first(claim.client_id)
        if registrar != self.me and registrar not in self.linked:
            return
        message = Message(
            CLAIM,
            claim.client_id,
            flags=claim.flags,
            nonce=claim.nonce,
            epoch=claim.known_epoch,
            node=self.me,
            user=claim.user,
        )
        self.post.say(registrar, message)

    def watch(self, claim: Claim, now: int) -> None:
        """Ask again, or stop asking."""
        if now - claim.news_at >= CLAIM_MS or now - claim.began_at >= CLAIM_MS_MAX:
            self.conclude(claim, now)
        elif claim.retry_at <= now:
            claim.retry_at = now + CLAIM_RETRY_MS
            if claim.nonce and (not claim.granted or (claim.waits and not claim.arrivals)):
                self.ask(claim)

    def on_grant(self, message: Message, now: int) -> None:
        """The client id is this node's."""
        client_id = message.client_id
        claim = self.claims.get(client_id)
        if claim is None or claim.nonce != message.nonce:
            self.on_late_grant(message)
            return
        if claim.granted:
            return
        claim.granted = True
        claim.epoch = max(claim.epoch, message.epoch)
        claim.origin = message.node
        claim.waits = message.node not in (0, self.me) and message.node in self.registrar.alive
        claim.news_at = now
        self.look_at(claim, now)

    def on_late_grant(self, message: Message) -> None:
        """A grant to a claim that is over: the session that is here has it, or nobody needs it."""
        session = self.node.sessions.get(message.client_id)
        if session is not None:
            session.epoch = max(session.epoch, message.epoch)
        elif message.node in (0, self.me) and message.client_id not in self.claims:
            self.releases[message.client_id] = message.epoch

    def on_refuse(self, message: Message, now: int) -> None:
        """The client id is not to be had."""
        claim = self.claims.get(message.client_id)
        if claim is None or claim.nonce != message.nonce or claim.granted:
            return
        del self.claims[message.client_id]
        connection = claim.connection
        if connection is not None and connection.phase == AUTHENTICATING:
            text = "The client id belongs to another user"
            if message.value == reasons.SERVER_BUSY:
                text = "The cluster holds all sessions it may"
            refuse(self.node, connection, message.client_id, message.value & 0xFF, text, now)

    def on_found_none(self, message: Message, now: int) -> None:
        """The origin has nothing to send."""
        client_id = message.client_id
        claim = self.claims.get(client_id)
        if claim is None or claim.nonce != message.nonce:
            gone = client_id not in self.node.sessions and client_id not in self.leaving
            if gone and claim is None and not message.value:
                self.releases[client_id] = message.epoch
            return
        if message.value:
            # The origin got it anew meanwhile, under an epoch that the registrar did not know: claim once more.
            self.next_nonce += 1
            claim.nonce = self.next_nonce
            claim.known_epoch = max(message.value, claim.known_epoch)
            claim.granted = False
            claim.waits = True
            self.ask(claim)
            return
        claim.granted = True
        claim.epoch = max(claim.epoch, message.epoch)
        claim.waits = False
        self.look_at(claim, now)

    def look_at(self, claim: Claim, now: int) -> None:
        """Conclude a claim if nothing is left to wait for."""
        if claim.granted and not claim.waits and not claim.arrivals:
            self.conclude(claim, now)

    def conclude(self, claim: Claim, now: int) -> None:
        """Nothing more comes, or it takes too long: go on with what is here."""
        client_id = claim.client_id
        if self.claims.get(client_id) is not claim:
            return
        for arrival in list(self.arrivals.values()):
            if arrival.client_id == client_id:
                self.on_rest(arrival, now)
        del self.claims[client_id]
        session = self.node.sessions.get(client_id)
        alone = not claim.granted
        if alone:
            known = max(session.epoch if session is not None else 0, claim.known_epoch)
            claim.epoch = max(known + 1, self.wall_ms(now))
            self.claims_alone += 1
        connection = claim.connection
        if connection is not None and connection.phase == AUTHENTICATING:
            if alone:
                self.registers[client_id] = True
            if self.inline is claim:
                claim.done = True
            else:
                self.broker.claimed(connection, claim.epoch, now)
        session = self.node.sessions.get(client_id)
        if session is not None and not claim.done:  # not before: a session that a clean start ends keeps its own epoch
            session.epoch = max(session.epoch, claim.epoch)
        if not claim.done and client_id not in self.node.sessions and client_id not in self.claims:
            self.releases[client_id] = claim.epoch
        if claim.superseded is not None:
            self.on_revoke(claim.superseded, now)
        after = claim.next
        if after is not None and after.phase == AUTHENTICATING:
            self.claim_again(claim, after, now)

    def claim_again(self, old: Claim, connection: Connection, now: int) -> None:
        """A client that came while a session was passing through."""
        self.next_nonce += 1
        claim = Claim(old.client_id, self.next_nonce, connection, now)
        claim.flags = old.next_flags
        claim.user = old.next_user
        claim.known_epoch = old.epoch
        self.claims[old.client_id] = claim
        self.ask(claim)

    # --- as owner ---

    def on_revoke(self, message: Message, now: int) -> None:
        """A client id is another node's now: give it what is here."""
        client_id = message.client_id
        to = message.node
        if to == self.me:
            return
        claim = self.claims.get(client_id)
        if claim is not None and claim.granted:
            self.supersede(claim, message, now)
            return
        session = self.node.sessions.get(client_id)
        if session is None:
            self.revoke_absent(message, now)
            return
        if (session.epoch, self.me) >= (message.epoch, to):
            self.none(message, session.epoch)
            self.registers[client_id] = True
            return
        other_user = message.flags & CHECKS_USER and user_key(session.username) != message.user
        if session.connection is not None:
            self.node.stats.takeovers += 1
            text = "Another connection uses this client id"
            disconnect(self.node, session.connection, reasons.SESSION_TAKEN_OVER, text, now)
        if self.node.sessions.get(client_id) is session and (message.flags & CLEAN or other_user):
            end_session(self.node, session, now)
        if self.node.sessions.get(client_id) is not session:
            self.none(message, 0)
            return
        self.depart(session, message, now)

    def none(self, message: Message, newer_epoch: int) -> None:
        """Answer a revocation: there is nothing to send."""
        answer = Message(FOUND_NONE, message.client_id, nonce=message.nonce, epoch=message.epoch, value=newer_epoch)
        self.post.say(message.node, answer)

    def supersede(self, claim: Claim, message: Message, now: int) -> None:
        """The client id was granted on before its session came: let it come, then send it on."""
        if claim.epoch >= message.epoch:
            self.none(message, claim.epoch)
            return
        earlier = claim.superseded
        if earlier is not None and earlier.epoch > message.epoch:
            self.none(message, earlier.epoch)
            return
        if earlier is not None and earlier.node != message.node:
            self.none(earlier, 0)
        claim.superseded = message
        connection = claim.connection
        claim.connection = None
        if connection is not None:
            self.turn_away(connection, claim.client_id, now)
        self.post.say(message.node, Message(HOLD_ON, claim.client_id, nonce=message.nonce))

    def revoke_absent(self, message: Message, now: int) -> None:
        """The session is not here: on its way to somebody, or there is none."""
        departure = self.leaving.get(message.client_id)
        if departure is None:
            self.none(message, 0)
        elif departure.to == message.node:
            departure.nonce = message.nonce
            departure.epoch = max(departure.epoch, message.epoch)
            self.post.say(message.node, Message(HOLD_ON, message.client_id, nonce=message.nonce))
            if departure.active and departure.retry_at <= now:
                departure.repeat(self.post, now)
        elif message.flags & HOPS == HOPS or departure.epoch >= message.epoch:
            self.none(message, 0)
        else:
            message.flags += HOP
            self.post.say(departure.to, message)

    def depart(self, session: Session, message: Message, now: int) -> None:
        """Send a session away. From here on it is not this node's, though the table knows it still."""
        node = self.node
        will_at = 0
        if session.will is not None:
            timer = session.will_timer
            will_at = timer.slot * GRAIN_MS if timer is not None else now
        node.timers.cancel(session.will_timer)
        session.will_timer = None
        node.timers.cancel(session.timer)
        session.timer = None
        del node.sessions[session.client_id]
        self.next_nonce += 1
        departure = Departure(
            self.next_nonce, message.node, message.nonce, message.epoch, session, expiry_of(session), will_at, now
        )
        self.departures[departure.number] = departure
        self.leaving[session.client_id] = departure
        self.start_departures(now)

    def start_departures(self, now: int) -> None:
        """Encode and send those whose turn it is."""
        for place, departure in enumerate(self.departures.values()):
            if place >= DEPARTURES_MAX:
                break
            if not departure.active:
                departure.begin(now)
                departure.pump(self.post, now)

    def on_receipt(self, departure: Departure, message: Message, now: int) -> None:
        """The new owner says how far it is."""
        departure.until = max(departure.until, now + 10_000)
        if message.kind == ABORT:
            if message.flags:  # it knows nothing of this: it has restarted
                self.start_over(departure, now)
            else:
                self.forget(departure, now)
        elif message.kind == INSTALLED:
            if not departure.is_rest:
                take_out(self.node, departure.session)
                departure.subscribed = False
                departure.begin_rest(now)
                departure.pump(self.post, now)
        elif departure.acknowledge(message.value, message.flags & IS_REST != 0):
            if departure.is_rest:
                self.forget(departure, now)
        else:
            departure.pump(self.post, now)

    def start_over(self, departure: Departure, now: int) -> None:
        """Send a session from its beginning."""
        departure.gather()
        if not departure.subscribed:
            for subscription in departure.session.subscriptions.values():
                self.node.table.add(subscription)
            departure.subscribed = True
        departure.begin(now)
        departure.pump(self.post, now)

    def forget(self, departure: Departure, now: int) -> None:
        """The new owner has everything."""
        session = departure.session
        self.drop(departure)
        if departure.subscribed:
            take_out(self.node, session)
        self.node.stats.dropped_queue += departure.dropped
        session.subscriptions = {}
        session.outbound = None
        session.will = None
        self.sessions_out += 1
        self.changed(session)
        self.start_departures(now)

    def drop(self, departure: Departure) -> None:
        """No longer think of a departure."""
        del self.departures[departure.number]
        if self.leaving.get(departure.session.client_id) is departure:
            del self.leaving[departure.session.client_id]

    def keep(self, departure: Departure, now: int) -> None:
        """The new owner is gone, or does not take it: the session stays."""
        session = departure.session
        client_id = session.client_id
        self.drop(departure)
        here = self.node.sessions.get(client_id)
        if here is not None:
            departure.gather()
            if departure.subscribed:
                take_out(self.node, session)
            add_late(self.node, here, unsent(session.outbound), now)
            return
        self.sessions_kept += 1
        put_back(self.node, departure)
        self.registers[client_id] = True
        self.changed(session)

    def on_ask(self, peer: int, message: Message) -> None:
        """A registrar that is new to a client id wants to know who has it."""
        client_id = message.client_id
        epoch = 0
        user = 0
        session = self.node.sessions.get(client_id)
        claim = self.claims.get(client_id)
        departure = self.leaving.get(client_id)
        if session is not None:
            epoch = max(session.epoch, 1)
            user = user_key(session.username)
        if departure is not None and departure.epoch > epoch:
            epoch = departure.epoch
            user = user_key(departure.session.username)
        if claim is not None and claim.granted and claim.epoch > epoch:
            epoch = claim.epoch
            user = claim.user
        self.post.say(peer, Message(ANSWER, nonce=message.nonce, epoch=epoch, user=user))

    # --- as new owner ---

    def on_move(self, peer: int, message: Message, now: int) -> None:
        """A chunk of a session."""
        key = (peer, message.node)
        index = message.value >> 32
        count = message.value & 0xFFFF_FFFF
        is_rest = message.flags & IS_REST != 0
        if not 0 < count <= ARRIVAL_CHUNKS_MAX or index >= count:
            raise malformed(f"chunk {index:,} of {count:,} of a session")
        arrival = self.arrivals.get(key)
        if arrival is None:
            if key in self.finished:
                self.receipt(peer, message)
                if not is_rest:
                    self.post.say(peer, Message(INSTALLED, node=message.node))
                return
            if is_rest or index:
                self.post.say(peer, Message(ABORT, node=message.node, flags=1))
                return
            if len(self.arrivals) >= CLAIMS_MAX or self.arriving_bytes > ARRIVING_BYTES_MAX:
                return  # it will come again
            arrival = self.expect(peer, message, now)
        arrival.touched_at = now
        claim = self.claims.get(arrival.client_id)
        if claim is not None:
            claim.news_at = now
        chunks = arrival.rest_chunks if is_rest else arrival.chunks
        if (is_rest and not arrival.said_installed) or index > len(chunks):
            return  # one before it was not taken: both will come again
        if index == len(chunks) and (is_rest or arrival.session is None):
            if self.arriving_bytes > ARRIVING_BYTES_MAX:
                return
            chunks.append(message.data)
            arrival.size += len(message.data)
            self.arriving_bytes += len(message.data)
            self.receipt(peer, message)
            if len(chunks) == count:
                self.on_whole(arrival, is_rest, now)
            return
        self.receipt(peer, message)
        if arrival.said_installed and not is_rest:
            self.post.say(peer, Message(INSTALLED, node=arrival.number))

    def receipt(self, peer: int, message: Message) -> None:
        """Say that a chunk has arrived."""
        flags = message.flags & IS_REST
        self.post.say(peer, Message(MOVED, node=message.node, flags=flags, value=message.value >> 32))

    def expect(self, peer: int, message: Message, now: int) -> Arrival:
        """The first chunk of a session: whoever claims it waits for the rest of it."""
        client_id = message.client_id
        arrival = Arrival(message.node, peer, client_id, message.epoch, now)
        self.arrivals[peer, message.node] = arrival
        claim = self.claims.get(client_id)
        if claim is None:
            claim = Claim(client_id, 0, None, now)
            claim.granted = True
            claim.epoch = message.epoch
            claim.waits = False
            self.claims[client_id] = claim
        elif claim.nonce == message.nonce:
            claim.granted = True
            claim.epoch = max(claim.epoch, message.epoch)
            claim.waits = False
        claim.arrivals += 1
        return arrival

    def on_whole(self, arrival: Arrival, is_rest: bool, now: int) -> None:
        """All chunks are there."""
        try:
            if is_rest:
                arrival.rest = decode_rest(b"".join(arrival.rest_chunks), now)
                self.fence(arrival, now)
            else:
                self.on_session(arrival, b"".join(arrival.chunks), now)
        except RemoteProtocolError as error:
            self.sessions_unreadable += 1
            self.node.events.note(
                "session_unreadable", {"client_id": arrival.client_id, "node": arrival.peer, "reason": str(error)}
            )
            self.post.say(arrival.peer, Message(ABORT, node=arrival.number))
            self.finish_arrival(arrival, now)

    def on_session(self, arrival: Arrival, data: bytes, now: int) -> None:
        """The session is here: make it this node's, or add what waits in it to the one that is."""
        node = self.node
        limits = node.settings.limits
        moved = decode_session(arrival.client_id, data, now, limits.queue_messages_max, limits.queue_bytes_max)
        session = moved.session
        here = node.sessions.get(arrival.client_id)
        self.sessions_in += 1
        if here is not None:
            arrival.session = here
            if node.gate_is_open or here.username == session.username:
                add_late(node, here, unsent(session.outbound), now)
            self.say_installed(arrival)
            return
        put_in(node, moved, now)
        session.epoch = arrival.epoch
        arrival.session = session
        arrival.base = session.outbound
        session.outbound = None
        arrival.is_apart = True
        arrival.route_mark = -1
        arrival.installed_until = now + ROUTES_MS
        self.settling[arrival.peer, arrival.number] = arrival
        self.changed(session)
        self.see_routes(arrival, now)

    def see_routes(self, arrival: Arrival, now: int) -> None:
        """Go on once messages from everywhere come here; then the old owner need not listen any more."""
        routes = self.routes
        session = arrival.session
        if routes is not None and session is not None and session.subscriptions and now < arrival.installed_until:
            if arrival.route_mark < 0:
                arrival.route_mark = routes.mark()
            if arrival.route_mark < 0 or not routes.is_known(arrival.route_mark):
                return
        self.say_installed(arrival)

    def say_installed(self, arrival: Arrival) -> None:
        """Have the old owner send the rest."""
        self.settling.pop((arrival.peer, arrival.number), None)
        arrival.said_installed = True
        self.post.say(arrival.peer, Message(INSTALLED, node=arrival.number))

    def fence(self, arrival: Arrival, now: int) -> None:
        """What came for the session while it moved: with QoS 2 among it, see first what else comes from other nodes."""
        if arrival.is_apart and any(delivery.qos == 2 for delivery in arrival.rest):
            arrival.fences = set(self.linked)
            arrival.fences_until = now + ROUTES_MS
            self.settling[arrival.peer, arrival.number] = arrival
            for peer in arrival.fences:
                self.post.say(peer, Message(FENCE, nonce=arrival.peer, node=arrival.number))
        if not arrival.fences:
            self.finish_arrival(arrival, now)

    def on_fenced(self, arrival: Arrival, peer: int, now: int) -> None:
        """All that a node sent before has come."""
        arrival.fences.discard(peer)
        if arrival.fences_until and not arrival.fences:
            self.finish_arrival(arrival, now)

    def on_rest(self, arrival: Arrival, now: int) -> None:
        """Add what came for the session while it moved."""
        session = arrival.session
        rest = arrival.rest
        arrival.rest = []
        if session is None:
            return
        departure = self.leaving.get(arrival.client_id)
        if self.node.sessions.get(arrival.client_id) is session:
            if arrival.is_apart:
                put_together(self.node, arrival, rest, now)
            else:
                add_late(self.node, session, without(rest, arrival.own), now)
        elif departure is not None:  # it has moved on already
            add_late(self.node, departure.session, rest, now)

    def finish_arrival(self, arrival: Arrival, now: int) -> None:
        """Nothing more of this will come."""
        key = (arrival.peer, arrival.number)
        if self.arrivals.pop(key, None) is None:
            return
        self.arriving_bytes -= arrival.size
        self.settling.pop(key, None)
        if arrival.session is not None:
            self.registers[arrival.client_id] = True
        if arrival.said_installed:
            self.finished[key] = True
            if len(self.finished) > FINISHED_MAX:
                del self.finished[next(iter(self.finished))]
        self.on_rest(arrival, now)
        claim = self.claims.get(arrival.client_id)
        if claim is not None and claim.arrivals:
            claim.arrivals -= 1
            self.look_at(claim, now)

    # --- telling registrars ---

    def report(self) -> None:
        """Register and release what this turn has changed."""
        if self.releases:
            batches: dict[int, list[bytes]] = {}
            for client_id, epoch in self.releases.items():
                if client_id not in self.claims:
                    first = self.ranking.first(client_id)
                    batches.setdefault(first, []).append(encode_entry(client_id, epoch, 0))
            self.releases = {}
            self.say_entries(RELEASE, batches)
        if self.registers:
            batches = {}
            for client_id in self.registers:
                session = self.node.sessions.get(client_id)
                if session is not None:
                    first = self.ranking.first(client_id)
                    batches.setdefault(first, []).append(entry_of(session))
            self.registers = {}
            self.say_entries(REGISTER, batches)

    def say_entries(self, kind: int, batches: dict[int, list[bytes]]) -> None:
        """Send lists of client ids to those who decide about them, in pieces."""
        for peer, entries in batches.items():
            piece: list[bytes] = []
            size = 0
            for entry in entries:
                piece.append(entry)
                size += len(entry)
                if size > ENTRIES_BYTES:
                    self.post.say(peer, Message(kind, data=b"".join(piece)))
                    piece = []
                    size = 0
            if piece:
                self.post.say(peer, Message(kind, data=b"".join(piece)))

    def sweep(self) -> None:
        """Register sessions whose registrar is new, or has not heard of them; some in each tick."""
        if self.sweep_wanted:
            self.sweep_wanted = False
            self.sweeping = True
            self.sweep_list = [*self.node.sessions, *self.claims]
            for peer in self.sweep_full:
                self.post.say(peer, Message(SYNC, nonce=self.boot))
        if not self.sweeping:
            return
        taken = self.sweep_list[-SWEEP_BUDGET:]
        del self.sweep_list[-SWEEP_BUDGET:]
        batches: dict[int, list[bytes]] = {}
        for client_id in taken:
            first = self.ranking.first(client_id)
            if first != self.me and first not in self.sweep_full and first == self.swept.first(client_id):
                continue  # as for what is this node's own to decide: while it was alone, it kept no records
            session = self.node.sessions.get(client_id)
            if session is not None:
                batches.setdefault(first, []).append(entry_of(session))
            elif client_id in self.claims:
                batches.setdefault(first, []).append(encode_entry(client_id, 0, 0))
        self.say_entries(REGISTER, batches)
        if not self.sweep_list:
            self.sweeping = False
            self.sweep_full = set()
            self.swept = self.ranking
            for peer in self.linked:
                self.post.say(peer, Message(SYNCED, value=self.ranking.digest))


def user_key(username: str | None) -> int:
    """What tells users apart without naming them."""
    return 0 if username is None else hash64(username.encode())


def entry_of(session: Session) -> bytes:
    """A session in the data of REGISTER."""
    return encode_entry(session.client_id, max(session.epoch, 1), user_key(session.username))
