"""The new owner's side: a session comes in chunks, is made this node's, and is whole once the rest has come.

```
 MOVE --> all there: decode --> no session here: put it in; wait until all nodes know its routes --.
                           `--> one is here already: add what waits in the one that came -----------+--> INSTALLED
 MOVE, the rest --> QoS 2 in it: wait for what other nodes have sent already --> put together --> conclude the claim
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.errors import RemoteProtocolError
from flockmq.peering.claiming import CLAIMS_MAX, Claim
from flockmq.peering.fields import malformed
from flockmq.peering.moves import Arrival, add_late, put_in, put_together, unsent, without
from flockmq.peering.scene import Scene
from flockmq.peering.session_codec import SESSION_BYTES_MAX, decode_rest, decode_session
from flockmq.peering.session_messages import ABORT, CHUNK_BYTES_MAX, FENCE, INSTALLED, IS_REST, MOVED, Message

if TYPE_CHECKING:
    from flockmq.peering.claiming import Claimant
    from flockmq.peering.giving import Giver

ROUTES_MS: Final = 1_000
"""Longest wait for other nodes: to know the routes of a session that came, to say that they have sent all."""
ARRIVING_BYTES_MAX: Final = 268_435_456
"""Most bytes of sessions that are half here. Chunks beyond it are not taken, and so come again."""
ARRIVAL_CHUNKS_MAX: Final = SESSION_BYTES_MAX // CHUNK_BYTES_MAX * 5 // 4
ARRIVAL_MS_MAX: Final = 90_000
"""After this long without a chunk nothing more is expected: the old owner has given up before."""
FINISHED_MAX: Final = 10_000


class Taker:
    """Sessions that come to this node."""

    def __init__(self, scene: Scene, claimant: Claimant, giver: Giver) -> None:
        self.scene = scene
        self.claimant = claimant
        self.giver = giver
        self.arrivals: dict[tuple[int, int], Arrival] = {}
        self.arriving_bytes = 0
        self.settling: dict[tuple[int, int], Arrival] = {}
        """Arrivals that wait for other nodes."""
        self.finished: dict[tuple[int, int], bool] = {}
        """The last ones that are over: what is sent again of them is known."""
        self.sessions_in = 0
        self.sessions_unreadable = 0

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
                    self.scene.post.say(peer, Message(INSTALLED, node=message.node))
                return
            if is_rest or index:
                self.scene.post.say(peer, Message(ABORT, node=message.node, flags=1))
                return
            if len(self.arrivals) >= CLAIMS_MAX or self.arriving_bytes > ARRIVING_BYTES_MAX:
                return  # it will come again
            arrival = self.expect(peer, message, now)
        arrival.touched_at = now
        claim = self.claimant.claims.get(arrival.client_id)
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
            self.scene.post.say(peer, Message(INSTALLED, node=arrival.number))

    def receipt(self, peer: int, message: Message) -> None:
        """Say that a chunk has arrived."""
        flags = message.flags & IS_REST
        self.scene.post.say(peer, Message(MOVED, node=message.node, flags=flags, value=message.value >> 32))

    def expect(self, peer: int, message: Message, now: int) -> Arrival:
        """The first chunk of a session: a claim for it waits for the rest of it."""
        client_id = message.client_id
        arrival = Arrival(message.node, peer, client_id, message.epoch, now)
        self.arrivals[peer, message.node] = arrival
        claim = self.claimant.claims.get(client_id)
        if claim is None:
            claim = Claim(client_id, 0, None, now)
            claim.granted = True
            claim.epoch = message.epoch
            claim.waits = False
            self.claimant.claims[client_id] = claim
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
            self.scene.node.events.note(
                "session_unreadable", {"client_id": arrival.client_id, "node": arrival.peer, "reason": str(error)}
            )
            self.scene.post.say(arrival.peer, Message(ABORT, node=arrival.number))
            self.finish_arrival(arrival, now)

    def on_session(self, arrival: Arrival, data: bytes, now: int) -> None:
        """The session is here: make it this node's, or add what waits in it to the one that is."""
        node = self.scene.node
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
        if node.ports.replay is not None:
            node.ports.replay.arrived(session, now)
        session.epoch = arrival.epoch
        arrival.session = session
        arrival.base = session.outbound
        session.outbound = None
        arrival.is_apart = True
        arrival.route_mark = -1
        arrival.installed_until = now + ROUTES_MS
        self.settling[arrival.peer, arrival.number] = arrival
        self.see_routes(arrival, now)

    def see_routes(self, arrival: Arrival, now: int) -> None:
        """Go on once messages from everywhere come here; then the old owner need not listen any more."""
        routes = self.scene.routes
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
        self.scene.post.say(arrival.peer, Message(INSTALLED, node=arrival.number))

    def fence(self, arrival: Arrival, now: int) -> None:
        """What came for the session while it moved: with QoS 2 among it, see first what else comes from other nodes."""
        if arrival.is_apart and any(delivery.qos == 2 for delivery in arrival.rest):
            arrival.fences = set(self.scene.linked)
            arrival.fences_until = now + ROUTES_MS
            self.settling[arrival.peer, arrival.number] = arrival
            for peer in arrival.fences:
                self.scene.post.say(peer, Message(FENCE, nonce=arrival.peer, node=arrival.number))
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
        departure = self.giver.leaving.get(arrival.client_id)
        if self.scene.node.sessions.get(arrival.client_id) is session:
            if arrival.is_apart:
                put_together(self.scene.node, arrival, rest, now)
            else:
                add_late(self.scene.node, session, without(rest, arrival.own), now)
        elif departure is not None:  # it has moved on already
            add_late(self.scene.node, departure.session, rest, now)

    def finish_arrival(self, arrival: Arrival, now: int) -> None:
        """Nothing more of this will come."""
        key = (arrival.peer, arrival.number)
        if self.arrivals.pop(key, None) is None:
            return
        self.arriving_bytes -= arrival.size
        self.settling.pop(key, None)
        if arrival.session is not None:
            self.scene.registers[arrival.client_id] = True
        if arrival.said_installed:
            self.finished[key] = True
            if len(self.finished) > FINISHED_MAX:
                del self.finished[next(iter(self.finished))]
        self.on_rest(arrival, now)
        claim = self.claimant.claims.get(arrival.client_id)
        if claim is not None and claim.arrivals:
            claim.arrivals -= 1
            self.claimant.look_at(claim, now)

    def settle(self, now: int) -> None:
        """See whether what arrivals wait for has happened."""
        for arrival in list(self.settling.values()):
            if not arrival.said_installed:
                self.see_routes(arrival, now)
            elif arrival.fences_until <= now or not arrival.fences & self.scene.linked:
                self.finish_arrival(arrival, now)

    def lose(self, peer: int, now: int) -> None:
        """A node is gone: nothing more comes from it."""
        for arrival in list(self.arrivals.values()):
            if arrival.peer == peer:
                self.finish_arrival(arrival, now)

    def tick(self, now: int) -> None:
        """Forget what has stopped coming."""
        for arrival in list(self.arrivals.values()):
            if now - arrival.touched_at >= ARRIVAL_MS_MAX:
                self.finish_arrival(arrival, now)
