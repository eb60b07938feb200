"""The claimant's side: a client connects here, and the cluster is asked whether it may have its client id here.

```
 claim --> ask --> GRANT: no node had it ---------------------------------------.
            |        `--> GRANT: another had it --> its session comes (taking) --+--> conclude --> CONNACK
            |                                 `---> FOUND_NONE -----------------'          |
            |--> REFUSE --> CONNACK with the code                                          |--> revoked meanwhile:
            '--> nothing: ask again, at last conclude alone                                |    give it on
                                                                                           |--> persistent: its record
                                                                                           |    in the log first
                                                                                           `--> it touches partitions:
                                                                                                ask for their ids
```
A persistent session may have QoS 2 messages in logs, with ids that their client has not released. Its record names the
partitions. The next owner has to know the ids before the CONNACK (``Collector``).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from flockmq.mqtt import reasons
from flockmq.mqtt.packets import Will
from flockmq.node.admission import Admission
from flockmq.node.connecting import agreed_expiry_s, refuse
from flockmq.node.namespaces import edge_will
from flockmq.node.ports import CLAIM_BUSY, CLAIM_WAITS, Claimed
from flockmq.peering.scene import Scene, user_key
from flockmq.peering.session_messages import CHECKS_USER, CLAIM, CLEAN, Message
from flockmq.session.connection import AUTHENTICATING, Connection

if TYPE_CHECKING:
    from flockmq.peering.giving import Giver
    from flockmq.peering.taking import Taker
    from flockmq.session.session import Session
    from flockmq.tasks import Promise

CLAIMS_MAX: Final = 10_000
"""Clients that wait for an answer to their claim; beyond it they are refused with Server busy."""
CLAIM_MS: Final = 2_000
"""Longest wait without news before a node decides alone."""
CLAIM_MS_MAX: Final = 8_000
"""Longest wait whatever comes: a client must have its CONNACK."""
CLAIM_RETRY_MS: Final = 500


class Collector(Protocol):
    """Finds which QoS 2 messages of a client are in logs and not released."""

    def wants(self, claimed: Claimed) -> bool:
        """Whether a client with this record has to wait for ``collect``."""

    def collect(self, client_id: str, claimed: Claimed) -> Promise[set[int]]:
        """Find the packet ids of a client, as far as logs can be asked now."""

    def ended(self, session: Session) -> None:
        """A session is over, and its ids with it."""


class Records(Protocol):
    """The log of persistent sessions, which has the last word about a client id."""

    def wants(self, expiry_s: int, has_will: bool) -> bool:
        """Whether the log has to be asked for a session that outlives its connection by so long."""

    def claim(
        self,
        connection: Connection,
        client_id: str,
        username: str | None,
        epoch: int,
        expiry_s: int,
        version: int,
        clean_start: bool,
        will: Will | None,
    ) -> Promise[Claimed]:
        """Have the session of a client, under ``epoch`` at least."""


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
        self.had_session = False
        """The session was here when the claim was made: this node knows all of it."""
        self.is_alone = False
        """No registrar could be asked."""
        self.collecting = False
        """It is this node's; the client's QoS 2 ids are being collected."""
        self.done = False


class Hands(Protocol):
    """The parts that carry sessions from node to node; a claim may end what they do, or wait for it."""

    @property
    def giver(self) -> Giver:
        """Gives sessions of this node away."""

    @property
    def taker(self) -> Taker:
        """Takes sessions that come to this node."""


class Claimant:
    """Claims of this node's clients."""

    def __init__(self, scene: Scene, hands: Hands, collector: Collector | None, records: Records | None) -> None:
        self._hands = hands
        self._records = records
        """None: sessions live in memory alone."""
        self.scene = scene
        self.claims: dict[str, Claim] = {}
        self.inline: Claim | None = None
        """The claim that is being made in this very moment."""
        self.claims_made = 0
        self.claims_alone = 0
        """Claims that this node decided by itself, because the registrar could not be asked."""
        self.claims_busy = 0
        self.collector = collector
        """None: there are no durable topics."""

    def claim(self, connection: Connection, client_id: str, username: str | None, clean_start: bool, now: int) -> int:
        """Want a client id. See OwnerPort; while ``inline`` is set, the answer may be there before the turn is over."""
        session = self.scene.node.sessions.get(client_id)
        if (
            len(self.scene.ranking.members) == 1
            and client_id not in self.claims
            and client_id not in self._hands.giver.leaving
        ):
            known = session.epoch if session is not None else 0
            epoch = max(known + 1, self.scene.wall_ms(now))
            return self.claim_alone(connection, client_id, session, clean_start, epoch, now)
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
        claim.had_session = session is not None
        self.claims[client_id] = claim
        self.claims_made += 1
        self.inline = claim
        self.ask(claim)
        return CLAIM_WAITS

    def claim_alone(
        self, connection: Connection, client_id: str, session: Session | None, clean_start: bool, epoch: int, now: int
    ) -> int:
        """There is no other node: the client id is this one's, at once unless logs have to be asked."""
        if not self.must_record(connection):
            return epoch
        if len(self.claims) >= CLAIMS_MAX:
            self.claims_busy += 1
            return CLAIM_BUSY
        claim = Claim(client_id, self.scene.number(), connection, now)
        claim.flags = CLEAN if clean_start else 0
        claim.granted = True
        claim.waits = False
        claim.epoch = epoch
        claim.had_session = session is not None
        self.claims[client_id] = claim
        self.inline = claim
        self.conclude(claim, now)
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
        """Send a claim to the registrar; when there is no link to it, later."""
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
        if claim.collecting:
            return
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
        """A grant to a claim that is over: the session that is here has it, or it is not needed."""
        session = self.scene.node.sessions.get(message.client_id)
        if session is not None:
            session.epoch = max(session.epoch, message.epoch)
        elif message.node in (0, self.scene.me) and message.client_id not in self.claims:
            self.scene.releases[message.client_id] = message.epoch

    def on_refuse(self, message: Message, now: int) -> None:
        """The client id is not to be had."""
        claim = self.claims.get(message.client_id)
        if claim is None or claim.nonce != message.nonce or claim.granted or claim.collecting:
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
        if claim is None or claim.nonce != message.nonce or claim.collecting:
            gone = client_id not in self.scene.node.sessions and client_id not in self._hands.giver.leaving
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
        if self.claims.get(client_id) is not claim or claim.collecting:
            return
        for arrival in list(self._hands.taker.arrivals.values()):
            if arrival.client_id == client_id:
                self._hands.taker.on_rest(arrival, now)
        session = self.scene.node.sessions.get(client_id)
        if not claim.granted:
            known = max(session.epoch if session is not None else 0, claim.known_epoch)
            claim.epoch = max(known + 1, self.scene.wall_ms(now))
            claim.is_alone = True
            self.claims_alone += 1
        connection = claim.connection
        if connection is not None and self.must_record(connection):
            # Revocations that come meanwhile wait, as for a session that is on its way here.
            claim.granted = True
            claim.collecting = True
            self.record(claim, connection)
            return
        self.collect(claim, now)

    def must_record(self, connection: Connection) -> bool:
        """Whether a client waits whose session the log has to know of, or may know of."""
        admission = connection.admission
        if self._records is None or connection.phase != AUTHENTICATING or not isinstance(admission, Admission):
            return False
        connect = admission.connect
        return self._records.wants(agreed_expiry_s(self.scene.node, connect), connect.will is not None)

    def record(self, claim: Claim, connection: Connection) -> None:
        """Claim the client id in the log."""
        admission = connection.admission
        assert self._records is not None
        assert isinstance(admission, Admission)
        connect = admission.connect
        username = admission.accept.identity.username if admission.accept is not None else None
        will = connect.will
        if will is not None and admission.accept is not None:
            topic = edge_will(self.scene.node.spaces.find(admission.accept.identity.namespace), will)
            will = Will(topic, will.payload, will.qos, will.retain, will.properties)
        claimed = self._records.claim(
            connection,
            claim.client_id,
            username,
            claim.epoch,
            agreed_expiry_s(self.scene.node, connect),
            connection.version,
            connect.clean_start,
            will,
        )
        claimed.then(partial(self.on_recorded, claim, connection, admission))

    def on_recorded(self, claim: Claim, connection: Connection, admission: Admission, claimed: Claimed) -> None:
        """The log has spoken: go on, or refuse the client."""
        now = self.scene.node.now
        claim.collecting = False
        is_waiting = connection.phase == AUTHENTICATING and claim.connection is connection
        if not claimed.code and claimed.epoch > claim.epoch:
            claim.epoch = claimed.epoch
            self.scene.registers[claim.client_id] = True
        if self.claims.get(claim.client_id) is not claim or not is_waiting or claimed.code:
            sessions = self.scene.node.ports.sessions
            if not claimed.code and sessions is not None:
                sessions.abandoned(claimed)
            if claimed.code and is_waiting:
                claim.connection = None
                refuse(self.scene.node, connection, claim.client_id, claimed.code, claimed.text, now)
        else:
            admission.claimed = claimed
        if self.claims.get(claim.client_id) is not claim:
            return
        self.collect(claim, now)

    def lacks_record(self, connection: Connection) -> bool:
        """Whether the log has to be asked for this client, and was not."""
        admission = connection.admission
        is_asked = isinstance(admission, Admission) and admission.claimed is not None
        return not is_asked and self.must_record(connection)

    def collect(self, claim: Claim, now: int) -> None:
        """Find the client's QoS 2 ids in logs, if that is needed; then go on."""
        connection = claim.connection
        admission = connection.admission if connection is not None else None
        claimed = admission.claimed if isinstance(admission, Admission) else None
        if self.collector is None or claimed is None or not self.collector.wants(claimed):
            self.finish(claim, now)
            return
        # Revocations that come meanwhile wait, as for a session that is on its way here.
        assert isinstance(admission, Admission)
        claim.granted = True
        claim.collecting = True
        self.collector.collect(claim.client_id, claimed).then(partial(self.on_collected, claim, admission))

    def on_collected(self, claim: Claim, admission: Admission, ids: set[int]) -> None:
        """The ids are known, as far as logs could be asked."""
        claim.collecting = False
        admission.unreleased = ids
        if self.claims.get(claim.client_id) is claim:
            self.finish(claim, self.scene.node.now)

    def finish(self, claim: Claim, now: int) -> None:
        """The client id is this node's: CONNACK, then whatever came meanwhile."""
        client_id = claim.client_id
        connection = claim.connection
        if connection is not None and self.lacks_record(connection):
            claim.collecting = True
            self.record(claim, connection)  # this client took the claim over after the log had been asked
            return
        del self.claims[client_id]
        if connection is not None and connection.phase == AUTHENTICATING:
            if claim.is_alone or now - claim.began_at >= CLAIM_RETRY_MS:  # much may have happened since the grant
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
            self._hands.giver.on_revoke(claim.superseded, now)
        after = claim.next
        if after is not None and after.phase == AUTHENTICATING:
            self.claim_again(claim, after, now)

    def claim_again(self, old: Claim, connection: Connection, now: int) -> None:
        """A client that came while a session was passing through."""
        claim = Claim(old.client_id, self.scene.number(), connection, now)
        claim.flags = old.next_flags
        claim.user = old.next_user
        claim.known_epoch = old.epoch
        claim.had_session = old.client_id in self.scene.node.sessions
        self.claims[old.client_id] = claim
        self.ask(claim)

    def lose(self, peer: int, now: int) -> None:
        """A node is gone: sessions that were to come from it do not."""
        for claim in list(self.claims.values()):
            if claim.granted and claim.origin == peer:
                claim.waits = False
                self.look_at(claim, now)
