"""Host names to addresses, without ever waiting: what is known now, or nothing, and the answer is on its way.

Nodes may be known by name, and a datagram can't wait for a name server. So the first one to a name is lost, as any
datagram may be, and those after it go out; answers are looked up again when they are old, and the old one is used
until the new one is there.
"""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address
from typing import Final

from flockmq.drivers.clock import now_ms

FRESH_MS: Final = 30_000
"""How long an answer is used before the name is looked up again."""
NAMES_MAX: Final = 16_384
LOOKUPS_MAX: Final = 64
"""At once; each may hold a thread until the name server answers."""


class Resolver:
    """Addresses of hosts for datagrams, the first one that a name has."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, has_ipv6: bool = True) -> None:
        """``has_ipv6``: whether an address of that kind is of any use."""
        self._loop = loop
        self._family = socket.AF_UNSPEC if has_ipv6 else socket.AF_INET
        self._known: dict[str, tuple[str, int]] = {}
        """Name -> address and when it was found; the name that was looked up longest ago first."""
        self._lookups: dict[str, asyncio.Task[None]] = {}

    def find(self, host: str) -> str | None:
        """The address of a host, if it is one or is known."""
        known = self._known.get(host)
        if known is None:
            if _is_address(host):
                self._keep(host, host, 1 << 62)
                return host
            self._look_up(host)
            return None
        address, found_at = known
        if now_ms() - found_at > FRESH_MS:
            self._look_up(host)
        return address

    def close(self) -> None:
        """Look for nothing any more."""
        for task in self._lookups.values():
            task.cancel()
        self._lookups.clear()

    def _look_up(self, host: str) -> None:
        if host not in self._lookups and len(self._lookups) < LOOKUPS_MAX:
            task = self._loop.create_task(self._ask(host))
            self._lookups[host] = task

    async def _ask(self, host: str) -> None:
        try:
            rows = await self._loop.getaddrinfo(host, None, family=self._family, type=socket.SOCK_DGRAM)
        except (OSError, UnicodeError):
            rows = []  # what was known is better than nothing
        finally:
            self._lookups.pop(host, None)
        if rows:
            self._keep(host, str(rows[0][4][0]), now_ms())
        elif host in self._known:
            self._keep(host, self._known[host][0], now_ms())

    def _keep(self, host: str, address: str, found_at: int) -> None:
        self._known.pop(host, None)
        if len(self._known) >= NAMES_MAX:
            del self._known[next(iter(self._known))]
        self._known[host] = (address, found_at)


def _is_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
