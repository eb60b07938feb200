"""The admin API of a node: REST, OpenAPI, metrics and health on HTTP, in the broker's own event loop.

```
 AdminApi(node, ports) -- start(host, port) --> sockets --> web.py --> handlers.py --> broker
        |-- mark_ready() once listeners serve      /health/ready: 503 -> 200, when the rest is there, too
        |-- mark_stopping() when the end begins    /health/ready: 200 -> 503, nothing can be changed any more
        `-- stop()                                 sockets closed, requests under way finish
```
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
from typing import TYPE_CHECKING

from flockmq.admin.description import Description
from flockmq.admin.desk import Desk, NodeInfo, Ports
from flockmq.admin.guard import AttemptThrottle, Guard, host_name
from flockmq.admin.loop_lag import LoopLag
from flockmq.admin.operations import Router
from flockmq.admin.paging import Pager
from flockmq.admin.routes import OPERATIONS
from flockmq.admin.web import WebLimits, WebServer
from flockmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

STOP_TIMEOUT_S = 2.0


class AdminApi:
    """See the module. ``verify_token`` compares in constant time."""

    def __init__(
        self,
        node_info: NodeInfo,
        ports: Ports,
        verify_token: Callable[[str], bool],
        *,
        limits: WebLimits | None = None,
        allowed_hosts: Iterable[str] = (),
        throttle: AttemptThrottle | None = None,
    ) -> None:
        self._lag = LoopLag()
        self._limits = limits or WebLimits()
        self._allowed_hosts = frozenset(host_name(host) for host in allowed_hosts)
        self._desk = Desk(
            node_info,
            ports,
            Pager(lambda: secrets.token_urlsafe(9)),
            Guard(
                verify_token,
                throttle if throttle is not None else AttemptThrottle(),
                lambda peer: ports.log("warning", "admin_wrong_token", peer=peer),
                lambda: ports.cluster.id_text() if ports.cluster is not None else "",
            ),
            self._lag.window,
            Description(OPERATIONS, node_info.version),
        )
        self._web: WebServer | None = None
        self._servers: list[asyncio.Server] = []

    @property
    def state(self) -> str:
        """``starting``, ``ready`` or ``stopping``."""
        return self._desk.state

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of every socket, as bound."""
        return [socket.getsockname()[:2] for server in self._servers for socket in server.sockets]

    @property
    def port(self) -> int:
        """The port of the first socket; 0 before ``start``."""
        addresses = self.addresses
        return addresses[0][1] if addresses else 0

    @property
    def open_connections(self) -> int:
        """Callers that are connected now."""
        return len(self._web.connections) if self._web is not None else 0

    async def start(
        self, host: str = "127.0.0.1", port: int = 18083, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        """Listen on one more address; port 0 takes any free one."""
        loop = asyncio.get_running_loop()
        if self._web is None:
            self._web = WebServer(self._desk, Router(OPERATIONS), self._limits, self._allowed_hosts)
        try:
            timeout_s = self._limits.headers_timeout_s if ssl_context is not None else None
            server = await loop.create_server(
                self._web, host, port, ssl=ssl_context, ssl_handshake_timeout=timeout_s, backlog=128
            )
        except OSError as error:
            raise ConfigError(
                f"The admin API can't listen on {host}:{port} ({error.strerror or error}); "
                "choose another port with --api-port, or stop what uses this one"
            ) from error
        self._servers.append(server)
        self._lag.start()

    def mark_ready(self) -> None:
        """All listeners serve: probes may send clients here."""
        self._desk.mark_ready()

    def mark_stopping(self) -> None:
        """The node is about to stop: probes send clients elsewhere, changes are refused."""
        self._desk.mark_stopping()

    async def stop(self) -> None:
        """Close the sockets; requests under way get a moment to finish."""
        self.mark_stopping()
        self._lag.stop()
        for server in self._servers:
            server.close()
        if self._web is not None:
            self._web.pre_shutdown()
            await self._web.shutdown(STOP_TIMEOUT_S)
            self._web = None
        for server in self._servers:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await server.wait_closed()
        self._servers.clear()
