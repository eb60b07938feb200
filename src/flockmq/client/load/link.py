"""One client connection on a non-blocking socket, from dialling to counting.

```
 DIALLING --> SECURING --> UPGRADING --> GREETING --> SUBSCRIBING --> READY
   TCP          TLS        WebSocket     CONNECT      SUBSCRIBE        PUBLISH in blocks, everything received counted
```
Stages that a transport does not need are skipped. Writing takes a slice, writes it whole, then takes the next:
answers first, then the publisher's ring. So packets never cut into each other, and a TLS write that has to be
repeated is repeated with the same bytes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import time
from typing import Final, NamedTuple

from flockmq.client.load import frames
from flockmq.client.load.plan import Target
from flockmq.client.load.ring import NOTHING, Ring
from flockmq.errors import FlockError
from flockmq.mqtt.count import Tally
from flockmq.mqtt.reasons import NAMES
from flockmq.wire.upgrade import check_client_response, client_request
from flockmq.wire.websocket import FrameDecoder, encode_client_frame

DIALLING: Final = 0
SECURING: Final = 1
UPGRADING: Final = 2
GREETING: Final = 3
SUBSCRIBING: Final = 4
READY: Final = 5
STAGES: Final = ("dialling", "the TLS handshake", "the WebSocket handshake", "CONNECT", "SUBSCRIBE", "load")

READ_BYTES: Final = 262_144
READ_ROUNDS: Final = 4
READ_ROUNDS_TLS: Final = 64  # TLS hands out a record at a time, 16 KB
BUFFER: Final = memoryview(bytearray(READ_BYTES))
"""All links read into this one, one after the other: cheaper than a new large object for every read."""
WRITE_BYTES: Final = 131_072
UPGRADE_KEY: Final = b"flockmq load gen"
"""Sixteen bytes the broker must answer to; a secret is of no use here."""
WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Greeting(NamedTuple):
    """Fields of a client's CONNECT."""

    version: int
    client_id: str
    keep_alive_s: int = 60
    alias_maximum: int = 0
    persistent: bool = False
    """Whether the session is resumed, and outlives the connection."""


