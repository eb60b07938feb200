"""A listener: where it listens, what it speaks, what its clients may cost.

```
 tcp, ws                        --> the event loop accepts -------------------------> MqttProtocol | WebSocketProtocol
 tls, wss, any with PROXY       --> Acceptor: PROXY header, TLS, each with a deadline --^
```
One listener may have several addresses (IPv4 and IPv6); with port 0 they all get the port that was free for the first.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from flockmq.drivers.acceptor import Acceptor
from flockmq.drivers.admission import Admission
from flockmq.drivers.deadlines import Deadlines
from flockmq.drivers.tcp import Arrival, MqttProtocol
from flockmq.drivers.websocket import WebSocketProtocol
from flockmq.errors import ConfigError, FlockError
from flockmq.node.settings import Limits
from flockmq.wire.proxy import ANY_VERSION, VERSION_1, VERSION_2

if TYPE_CHECKING:
    import ssl

    from flockmq.drivers.runner import Runner

KINDS: Final = ("tcp", "tls", "ws", "wss")
PROXY_VERSIONS: Final = {"off": 0, "v1": VERSION_1, "v2": VERSION_2, "any": ANY_VERSION}
BACKLOG: Final = 4_096
FREE_PORT_TRIES: Final = 20
NO_SUCH_ADDRESS: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class Bind(NamedTuple):
    """One address to listen on; an optional one is left out on machines that don't have it."""

    host: str
    port: int
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """What makes one listener differ from another."""

    name: str
    kind: str = "tcp"
    """One of KINDS."""
    binds: tuple[Bind, ...]
    limits: Limits = field(default_factory=Limits)
    tls: ssl.SSLContext | None = None
    """For the kinds ``tls`` and ``wss``."""
    proxy_protocol: str = "off"
    """Which PROXY header every connection must begin with: ``off``, ``v1``, ``v2`` or ``any``. Only for listeners that
    only the load balancer can reach: the address in it is believed."""
    handshakes_max: int = 1_024
    """Most TLS and PROXY handshakes under way at once; then the oldest gives way. Each may hold some 50 KB."""
    path: str = "/mqtt"
    """Where WebSocket is (``ws`` and ``wss``)."""
    origins: tuple[str, ...] = ()
    """Origins (``https://shop.example``) or hosts whose pages may connect (``ws`` and ``wss``); none: all."""


class Listener:
    """Accepts connections and gives each its protocol."""

    def __init__(self, settings: ListenerSettings, runner: Runner) -> None:
        if settings.kind not in KINDS:
            raise ConfigError(
                f"Listener {settings.name!r} is of kind {settings.kind!r}; choose from {', '.join(KINDS)}"
            )
        if settings.proxy_protocol not in PROXY_VERSIONS:
            choices = ", ".join(PROXY_VERSIONS)
            raise ConfigError(f"proxy_protocol of listener {settings.name!r} must be one of {choices}")
        if (settings.tls is not None) != (settings.kind in ("tls", "wss")):
            raise ConfigError(f"Listener {settings.name!r}: tls and wss need a certificate, tcp and ws take none")
        self.settings = settings
        self.runner = runner
        # Read for every connection: kept at hand.
        self.name = settings.name
        self.limits = settings.limits
        self.path = settings.path
        self.origins = settings.origins
        self.tls = settings.tls
        self.proxy_versions = PROXY_VERSIONS[settings.proxy_protocol]
        limits = settings.limits
        self.admission = Admission(limits.connections_max, limits.connections_per_s_max, runner.room)
        self.handshakes = Deadlines(settings.limits.connect_timeout_ms)
        self.addresses: list[tuple[str, int]] = []
        """Where it really listens."""
        self._dropped_told = 0
        self._servers: list[asyncio.Server] = []
        self._acceptors: list[Acceptor] = []

    @property
    def port(self) -> int:
        """Port of the first address; FlockError when it is not listening."""
        if not self.addresses:
            raise FlockError(f"Listener {self.name!r} is not listening")
        return self.addresses[0][1]

    def protocol(self, arrival: Arrival | None = None) -> MqttProtocol:
        """Make the protocol of a new connection."""
        if self.settings.kind in ("ws", "wss"):
            return WebSocketProtocol(self, arrival)
        return MqttProtocol(self, arrival)

    async def start(self) -> None:
        """Listen on all addresses; FlockError, and none is left open, when one can't be had."""
        sockets = await open_sockets(self.settings)
        self.addresses = [(found.getsockname()[0], found.getsockname()[1]) for found in sockets]
        for found in sockets:
            if self.tls is not None or self.proxy_versions:
                acceptor = Acceptor(self, found)
                acceptor.start()
                self._acceptors.append(acceptor)
            else:
                loop = self.runner.loop
                self._servers.append(await loop.create_server(self.protocol, sock=found, backlog=BACKLOG))
        self.runner.listeners.append(self)

    async def stop(self) -> None:
        """Accept no more and end handshakes; connections of the broker stay until it ends them."""
        if self in self.runner.listeners:
            self.runner.listeners.remove(self)
        for server in self._servers:
            server.close()
        self._servers.clear()
        self.handshakes.end_all()
        for acceptor in self._acceptors:
            await acceptor.close()
        self._acceptors.clear()
        self.addresses = []

    def tick(self, now: int) -> None:
        """End handshakes that took too long, and tell how many connections were turned away unheard."""
        self.handshakes.expire(now)
        dropped = self.admission.dropped - self._dropped_told
        if dropped:
            self._dropped_told += dropped
            self.runner.events.note("connections_dropped", {"listener": self.name, "count": dropped})


