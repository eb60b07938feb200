"""Datagrams between nodes, on the port of the links: sealed on the way out, opened on the way in.

```
 send(address, body) --> Resolver (names) --> Sealer.seal --> UDP
 on_datagram(sender, body, address) <-- Sealer.open <-- at most 1,400 bytes <-- UDP
                                             `--> forged, repeated, garbage: counted, never answered
```
This module answers no datagram. Its user answers, after the datagram was opened, so strangers hear nothing. Datagrams
that the network does not take now are lost, as any may be.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING, Any, Final, cast

from flockmq.drivers.links import ALL_ADDRESSES
from flockmq.drivers.listeners import FREE_PORT_TRIES
from flockmq.drivers.refusals import Refusals
from flockmq.drivers.resolver import Resolver
from flockmq.drivers.tcp import plain_peer
from flockmq.errors import FlockError
from flockmq.gossip.seal import BODY_BYTES_MAX, DATAGRAM_BYTES_MAX
from flockmq.node.events import EventList

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.drivers.links import Links
    from flockmq.gossip.seal import Sealer

BUFFER_BYTES: Final = 1024 * 1024
"""Room in the kernel for what comes while the loop is busy; it may give less."""
UNSENT_BYTES_MAX: Final = 256 * 1024
OPENED_PER_TURN_MAX: Final = 512
"""Datagrams of one loop turn that are opened; a flood costs no more than that of a turn."""

Address = tuple[str, int]


class Datagrams:
    """The UDP side of a node. Create and use it inside a running event loop."""

    def __init__(self, sealer: Sealer, on_datagram: Callable[[int, bytes, Address], None]) -> None:
        """``on_datagram(sender, body, address)``: a node that knows the cookie says this."""
        self.events = EventList()
        self.refusals = Refusals(self.events, "datagram_refused")
        self.sent = 0
        self.received = 0
        """Datagrams that were opened."""
        self.dropped = 0
        """Datagrams that could not be sent: too long, no room, no such address."""
        self._sealer = sealer
        self._on_datagram = on_datagram
        self._loop = asyncio.get_running_loop()
        self._resolver = Resolver(self._loop)
        self._transports: dict[int, asyncio.DatagramTransport] = {}
        """By address family."""
        self._opened = 0
        self._will_reset = False

    async def listen(self, host: str, port: int) -> int:
        """Open the port at a name or an address, or everywhere (``""``); returns the port. FlockError tells why not."""
        for found in await self._open(host, port):
            port = int(found.getsockname()[1])
            transport, _ = await self._loop.create_datagram_endpoint(lambda: _Receiver(self), sock=found)
            self._transports.setdefault(found.family, transport)
        self._resolver = Resolver(self._loop, has_ipv6=socket.AF_INET6 in self._transports)
        return port

    def send(self, address: Address, body: bytes) -> bool:
        """Seal and send; False when it was dropped instead."""
        host = self._resolver.find(address[0])
        if host is None or len(body) > BODY_BYTES_MAX or not 0 < address[1] < 65_536:
            self.dropped += 1
            return False
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        transport = self._transports.get(family)
        if transport is None or transport.is_closing() or _unsent_bytes(transport) > UNSENT_BYTES_MAX:
            self.dropped += 1
            return False
        try:
            transport.sendto(self._sealer.seal(body), (host, address[1]))
        except (OSError, ValueError):  # an address that can't be
            self.dropped += 1
            return False
        self.sent += 1
        return True

    def close(self) -> None:
        """Send and hear no more."""
        self._resolver.close()
        for transport in self._transports.values():
            transport.abort()
        self._transports.clear()

    def receive(self, data: bytes, peername: Any) -> None:
        """A datagram has come, from any sender."""
        address = plain_peer(peername)
        if self._opened >= OPENED_PER_TURN_MAX:
            self.refusals.note(address, "too_many", "Datagrams come faster than they can be opened.")
            return
        if not self._will_reset:
            self._will_reset = True
            self._loop.call_soon(self._reset)
        self._opened += 1
        if len(data) > DATAGRAM_BYTES_MAX:
            self.refusals.note(address, "too_long", f"A datagram has more than {DATAGRAM_BYTES_MAX:,} bytes.")
            return
        try:
            sender, _, body = self._sealer.open(data)
        except FlockError as error:
            self.refusals.note(address, "sealed_otherwise", str(error))
            return
        if sender == self._sealer.node_id:
            self.refusals.note(address, "reflected", "A datagram of this node came back to it.")
            return
        self.received += 1
        try:
            self._on_datagram(sender, body, (address, int(peername[1])))
        except FlockError as error:
            self.refusals.note(address, "not_understood", str(error), sender)

    def _reset(self) -> None:
        self._opened = 0
        self._will_reset = False

    async def _open(self, host: str, port: int) -> list[socket.socket]:
        hosts = ["0.0.0.0", "::"]  # noqa: S104  (asked for)
        everywhere = host in (*ALL_ADDRESSES, "::")  # TCP takes both kinds at ::, too
        if not everywhere:
            try:
                rows = await self._loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
            except OSError as error:
                raise FlockError(
                    f"Can't take datagrams at {host!r}: {error.strerror}; use an address of this machine"
                ) from None
            hosts = list(dict.fromkeys(str(row[4][0]) for row in rows))
        found: list[socket.socket] = []
        for one in hosts:
            try:
                found.append(_bind(one, port))
            except OSError as error:
                if everywhere and one == "::" and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    continue
                for other in found:
                    other.close()
                reason = "another program uses it" if error.errno == errno.EADDRINUSE else error.strerror
                raise FlockError(
                    f"Can't take datagrams at {one} port {port}: {reason}; stop that one or choose another port"
                ) from None
            port = port or int(found[0].getsockname()[1])
        return found


async def listen_on_one_port(links: Links, datagrams: Datagrams, host: str, port: int) -> int:
    """Open TCP and UDP on the same port, any that is free for both with port 0; returns it."""
    for _ in range(FREE_PORT_TRIES):
        found = await links.listen(host, port)
        try:
            return await datagrams.listen(host, found)
        except FlockError:
            links.stop_listening()
            if port:
                raise
    raise FlockError(f"No port of {host or 'this machine'} is free for both TCP and UDP; name one.")


def _unsent_bytes(transport: asyncio.DatagramTransport) -> int:
    """Both loops know it, though the interface has it for streams only."""
    return cast("asyncio.WriteTransport", transport).get_write_buffer_size()


class _Receiver(asyncio.DatagramProtocol):
    def __init__(self, datagrams: Datagrams) -> None:
        self._datagrams = datagrams

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._datagrams.receive(data, addr)

    def error_received(self, exc: Exception) -> None:
        """The port of a receiver is closed; SWIM finds out by silence."""


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    one = socket.socket(family, socket.SOCK_DGRAM, socket.IPPROTO_UDP)
    try:
        one.setblocking(False)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        one.bind((host, port))
    except OSError:
        one.close()
        raise
    return one
