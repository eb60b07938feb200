"""MQTT over a byte stream: plain TCP, or TLS, which differs by the transport only.

```
 connection_made --> broker.open
 data_received ----> broker.receive --> (marks connections) --> flush, once per loop turn
 pause_writing ----> broker.pause_writing      the peer reads slowly: the broker holds back, bounded
 connection_lost --> broker.closed
 flush ------------> write connection.take(); then obey its wishes: closing, reading_paused
```
Goodbye: closing a socket with unread bytes in it makes the kernel reset the connection, and the peer may then lose our
last words (why it was refused). So we write, shut our side, throw away what still comes, and close when the peer
does; or after FAREWELL_MS, when it reads nothing or keeps talking.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from flockmq.drivers.admission import DROPPED
from flockmq.drivers.clock import now_ms
from flockmq.security.tls import subject_name

if TYPE_CHECKING:
    from flockmq.drivers.listeners import Listener
    from flockmq.session.connection import Connection

WRITE_BYTES_HIGH: Final = 262_144
WRITE_BYTES_LOW: Final = 65_536
PIECE_BYTES: Final = 1_024
"""Pieces that are shorter than that on average are joined before they are written."""


class Arrival:
    """A connection that was let in before its protocol began (by TLS or PROXY): its address and the verdict on it."""

    __slots__ = ("at", "certificate_name", "peer", "refuse_code")

    def __init__(self, peer: str, certificate_name: str | None, refuse_code: int, at: int) -> None:
        self.peer = peer
        self.certificate_name = certificate_name
        self.refuse_code = refuse_code
        self.at = at


def plain_peer(peername: object) -> str:
    """Address of a peer without port and zone; an IPv4 client is the same client when it came through IPv6."""
    host = str(peername[0]) if isinstance(peername, tuple) and peername else ""
    if host.startswith("::ffff:") and "." in host:
        return host[7:]
    return host.partition("%")[0]


class MqttProtocol(asyncio.Protocol):
    """One connection. ``connection`` is None until MQTT begins, and once it is over for the broker."""

    __slots__ = ("_arrival", "_counted", "_leaving", "_reading", "connection", "listener", "transport")

    def __init__(self, listener: Listener, arrival: Arrival | None = None) -> None:
        self.listener = listener
        self.transport: asyncio.Transport | None = None
        self.connection: Connection | None = None
        self._arrival = arrival
        self._counted = False
        self._reading = True
        self._leaving = False

    @property
    def began(self) -> bool:
        """Whether ``connection_lost`` will take it off the listener's count."""
        return self._counted

    # What the transport says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it, unless that was done, and begin."""
        self.transport = cast("asyncio.Transport", transport)
        arrival = self._arrival
        if arrival is None:
            now = now_ms()
            code = self.listener.admission.arrive(now)
            if code == DROPPED:
                self.transport.abort()
                return
            arrival = Arrival(plain_peer(transport.get_extra_info("peername")), None, code, now)
        self._counted = True
        if not self.listener.addresses:  # it was accepted in the moment in which the listener was stopped
            self.transport.abort()
            return
        self.transport.set_write_buffer_limits(high=WRITE_BYTES_HIGH, low=WRITE_BYTES_LOW)
        if arrival.certificate_name is None:
            arrival.certificate_name = subject_name(transport.get_extra_info("peercert"))
        self.begin(arrival)

    def begin(self, arrival: Arrival) -> None:
        """Start: with plain bytes, MQTT begins at once."""
        self.open(arrival)

    def data_received(self, data: bytes) -> None:
        """Hand bytes to the broker; after the goodbye they are thrown away."""
        connection = self.connection
        if connection is not None:
            self.receive(connection, data)

    def eof_received(self) -> None:
        """Write what the last bytes were answered with before the transport closes itself."""
        if self.connection is not None:
            self.flush(self.connection)

    def pause_writing(self) -> None:
        """Tell the broker that the peer reads too slowly."""
        if self.connection is not None:
            try:
                self.listener.runner.broker.pause_writing(self.connection)
            except Exception as error:
                self.fail("pause_writing", error)

    def resume_writing(self) -> None:
        """Tell the broker that there is room again."""
        connection = self.connection
        if connection is not None:
            try:
                self.listener.runner.broker.resume_writing(connection, now_ms())
            except Exception as error:
                self.fail("resume_writing", error)
                return
            self.flush(connection)
            self.listener.runner.flush_soon()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (how it was lost changes nothing)
        """Tell the broker, and let go of everything."""
        self.transport = None
        self._arrival = None
        self.close_for_broker()
        if self._counted:
            self.listener.admission.leave()
        if self._leaving:
            self.listener.runner.gone()

    # What the broker says

    def flush(self, connection: Connection) -> None:
        """Write what the connection holds and follow its wishes."""
        transport = self.transport
        if transport is None or self.connection is not connection:
            return
        try:
            chunks = connection.take()
            if chunks:
                self.write(transport, chunks)
            if connection.closing:
                connection.handle = None
                self.connection = None
                self.leave()
            elif (connection.reading_paused or connection.waits_turn) is self._reading:
                self._set_reading(transport, not self._reading)
        except Exception as error:
            self.fail("flush", error)

    def write(self, transport: asyncio.Transport, chunks: list[bytes]) -> None:
        """Write the bytes of one loop turn."""
        if len(chunks) == 1:
            transport.write(chunks[0])
        elif self.listener.tls is None and sum(map(len, chunks)) >= PIECE_BYTES * len(chunks):
            transport.writelines(chunks)
        else:  # TLS would make a record of each, and a transport has more work with many small pieces than a copy is
            transport.write(b"".join(chunks))

    # Steps that other transports share

    def open(self, arrival: Arrival) -> None:
        """Have the broker make a connection."""
        listener = self.listener
        self._arrival = None
        try:
            connection = listener.runner.broker.open(
                listener.name,
                listener.limits,
                arrival.peer,
                now_ms(),
                arrival.certificate_name,
                arrival.refuse_code,
                arrival.at,
            )
        except Exception as error:
            self.fail("open", error)
            return
        connection.handle = self
        self.connection = connection

    def receive(self, connection: Connection, data: bytes) -> None:
        """Hand MQTT bytes to the broker."""
        runner = self.listener.runner
        try:
            must_wait = runner.broker.receive(connection, data, now_ms())
            if must_wait and self._reading and self.transport is not None:
                self._set_reading(self.transport, False)  # at once: the loop would go on reading in the same turn
        except Exception as error:
            self.fail("receive", error)
        runner.note_read(len(data))

    def close_for_broker(self) -> None:
        """End the broker's connection, if it has one still."""
        connection = self.connection
        if connection is None:
            return
        self.connection = None
        connection.handle = None
        runner = self.listener.runner
        try:
            runner.broker.closed(connection, now_ms())
        except Exception as error:
            runner.fault("closed", error, listener=self.listener.name, peer=connection.peer)
        runner.flush_soon()

    def leave(self) -> None:
        """Shut our side after the last bytes; the peer has FAREWELL_MS to read them and to shut its own."""
        transport = self.transport
        if transport is None or self._leaving:
            return
        self._leaving = True
        self.listener.runner.say_farewell(self)
        if not transport.can_write_eof():
            transport.close()  # TLS says its own goodbye
            return
        try:
            transport.write_eof()
        except OSError:  # the peer was faster
            transport.abort()
            return
        if not self._reading:
            self._set_reading(transport, True)

    def deadline_passed(self) -> None:
        """Stop waiting for the peer."""
        if self.transport is not None:
            self.transport.abort()

    def fail(self, doing: str, error: Exception) -> None:
        """End this connection, and only this one, after an exception; it becomes an event."""
        peer = self.connection.peer if self.connection is not None else ""
        self.listener.runner.fault(doing, error, listener=self.listener.name, peer=peer)
        self.close_for_broker()
        if self.transport is not None:
            self.transport.abort()

    def _set_reading(self, transport: asyncio.Transport, reading: bool) -> None:
        self._reading = reading
        if reading:
            transport.resume_reading()
        else:
            transport.pause_reading()
