"""Messages on their way between nodes: batches out, batches in, acknowledgements, and nothing twice.

```
 route --> Peer.out --flush--> BATCH: all runs of the turn --> link --> read_parcels --> clients of that node
               |                  `- QoS 1 and 2 among them: sequence, kept --.                      |
               |  <----------------- STATE: taken up to here, wait | go on <--+----------------------'
               `  link breaks --> HELLO both ways: where I stand --> what the other has not is sent again, in order
```
A batch is taken in the order of sequences or not at all; the last sequence taken of a node and boot is remembered as
long as this node lives. So while two nodes live, a message of QoS 1 or 2 that was accepted passes between them exactly
once, however often the link breaks, within the bound of what is kept (``forward_bytes_max``). Publishers are slowed
down before that is reached. QoS 0 is sent once and kept nowhere. When a node dies or starts anew, what was kept for it
is dropped: the subscribers it was for are gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.errors import FlockError
from flockmq.node.congestion import let_go, look_at_peer
from flockmq.node.delivering import take_run, take_shared
from flockmq.node.settings import Limits
from flockmq.node.state import NodeState
from flockmq.peering.channels import RUNS
from flockmq.peering.stream import (
    AGAIN,
    ANSWER,
    BATCH,
    BATCH_HEAD,
    FLAGS,
    HELLO,
    HELLO_FORM,
    STATE,
    STATE_FORM,
    WAIT,
    Stream,
)
from flockmq.routing.parcel import read_parcels
from flockmq.routing.peer import Peer

if TYPE_CHECKING:
    from flockmq.peering.ports import Outbox

PART_BYTES: Final = 1_048_576
"""Size at which a batch is closed and another one begins; a run is never cut."""
TURN_BYTES: Final = 16_777_216
"""Most bytes said to one peer in a loop turn; the rest follows in the next."""
ASK_MS: Final = 1_000
"""How long to wait for a HELLO before asking for it."""
SILENCE_MS: Final = 3_000
"""How long an acknowledgement may take on a link that works before asking where the peer stands."""
LOST_MS: Final = 30_000
"""How long the peer's answer may take before this node asks again."""
PEERS_MAX: Final = 65_536
"""Most nodes that are remembered, dead ones included."""

TOTALS: Final = (
    "messages_out",
    "messages_in",
    "dropped_qos0",
    "dropped_kept",
    "given_up",
    "resent",
    "repeated",
    "missed",
    "lost_shared",
    "kept_bytes",
)


