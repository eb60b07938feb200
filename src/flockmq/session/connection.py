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
    from flockmq.node.ports import AuthRequest, Identity
    from flockmq.node.settings import Limits
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

PACKET_BYTES_MAX: Final = 268_435_460
"""No packet is larger."""

OUT_PIECES_MAX: Final = 1_024
"""Pieces of messages that wait one by one for a client that does not read."""


class Connection:
    """State of one network connection; lives as long as the transport does."""

    def __init__(
        self,
        number: int,
        listener: str,
        limits: Limits,
        peer: str,
        now: int,
        dirty_connections: list[Connection],
        stats: Stats,
    ) -> None:
        self.number = number
        self.listener = listener
        self.limits = limits
        self.peer = peer
        self.handle: object = None
        self.certificate_name: str | None = None
        self.space: Space | None = None
        """The namespace it is in once it is connected; None: the default one, and nothing there is limited."""
        self.refuse_code = 0
        self.refuse_text = ""
        self.phase = NEW
        self.version = 0
        self.session: Session | None = None
        self.identity: Identity | None = None
        self.auth: AuthRequest | None = None
        self.auth_method: str | None = None
        self.awaits_auth = False
        self.admission: object = None
        self.admitted_as: str | None = None
        """The proved name of who is let in, and may still wait for its CONNACK."""
        self.expiry_asked = 0
        # reading
        self.rest: bytes = b""
        self.chunks: bytearray | None = None
        """A large packet as far as it has arrived; ``missing`` bytes are still to come."""
        self.missing = 0
        self.reading_paused = False
        self.held_back = False
        """Reading was paused in the middle of a buffer: whole packets may stand in ``rest``."""
        self.waits_turn = False
        """It has had its share of a loop turn, or others had the turn: bytes wait in ``rest`` for a later one."""
        self.turn = 0
        self.turn_work = 0
        """What was done for it in the turn with that number."""
        self.is_lost = False
        """Its transport is gone; what it sent before that still waits for its turn."""
        self.lost_bytes = 0
        """Of those so many were counted."""
        self.fed_at = 0
        """The turn in which it last got retained messages."""
        self.held_bytes = 0
        """What is held for it while it is not let in."""
        self.connect_bytes = 0
        """Size of its CONNECT, while that is being judged."""
        self.packet_max = min(limits.connect_bytes_max or PACKET_BYTES_MAX, limits.packet_bytes_max or PACKET_BYTES_MAX)
        self.properties_max = limits.connect_properties_max or PACKET_BYTES_MAX
        self.topic_bytes_max = limits.topic_bytes_max
        self.topic_levels_max = limits.topic_levels_max
        self.messages_per_s_max = limits.messages_per_s_max
        """Limits that every message is held against stand here too: ``limits`` is interpreted, and slow to read."""
        self.last_read_at = now
        """When the last whole packet came, or when it was listened to again."""
        self.half_since = 0
        """Since when a packet has begun and is not all there; 0: none has."""
        self.timer: Timer | None = None
        self.packet_timer: Timer | None = None
        self.authority_timer: Timer | None = None
        self.keep_alive_ms = 0
        self.keep_alive_s = 0
        self.connected_at = now
        self.tokens = 0
        self.tokens_at = now
        # writing
        self.out: list[bytes] = []
        self.out_joined = 0
        """How many pieces at the beginning of ``out`` are large ones, put together from many."""
        self.out_bytes = 0
        self.reply_bytes = 0
        self.out_max = limits.write_bytes_max or 1 << 62
        self.blocked = False
        self.closing = False
        self.dirty = False
        self.dirty_connections = dirty_connections
        self.stats = stats
        self.backlog: object = None
        """Retained messages that are still to be sent (a RetainedFeed)."""
        self.hungry = False
        """The backlog can go on in the next loop turn."""
        # what the client said in CONNECT (MQTT 5)
        self.client_packet_max = 0
        self.client_receive_max = 65_535
        self.client_alias_max = 0
        self.wants_problem_information = True
        self.wants_places = False
        """Whether it wants to know partition and offset of what it publishes to durable topics."""
        self.aliases_in: dict[int, bytes] | None = None
        self.aliases_out: dict[bytes, int] | None = None
        # what the gate allowed, by topic, while verdicts_version is current
        self.verdicts: dict[bytes, bool] | None = None
        self.verdicts_version = 0
        # congestion: publishers that wait for this subscriber, and whether it used up its grace
        self.waiting: dict[int, Connection] | None = None
        self.congestion_timer: Timer | None = None
        self.waits_for = 0
        self.out_of_grace = False
        # durable topics: acknowledgements that wait for a log, and PUBCOMPs that do
        self.acks: AckQueue | None = None
        self.releases: AckQueue | None = None
        # counters
        self.messages_in = 0
        self.messages_out = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.dropped = 0

    def let_in(self) -> None:
        """From now on it may send larger packets."""
        self.phase = CONNECTED
        self.packet_max = self.limits.packet_bytes_max or PACKET_BYTES_MAX
        self.properties_max = self.limits.properties_max or PACKET_BYTES_MAX

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
        if size > self.out_max:
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
        return self.out_bytes * 2 > self.out_max

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
                self.mark()  # if the transport took it all, those who wait for this client can go on
        return taken

    def start_reading_again(self) -> None:
        """Lift the pause, unless publishers' congestion still asks for it."""
        if self.waits_for == 0 and self.reply_bytes <= REPLY_BYTES_MAX and self.phase == CONNECTED:
            self.reading_paused = False
            self.mark()
