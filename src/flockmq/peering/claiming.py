"""The claimant's side: a client connects here, and the cluster is asked whether it may have its client id here.

```
 claim --> ask --> GRANT: nobody had it ----------------------------------------.
            |        `--> GRANT: another had it --> its session comes (taking) --+--> conclude --> CONNACK
            |                                 `---> FOUND_NONE -----------------'          |
            |--> REFUSE --> CONNACK with the code                                          `--> revoked meanwhile:
            '--> nothing: ask again, at last conclude alone                                     give it on
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.mqtt import reasons
from flockmq.node.connecting import refuse
from flockmq.node.ports import CLAIM_BUSY, CLAIM_WAITS
from flockmq.peering.scene import Scene, user_key
from flockmq.peering.session_messages import CHECKS_USER, CLAIM, CLEAN, Message
from flockmq.session.connection import AUTHENTICATING, Connection

if TYPE_CHECKING:
    from flockmq.peering.giving import Giver
    from flockmq.peering.taking import Taker

CLAIMS_MAX: Final = 10_000
"""Clients that wait for an answer to their claim; beyond it they are refused with Server busy."""
CLAIM_MS: Final = 2_000
"""Longest wait without news before a node decides alone."""
CLAIM_MS_MAX: Final = 8_000
"""Longest wait whatever comes: a client must have its CONNACK."""
CLAIM_RETRY_MS: Final = 500


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


class Claimant:
    """Claims of this node's clients. ``giver`` and ``taker`` are set by who puts all of them together."""

    giver: Giver
    taker: Taker

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.claims: dict[str, Claim] = {}
        self.inline: Claim | None = None
        """The claim that is being made in this very moment."""
        self.claims_made = 0
        self.claims_alone = 0
        """Claims that this node decided by itself, because the registrar could not be asked."""
        self.claims_busy = 0

    def claim(self, connection: Connection, client_id: str, username: str | None, clean_start: bool, now: int) -> int:
        """Want a client id. See OwnerPort; while ``inline`` is set, the answer may be there before the turn is over."""
        session = self.scene.node.sessions.get(client_id)
        if (
            len(self.scene.ranking.members) == 1
            and client_id not in self.claims
            and client_id not in self.giver.leaving
        ):
            known = session.epoch if session is not None else 0
            return max(known + 1, self.scene.wall_ms(now))
        flags = (CLEAN if clean_start else 0) | (0 if self.scene.node.gate_is_open else CHECKS_USER)
        user = user_key(username)
        known_claim = self.claims.get(client_id)
        if known_claim is not None:
            self.join(known_claim, connection, flags, user, now)
            return CLAIM_WAITS
        if len(self.claims) >= CLAIMS_MAX:
            self.claims_busy += 1
            return CLAIM_BUSY
        claim = Claim(client_id, self.scene.number(), connection, now)
        claim.flags = flags
        claim.user = user
        claim.known_epoch = session.epoch if session is not None else 0
        self.claims[client_id] = claim
        self.claims_made += 1
        self.inline = claim
        self.ask(claim)
        return CLAIM_WAITS

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
            refuse(self.scene.node, connection, client_id, reasons.SERVER_BUSY, text, now)

    def ask(self, claim: Claim) -> None:
        """Send a claim to whoever decides; when there is no link to it, later."""
        registrar = self.scene.ranking.first(claim.client_id)
        if registrar != self.scene.me and registrar not in self.scene.linked:
            return
        message = Message(
            CLAIM,
            claim.client_id,
            flags=claim.flags,
            nonce=claim.nonce,
            epoch=claim.known_epoch,
            node=self.scene.me,
            user=claim.user,
        )
        self.scene.post.say(registrar, message)

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
        if claim.granted:  # asked again, of the same registrar or of the next one: that one's epoch is the newer
            claim.epoch = max(claim.epoch, message.epoch)
            return
        claim.granted = True
        claim.epoch = max(claim.epoch, message.epoch)
        claim.origin = message.node
        claim.waits = message.node not in (0, self.scene.me) and message.node in self.scene.registrar.alive
        claim.news_at = now
        self.look_at(claim, now)

    def on_late_grant(self, message: Message) -> None:
        """A grant to a claim that is over: the session that is here has it, or nobody needs it."""
        session = self.scene.node.sessions.get(message.client_id)
        if session is not None:
            session.epoch = max(session.epoch, message.epoch)
        elif message.node in (0, self.scene.me) and message.client_id not in self.claims:
            self.scene.releases[message.client_id] = message.epoch

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
            refuse(self.scene.node, connection, message.client_id, message.value & 0xFF, text, now)

    def on_found_none(self, message: Message, now: int) -> None:
        """The origin has nothing to send."""
        client_id = message.client_id
        claim = self.claims.get(client_id)
        if claim is None or claim.nonce != message.nonce:
            gone = client_id not in self.scene.node.sessions and client_id not in self.giver.leaving
            if gone and claim is None and not message.value:
                self.scene.releases[client_id] = message.epoch
            return
        if message.value:
            # The origin got it anew meanwhile, under an epoch that the registrar did not know: claim once more.
            claim.nonce = self.scene.number()
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
        for arrival in list(self.taker.arrivals.values()):
            if arrival.client_id == client_id:
                self.taker.on_rest(arrival, now)
        del self.claims[client_id]
        session = self.scene.node.sessions.get(client_id)
        alone = not claim.granted
        if alone:
            known = max(session.epoch if session is not None else 0, claim.known_epoch)
            claim.epoch = max(known + 1, self.scene.wall_ms(now))
            self.claims_alone += 1
        connection = claim.connection
        if connection is not None and connection.phase == AUTHENTICATING:
            if alone or now - claim.began_at >= CLAIM_RETRY_MS:  # much may have happened since the grant
                self.scene.registers[client_id] = True
            if self.inline is claim:
                claim.done = True
            else:
                self.scene.broker.claimed(connection, claim.epoch, now)
        session = self.scene.node.sessions.get(client_id)
        if session is not None and not claim.done:  # not before: a session that a clean start ends keeps its own epoch
            session.epoch = max(session.epoch, claim.epoch)
        if not claim.done and client_id not in self.scene.node.sessions and client_id not in self.claims:
            self.scene.releases[client_id] = claim.epoch
        if claim.superseded is not None:
            self.giver.on_revoke(claim.superseded, now)
        after = claim.next
        if after is not None and after.phase == AUTHENTICATING:
            self.claim_again(claim, after, now)

    def claim_again(self, old: Claim, connection: Connection, now: int) -> None:
        """A client that came while a session was passing through."""
        claim = Claim(old.client_id, self.scene.number(), connection, now)
        claim.flags = old.next_flags
        claim.user = old.next_user
        claim.known_epoch = old.epoch
        self.claims[old.client_id] = claim
        self.ask(claim)

    def lose(self, peer: int, now: int) -> None:
        """A node is gone: sessions that were to come from it do not."""
        for claim in list(self.claims.values()):
            if claim.granted and claim.origin == peer:
                claim.waits = False
                self.look_at(claim, now)
