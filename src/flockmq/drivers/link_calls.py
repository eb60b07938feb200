"""Calls to other nodes: names resolved, HELLO said, TLS where it belongs, and again when it failed.

```
 dial: host --> addresses, one after the other --> TCP --> HELLO --> [TLS] --> Connection: the rest of the handshake

 Caller: dial --> link is up: nothing to do until it is lost
           ^-- waits, twice as long each time, drawn --' failed
```
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.drivers.causes import cause
from flockmq.drivers.link_connection import Connection
from flockmq.drivers.link_gate import tune
from flockmq.drivers.tcp import plain_peer
from flockmq.wire import hello

if TYPE_CHECKING:
    from flockmq.drivers.links import Links
    from flockmq.security.link_tls import LinkTls

ADDRESSES_MAX: Final = 4
"""Of one name that are tried."""


async def dial(links: Links, host: str, port: int, meant: int) -> Connection:
    """Call a node and have a link to it; HelloError tells why there is none."""
    accepted, address = await _connect(links, host, port)
    tls = links.tls if links.tls.wants_tls(address) else None
    handshake = hello.Caller(links.key, links.me, meant, tls is not None, secrets.token_bytes(hello.NONCE_BYTES))
    settled: asyncio.Future[None] = links.loop.create_future()

    def on_settled(connection: Connection, error: hello.HelloError | None) -> None:  # noqa: ARG001  (there is but one)
        if settled.done():
            return
        if error is None:
            settled.set_result(None)
        else:
            settled.set_exception(error)

    connection = Connection(links, handshake, _text(host, port), tls, on_settled)
    making: asyncio.Task[None] | None = None
    try:
        async with asyncio.timeout(links.settings.connect_ms / 1_000):
            await links.loop.sock_sendall(accepted, handshake.hello())
            making = links.loop.create_task(_make(links, connection, accepted, tls))
            # Shielded: a caller that is cancelled while the link is up leaves it up, with its socket.
            await asyncio.shield(making)
            await settled
    except TimeoutError:
        raise hello.HelloError(hello.TIMEOUT, f"{_text(host, port)} took too long to prove itself.") from None
    except OSError as error:  # SSLError is one
        what = f"The handshake with {_text(host, port)} failed ({cause(error)})"
        text = f"{what}; compare cookies and link_tls of both nodes."
        raise hello.HelloError(hello.TLS if tls is not None else hello.SILENCE, text) from None
    finally:
        if making is None:
            accepted.close()
        elif not connection.is_up:
            making.cancel()
            making.add_done_callback(partial(_end, accepted))
            connection.abort()
        if not settled.cancel() and not settled.cancelled():  # no caller waits for what comes from now on
            settled.exception()  # it was told, if not by this then by what came before
    return connection


async def _make(links: Links, connection: Connection, connected: socket.socket, tls: LinkTls | None) -> None:
    """Give the socket to the loop, which closes it when this fails."""
    await links.loop.create_connection(
        lambda: connection,
        sock=connected,
        ssl=tls.client if tls is not None else None,
        server_hostname="" if tls is not None else None,
        ssl_handshake_timeout=links.settings.connect_ms / 1_000 if tls is not None else None,
    )


def _end(connected: socket.socket, making: asyncio.Task[None]) -> None:
    """The outcome is not wanted; a call that was cancelled before it began has not even closed its socket."""
    if not making.cancelled():
        making.exception()
    connected.close()


async def _connect(links: Links, host: str, port: int) -> tuple[socket.socket, str]:
    """A socket that is connected to the first of a host's addresses that answers, and that address."""
    loop = links.loop
    why = "no address"
    try:
        async with asyncio.timeout(links.settings.connect_ms / 1_000):
            rows = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except (OSError, TimeoutError, UnicodeError) as error:
        raise hello.HelloError(hello.UNREACHABLE, f"The name {host!r} can't be resolved ({error}).") from None
    for family, kind, protocol, _, address in rows[:ADDRESSES_MAX]:
        try:
            one = socket.socket(family, kind, protocol)
        except OSError as error:  # no files left, or a kind of address that this machine does not speak
            why = error.strerror or why
            continue
        try:
            one.setblocking(False)
            tune(one, links.settings)
            async with asyncio.timeout(links.settings.connect_ms / 1_000):
                await loop.sock_connect(one, address)
            found = plain_peer(one.getpeername())
        except OSError as error:  # TimeoutError is one
            one.close()
            why = error.strerror or "no answer"
        except BaseException:
            one.close()
            raise
        else:
            return one, found
    raise hello.HelloError(hello.UNREACHABLE, f"{_text(host, port)} can't be reached ({why}).")


class PeerCalls:
    """Calls one peer whenever there is no link to it, until ``close``."""

    def __init__(self, links: Links, peer: int, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._links = links
        self._peer = peer
        self._wait_ms = links.settings.retry_ms_min
        self._up_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._calling: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Call now, or let the peer call first if that is how it goes."""
        if hello.yields_to(self._links.me.node_id, self._peer):
            self._call_in(self._links.settings.yield_ms)
        else:
            self._call()

    def up(self) -> None:
        """There is a link."""
        self._up_since = self._links.loop.time()
        self._stop()

    def lost(self) -> None:
        """There is none any more."""
        if (self._links.loop.time() - self._up_since) * 1_000 > self._links.settings.retry_ms_max:
            self._wait_ms = self._links.settings.retry_ms_min  # it had worked
        self._retry()

    def close(self) -> None:
        """Call no more."""
        self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        calling, self._calling = self._calling, None
        if calling is not None:
            calling.cancel()  # a link that came of it stays

    def _call(self) -> None:
        self._timer = None
        if self._calling is None:
            self._calling = self._links.loop.create_task(self._dial())

    def _call_in(self, wait_ms: float) -> None:
        self._timer = self._links.loop.call_later(wait_ms / 1_000, self._call)

    async def _dial(self) -> None:
        try:
            await dial(self._links, self.host, self.port, self._peer)
        except hello.HelloError as error:
            if error.kind not in (hello.UNREACHABLE, hello.DUPLICATE, hello.CLOSING):
                self._links.note_refused(_text(self.host, self.port), error)
            if self._is_current():
                self._calling = None
                self._retry()
        finally:
            if self._is_current():
                self._calling = None

    def _is_current(self) -> bool:
        """Whether the task that asks is the one that counts; one that was cancelled does not."""
        return self._calling is asyncio.current_task(self._links.loop)

    def _retry(self) -> None:
        if self._timer is not None or self._calling is not None:
            return
        # Drawn, so that nodes which lost each other at the same moment do not call at the same moment for ever.
        wait_ms = self._links.rng.uniform(self._wait_ms / 2, self._wait_ms)
        self._wait_ms = min(2 * self._wait_ms, self._links.settings.retry_ms_max)
        self._call_in(wait_ms)


def _text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
