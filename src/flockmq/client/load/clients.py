"""Opens many links at once and keeps a poller over them: what every kind of load starts with.

Only so many connections are under way at a time; more would overflow the broker's backlog of connections that wait to
be accepted, and each one lost there costs a second. On loopback, source addresses change as ports run out.
"""

from __future__ import annotations

import contextlib
import ipaddress
import resource
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from flockmq.client.load.link import READY, STAGES, Link
from flockmq.client.load.plan import Target
from flockmq.client.load.poller import READ, WRITE, make_poller
from flockmq.errors import FlockError

UNDER_WAY_MAX: Final = 100
PORTS_PER_SOURCE: Final = 25_000
SETUP_IDLE_S: Final = 10.0
AGAIN_S: Final = 0.2


class Clients:
    """Links by descriptor, watched."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.context = tls_context(target) if target.tls else None
        self.poller = make_poller()
        self.links: dict[int, Link] = {}
        self._watched: dict[int, int] = {}
        self._family, self._address = resolve(target)
        self._loopback = self._family == socket.AF_INET and ipaddress.ip_address(self._address[0]).is_loopback
        self._dialled = 0

    def open(
        self,
        links: Iterator[Link],
        on_ready: Callable[[Link], None] | None = None,
        under_way_max: int = UNDER_WAY_MAX,
        again: Callable[[Link], Link] | None = None,
    ) -> int:
        """Bring all links to READY, or raise; returns how many. ``again`` makes a link in place of one that the broker
        refused; it is dialled a moment later."""
        under_way: set[int] = set()
        waiting: deque[tuple[float, Link]] = deque()
        count = 0
        last = time.monotonic()
        more = True
        while True:
            while more and len(under_way) < under_way_max:
                link = next(links, None)
                if link is None:
                    more = False
                    break
                under_way.add(self._dial(link))
            while waiting and waiting[0][0] <= time.monotonic():
                under_way.add(self._dial(waiting.popleft()[1]))
            if not under_way and not waiting:
                return count
            for descriptor, events in self.poller.wait(0.2):
                link = self.links[descriptor]
                last = time.monotonic()
                try:
                    self._serve(descriptor, link, events)
                except FlockError:
                    if again is None or descriptor not in under_way:
                        raise
                    under_way.discard(descriptor)
                    self.drop(link)
                    waiting.append((last + AGAIN_S, again(link)))
                    continue
                if link.stage == READY and descriptor in under_way:
                    under_way.discard(descriptor)
                    count += 1
                    if on_ready is not None:
                        on_ready(link)
            if under_way and time.monotonic() - last > SETUP_IDLE_S:
                stage = STAGES[self.links[next(iter(under_way))].stage]
                raise FlockError(f"The broker went silent during {stage}: {len(under_way)} connections wait for it")

    def watch(self, descriptor: int, link: Link) -> None:
        """Make the poller watch for what the link wants now."""
        events = READ | WRITE if link.wants_write else READ
        if self._watched[descriptor] != events:
            self.poller.change(descriptor, events)
            self._watched[descriptor] = events

    def drop(self, link: Link) -> None:
        """Close one link."""
        descriptor = link.sock.fileno()
        if descriptor in self.links:
            self.poller.remove(descriptor)
            del self.links[descriptor], self._watched[descriptor]
        link.close()

    def close(self) -> None:
        """Close everything."""
        for link in self.links.values():
            link.close()
        self.links.clear()
        self.poller.close()

    def _dial(self, link: Link) -> int:
        lap = self._dialled // PORTS_PER_SOURCE if self._loopback else 0
        source = f"127.0.0.{1 + lap}" if lap else ""
        ports = (self._address[1], *self.target.more_ports)
        address = (self._address[0], ports[self._dialled % len(ports)])
        self._dialled += 1
        try:
            link.dial(address, self._family, source)
        except BaseException as error:
            link.close()
            if isinstance(error, OSError):
                raise FlockError(f"No connection to {self.target.host}:{self.target.port}: {error.strerror}") from error
            raise
        descriptor = link.sock.fileno()
        events = READ | WRITE if link.wants_write else READ
        self.links[descriptor] = link
        self._watched[descriptor] = events
        self.poller.add(descriptor, events)
        return descriptor

    def _serve(self, descriptor: int, link: Link, events: int) -> None:
        if events & WRITE:
            link.on_writable()
        if events & ~WRITE:
            link.on_readable()
        self.watch(descriptor, link)


def resolve(target: Target) -> tuple[int, tuple[str, int]]:
    """The address family and address of the target."""
    try:
        family, _, _, _, address = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise FlockError(f"Host {target.host!r} has no address: {error.strerror}") from error
    return family, (str(address[0]), int(address[1]))


def tls_context(target: Target) -> ssl.SSLContext:
    """How to speak TLS with the target."""
    try:
        context = ssl.create_default_context(cafile=target.ca_file or None)
    except OSError as error:
        raise FlockError(f"The authority file {target.ca_file!r} can't be read: {error}") from error
    if target.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def allow_descriptors(count: int) -> None:
    """Raise this process's limit of open descriptors; how far it goes is the system's decision."""
    wanted = count + 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
        return
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < wanted:
        raise FlockError(f"{count} connections need more open files than the {hard} allowed; raise it with ulimit -n")