class Forwarding:
    """The component of channel RUNS; see the module. It also finds peers by their ids."""

    def __init__(self, node: NodeState, boot: int, outbox: Outbox) -> None:
        self.node = node
        self.boot = boot
        self.outbox = outbox
        self.streams: dict[int, Stream] = {}

    def peer(self, node_id: int) -> Peer:
        """The node with this id, as the router knows it."""
        return self.stream(node_id).peer

    def stream(self, node_id: int) -> Stream:
        """The conversation with a node; it begins when the node is first heard of."""
        stream = self.streams.get(node_id)
        if stream is None:
            node = self.node
            if len(self.streams) >= PEERS_MAX:
                self._forget_one()
            node.next_connection += 1
            limits = Limits(write_bytes_max=node.settings.forward_bytes_max)
            name = f"{node_id:016x}"
            peer = Peer(node_id, name, node.next_connection, limits, node.now, node.dirty_peers, node.stats)
            stream = Stream(peer)
            self.streams[node_id] = stream
        return stream

    # --- the component ---

    def peer_up(self, peer: int, now: int) -> None:
        """A link is up: send HELLO, and wait for the peer's HELLO, which may have come before this node listened."""
        stream = self.stream(peer)
        stream.up = True
        stream.asks = 0
        self._set_linked(stream.peer, False)
        stream.peer.blocked = False
        stream.sent = 0
        self._say_hello(stream, ANSWER, now)

    def peer_down(self, peer: int, now: int) -> None:  # noqa: ARG002 all components are told the time
        """No link: QoS 0 is lost from now on, the rest is kept."""
        stream = self.stream(peer)
        stream.up = False
        stream.sent = 0
        self._set_linked(stream.peer, False)
        stream.peer.blocked = False
        stream.peer.asked_to_wait = False
        stream.peer.mark()
        look_at_peer(self.node, stream.peer)

    def peer_dead(self, peer: int, now: int) -> None:
        """The node is gone with its clients: no publisher waits for it any more."""
        self.peer_down(peer, now)
        stream = self.stream(peer)
        self._give_up(stream)
        let_go(self.node, stream.peer, True)

    def receive(self, peer: int, body: bytes, now: int) -> None:
        """Read a part of a peer: BATCH, HELLO or STATE."""
        stream = self.stream(peer)
        kind = body[0] if body else 0
        size = len(body)
        if kind == BATCH and size >= BATCH_HEAD.size:
            self._on_batch(stream, body, now)
        elif kind == STATE and size == STATE_FORM.size:
            self._on_state(stream, body)
        elif kind == HELLO and size == HELLO_FORM.size:
            self._on_hello(stream, body, now)
        elif kind <= STATE:  # a newer node may append fields
            raise FlockError(f"A part of {size} bytes and kind {kind} about messages can't be read.")

    def tick(self, now: int) -> None:
        """Send HELLO again to peers that have not answered it, or have not acknowledged for long."""
        for stream in self.streams.values():
            if not stream.up:
                continue
            if not stream.peer.linked:
                if now - stream.asked_at >= ASK_MS:
                    self._say_hello(stream, ANSWER, now)
                continue
            # The answer may take long, behind all batches sent before. A second question would not bring it sooner,
            # and would make batches under way look lost.
            patience_ms = LOST_MS if stream.asks else SILENCE_MS
            is_silent = stream.sent > 0 and now - stream.unacknowledged[0].sent_at >= SILENCE_MS
            if is_silent and now - stream.asked_at >= patience_ms:
                stream.asks = stream.unacknowledged[stream.sent - 1].sequence
                self._say_hello(stream, ANSWER, now)

    def flush(self, now: int) -> None:
        """Send the batches and acknowledgements of this turn. Peers with batches left stay in ``dirty_peers``."""
        dirty = self.node.dirty_peers
        if not dirty:
            return
        taken = dirty[:]
        dirty.clear()
        for connection in taken:
            connection.dirty = False
            if isinstance(connection, Peer):
                self._flush_peer(self.stream(connection.node_id), connection, now)

    def set_blocked(self, peer: int, blocked: bool) -> None:
        """The link's buffer is full, or takes bytes again."""
        stream = self.stream(peer)
        stream.peer.blocked = blocked
        if not blocked:
            stream.peer.mark()
            look_at_peer(self.node, stream.peer)

    def totals(self) -> dict[str, int]:
        """Count over all peers since the start, for metrics; ``kept_bytes`` is what waits for acknowledgements now."""
        found: dict[str, int] = dict.fromkeys(TOTALS, 0)
        for stream in self.streams.values():
            peer = stream.peer
            found["messages_out"] += peer.messages_out
            found["messages_in"] += peer.messages_in
            found["dropped_qos0"] += peer.dropped
            found["dropped_kept"] += peer.dropped_kept
            found["given_up"] += stream.given_up
            found["resent"] += stream.resent
            found["repeated"] += stream.repeated
            found["missed"] += stream.missed
            found["lost_shared"] += stream.lost_shared
            found["kept_bytes"] += peer.kept_bytes
        return found

    def is_waiting(self, peer: int) -> bool:
        """Whether something for a peer has not been handed to its link yet."""
        stream = self.streams.get(peer)
        if stream is None:
            return False
        return bool(stream.peer.out) or stream.sent < len(stream.unacknowledged)

    # --- out ---

    def _flush_peer(self, stream: Stream, peer: Peer, now: int) -> None:
        if stream.up and (stream.told != stream.taken or stream.told_wait != peer.reading_paused):
            stream.told = stream.taken
            stream.told_wait = peer.reading_paused
            flags = WAIT if peer.reading_paused else 0
            self.outbox.send(peer.node_id, RUNS, STATE_FORM.pack(STATE, stream.boot, stream.taken, flags))
        if peer.blocked:
            return  # what is to be said waits in ``out``, bounded there; set_blocked brings us back
        room = self._send_kept(stream, TURN_BYTES, now)
        if peer.out:
            room = self._seal_out(stream, peer, room, now)
        if peer.out or (peer.linked and stream.sent < len(stream.unacknowledged)):
            peer.mark()
        look_at_peer(self.node, peer)

    def _seal_out(self, stream: Stream, peer: Peer, room: int, now: int) -> int:
        """Put the router's runs into batches and send them, as far as this turn has room."""
        out = peer.out
        total = len(out)
        if peer.out_bytes <= PART_BYTES and room > 0:
            keeps = peer.kept_runs > 0
            peer.out = []
            peer.out_bytes = 0
            peer.kept_runs = 0
            return self._send_batch(stream, out, keeps, room, now)
        start = 0
        while start < total and (room > 0 or not peer.linked):
            size = 0
            stop = start
            while stop < total and size < PART_BYTES:
                size += len(out[stop]) + len(out[stop + 1])
                stop += 2
            room = self._send_batch(stream, out[start:stop], peer.kept_runs > 0, room, now)
            start = stop
        peer.take_out(start)
        return room

    def _send_batch(self, stream: Stream, pieces: list[bytes], keeps: bool, room: int, now: int) -> int:
        body = stream.seal(self.boot, pieces, keeps, stream.peer.linked)
        if body is not None:
            self.outbox.send(stream.peer.node_id, RUNS, body)
            return room - len(body)
        return self._send_kept(stream, room, now)

    def _send_kept(self, stream: Stream, room: int, now: int) -> int:
        """Send kept batches that this link has not carried yet, in order, as far as this turn has room."""
        batches = stream.unacknowledged
        if not stream.peer.linked:
            return room
        while stream.sent < len(batches) and room > 0:
            batch = batches[stream.sent]
            if batch.sent_at:
                stream.resent += 1
            batch.sent_at = now
            body = batch.first
            if body is None:
                body = batch.body
            batch.first = None
            self.outbox.send(stream.peer.node_id, RUNS, body)
            stream.sent += 1
            room -= len(body)
        return room

    def _say_hello(self, stream: Stream, flags: int, now: int) -> None:
        stream.asked_at = now
        stream.told = stream.taken
        stream.told_wait = stream.peer.reading_paused
        if stream.peer.reading_paused:
            flags |= WAIT
        body = HELLO_FORM.pack(HELLO, self.boot, stream.boot, stream.taken, stream.first_to_come(), flags)
        self.outbox.send(stream.peer.node_id, RUNS, body)

    def _set_linked(self, peer: Peer, linked: bool) -> None:
        if peer.linked != linked:
            peer.linked = linked
            self.node.table.links += 1

    def _give_up(self, stream: Stream) -> None:
        """Drop the batches for a peer that is dead or has restarted."""
        peer = stream.peer
        for batch in stream.unacknowledged:
            stream.given_up += batch.runs
        stream.given_up += peer.kept_runs
        stream.unacknowledged = []
        stream.sent = 0
        peer.out = []
        peer.out_bytes = 0
        peer.kept_runs = 0
        peer.kept_bytes = 0

    def _forget_one(self) -> None:
        """Make room: forget the longest known node that has no link now."""
        for node_id, stream in self.streams.items():
            if not stream.up and not stream.peer.routes and not stream.peer.shares:
                let_go(self.node, stream.peer, True)
                del self.streams[node_id]
                return
        raise FlockError(f"More than {PEERS_MAX} nodes are in this cluster: that is more than it can hold.")

    # --- in ---

    def _on_batch(self, stream: Stream, body: bytes, now: int) -> None:
        _, boot, sequence = BATCH_HEAD.unpack_from(body)
        peer = stream.peer
        if boot != stream.boot:
            return  # of a boot that said no HELLO: it is gone, or will
        if sequence:
            if sequence <= stream.taken:
                stream.repeated += 1
                stream.told = 0  # the peer did not get the acknowledgement
                peer.mark()
                return
            if sequence > stream.taken + 1:
                if now - stream.asked_at >= ASK_MS:
                    self._say_hello(stream, AGAIN, now)
                return
            stream.taken = sequence  # also when the batch can't be read: sending it again would not help
            peer.mark()
        node = self.node
        for parcel in read_parcels(body, BATCH_HEAD.size, now):
            peer.messages_in += parcel.run.count
            if not parcel.group:
                take_run(node, parcel.run, peer, now)
            elif not take_shared(node, parcel, peer, now):
                stream.lost_shared += parcel.run.count

    def _on_state(self, stream: Stream, body: bytes) -> None:
        _, boot, taken, flags = STATE_FORM.unpack(body)
        if boot != self.boot:
            return
        stream.acknowledge(taken)
        stream.peer.asked_to_wait = flags & WAIT != 0
        look_at_peer(self.node, stream.peer)

    def _on_hello(self, stream: Stream, body: bytes, now: int) -> None:
        _, boot, known_boot, taken, first, flags = HELLO_FORM.unpack(body)
        if boot < stream.boot or flags > FLAGS:
            return
        if boot > stream.boot:
            if stream.boot and stream.unacknowledged:
                self._give_up(stream)  # the peer restarted: the subscribers of these batches are gone
                flags |= ANSWER  # and must not wait for what will not come
            stream.boot = boot
            stream.taken = 0
        if first > stream.taken + 1:
            if stream.taken:
                stream.missed += first - 1 - stream.taken
            stream.taken = first - 1
        if known_boot == self.boot:
            stream.acknowledge(taken)
        peer = stream.peer
        if flags & AGAIN:
            flags |= ANSWER  # this node may have dropped what the peer misses: tell it the next sequence
        is_lost = stream.asks > taken  # links keep the order: batches sent before the question arrived before it
        stream.asks = 0
        if not peer.linked or is_lost or flags & AGAIN:
            stream.sent = 0
        self._set_linked(peer, stream.up)
        peer.asked_to_wait = flags & WAIT != 0
        peer.mark()
        if flags & ANSWER:
            self._say_hello(stream, 0, now)
