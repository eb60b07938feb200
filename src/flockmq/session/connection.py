"""One client connection: what is to be written, what was half read, and what the client said it can take.

The broker puts bytes into ``out`` and the connection on the list of dirty ones; the driver writes once per loop turn.

```
 send()/reply() --> out --> driver's transport --> socket
                     ^            |
   bounded here      `-- blocked -'  the transport is full: bytes stay in ``out``, messages beyond the bound are dropped
```
Replies to a client that does not read them are bounded by no longer reading from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.session.acks import AckQueue
from flockmq.session.stats import Stats

if TYPE_CHECKING:
    from flockmq.node.ports import AuthRequest, Identity, Refuse
    from flockmq.node.settings import Limits
    from flockmq.session.bounds import Bounds
    from flockmq.session.session import Session
    from flockmq.session.space import Space
    from flockmq.session.timers import Timer

# Phases of a connection, in order.
NEW: Final = 0
"""Nothing but a CONNECT is welcome."""
AUTHENTICATING: Final = 1
"""CONNECT is read, the gate thinks or waits for AUTH packets."""
CONNECTED: Final = 2
CLOSED: Final = 3

REPLY_BYTES_MAX: Final = 65_536
"""Replies held for a client that does not read before the broker stops reading from it."""

OUT_PIECES_MAX: Final = 1_024
"""Pieces of messages that wait one by one for a client that does not read."""


class Connection:
    """State of one network connection; lives as long as the transport does."""

    handle: object = None
    certificate_name: str | None = None
    space: Space | None = None
    """The namespace of the client once it is connected; None: the default one, and nothing there is limited."""
    refusal: Refuse | None = None
    """Its CONNECT will be answered by that and no more."""
    phase: int = NEW
    version: int = 0
    session: Session | None = None
    identity: Identity | None = None
    auth: AuthRequest | None = None
    auth_method: str | None = None
    admission: object = None
    admitted_as: str | None = None
    """The proved name of a client that is let in, and may still wait for its CONNACK."""

    # flags: a byte each while they stand together, eight where they do not
    awaits_auth: bool = False
    reading_paused: bool = False
    held_back: bool = False
    """Reading was paused in the middle of a buffer: whole packets may stand in ``rest``."""
    waits_turn: bool = False
    """The connection had its share of a loop turn, or others had the turn: bytes wait in ``rest`` for a later one."""
    is_lost: bool = False
    """The transport is gone; bytes that the client sent before that still wait for their turn."""
    blocked: bool = False
    closing: bool = False
    dirty: bool = False
    hungry: bool = False
    """The backlog can go on in the next loop turn."""
    wants_problem_information: bool = True
    wants_places: bool = False
    """Whether the client wants to know partition and offset of messages that it publishes to durable topics."""
    out_of_grace: bool = False

    # reading
    rest: bytes = b""
    chunks: bytearray | None = None
    """A large packet as far as it has arrived; ``missing`` bytes are still to come."""
    missing: int = 0
    turn: int = 0
    turn_work: int = 0
    """Work that was done for this connection in the turn with the number ``turn``."""
    fed_at: int = 0
    """The turn in which the client last got retained messages."""
    held_bytes: int = 0
    """Bytes that are held for this connection while it is not let in."""
    connect_bytes: int = 0
    """Size of the CONNECT, while that is being judged."""
    half_since: int = 0
    """Since when a packet has begun and is not all there; 0: none has."""
    timer: Timer | None = None
    packet_timer: Timer | None = None
    authority_timer: Timer | None = None
    keep_alive_s: int = 0
    tokens: int = 0

    # writing
    out_joined: int = 0
    """How many pieces at the beginning of ``out`` are large ones, put together from many."""
    out_bytes: int = 0
    reply_bytes: int = 0
    backlog: object = None
    """Retained messages that are still to be sent (a RetainedFeed)."""

    # what the client said in CONNECT (MQTT 5)
    client_packet_max: int = 0
    client_alias_max: int = 0
    aliases_in: dict[int, bytes] | None = None
    aliases_out: dict[bytes, int] | None = None

    # what the gate allowed, by topic, while verdicts_version is current
    verdicts: dict[bytes, bool] | None = None
    verdicts_version: int = 0

    # congestion: publishers that wait for this subscriber, and whether it used up its grace
    waiting: dict[int, Connection] | None = None
    congestion_timer: Timer | None = None
    waits_for: int = 0

    # durable topics: acknowledgements that wait for a log, and PUBCOMPs that do
    acks: AckQueue | None = None
    releases: AckQueue | None = None

    # counters
    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    dropped: int = 0

    def __init__(
        self,
        number: int,
        listener: str,
        bounds: Bounds,
        peer: str,
        now: int,
        dirty_connections: list[Connection],
        stats: Stats,
    ) -> None:
        self.number = number
        self.listener = listener
        self.bounds = bounds
        self.peer = peer
        self.last_read_at = now
        """When the last whole packet came, or when reading went on."""
        self.connected_at = now
        self.tokens_at = now
        self.out: list[bytes] = []
        self.dirty_connections = dirty_connections
        self.stats = stats

    def let_in(self) -> None:
        """From now on it may send larger packets."""
        self.phase = CONNECTED
        if self.bounds.of_clients is not None:
            self.bounds = self.bounds.of_clients

    @property
    def limits(self) -> Limits:
        """All limits of its listener; those that every message is held against are read faster from ``bounds``."""
        return self.bounds.limits

    def mark(self) -> None:
        """Have the driver look at this connection in this loop turn."""
        if not self.dirty:
            self.dirty = True
            self.dirty_connections.append(self)

    def reply(self, data: bytes) -> None:
        """Write an answer or other control packet; never dropped."""
        self.out.append(data)
        self.out_bytes += len(data)
        if self.blocked:
            self.reply_bytes += len(data)
            if self.reply_bytes > REPLY_BYTES_MAX:
                self.reading_paused = True
        if not self.dirty:
            self.dirty = True
            self.dirty_connections.append(self)

    def answer(self, data: bytes) -> None:
        """Write an answer that may have grown larger than the client accepts: then it is not sent. [MQTT-3.1.2-25]"""
        if not self.client_packet_max or len(data) <= self.client_packet_max:
            self.reply(data)

    def acknowledge(self, data: bytes) -> None:
        """Write a PUBACK or PUBREC, not before those of earlier messages."""
        acks = self.acks
        if acks is None or not acks.is_waiting():
            self.reply(data)
        else:
            acks.say(data)

    def complete(self, data: bytes) -> None:
        """Write a PUBCOMP, not before those of earlier PUBRELs."""
        releases = self.releases
        if releases is None or not releases.is_waiting():
            self.reply(data)
        else:
            releases.say(data)

    def go_on_answering(self) -> None:
        """Some that waited need not wait any more."""
        if self.phase != CONNECTED:
            return
        for queue in (self.acks, self.releases):
            if queue is not None:
                data = queue.take()
                if data:
                    self.reply(data)

    def count_out(self, qos: int, count: int) -> None:
        """QoS 1 or 2 messages were written."""
        self.messages_out += count
        if qos == 1:
            self.stats.publishes_out_qos1 += count
        else:
            self.stats.publishes_out_qos2 += count

    def send(self, data: bytes, count: int) -> bool:
        """Write QoS 0 messages; False when the client reads so slowly that they are dropped instead."""
        size = self.out_bytes + len(data)
        if size > self.bounds.write_bytes_max:
            self.dropped += count
            return False
        self.out.append(data)
        self.out_bytes = size
        self.messages_out += count
        if self.blocked and len(self.out) - self.out_joined > OUT_PIECES_MAX:
            self.join_out()
        if not self.dirty:
            self.dirty = True
            self.dirty_connections.append(self)
        return True

    def join_out(self) -> None:
        """Put small pieces that wait together: each would cost an object, several times its bytes."""
        self.out[self.out_joined :] = [b"".join(self.out[self.out_joined :])]
        self.out_joined += 1

    def is_crowded(self) -> bool:
        """Whether publishers should wait for this client to read."""
        return self.out_bytes * 2 > self.bounds.write_bytes_max

    def take(self) -> list[bytes]:
        """What to write now, in order: everything, or nothing while the transport is full."""
        self.dirty = False
        if self.hungry:
            self.hungry = False
            self.mark()
        if self.blocked and not self.closing:
            return []
        taken = self.out
        if taken:
            self.out = []
            self.out_joined = 0
            self.bytes_out += self.out_bytes
            self.stats.bytes_out += self.out_bytes
            self.out_bytes = 0
            if self.waiting is not None or self.out_of_grace:
                self.mark()  # if the transport took it all, publishers that wait for this client can go on
        return taken

    def start_reading_again(self) -> None:
        """Lift the pause, unless publishers' congestion still asks for it."""
        if self.waits_for == 0 and self.reply_bytes <= REPLY_BYTES_MAX and self.phase == CONNECTED:
            self.reading_paused = False
            self.mark()