class Link:
    """One connection. The engine calls ``on_readable`` and ``on_writable``; ``wants_write`` says what to watch for."""

    def __init__(
        self,
        target: Target,
        greeting: Greeting,
        *,
        context: ssl.SSLContext | None = None,
        filters: list[str] | None = None,
        qos: int = 0,
        ring: Ring | None = None,
        timed: bool = False,
        key: bytes = b"\x00\x00\x00\x00",
    ) -> None:
        self.stage = DIALLING
        version = greeting.version
        self.client_id = greeting.client_id
        self.ring = ring
        self.tally = Tally(version, timed)
        self.granted = frames.Granted()
        self.wants_write = True
        self.running = False
        """Whether the ring may be sent on its own; the engine sets it when all are ready."""
        self.sock: socket.socket  # from dial() on
        self.dialled_ns = 0
        self.read_ns = 0
        """When the last bytes came, where latency is measured."""
        self._version = version
        self._target = target
        self._context = context
        self._filters = filters or []
        self._qos = qos
        self._key = key
        self._subacks_due = 0
        self._pending: memoryview = NOTHING
        self._control: list[bytes] = []  # MQTT, still to be framed where there are frames
        self._framed: list[bytes] = []  # ready to write as it is
        self._head = b""
        self._decoder = FrameDecoder(from_client=False) if target.websocket else None
        self._connect = frames.connect(
            version,
            greeting.client_id,
            greeting.keep_alive_s,
            target.username,
            target.password,
            greeting.alias_maximum if version == 5 else 0,
            persistent=greeting.persistent,
        )

    def dial(self, address: tuple[str, int], family: int, source: str = "") -> None:
        """Begin to connect; ``source`` is the local address to use."""
        self.dialled_ns = time.monotonic_ns()
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if source:
            # Without this a port is taken per source address, not per pair of addresses, and they run out early.
            self.sock.setsockopt(socket.IPPROTO_IP, getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24), 1)
            self.sock.bind((source, 0))
        with contextlib.suppress(BlockingIOError):
            self.sock.connect(address)
        if self._context is None:
            self._introduce()  # on loopback the connection stands already; elsewhere the socket says to wait

    def close(self) -> None:
        """Send DISCONNECT where there is a connection, and close."""
        with contextlib.suppress(OSError):
            if self.stage == READY and not self._pending:
                goodbye = frames.GOODBYE
                self.sock.send(encode_client_frame(goodbye, self._key) if self._decoder else goodbye)
        self.sock.close()

    def send(self, packet: bytes) -> None:
        """Queue a packet that is not of the ring."""
        self._control.append(packet)

    def on_writable(self) -> None:
        """The socket has room (or is connected at last)."""
        if self.stage <= SECURING:
            self._proceed()
        else:
            self.flush()

    def on_readable(self) -> bool:
        """Read and count; True when something came.

        More is read in a turn than is written, else this client itself would be the slow reader it is to measure.
        """
        if self.stage <= SECURING:
            self._proceed()
            return True
        came = False
        try:
            for _ in range(READ_ROUNDS if self._context is None else READ_ROUNDS_TLS):
                count = self.sock.recv_into(BUFFER)
                if not count:
                    raise self._ended()
                came = True
                if self.tally.timed:
                    self.read_ns = time.monotonic_ns()
                self._take_in(bytes(BUFFER[:count]))
                if count < READ_BYTES and self._context is None:
                    break
        except WOULD_BLOCK:
            pass
        except OSError as error:
            raise self._ended(error) from error
        if self._control or self._framed:
            self.flush()
        return came

    def flush(self, bytes_max: int = 2 * WRITE_BYTES) -> bool:
        """Write answers and as much of the ring as window and socket take; False when the socket is full."""
        written = 0
        try:
            while written < bytes_max:
                if not self._pending:
                    self._pending = self._next()
                    if not self._pending:
                        break
                count = self.sock.send(self._pending)
                written += count
                self._pending = self._pending[count:] if count < len(self._pending) else NOTHING
        except WOULD_BLOCK:
            self.wants_write = True
            return False
        except OSError as error:
            raise self._ended(error) from error
        self.wants_write = False
        return True

    def push(self, units: bytes) -> None:
        """Queue units of the ring that were taken by the caller, as they are."""
        self._framed.append(units)

    @property
    def written(self) -> bool:
        """Whether everything handed over so far is with the system."""
        return not self._pending and not self._control and not self._framed

    def _next(self) -> memoryview:
        if self._framed:
            block = b"".join(self._framed)
            self._framed.clear()
            return memoryview(block)
        if self._control:
            block = b"".join(self._control)
            self._control.clear()
            framed = self.stage > UPGRADING and self._decoder is not None
            return memoryview(encode_client_frame(block, self._key) if framed else block)
        if self.ring is None or not self.running:
            return NOTHING
        return self.ring.take(self.tally.completed, WRITE_BYTES)

    def _take_in(self, data: bytes) -> None:
        if self.stage == UPGRADING:
            data = self._upgraded(data)
        if self._decoder is not None and self.stage > UPGRADING:
            data = self._decoder.feed(data)
            reply = self._decoder.take_reply()
            if reply:  # a pong, or the echo of a close, without the mask that a client owes
                self._framed.append(encode_client_frame(reply[2:], self._key, reply[0]))
        if data:
            answers = self.tally.feed(data)
            if answers:
                self._control.append(answers)
            if self.tally.others:
                self._heed()

    def _proceed(self) -> None:
        """Go on with the set-up below MQTT as far as the socket lets us."""
        if self.stage == DIALLING and self._context is not None:
            problem = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if problem:
                raise FlockError(f"No connection to {self._target.host}:{self._target.port}: {os.strerror(problem)}")
            self.sock = self._context.wrap_socket(
                self.sock, server_hostname=self._target.host, do_handshake_on_connect=False
            )
            self.stage = SECURING
        if isinstance(self.sock, ssl.SSLSocket):
            try:
                self.sock.do_handshake()
            except ssl.SSLWantReadError:
                self.wants_write = False
                return
            except ssl.SSLWantWriteError:
                self.wants_write = True
                return
            except OSError as error:
                raise FlockError(
                    f"TLS with {self._target.host}:{self._target.port} failed: {error}; "
                    "name the authority with --ca-file, or measure with --insecure"
                ) from error
        self._introduce()

    def _introduce(self) -> None:
        """Say the first thing above TCP or TLS."""
        if self._decoder is not None:
            self.stage = UPGRADING
            host = f"{self._target.host}:{self._target.port}"
            self.send(client_request(host, self._target.path, UPGRADE_KEY))
        else:
            self.stage = GREETING
            self.send(self._connect)
        self.flush()

    def _upgraded(self, data: bytes) -> bytes:
        """Collect the head of the HTTP answer; what follows it is already frames."""
        self._head += data
        rest = check_client_response(self._head, UPGRADE_KEY)
        if rest is None:
            return b""
        self._head = b""
        self.stage = GREETING
        self.send(self._connect)
        return rest

    def _heed(self) -> None:
        """Look at the packets that are not part of the flow."""
        for packet in self.tally.others:
            kind = packet[0] >> 4
            if kind == frames.CONNACK:
                self._welcomed(packet)
            elif kind == frames.SUBACK:
                self._subscribed(packet)
            elif kind == frames.DISCONNECT:
                code = packet[2] if len(packet) > 2 else 0
                raise FlockError(f"The broker disconnected {self.client_id}: {NAMES.get(code, hex(code))}")
        self.tally.others.clear()

    def _welcomed(self, packet: bytes) -> None:
        self.granted = frames.read_connack(self._version, packet)
        if self.ring is not None:
            self.ring.limit_window(self.granted.receive_maximum)
            if self.ring.units.preamble_count > self.granted.topic_alias_maximum:
                raise FlockError(
                    f"{self.ring.units.preamble_count} topic aliases are needed and the broker grants "
                    f"{self.granted.topic_alias_maximum}; use more publishers or fewer topics"
                )
        if not self._filters:
            self.stage = READY
            return
        self.stage = SUBSCRIBING
        for packet_ in frames.subscribes(self._version, self._filters, self._qos):
            self.send(packet_)
            self._subacks_due += 1
        self._filters = []

    def _subscribed(self, packet: bytes) -> None:
        frames.read_suback(self._version, packet)
        self._subacks_due -= 1
        if self._subacks_due == 0:
            self.stage = READY

    def _ended(self, error: OSError | None = None) -> FlockError:
        where = f"{self._target.host}:{self._target.port}"
        if isinstance(error, ConnectionRefusedError):
            return FlockError(f"No connection to {where}: no program listens there. Is the broker running?")
        why = f" ({error.strerror or error})" if error is not None else ""
        during = STAGES[self.stage]
        return FlockError(f"The broker at {where} closed the connection of {self.client_id} during {during}{why}")
