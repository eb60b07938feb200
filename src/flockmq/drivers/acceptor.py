"""Accepts connections that must show something before MQTT begins: a PROXY header, a TLS handshake, or both.

```
 accept --> admission --> [PROXY header] --> [TLS handshake] --> protocol
```
They count from the moment they are accepted. At most HANDSHAKES_MAX are between accept and protocol at once; beyond
that nothing is accepted and the kernel's backlog holds the rest: half-open handshakes cost a bounded amount.
Plain listeners don't come this way, the event loop accepts for them.
"""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Final

from flockmq.drivers.admission import DROPPED
from flockmq.drivers.clock import now_ms
from flockmq.drivers.proxy import HeaderReader
from flockmq.drivers.tcp import Arrival, plain_peer

if TYPE_CHECKING:
    import socket

    from flockmq.drivers.listeners import Listener

HANDSHAKES_MAX: Final = 1_024
ACCEPTS_PER_TURN: Final = 64
RETRY_S: Final = 1.0
NO_MORE_FILES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """One listening socket of a listener."""

    def __init__(self, listener: Listener, listening: socket.socket) -> None:
        self.listener = listener
        self.loop = asyncio.get_running_loop()
        self._listening = listening
        self._accepting = False
        self._closed = False
        self._handshakes = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to accept."""
        if not self._accepting and not self._closed:
            self._accepting = True
            self.loop.add_reader(self._listening.fileno(), self._readable)

    def _pause(self) -> None:
        if self._accepting:
            self._accepting = False
            self.loop.remove_reader(self._listening.fileno())

    async def close(self) -> None:
        """Stop accepting and end the handshakes that are under way."""
        self._pause()
        self._closed = True
        self._listening.close()
        await asyncio.sleep(0)  # a task that never ran could not close its socket
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _readable(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if self._handshakes >= HANDSHAKES_MAX:
                self._pause()
                return
            try:
                accepted, peername = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in NO_MORE_FILES:
                    raise
                # Accepting would fail again at once: wait until connections have closed.
                self.listener.runner.fault("accept", error, listener=self.listener.name)
                self._pause()
                self.loop.call_later(RETRY_S, self.start)
                return
            accepted.setblocking(False)
            self._arrived(accepted, peername)

    def _arrived(self, accepted: socket.socket, peername: object) -> None:
        code = self.listener.admission.arrive(now_ms())
        if code == DROPPED:
            accepted.close()
            return
        self._handshakes += 1
        arrival = Arrival(plain_peer(peername), None, code)
        if self.listener.proxy_versions:
            HeaderReader(self, accepted, arrival, self.listener.proxy_versions)
        else:
            self.hand_over(accepted, arrival)

    def drop(self, accepted: socket.socket) -> None:
        """Close a socket that never became a connection."""
        accepted.close()
        self.listener.admission.leave()
        self._finished()

    def hand_over(self, accepted: socket.socket, arrival: Arrival) -> None:
        """Go on with TLS, if the listener has it, and then the protocol."""
        task = self.loop.create_task(self._connect(accepted, arrival))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, accepted: socket.socket, arrival: Arrival) -> None:
        protocol = self.listener.protocol(arrival)
        context = self.listener.tls
        timeout_s = self.listener.limits.connect_timeout_ms / 1000 or None
        try:
            await self.loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=context, ssl_handshake_timeout=timeout_s if context else None
            )
        except Exception as error:  # the transport, which has the socket, is closed by the loop
            where = {"listener": self.listener.name, "peer": arrival.peer}
            self.listener.runner.events.note("tls_handshake_failed", {**where, "reason": str(error)})
        finally:
            if not protocol.began:
                self.listener.admission.leave()
            self._finished()

    def _finished(self) -> None:
        self._handshakes -= 1
        self.start()
