"""Publishes and counts: one process's share of a load, in one loop over all its sockets.

```
 open()  -->  start()  -->  turn() turn() turn() ...  -->  close()
              clock runs      |  readable: read, count, answer
                              |  publishers with room: the next slice of their ring
                              `  rate-limited: what is due, stamped with the time
```
The engine decides nothing about the end: its caller looks at ``progress`` and calls ``stop``. So one engine
in this process and many in others are driven the same way.
"""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import dataclass, field
from typing import Final

from flockmq.client.load import frames
from flockmq.client.load.clients import Clients, allow_descriptors
from flockmq.client.load.histogram import Histogram
from flockmq.client.load.link import Greeting, Link
from flockmq.client.load.plan import Load, Target, filters_of_subscriber
from flockmq.client.load.poller import WRITE
from flockmq.client.load.ring import Ring

ALIAS_MAXIMUM: Final = 1_000
PING_INTERVAL_S: Final = 20.0
LATE_NS: Final = 5_000_000
"""A message later than this is stamped with the time it was due, so that a broker that stalls can't hide it."""


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far a share of the load has come. Adds up over processes."""

    sent: dict[int, int] = field(default_factory=dict)
    """Messages handed to the system, by publisher."""
    completed: int = 0
    received: int = 0
    duplicates: int = 0
    refused: int = 0
    all_sent: bool = True
    """Every publisher is through with its messages and all their bytes are written."""
    started_ns: int = 0
    arrived_ns: int = 0
    """When the first one arrived; 0 before."""
    moved_ns: int = 0
    """When the last message or acknowledgement arrived."""
    acknowledged_ns: int = 0
    """When publishing was over: all written and, above QoS 0, acknowledged. 0 while it is not."""
    cpu_s: float = 0.0


class Engine:
    """One process's publishers and subscribers."""

    def __init__(self, target: Target, load: Load, share: int = 0, shares: int = 1) -> None:
        """Take every ``shares``-th publisher and subscriber from ``share`` on."""
        self._load = load
        self._clients = Clients(target)
        self._publishers: dict[int, Link] = {}
        self._mine = (
            range(share, load.publishers, shares),
            range(share, load.subscribers, shares),
        )
        self._run = f"{os.getpid():x}{secrets.token_hex(2)}"
        self._key = secrets.token_bytes(4)
        self._issued = 0
        self._turn_of = 0
        self._pinged_ns = 0
        self._busy_s = 0.0
        self.latency = Histogram()
        self.progress = Progress()

    def open(self) -> None:
        """Connect all clients and subscribe them."""
        publishers, subscribers = self._mine
        allow_descriptors(len(publishers) + len(subscribers))
        # All subscriptions stand before the first publisher is there: nothing can be missed.
        self._clients.open(self._subscriber(index) for index in subscribers)
        self._clients.open(self._publisher(index) for index in publishers)

    def start(self) -> None:
        """Let the clock run and the publishers publish."""
        now = time.monotonic_ns()
        self.progress.started_ns = self.progress.moved_ns = self._pinged_ns = now
        self._busy_s = time.process_time()
        for link in self._publishers.values():
            if link.ring is not None and link.ring.units.preamble:
                link.push(link.ring.take_preamble())
            link.running = not self._load.timed
            link.wants_write = False

    def stop(self) -> None:
        """Publish nothing more; what is on its way still arrives."""
        for link in self._publishers.values():
            if link.ring is not None:
                link.ring.stop()

    def turn(self, timeout_s: float = 0.05) -> None:
        """Once round: wait, read, answer, publish."""
        clients = self._clients
        ready = [link for link in self._publishers.values() if not link.wants_write]
        open_ended = not self._load.timed and any(self._has_more(link) for link in ready)
        events = clients.poller.wait(0.0 if open_ended else self._patience(timeout_s))
        came = False
        for descriptor, event in events:
            link = clients.links[descriptor]
            if event & WRITE:
                link.flush()
            if event & ~WRITE and link.on_readable():
                came = True
                if link.tally.stamps:
                    self._record(link)
            clients.watch(descriptor, link)
        now = time.monotonic_ns()
        if came:
            self.progress.moved_ns = now
            self.progress.arrived_ns = self.progress.arrived_ns or now
        if self._load.timed:
            self._publish_due(now)
        done = bool(self._publishers)
        for link in self._publishers.values():
            if not link.wants_write:
                link.flush()
                clients.watch(link.sock.fileno(), link)
            done = done and link.ring is not None and link.ring.done
        if done and not self.progress.acknowledged_ns:
            self.measure()
        if now - self._pinged_ns > PING_INTERVAL_S * 1e9:
            self._ping(now)

    def measure(self) -> Progress:
        """Bring ``progress`` up to date."""
        progress = self.progress
        links = self._clients.links.values()
        progress.received = sum(link.tally.publishes for link in links)
        progress.duplicates = sum(link.tally.duplicates for link in links)
        progress.completed = sum(link.tally.completed for link in links)
        progress.refused = sum(link.tally.refused for link in links)
        progress.sent = {index: link.ring.taken for index, link in self._publishers.items() if link.ring is not None}
        progress.all_sent = all(
            link.ring is None or (link.ring.done and link.written) for link in self._publishers.values()
        )
        progress.cpu_s = time.process_time() - self._busy_s
        if progress.all_sent and not progress.acknowledged_ns and self._all_acknowledged():
            progress.acknowledged_ns = time.monotonic_ns()
        return progress

    def close(self) -> None:
        """Disconnect all clients."""
        self._clients.close()

    def _all_acknowledged(self) -> bool:
        return self._load.qos == 0 or self.progress.completed >= sum(self.progress.sent.values())

    def _has_more(self, link: Link) -> bool:
        ring = link.ring
        return ring is not None and ring.allowed(link.tally.completed) > 0

    def _patience(self, timeout_s: float) -> float:
        """How long to wait for events: until the next message is due, at most ``timeout_s``."""
        if not self._load.timed:
            return timeout_s
        due_ns = self.progress.started_ns + int((self._issued + 1) / self._load.rate * 1e9)
        return min(timeout_s, max(0.0, (due_ns - time.monotonic_ns()) / 1e9))

    def _publish_due(self, now: int) -> None:
        """Hand out what the rate asks for, one message after the other, publishers taking turns."""
        order = list(self._publishers.values())
        due = int((now - self.progress.started_ns) * self._load.rate / 1e9)
        full = 0
        while self._issued < due and full < len(order):
            link = order[self._turn_of % len(order)]
            self._turn_of += 1
            due_ns = self.progress.started_ns + int((self._issued + 1) / self._load.rate * 1e9)
            stamp = due_ns if now - due_ns > LATE_NS else time.monotonic_ns()
            units = link.ring.take_stamped(link.tally.completed, 1, stamp) if link.ring is not None else b""
            if units:
                link.push(bytes(units))
                self._issued += 1
                full = 0
            else:
                full += 1

    def _record(self, link: Link) -> None:
        self.latency.record([link.read_ns - stamp for stamp in link.tally.stamps])
        link.tally.stamps.clear()

    def _ping(self, now: int) -> None:
        self._pinged_ns = now
        for descriptor, link in self._clients.links.items():
            link.send(frames.PINGREQ)
            link.flush()
            self._clients.watch(descriptor, link)

    def _subscriber(self, index: int) -> Link:
        load = self._load
        return self._link(
            f"sub-{index}",
            load.version_of_subscribers,
            filters=filters_of_subscriber(load, index),
            ring=None,
        )

    def _publisher(self, index: int) -> Link:
        key = self._key if self._clients.target.websocket else b""
        link = self._link(f"pub-{index}", self._load.version, filters=None, ring=Ring(self._load, index, key))
        self._publishers[index] = link
        return link

    def _link(self, name: str, version: int, *, filters: list[str] | None, ring: Ring | None) -> Link:
        load = self._load
        return Link(
            self._clients.target,
            Greeting(
                version,
                f"{load.prefix}-{name}-{self._run}",
                alias_maximum=ALIAS_MAXIMUM if load.topic_alias else 0,
                persistent=load.persistent and ring is None,
            ),
            context=self._clients.context,
            filters=filters,
            qos=load.qos,
            ring=ring,
            timed=load.timed and ring is None,
            key=self._key,
        )
