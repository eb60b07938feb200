"""Accepts connections that must show something before MQTT begins: a PROXY header, a TLS handshake, or both.

```
 accept --> admission --> [PROXY header] --> [TLS handshake] --> protocol
```
They count from the moment they are accepted. At most ``handshakes_max`` are between accept and protocol at once; one
more, and the one that has been at it longest is dropped: an honest handshake is over in a blink, so a client that opens
thousands and leaves them hanging loses its own first, and holds a bounded amount.
Plain listeners don't come this way, the event loop accepts for them.
"""

from __future__ import annotations

import asyncio
import errno
from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.drivers.admission import DROPPED
from flockmq.drivers.clock import now_ms
from flockmq.drivers.proxy import HeaderReader
from flockmq.drivers.tcp import Arrival, plain_peer

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from flockmq.drivers.listeners import Listener
    from flockmq.drivers.tcp import MqttProtocol

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
        self._pending: dict[Arrival, Callable[[], object]] = {}  # in order of arrival: how to end each
        self._tasks: set[asyncio.Task[None]] = set()
        self._untouched: set[socket.socket] = set()  # handed over, but no transport has them yet

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
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _readable(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                accepted, peername = self._listening.accept()
            except OSError as error:
                if error.errno in NO_MORE_FILES:
                    # Accepting would fail again at once: wait until connections have closed.
                    self.listener.runner.fault("accept", error, listener=self.listener.name)
                    self._pause()
                    self.loop.call_later(RETRY_S, self.start)
                return  # else the client is gone, or was gone before this ran
            accepted.setblocking(False)
            self._arrived(accepted, peername)

    def _arrived(self, accepted: socket.socket, peername: object) -> None:
        now = now_ms()
        code = self.listener.admission.arrive(now)
        if code == DROPPED:
            accepted.close()
            return
        if len(self._pending) >= self.listener.settings.handshakes_max:
            self._drop_oldest()
        arrival = Arrival(plain_peer(peername), None, code, now)
        if self.listener.proxy_versions:
            reader = HeaderReader(self, accepted, arrival, self.listener.proxy_versions)
            self._pending[arrival] = reader.deadline_passed
        else:
            self.hand_over(accepted, arrival)

    def _drop_oldest(self) -> None:
        end = self._pending.pop(next(iter(self._pending)))
        end()
        self.listener.admission.dropped += 1

    def drop(self, accepted: socket.socket, arrival: Arrival) -> None:
        """Close a socket that never became a connection."""
        accepted.close()
        self._pending.pop(arrival, None)
        self.listener.admission.leave()

    def hand_over(self, accepted: socket.socket, arrival: Arrival) -> None:
        """Go on with TLS, if the listener has it, and then the protocol; not for an address that is banned."""
        if self.listener.tls is not None and self.listener.runner.broker.is_banned(arrival.peer, now_ms()):
            self.drop(accepted, arrival)
            return
        protocol = self.listener.protocol(arrival)
        task = self.loop.create_task(self._connect(accepted, arrival, protocol))
        task.add_done_callback(partial(self._handed_over, accepted, arrival, protocol))
        self._pending[arrival] = task.cancel
        self._tasks.add(task)
        self._untouched.add(accepted)

    async def _connect(self, accepted: socket.socket, arrival: Arrival, protocol: MqttProtocol) -> None:
        self._untouched.discard(accepted)  # from here on the loop closes it when it fails
        context = self.listener.tls
        timeout_s = self.listener.limits.connect_timeout_ms / 1000 or None
        try:
            await self.loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=context, ssl_handshake_timeout=timeout_s if context else None
            )
        except Exception as error:
            where = {"listener": self.listener.name, "peer": arrival.peer}
            self.listener.runner.events.note("tls_handshake_failed", {**where, "reason": str(error)})

    def _handed_over(
        self, accepted: socket.socket, arrival: Arrival, protocol: MqttProtocol, task: asyncio.Task[None]
    ) -> None:
        self._tasks.discard(task)
        self._pending.pop(arrival, None)
        if accepted in self._untouched:  # cancelled before it ran
            self._untouched.discard(accepted)
            accepted.close()
        if not protocol.began:
            self.listener.admission.leave()