async def open_sockets(settings: ListenerSettings) -> list[socket.socket]:
    """Open all listening sockets of a listener, or none."""
    binds = [one for bind in settings.binds for one in await _resolve(bind)]
    wildcard_4 = any(bind.host == "0.0.0.0" for bind in binds)  # noqa: S104  (asked for, not chosen here)
    for _ in range(FREE_PORT_TRIES):
        found: list[socket.socket] = []
        free_port = 0
        for bind in binds:
            try:
                one = _listen(bind.host, bind.port or free_port, only_6=bind.host != "::" or wildcard_4)
            except OSError as error:
                if bind.optional and error.errno in NO_SUCH_ADDRESS:
                    continue
                for other in found:
                    other.close()
                if error.errno == errno.EADDRINUSE and not bind.port:
                    break  # what was free for the first address is taken on the next: try another
                raise FlockError(_why_not(settings.name, bind, error)) from None
            found.append(one)
            free_port = free_port or one.getsockname()[1]
        else:
            if not found:
                raise FlockError(f"Listener {settings.name!r} has no address that exists on this machine")
            return found
    raise FlockError(f"Listener {settings.name!r} found no port that is free on all its addresses; name one")


async def _resolve(bind: Bind) -> list[Bind]:
    """Addresses behind a host name; an address stands for itself."""
    loop = asyncio.get_running_loop()
    try:
        rows = await loop.getaddrinfo(bind.host, bind.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise FlockError(f"Can't listen on {bind.host!r}: {error.strerror}; use an address of this machine") from None
    hosts = dict.fromkeys(str(row[4][0]) for row in rows)
    return [Bind(host, bind.port, bind.optional) for host in hosts]


def _listen(host: str, port: int, *, only_6: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio knows that accepted sockets are TCP and turns Nagle off.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(only_6))
        _find_vanished_peers(listening)
        listening.setblocking(False)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def _find_vanished_peers(listening: socket.socket) -> None:
    """Have the kernel ask silent peers whether they live: MQTT does not when a client's keep alive is 0.

    Accepted sockets inherit it. The finer options are not everywhere; without them it takes hours, not for ever.
    """
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 300), ("TCP_KEEPINTVL", 30), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _why_not(name: str, bind: Bind, error: OSError) -> str:
    where = f"Listener {name!r} can't listen on {bind.host} port {bind.port}"
    if error.errno == errno.EADDRINUSE:
        return f"{where}: another program uses it; stop that one or choose another port"
    if error.errno == errno.EACCES:
        return f"{where}: ports below 1024 need a privilege; choose a higher one"
    if error.errno in NO_SUCH_ADDRESS:
        return f"{where}: this machine has no such address"
    return f"{where}: {error.strerror}"
