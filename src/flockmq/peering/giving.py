"""The old owner's side: a client id is another node's now; disconnect its client, and send what is here.

```
 REVOKE --> claimed and not here yet? ----------> when it is here, pass it on
        |-> here under a newer epoch? ----------> say so
        |-> clean start, other user, expired? --> end it: FOUND_NONE
        `-> depart: chunks, INSTALLED, the rest, forgotten
                     `--> the new owner dies: keep it
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.mqtt import reasons
from flockmq.node.lifecycle import disconnect, end_session
from flockmq.peering.moves import Departure, add_late, expiry_of, put_back, take_out, unsent
from flockmq.peering.scene import Scene, user_key
from flockmq.peering.session_messages import (
    ABORT,
    ANSWER,
    CHECKS_USER,
    CLEAN,
    FENCE,
    FOR_DEPARTURE,
    FOUND_NONE,
    HOLD_ON,
    HOP,
    HOPS,
    INSTALLED,
    IS_REST,
    Message,
)
from flockmq.session.timers import GRAIN_MS

if TYPE_CHECKING:
    from flockmq.peering.claiming import Claim, Claimant
    from flockmq.session.session import Session

FENCE_MS: Final = 1_000
"""Longest wait for other nodes to say that they have sent all."""
DEPARTURES_MAX: Final = 64
"""Sessions that leave at once; others wait for their turn, as they are."""


class Giver:
    """Sessions that leave this node."""

    def __init__(self, scene: Scene, claimant: Claimant) -> None:
        self.scene = scene
        self.claimant = claimant
        self.departures: dict[int, Departure] = {}
        self.leaving: dict[str, Departure] = {}
        """Departures by client id."""
        self.fencing: dict[int, Departure] = {}
        """Departures that wait for other nodes."""
        self.sessions_out = 0
        self.sessions_kept = 0
        """Sessions that should have left and stayed, because the new owner died."""

    def on_revoke(self, message: Message, now: int) -> None:
        """A client id is another node's now: give it what is here."""
        client_id = message.client_id
        to = message.node
        if to == self.scene.me:
            return
        claim = self.claimant.claims.get(client_id)
        if claim is not None and claim.granted:
            self.supersede(claim, message, now)
            return
        session = self.scene.node.sessions.get(client_id)
        if session is None:
            self.revoke_absent(message, now)
            return
        if (session.epoch, self.scene.me) >= (message.epoch, to):
            self.none(message, session.epoch)
            self.scene.registers[client_id] = True
            return
        other_user = message.flags & CHECKS_USER and user_key(session.username) != message.user
        if session.connection is not None:
            self.scene.node.finish(session.connection, now)  # what it said before counts, a DISCONNECT too
        if session.connection is not None:
            self.scene.node.stats.takeovers += 1
            text = "Another connection uses this client id"
            disconnect(self.scene.node, session.connection, reasons.SESSION_TAKEN_OVER, text, now)
        if self.scene.node.sessions.get(client_id) is session and (message.flags & CLEAN or other_user):
            end_session(self.scene.node, session, now)
        if self.scene.node.sessions.get(client_id) is not session:
            self.none(message, 0)
            return
        self.depart(session, message, now)

    def none(self, message: Message, newer_epoch: int) -> None:
        """Answer a revocation: there is nothing to send."""
        answer = Message(FOUND_NONE, message.client_id, nonce=message.nonce, epoch=message.epoch, value=newer_epoch)
        self.scene.post.say(message.node, answer)

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
            self.claimant.turn_away(connection, claim.client_id, now)
        self.scene.post.say(message.node, Message(HOLD_ON, claim.client_id, nonce=message.nonce))

    def revoke_absent(self, message: Message, now: int) -> None:
        """The session is not here: on its way to another node, or there is none."""
        departure = self.leaving.get(message.client_id)
        if departure is None:
            self.none(message, 0)
        elif departure.to == message.node:
            departure.nonce = message.nonce
            departure.epoch = max(departure.epoch, message.epoch)
            self.scene.post.say(message.node, Message(HOLD_ON, message.client_id, nonce=message.nonce))
            if departure.active and departure.retry_at <= now:
                departure.repeat(self.scene.post, now)
        elif message.flags & HOPS == HOPS or departure.epoch >= message.epoch:
            self.none(message, 0)
        else:
            message.flags += HOP
            self.scene.post.say(departure.to, message)

    def depart(self, session: Session, message: Message, now: int) -> None:
        """Send a session away. From here on it is not this node's, though the table knows it still."""
        node = self.scene.node
        will_at = 0
        if session.will is not None:
            timer = session.will_timer
            will_at = timer.slot * GRAIN_MS if timer is not None else now
        node.timers.cancel(session.will_timer)
        session.will_timer = None
        node.timers.cancel(session.timer)
        session.timer = None
        del node.sessions[session.client_id]
        if node.ports.replay is not None:
            node.ports.replay.leaving(session)
        node.spaces.session_ended(session.client_id)
        departure = Departure(
            self.scene.number(), message.node, message.nonce, message.epoch, session, expiry_of(session), will_at, now
        )
        if node.ports.appending is not None:
            departure.logged = node.ports.appending.ids_in_logs(session)
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
                departure.pump(self.scene.post, now)

    def on_receipt(self, departure: Departure, message: Message, now: int) -> None:
        """The new owner says how far it is."""
        departure.until = max(departure.until, now + 10_000)
        if message.kind == ABORT:
            if message.flags:  # it knows nothing of this: it has restarted
                self.start_over(departure, now)
            else:
                self.forget(departure, now)
        elif message.kind == INSTALLED:
            if not departure.is_installed:
                departure.is_installed = True
                self.fence(departure, now)
        elif departure.acknowledge(message.value, message.flags & IS_REST != 0):
            if departure.is_rest:
                self.forget(departure, now)
        else:
            departure.pump(self.scene.post, now)

    def fence(self, departure: Departure, now: int) -> None:
        """The session is in its place: bring in what is on its way here, then stop listening."""
        post = self.scene.post
        if departure.session.subscriptions:
            departure.fences = set(self.scene.linked)
            departure.fences_until = now + FENCE_MS
            self.fencing[departure.number] = departure
            for peer in departure.fences:
                post.say(peer, Message(FENCE, flags=FOR_DEPARTURE, node=departure.number))
            post.say(departure.to, Message(HOLD_ON, departure.session.client_id, nonce=departure.nonce))
        if not departure.fences:
            self.send_rest(departure, now)

    def on_fenced(self, number: int, peer: int, now: int) -> None:
        """All that a node sent before has come."""
        departure = self.fencing.get(number)
        if departure is not None:
            departure.fences.discard(peer)
            if not departure.fences:
                self.send_rest(departure, now)

    def settle(self, now: int) -> None:
        """Do not wait for nodes that have gone, nor for long."""
        for departure in list(self.fencing.values()):
            if departure.fences_until <= now or not departure.fences & self.scene.linked:
                self.send_rest(departure, now)

    def send_rest(self, departure: Departure, now: int) -> None:
        """Unsubscribe, and send what came since the session was encoded."""
        self.fencing.pop(departure.number, None)
        take_out(self.scene.node, departure.session)
        departure.subscribed = False
        departure.begin_rest(now)
        departure.pump(self.scene.post, now)

    def start_over(self, departure: Departure, now: int) -> None:
        """Send a session from its beginning."""
        self.fencing.pop(departure.number, None)
        departure.gather()
        if not departure.subscribed:
            for subscription in departure.session.subscriptions.values():
                self.scene.node.table.add(subscription)
            departure.subscribed = True
        departure.begin(now)
        departure.pump(self.scene.post, now)

    def forget(self, departure: Departure, now: int) -> None:
        """The new owner has everything."""
        session = departure.session
        self.drop(departure)
        if departure.subscribed:
            take_out(self.scene.node, session)
        self.scene.node.stats.dropped_queue += departure.dropped
        session.subscriptions = {}
        session.outbound = None
        session.will = None
        self.sessions_out += 1
        self.start_departures(now)

    def drop(self, departure: Departure) -> None:
        """No longer think of a departure."""
        self.fencing.pop(departure.number, None)
        del self.departures[departure.number]
        if self.leaving.get(departure.session.client_id) is departure:
            del self.leaving[departure.session.client_id]

    def keep(self, departure: Departure, now: int) -> None:
        """The new owner is gone, or does not take it: the session stays."""
        session = departure.session
        client_id = session.client_id
        self.drop(departure)
        here = self.scene.node.sessions.get(client_id)
        if here is not None:
            departure.gather()
            if departure.subscribed:
                take_out(self.scene.node, session)
            add_late(self.scene.node, here, unsent(session.outbound), now)
            session.subscriptions = {}
            return
        self.sessions_kept += 1
        put_back(self.scene.node, departure)
        self.scene.registers[client_id] = True

    def on_ask(self, peer: int, message: Message) -> None:
        """A registrar that is new to a client id wants to know which node has it."""
        client_id = message.client_id
        epoch = 0
        user = 0
        session = self.scene.node.sessions.get(client_id)
        claim = self.claimant.claims.get(client_id)
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
        self.scene.post.say(peer, Message(ANSWER, nonce=message.nonce, epoch=epoch, user=user))

    def lose(self, peer: int, now: int) -> None:
        """A node is gone that sessions were to go to."""
        for departure in list(self.departures.values()):
            if departure.to == peer:
                self.keep(departure, now)

    def tick(self, now: int) -> None:
        """Send again what may be lost; give up what takes too long."""
        for departure in list(self.departures.values()):
            if departure.until <= now:
                self.keep(departure, now)
            elif departure.active and departure.retry_at <= now and departure.to in self.scene.linked:
                departure.repeat(self.scene.post, now)
        self.start_departures(now)
