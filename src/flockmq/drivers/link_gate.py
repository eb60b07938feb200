"""The door of a node: a caller has to say HELLO before anything else is done for it.

```
 accept --> Arrival: a bare socket, 1,200 bytes of HELLO, nothing said
                |  wrong: closed, without a word
                v
            TLS, if HELLO asks for it --> Connection --> proved, or gone
```
Before HELLO a caller costs a file descriptor and a timer; not even TLS is spoken with strangers. There is one deadline
from accept to proof, and a bound for how many may be on the way: one more, and the oldest is dropped.
"""

from __future__ import annotations

import asyncio
import errno
import secrets
import socket
from typing import TYPE_CHECKING, Final

from flockmq.drivers.causes import cause
from flockmq.drivers.link_connection import Connection
from flockmq.drivers.tcp import plain_peer
from flockmq.wire import hello

if TYPE_CHECKING:
    from flockmq.drivers.link_settings import LinkSettings
    from flockmq.drivers.links import Links

ACCEPTS_PER_TURN: Final = 64
NONCES_MAX: Final = 8_192
RETRY_S: Final = 1.0
NO_MORE_FILES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Gate:
    """Accepts callers on any number of sockets."""

    def __init__(self, links: Links) -> None:
        self.links = links
        self.loop = links.loop
        self.strangers: dict[Arrival, None] = {}
        """Callers without a HELLO, the oldest first."""
        self.proving: dict[Arrival, None] = {}
        """Callers with a right HELLO."""
        self.tasks: set[asyncio.Task[None]] = set()
        self._nonces: dict[bytes, None] = {}
        """Of right HELLOs, the oldest first: a caller that repeats one has only overheard it."""
        self._listening: list[socket.socket] = []
        self._paused = False

    def open(self, sockets: list[socket.socket]) -> None:
        """Accept on these sockets, which listen."""
        for one in sockets:
            self._listening.append(one)
            self.loop.add_reader(one.fileno(), self._accept, one)

    def close(self) -> None:
        """Accept no more, and end what is on the way."""
        for one in self._listening:
            self.loop.remove_reader(one.fileno())
            one.close()
        self._listening.clear()
        for arrival in [*self.strangers, *self.proving]:
            arrival.end()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                accepted, peername = listening.accept()
            except OSError as error:
                if error.errno in NO_MORE_FILES:
                    # Accepting would fail again at once: wait until connections have closed.
                    self.links.events.note("link_accept_failed", {"reason": error.strerror})
                    self._pause()
                return
            try:
                accepted.setblocking(False)
                tune(accepted, self.links.settings)
            except OSError:  # gone already
                accepted.close()
                continue
            Arrival(self, accepted, plain_peer(peername))
            make_room(self.strangers, self.links.settings.unproven_max)

    def is_repeat(self, nonce: bytes) -> bool:
        """Whether a HELLO that is right was here before; strangers can't fill what is remembered of them."""
        if nonce in self._nonces:
            return True
        if len(self._nonces) >= NONCES_MAX:
            del self._nonces[next(iter(self._nonces))]
        self._nonces[nonce] = None
        return False

    def _pause(self) -> None:
        for one in self._listening:
            self.loop.remove_reader(one.fileno())
        if not self._paused:
            self._paused = True
            self.loop.call_later(RETRY_S, self._resume)

    def _resume(self) -> None:
        self._paused = False
        for one in self._listening:
            self.loop.add_reader(one.fileno(), self._accept, one)


def make_room(arrivals: dict[Arrival, None], most: int) -> None:
    """Drop those that have been there longest."""
    while len(arrivals) > most:
        oldest = next(iter(arrivals))
        oldest.refuse(hello.HelloError(hello.TOO_MANY, "Too many callers have not proved themselves; the oldest goes."))


