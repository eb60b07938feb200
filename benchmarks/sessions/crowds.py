"""Clients with persistent sessions: many that leave and come back at once, and one that is measured alone.

```
 leave(...)   CONNECT, SUBSCRIBE, gone: their sessions wait                 --> offline sessions
 come_back(...)  all dial at once: CONNACKs, then all messages that waited  --> seconds, messages
 Caller       one client, one CONNECT at a time                             --> seconds, session present
```
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence

from flockmq.client.load.clients import Clients, allow_descriptors
from flockmq.client.load.frames import GOODBYE, connect
from flockmq.client.load.link import Greeting, Link
from flockmq.client.load.plan import Target
from flockmq.client.load.poller import WRITE
from flockmq.errors import FlockError
from flockmq.testing.nodes import HOST

UNDER_WAY = 500
ANSWER_S_MAX = 30.0
LOOK_S = 0.1
MQTT_3_1_1 = 4

Figures = dict[str, float]


def leave(target: Target, prefix: str, count: int, filters: Sequence[str]) -> None:
    """So many clients subscribe to all of these filters, and go away; ``{}`` in a filter is the client's number."""
    clients = Clients(target)
    allow_descriptors(UNDER_WAY)
    try:
        links = _links(clients, prefix, count, filters)
        clients.open(links, clients.drop, UNDER_WAY)
    finally:
        clients.close()


def come_back(
    target: Target, prefix: str, count: int, messages: int, seconds_max: float, look: Callable[[], None]
) -> Figures:
    """All clients connect at once and get ``messages`` each: how long that took, and how many came. ``look`` is called
    now and then."""
    clients = Clients(target)
    allow_descriptors(count)
    refused = 0

    def again(link: Link) -> Link:
        """As devices do: a client that was refused comes again."""
        nonlocal refused
        refused += 1
        return Link(target, Greeting(MQTT_3_1_1, link.client_id, 0, persistent=True), qos=1)

    began = time.monotonic()
    try:
        clients.open(_links(clients, prefix, count, ()), None, count, again)
        connected_s = time.monotonic() - began
        wanted = count * messages
        received = 0
        look_at = 0.0
        while received < wanted and time.monotonic() - began < seconds_max:
            for descriptor, events in clients.poller.wait(0.2):
                link = clients.links[descriptor]
                if events & WRITE:
                    link.flush()
                if events & ~WRITE:
                    link.on_readable()
                clients.watch(descriptor, link)
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + LOOK_S
                look()
                received = sum(link.tally.publishes for link in clients.links.values())
        served = sum(1 for link in clients.links.values() if link.tally.publishes >= messages)
    finally:
        clients.close()
    return {
        "connected_s": connected_s,
        "seconds": time.monotonic() - began,
        "received": float(received),
        "refused": float(refused),
        "served_percent": served / max(1, count) * 100,
    }


def _links(clients: Clients, prefix: str, count: int, filters: Sequence[str]) -> Iterator[Link]:
    for number in range(count):
        greeting = Greeting(MQTT_3_1_1, f"{prefix}-{number}", 0, persistent=True)
        own = [one.format(number) for one in filters]
        yield Link(clients.target, greeting, filters=own or None, qos=1)


class Caller:
    """A client with a persistent session that connects anywhere."""

    def __init__(self, client_id: str) -> None:
        self._connect = connect(MQTT_3_1_1, client_id, 0, persistent=True)
        self._socket: socket.socket | None = None

    def call(self, port: int, seconds_max: float = ANSWER_S_MAX) -> tuple[float, bool]:
        """Seconds from dialling to CONNACK, and whether the session was there; FlockError when the client is refused.

        The connection before this one stays open until then: that is a takeover.
        """
        before = self._socket
        began = time.perf_counter()
        try:
            self._socket = socket.create_connection((HOST, port), timeout=seconds_max)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall(self._connect)
            answer = b""
            while len(answer) < 4:
                came = self._socket.recv(4 - len(answer))
                if not came:
                    raise FlockError("The node closed the connection")
                answer += came
        except OSError as error:
            raise FlockError(f"No CONNACK: {error}") from error
        finally:
            if before is not None:
                before.close()
        took = time.perf_counter() - began
        if answer[0] != 0x20 or answer[3]:
            raise FlockError(f"No CONNACK but {answer.hex()}")
        return took, answer[2] == 1

    def leave(self) -> None:
        """Say goodbye."""
        if self._socket is not None:
            self._socket.sendall(GOODBYE)
            self._socket.close()
            self._socket = None
