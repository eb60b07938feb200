"""The broker: bytes and time in, bytes out per connection. No socket, clock, file or thread in here.

```
             open   receive   closed   tick   auth_result           kick, publish, ...
               |       |        |       |          |                       |
             .-v-------v--------v-------v----------v-----------------------v--.
             |  Broker: packets of a read buffer, one loop     NodeState      |
             `----------------------------|-----------------------------------'
                                          v
              dirty: connections with something in ``out``, or to be closed, or to be (un)paused
```
A driver calls in, then walks ``take_dirty()`` once per loop turn and writes. The same object runs in tests from a seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt import reasons
from flockmq.mqtt.connect import protocol_level
from flockmq.mqtt.decode import decode_packet
from flockmq.mqtt.encode import PINGRESP
from flockmq.mqtt.namespaces import DOLLAR
from flockmq.mqtt.packets import (
    CONNECT,
    PUBLISH,
    Ack,
    Auth,
    Connect,
    Disconnect,
    Packet,
    Subscribe,
    Unsubscribe,
)
from flockmq.mqtt.properties import UNBOUNDED, Properties
from flockmq.mqtt.run import make_run
from flockmq.mqtt.scan import scan_run
from flockmq.mqtt.topics import check_topic_name
from flockmq.mqtt.varint import frame_length
from flockmq.node.acknowledging import on_ack, on_plain_acks
from flockmq.node.congestion import look_again, on_grace_over
from flockmq.node.connecting import (
    go_on_admitting,
    go_on_resuming,
    on_auth,
    on_connect,
    on_connection_timer,
    on_session_timer,
    on_will_timer,
    refuse,
    settle,
)
from flockmq.node.delaying import Delayed, take_delayed
from flockmq.node.events import Event
from flockmq.node.half_packets import on_packet_timer, watch_half
from flockmq.node.lifecycle import detach, disconnect, end_session, forget_connection, hang_up, send_will_now
from flockmq.node.namespaces import (
    NamespaceLimits,
    edge_subscribe,
    edge_unsubscribe,
    on_edge_publish,
    on_edge_run,
    set_listener_namespace,
    set_namespaces,
)
from flockmq.node.ports import AuthRequest, BrokerPorts, Gate, OpenGate, Refuse, Verdict
from flockmq.node.publishing import forwardable, on_publish, on_run, publish_message
from flockmq.node.retained_feed import feed_retained
from flockmq.node.reviewing import Review, ask_for_proof, go_on_reviewing, review
from flockmq.node.state import (
    AUTHORITY_TIMER,
    CONGESTION_TIMER,
    CONNECTION_TIMER,
    DELAYED_TIMER,
    PACKET_TIMER,
    RESUME_TIMER,
    SESSION_TIMER,
    SWEEP_TIMER,
    SYS_TIMER,
    WILL_TIMER,
    NodeState,
)
from flockmq.node.subscribing import on_subscribe, on_unsubscribe
from flockmq.node.sys_topics import publish_figures
from flockmq.node.turns import ACKS_SHIFT, BYTES_SHIFT, LIGHT_BYTES, LIGHT_FILTERS, PACKET, PING, RUN
from flockmq.session.bounds import stranger_bounds
from flockmq.session.connection import AUTHENTICATING, CLOSED, CONNECTED, NEW, Connection
from flockmq.session.session import Session
from flockmq.session.timers import Timer

if TYPE_CHECKING:
    import random

    from flockmq.node.settings import BrokerSettings, Limits

SWEEP_MS = 1_000
SWEEP_BUDGET = 1_000
CHUNK_BYTES = 4_096
"""Packets up to here are collected in one piece, larger ones in pieces of about this size."""
LEVEL_BYTES = 9
"""Of a CONNECT, without its fixed header: these tell which version it speaks."""
TOO_MANY_STRANGERS = "Too many connections wait to be let in; try again in a moment"
SHORT_BYTES = 128
"""Pieces up to this size are processed at once: waiting for more would gain nothing."""
ALL_WORK = 1 << 60
"""The share of a lost connection whose last packets are processed."""


class Broker:
    """The whole node; see the module."""

    def __init__(
        self,
        settings: BrokerSettings,
        gate: Gate,
        rng: random.Random,
        now: int,
        wall_ms: int = 0,
        version: str = "",
        node_id: int = 0,
        ports: BrokerPorts | None = None,
    ) -> None:
        """``ports``: the parts around the broker of a node among others; None: this node is alone."""
        node = NodeState(settings, gate, rng, now, wall_ms, self.finish, node_id, ports)
        self.node = node
        self.version = version
        self.overdue: list[Timer] = []
        self.settings = settings
        self.dirty = node.dirty
        self.sessions = node.sessions
        self.connections = node.connections
        self.retained = node.retained
        self.subscriptions = node.table
        self.bans = node.bans
        self.stats = node.stats
        if settings.sys_interval_ms:
            node.timers.add(now, SYS_TIMER, None)
        node.timers.add(now + SWEEP_MS, SWEEP_TIMER, None)

    # --- connections ---

    def open(
        self,
        listener: str,
        limits: Limits,
        peer: str,
        now: int,
        certificate_name: str | None = None,
        refuse_code: int = 0,
        accepted_at: int = 0,
    ) -> Connection:
        """A client's transport is there. With ``refuse_code`` its CONNECT will be answered by that and no more.

        ``accepted_at``: when it was accepted, if a handshake came first; its CONNECT is due so much earlier.
        """
        node = self.node
        node.next_connection += 1
        bounds = node.bounds.get(limits)
        if bounds is None:
            bounds = node.bounds[limits] = stranger_bounds(limits)
        connection = Connection(node.next_connection, listener, bounds, peer, now, node.dirty, node.stats)
        connection.certificate_name = certificate_name
        connection.tokens = limits.messages_per_s_max * 1000
        if refuse_code:
            connection.refusal = Refuse(refuse_code, "")
        else:
            ban = node.bans.current("address", peer, now)
            if ban is not None:
                connection.refusal = Refuse(reasons.BANNED, ban.reason)
        node.connections[connection.number] = connection
        node.strangers.arrive(connection)
        node.stats.connections_opened += 1
        if limits.connect_timeout_ms:
            due_at = (accepted_at or now) + limits.connect_timeout_ms
            connection.timer = node.timers.add(due_at, CONNECTION_TIMER, connection)
        self.send_strangers_away(now)
        return connection

    def is_banned(self, peer: str, now: int) -> bool:
        """Whether this address is banned: no need to go on with a handshake."""
        return self.node.bans.current("address", peer, now) is not None

    def receive(self, connection: Connection, data: bytes, now: int) -> bool:
        """Bytes from a client: any number of packets, cut anywhere. True: some wait for a turn, so read no more now."""
        if connection.phase == CLOSED:
            return False
        node = self.node
        node.now = now
        size = len(data)
        connection.bytes_in += size
        node.stats.bytes_in += size
        turns = node.turns
        if connection.waits_turn or turns.work >= turns.turn:
            self.put_off(connection, data)
        else:
            self.take_turn(connection, data, now)
        if connection.phase < CONNECTED:
            self.hold_for_stranger(connection, now)
        return connection.waits_turn

    def put_off(self, connection: Connection, data: bytes) -> None:
        """Other connections have used up this turn: keep the bytes for a later one."""
        chunks = connection.chunks
        if chunks is not None:
            chunks += data
            connection.missing -= len(data)
            if connection.missing > 0:
                return  # wait until the packet is complete
            connection.chunks = None
            connection.rest = bytes(chunks)
        else:
            connection.rest += data
        self.node.turns.wait(connection, len(connection.rest) > LIGHT_BYTES)

    def take_turn(self, connection: Connection, data: bytes, now: int) -> None:
        """Process the bytes of a connection, up to its share of the turn."""
        chunks = connection.chunks
        if chunks is not None:
            # A large packet comes in pieces: decode it once, when it is complete.
            chunks += data
            connection.missing -= len(data)
            if connection.missing > 0:
                return
            connection.chunks = None
            data = bytes(chunks)
        elif connection.rest:
            data = connection.rest + data
            connection.rest = b""
        turns = self.node.turns
        if connection.turn != turns.number:
            connection.turn = turns.number
            connection.turn_work = 0
        others = turns.work - connection.turn_work
        try:
            self.process(connection, data, now, others + turns.share, connection.is_lost)
        except RemoteProtocolError as error:
            self.protocol_error(connection, error, now)
        connection.turn_work = turns.work - others

    def finish(self, connection: Connection, now: int) -> None:
        """Process the remaining bytes of a connection, about one read, before another one takes over its session."""
        if connection.phase != CONNECTED or not (connection.waits_turn or connection.held_back):
            return
        data = connection.rest
        connection.rest = b""
        try:
            self.process(connection, data, now, ALL_WORK, True)
        except RemoteProtocolError as error:
            self.protocol_error(connection, error, now)

    def begin_turn(self) -> None:
        """A loop turn begins: go on with connections that wait, light ones first, at least one of the heavy ones."""
        turns = self.node.turns
        turns.number += 1
        turns.work = 0
        if not turns.waiting:
            return
        light, heavy = turns.lengths()
        while light and turns.work < turns.for_waiting:
            light -= 1
            self.go_on(turns.take_light())
        while heavy:
            heavy -= 1
            self.go_on(turns.take_heavy())
            if turns.work >= turns.for_waiting:
                break

    def go_on(self, connection: Connection | None) -> None:
        """A connection that waited for its turn has it."""
        if connection is None or connection.phase == CLOSED:
            return
        now = self.node.now
        connection.mark()  # it is read again when nothing waits any more
        try:
            self.take_turn(connection, b"", now)
        except Exception:  # a bug: the driver can't know which connection sent these bytes
            hang_up(self.node, connection, reasons.UNSPECIFIED_ERROR, "", now, True)
            raise
        if connection.is_lost:
            self.end_lost(connection, now)
        elif connection.phase < CONNECTED:
            self.hold_for_stranger(connection, now)

    def hold_for_stranger(self, connection: Connection, now: int) -> None:
        """Count the bytes held for a connection before its CONNACK, and make room when they are too many."""
        strangers = self.node.strangers
        is_judged = connection.phase == AUTHENTICATING and not connection.awaits_auth
        if is_judged and connection.rest and not connection.reading_paused:
            # The client did not wait for its CONNACK: its packets count if it is let in, even if it has gone meanwhile.
            # Go on reading a client that waits, to notice when it goes: then the gate's verdict is not needed.
            connection.reading_paused = True
            connection.mark()
        chunks = connection.chunks
        held = len(connection.rest) + connection.connect_bytes + (len(chunks) if chunks is not None else 0)
        strangers.hold(connection, held)
        self.send_strangers_away(now)

    def send_strangers_away(self, now: int) -> None:
        """Close connections that are not let in until the others are within their limits."""
        while True:
            surplus = self.node.strangers.surplus()
            if surplus is None:
                return
            self.stats.strangers_closed += 1
            if surplus.phase == AUTHENTICATING:
                refuse(self.node, surplus, "", reasons.SERVER_BUSY, TOO_MANY_STRANGERS, now)
            else:
                hang_up(self.node, surplus, reasons.SERVER_BUSY, TOO_MANY_STRANGERS, now, False)

    def process(self, connection: Connection, data: bytes, now: int, share: int, is_last: bool) -> None:
        """All packets of a buffer; an unfinished one is kept, and so is what comes after a pause or a turn."""
        node = self.node
        turns = node.turns
        connection.held_back = False
        pos = 0
        end = len(data)
        while pos < end:
            if connection.phase == CONNECTED:
                if turns.work >= share:
                    turns.wait(connection, True)
                    break
                if connection.reading_paused and not is_last:
                    connection.held_back = True
                    break
                first = data[pos]
                kind = first >> 4
                if kind == PUBLISH:
                    bounds = connection.bounds
                    run = scan_run(data, pos, end, connection.version, bounds.packet_bytes_max, bounds.properties_max)
                    if run is not None:
                        pos += len(run.wire)
                        turns.work += RUN
                        if connection.space is None and run.topic[0] != DOLLAR:
                            on_run(node, connection, run, now)
                        else:
                            on_edge_run(node, connection, run, now)
                        continue
                elif 4 <= kind <= 7:
                    after = on_plain_acks(node, connection, data, pos, end, now)
                    if after > pos:
                        turns.work += (after - pos) >> ACKS_SHIFT
                        pos = after
                        continue
                elif first == 0xC0 and pos + 1 < end and data[pos + 1] == 0:
                    pos += 2
                    turns.work += PING
                    connection.reply(PINGRESP)
                    continue
            elif connection.phase == CLOSED:
                return
            elif connection.phase == AUTHENTICATING and not connection.awaits_auth:
                break  # the gate is thinking; the rest waits
            header, total = frame_length(data, pos, end, connection.version)
            if total == 0:
                break
            packet_bytes_max = connection.bounds.packet_bytes_max
            if connection.phase == NEW and (connection.refusal is not None or total > packet_bytes_max):
                if self.refuse_unread(connection, data[pos : pos + header + LEVEL_BYTES], header, total, now):
                    return
                break  # until it is known which version it speaks
            if total > packet_bytes_max:  # before a byte of it is kept
                raise RemoteProtocolError(
                    reasons.PACKET_TOO_LARGE, f"A packet of {total} bytes; this listener takes {packet_bytes_max}"
                )
            if pos + total > end:
                self.check_first(connection, data[pos])
                if total > CHUNK_BYTES:
                    connection.chunks = bytearray(data[pos:])
                    connection.missing = pos + total - end
                    self.note_packets(connection, pos, end, now)
                    return
                break
            turns.work += PACKET
            self.packet(connection, data[pos], data[pos + header : pos + total], now)
            pos += total
        turns.work += pos >> BYTES_SHIFT
        if pos < end and connection.phase != CLOSED:
            connection.rest = data[pos:]
        if pos == end and pos:
            connection.last_read_at = now
            connection.half_since = 0
        else:
            self.note_packets(connection, pos, end, now)

    def note_packets(self, connection: Connection, pos: int, end: int, now: int) -> None:
        """Note when whole packets came, and since when one is incomplete: bytes alone keep no client alive."""
        if pos:
            connection.last_read_at = now
        if pos == end:
            connection.half_since = 0
        elif connection.phase == CONNECTED and (pos or not connection.half_since):
            watch_half(self.node, connection, now)

    def refuse_unread(self, connection: Connection, start: bytes, header: int, total: int, now: int) -> bool:
        """Refuse a CONNECT by its first bytes; False when too few are there to tell in which version."""
        self.check_first(connection, start[0])
        if len(start) < min(header + LEVEL_BYTES, total):
            return False
        level = protocol_level(start[header:])
        if level == 0:
            raise RemoteProtocolError(reasons.PROTOCOL_ERROR, "The first packet is not a CONNECT")
        connection.version = 5 if level >= 5 else 4
        refusal = connection.refusal
        if refusal is not None:
            refuse(self.node, connection, "", refusal.reason_code, refusal.text, now)
            return True
        self.stats.protocol_errors += 1
        text = f"A CONNECT of {total} bytes; this listener takes {connection.bounds.packet_bytes_max}"
        refuse(self.node, connection, "", reasons.PACKET_TOO_LARGE, text, now)
        return True

    def check_first(self, connection: Connection, first: int) -> None:
        """Refuse a first packet other than CONNECT, without waiting for the rest of it."""
        if connection.phase == NEW and first != 0x10:
            raise RemoteProtocolError(reasons.PROTOCOL_ERROR, "The first packet is not a CONNECT")  # [MQTT-3.1.0-1]

    def packet(self, connection: Connection, first: int, body: bytes, now: int) -> None:
        """One packet that the hot loop left."""
        node = self.node
        if connection.phase != CONNECTED:
            self.packet_before_connack(connection, first, body, now)
            return
        if first >> 4 == PUBLISH:
            if connection.space is None and body[2:3] != b"$":
                on_publish(node, connection, first, body, now)
            else:
                on_edge_publish(node, connection, first, body, now)
            return
        self.check_no_connect(first)
        filters_max = connection.limits.filters_max or UNBOUNDED
        packet = decode_packet(connection.version, first, body, connection.bounds.properties_max, filters_max)
        if isinstance(packet, Ack):
            on_ack(node, connection, packet, now)
        elif isinstance(packet, Subscribe):
            if connection.space is not None:
                edge_subscribe(connection.space, packet)
            on_subscribe(node, connection, packet)
        elif isinstance(packet, Unsubscribe):
            if connection.space is not None:
                edge_unsubscribe(connection.space, packet)
            on_unsubscribe(node, connection, packet)
        elif isinstance(packet, Disconnect):
            self.on_disconnect(connection, packet, now)
        elif isinstance(packet, Auth):
            on_auth(node, connection, packet, now)
        elif first == 0xC0:
            connection.reply(PINGRESP)
        else:
            self.unexpected(packet)

    def check_no_connect(self, first: int) -> None:
        """Refuse a second CONNECT, whatever is in it. [MQTT-3.1.0-2]"""
        if first >> 4 == CONNECT:
            raise RemoteProtocolError(reasons.PROTOCOL_ERROR, "CONNECT is sent once, and was")

    def unexpected(self, packet: Packet) -> None:
        """A packet that only servers send, or that does not belong here."""
        raise RemoteProtocolError(reasons.PROTOCOL_ERROR, f"{type(packet).__name__.upper()} is not expected here")

    def packet_before_connack(self, connection: Connection, first: int, body: bytes, now: int) -> None:
        """CONNECT first [MQTT-3.1.0-1], then at most AUTH until CONNACK is out."""
        if connection.phase == NEW:
            if first >> 4 != CONNECT:
                raise RemoteProtocolError(reasons.PROTOCOL_ERROR, "The first packet is not a CONNECT")
            connection.version = 5 if protocol_level(body) == 5 else 0
            connection.connect_bytes = len(body)
            try:
                packet = decode_packet(0, first, body, connection.bounds.properties_max)
            except RemoteProtocolError as error:
                self.bad_connect(connection, body, error, now)
                return
            if isinstance(packet, Connect):
                on_connect(self.node, connection, packet, now)
            return
        self.check_no_connect(first)
        packet = decode_packet(connection.version, first, body, connection.bounds.properties_max)
        if isinstance(packet, Auth):
            on_auth(self.node, connection, packet, now)
        elif isinstance(packet, Disconnect):
            hang_up(self.node, connection, packet.reason, "", now, False)
        else:
            self.unexpected(packet)

    def bad_connect(self, connection: Connection, body: bytes, error: RemoteProtocolError, now: int) -> None:
        """Refuse a malformed CONNECT, with a CONNACK where the protocol has a code, then close."""
        level = protocol_level(body)
        speaks_mqtt = level > 0 or body.startswith(b"\x00\x04MQTT\x00")
        self.stats.protocol_errors += 1
        if error.reason_code == reasons.UNSUPPORTED_PROTOCOL_VERSION and speaks_mqtt and level != 5:
            # Levels above 5 will understand the MQTT 5 answer, older ones the 3.1.1 answer. [MQTT-3.1.2-2]
            connection.version = 5 if level > 5 else 4
        elif error.reason_code == reasons.CLIENT_IDENTIFIER_NOT_VALID:
            connection.version = 5 if level == 5 else 4
        if connection.version:
            refuse(self.node, connection, "", error.reason_code, str(error), now)
        else:
            self.note_protocol_error(connection, error)
            hang_up(self.node, connection, error.reason_code, str(error), now, False)

    def protocol_error(self, connection: Connection, error: RemoteProtocolError, now: int) -> None:
        """The client broke the rules: its connection ends, with the reason where it can be told."""
        self.stats.protocol_errors += 1
        if connection.phase == AUTHENTICATING or (connection.phase == NEW and connection.version == 5):
            refuse(self.node, connection, "", error.reason_code, str(error), now)
            return
        self.note_protocol_error(connection, error)
        disconnect(self.node, connection, error.reason_code, str(error), now)

    def note_protocol_error(self, connection: Connection, error: RemoteProtocolError) -> None:
        """For the log."""
        session = connection.session
        self.node.events.note(
            "protocol_error",
            {
                "client_id": session.client_id if session is not None else None,
                "peer": connection.peer,
                "listener": connection.listener,
                "reason_code": error.reason_code,
                "reason": str(error),
            },
        )

    def on_disconnect(self, connection: Connection, packet: Disconnect, now: int) -> None:
        """The client says goodbye: with reason 0 its will is void, and it may change its session's expiry."""
        if packet.reason not in reasons.IN_DISCONNECT_FROM_CLIENT:  # [MQTT-3.14.2-1]
            raise RemoteProtocolError(
                reasons.PROTOCOL_ERROR, f"Only a server leaves with reason code 0x{packet.reason:02X}"
            )
        session = connection.session
        if session is not None and packet.properties is not None and packet.properties.session_expiry_s is not None:
            wanted = packet.properties.session_expiry_s
            if session.expiry_s == 0 and wanted != 0:
                # [MQTT-3.14.2-2] is for servers; a client that had no session to keep can't ask for one now
                raise RemoteProtocolError(reasons.PROTOCOL_ERROR, "The session expiry was 0 and can't be changed")
            longest = self.settings.session_expiry_s_max or wanted
            session.expiry_s = min(wanted, longest)
        hang_up(self.node, connection, packet.reason, "", now, packet.reason != reasons.NORMAL_DISCONNECTION)

    def closed(self, connection: Connection, now: int) -> None:
        """The transport is gone. Fine to call after the broker closed it."""
        connection.is_lost = True
        if connection.phase == CLOSED:
            return
        if self.node.turns.is_over() and connection.phase == CONNECTED:
            session = connection.session
            is_heavy = session is not None and len(session.subscriptions) > LIGHT_FILTERS
            self.node.turns.wait(connection, is_heavy)
        if connection.held_back and not connection.waits_turn:
            # No more bytes will come: process those held back, which may end with a DISCONNECT.
            self.take_turn(connection, b"", now)
        self.end_lost(connection, now)

    def end_lost(self, connection: Connection, now: int) -> None:
        """End a connection whose transport is gone, unless what it sent still waits for a turn."""
        if connection.phase == CLOSED:
            return
        if connection.waits_turn and (connection.phase < CONNECTED or self.node.turns.keep_lost(connection)):
            return
        was_connected = connection.phase == CONNECTED
        forget_connection(self.node, connection)
        session = connection.session
        if was_connected and session is not None and session.connection is connection:
            self.node.events.note(
                "disconnected",
                {
                    "client_id": session.client_id,
                    "username": session.username,
                    "peer": connection.peer,
                    "reason_code": None,
                    "reason": "Connection lost",
                },
            )
            detach(self.node, session, now, True)

    def pause_writing(self, connection: Connection) -> None:
        """The transport is full."""
        connection.blocked = True

    def resume_writing(self, connection: Connection, now: int) -> None:
        """The transport takes bytes again: write waiting bytes, continue the queue, let publishers go on."""
        connection.blocked = False
        connection.reply_bytes = 0
        connection.mark()
        session = connection.session
        if session is None or session.connection is not connection:
            return
        connection.start_reading_again()
        self.stats.dropped_queue += session.pump(now)
        look_again(self.node, connection)

    def take_dirty(self) -> list[Connection]:
        """Begin a turn; the connections a driver has to look at now."""
        self.begin_turn()
        return self.take_marked()

    def take_marked(self) -> list[Connection]:
        """The connections a driver has to look at now, in the middle of a turn."""
        taken = self.dirty[:]
        self.dirty.clear()
        is_hungry = False
        for connection in taken:
            if connection.waiting is not None or connection.out_of_grace:
                look_again(self.node, connection)
            if connection.held_back and not connection.reading_paused and not connection.waits_turn:
                self.receive(connection, b"", self.node.now)
            if connection.backlog is not None:
                is_hungry = True
        if is_hungry:
            self.feed([connection for connection in taken if connection.backlog is not None])
        return taken

    def feed(self, hungry: list[Connection]) -> None:
        """Send retained messages to subscribers that wait for some, the longest waiting first."""
        node = self.node
        if len(hungry) > 1:
            hungry.sort(key=fed_at)
        for index, connection in enumerate(hungry):
            if index and node.turns.is_over():  # one in any case: else turns that are always over would starve all
                connection.hungry = True
                continue
            connection.fed_at = node.turns.number
            feed_retained(node, connection, node.now)

    def has_more(self) -> bool:
        """Whether another turn is needed, whatever else comes."""
        return len(self.dirty) > 0 or self.node.turns.waiting > 0

    def take_answered(self) -> list[Connection]:
        """Of the connections to look at those that only have something short to write: nothing they said waits here."""
        taken: list[Connection] = []
        others: list[Connection] = []
        for connection in self.dirty:
            has_more = connection.held_back or connection.backlog is not None or connection.waiting is not None
            if has_more or connection.out_bytes > SHORT_BYTES:
                others.append(connection)
            else:
                taken.append(connection)
        self.dirty[:] = others
        return taken

    def auth_result(self, request: AuthRequest, verdict: Verdict, now: int) -> None:
        """The verdict that the gate did not have at once."""
        connection = self.connections.get(request.connection_id)
        if connection is None or connection.auth is not request or connection.phase == CLOSED:
            return
        settle(self.node, connection, verdict, now)
        if connection.phase != CLOSED and connection.rest:
            self.receive(connection, b"", now)

    def claimed(self, connection: Connection, now: int) -> None:
        """The answer to a claim that had to wait: the client id belongs to this node."""
        go_on_admitting(self.node, connection, now)
        if connection.phase != CLOSED and connection.rest:
            self.receive(connection, b"", now)

    # --- time ---

    def tick(self, now: int) -> None:
        """Do what has come due. Call about every 100 ms."""
        self.node.now = now
        reviews = self.node.reviews
        if reviews.waiting or reviews.pending is not None:
            go_on_reviewing(self.node, now)
        overdue = self.overdue
        overdue.extend(self.node.timers.due(now))
        overdue.reverse()
        turns = self.node.turns
        most = turns.work + turns.turn
        try:
            while overdue and turns.work < most:  # the others come with the next tick
                self.fire(overdue.pop(), now)
        finally:
            overdue.reverse()  # should one fail, the others come with the next tick

    def set_wall(self, wall_ms: int, now: int) -> None:
        """Take the present wall clock time; an operator may have set the clock since the start."""
        self.node.wall_offset_ms = wall_ms - now
        self.retained.wall_offset_ms = wall_ms - now

    def fire(self, timer: Timer, now: int) -> None:
        """One deadline has come, unless it was taken back while it waited for this tick."""
        if timer.is_off:
            return
        node = self.node
        kind = timer.kind
        subject = timer.subject
        if isinstance(subject, Connection):
            if kind == CONNECTION_TIMER:
                on_connection_timer(node, subject, now)
            elif kind == AUTHORITY_TIMER:
                subject.authority_timer = None
                disconnect(node, subject, reasons.NOT_AUTHORIZED, "What the client proved itself with has expired", now)
            elif kind == CONGESTION_TIMER:
                on_grace_over(node, subject, timer)
            elif kind == PACKET_TIMER:
                on_packet_timer(node, subject, now)
        elif isinstance(subject, Session):
            if kind == WILL_TIMER:
                on_will_timer(node, subject, now)
            elif kind == SESSION_TIMER:
                on_session_timer(node, subject, now)
        elif isinstance(subject, Delayed):
            if kind == DELAYED_TIMER:
                publish_message(node, take_delayed(node, subject), now, subject.sender)
        elif kind == SYS_TIMER:
            self.publish_sys(now)
            node.timers.add(now + self.settings.sys_interval_ms, SYS_TIMER, None)
        elif kind == SWEEP_TIMER:
            node.retained.sweep(now, SWEEP_BUDGET)
            node.timers.add(now + SWEEP_MS, SWEEP_TIMER, None)
        elif kind == RESUME_TIMER:
            go_on_resuming(node, now)

    def publish_sys(self, now: int) -> None:
        """Bring ``$SYS`` up to date."""
        publish_figures(self.node, now, self.version)

    def shutdown(self, now: int) -> None:
        """Say goodbye to all: wills first, while subscribers can hear them, then DISCONNECT 0x8B.

        Sessions live in memory and end here, so that wills with a delay are due as well.
        """
        self.node.stopping = True
        for session in list(self.sessions.values()):
            send_will_now(self.node, session, now)
        for connection in list(self.connections.values()):
            disconnect(self.node, connection, reasons.SERVER_SHUTTING_DOWN, "The broker is stopping", now)

    def move_out(self, now: int) -> None:
        """This node leaves its cluster, to which its clients and their sessions belong: they go to other nodes.

        Wills first, while there are other nodes to hear them. No client comes in any more.
        """
        self.node.moving = True
        for session in list(self.sessions.values()):
            send_will_now(self.node, session, now)
        for connection in list(self.connections.values()):
            disconnect(self.node, connection, reasons.USE_ANOTHER_SERVER, "This node leaves its cluster", now)
        for session in list(self.sessions.values()):
            end_session(self.node, session, now)

    # --- namespaces ---

    def set_namespaces(self, wanted: list[NamespaceLimits], now: int) -> None:
        """These exist beside the default one and those of listeners, with these limits. Call it before clients come."""
        set_namespaces(self.node, wanted, now)

    def set_listener_namespace(self, listener: str, namespace: str) -> None:
        """A client that comes through a listener and names no namespace is in this one, which exists from now on."""
        set_listener_namespace(self.node, listener, namespace)

    # --- rights ---

    def use_gate(self, gate: Gate, proving: frozenset[str], now: int) -> None:
        """Have another gate judge from now on, in place of an open one; clients that came through that are anonymous.

        ``proving`` are the namespaces whose clients have passwords.
        """
        if self.node.gate_is_open:
            ask_for_proof(self.node, proving, now)
        self.node.gate = gate
        self.node.gate_is_open = type(gate) is OpenGate

    def review(self, found: Review, now: int) -> None:
        """Users or rules of the gate have changed: have them hold for connected clients, too."""
        review(self.node, found, now)

    # --- the admin's side ---

    def take_events(self) -> list[Event]:
        """What happened since the last call."""
        return self.node.events.take()

    def publish(
        self, topic: bytes, payload: bytes, qos: int, retain: bool, now: int, properties: Properties | None = None
    ) -> int:
        """Publish in the broker's own name; how many receivers (clients, shared groups, other nodes) it has."""
        check_topic_name(topic, self.settings.limits.topic_levels_max, self.settings.limits.topic_bytes_max)
        expires_at = 0
        encoded = b""
        if properties is not None:
            encoded = forwardable(properties)
            if properties.message_expiry_s is not None:
                expires_at = now + max(properties.message_expiry_s * 1000, 1)
        publish_message(self.node, make_run(5, qos, retain, topic, payload, encoded, expires_at), now)
        plan = self.subscriptions.plan(topic)
        return len(plan.targets) + len(plan.groups) + len(plan.remotes)

    def kick(self, client_id: str, now: int) -> bool:
        """Disconnect a client; False when it is not connected."""
        session = self.sessions.get(client_id)
        if session is None or session.connection is None:
            return False
        disconnect(
            self.node, session.connection, reasons.ADMINISTRATIVE_ACTION, "Disconnected by an administrator", now
        )
        return True

    def end_session(self, client_id: str, now: int) -> bool:
        """Disconnect a client and forget its session; False when there is none."""
        session = self.sessions.get(client_id)
        if session is None:
            return False
        self.kick(client_id, now)
        if self.sessions.get(client_id) is session:
            end_session(self.node, session, now)
        return True


def fed_at(connection: Connection) -> int:
    """When a connection last got retained messages."""
    return connection.fed_at