class Arrival:
    """A caller from accept to proof."""

    def __init__(self, gate: Gate, accepted: socket.socket, address: str) -> None:
        self._gate = gate
        self._socket: socket.socket | None = accepted
        """As long as it is ours."""
        self._address = address
        self._hello = b""
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._deadline = gate.loop.call_later(gate.links.settings.connect_ms / 1_000, self._too_late)
        gate.strangers[self] = None
        gate.loop.add_reader(accepted.fileno(), self._readable)

    def end(self) -> None:
        """Close whatever there is; a connection that is up stays."""
        gate = self._gate
        self._deadline.cancel()
        gate.strangers.pop(self, None)
        gate.proving.pop(self, None)
        if self._socket is not None:
            gate.loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        if self._task is not None:
            self._task.cancel()
            self._task = None
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_up:
            connection.abort()

    def refuse(self, error: hello.HelloError) -> None:
        """Not a word, but a note."""
        if self in self._gate.strangers or self in self._gate.proving:
            self._gate.links.note_refused(self._address, error)
            self.end()

    def _too_late(self) -> None:
        self.refuse(hello.HelloError(hello.TIMEOUT, "A caller took too long to prove that it is a node."))

    def _readable(self) -> None:
        accepted = self._socket
        if accepted is None:
            return
        try:
            data = accepted.recv(hello.HELLO_BYTES - len(self._hello))  # TLS needs what follows: not a byte too many
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.end()
            return
        if not data:  # a health check that only connects
            self.end()
            return
        self._hello += data
        if not hello.looks_like_hello(self._hello):
            self.refuse(hello.HelloError(hello.NOT_OURS, hello.NO_NODE))
        elif len(self._hello) == hello.HELLO_BYTES:
            self._knock(accepted)

    def _knock(self, accepted: socket.socket) -> None:
        links = self._gate.links
        handshake = hello.Callee(links.key, links.me, secrets.token_bytes(hello.NONCE_BYTES))
        try:
            handshake.knock(self._hello)
            if self._gate.is_repeat(handshake.caller_nonce()):
                raise hello.HelloError(hello.REPEAT, "A caller repeats what a node has said; look at the network.")
            if not handshake.wants_tls and not links.tls.allows_plain(self._address):
                text = "A node calls without TLS from another machine; set link_tls to the same on both nodes."
                raise hello.HelloError(hello.PLAIN, text, handshake.peer)
        except hello.HelloError as error:
            self.refuse(error)
            return
        self._hello = b""
        self._gate.loop.remove_reader(accepted.fileno())
        del self._gate.strangers[self]
        self._gate.proving[self] = None
        make_room(self._gate.proving, links.settings.unproven_max)
        if self in self._gate.proving:
            self._task = links.loop.create_task(self._connect(accepted, handshake))
            self._gate.tasks.add(self._task)
            self._task.add_done_callback(self._gate.tasks.discard)

    async def _connect(self, accepted: socket.socket, handshake: hello.Callee) -> None:
        links = self._gate.links
        self._socket = None  # from here on the loop closes it when it fails
        tls = links.tls if handshake.wants_tls else None
        self._connection = connection = Connection(links, handshake, self._address, tls, self._settled)
        try:
            await links.loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=tls.server if tls is not None else None,
                ssl_handshake_timeout=links.settings.connect_ms / 1_000 if tls is not None else None,
            )
        except OSError as error:  # SSLError is one
            self._task = None
            text = f"TLS with the caller {self._address} failed: {cause(error)}."
            self.refuse(hello.HelloError(hello.TLS, text, handshake.peer))
        else:
            self._task = None

    def _settled(self, connection: Connection, error: hello.HelloError | None) -> None:
        if error is not None and error.kind not in (hello.SILENCE, hello.DUPLICATE, hello.CLOSING):
            self._gate.links.note_refused(connection.address, error)
        if error is None or connection.peer is not None:
            # It is up, or says why not and ends by itself. The task that made it may not have heard of that yet; to
            # cancel it would take the socket away from under the connection.
            self._connection = None
            self._task = None
        self.end()


def tune(one: socket.socket, settings: LinkSettings) -> None:
    """What every connection between nodes gets: frames leave at once, and a network that takes nothing is noticed."""
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, settings.silence_ms)
