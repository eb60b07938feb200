"""Connections that do nothing: how fast they are taken in, and what each costs the broker while it is there.

```
 hold:     dial, CONNECT, [SUBSCRIBE] --> all there --> memory of the broker --> keep them, ping --> goodbye
 connect:  dial, CONNECT, CONNACK, DISCONNECT, again and again
```
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from flockmq.client.load import frames
from flockmq.client.load.clients import UNDER_WAY_MAX, Clients, allow_descriptors
from flockmq.client.load.histogram import Histogram
from flockmq.client.load.link import Greeting, Link
from flockmq.client.load.plan import Target
from flockmq.client.load.poller import WRITE
from flockmq.client.load.usage import memory_kb
from flockmq.errors import FlockError

SETTLE_S = 0.5
"""Time for the broker to finish what the last connection began, before its memory is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """How many connections, and what they are like."""

    connections: int = 10_000
    seconds: float = 1.0
    """How long they stay."""
    version: int = 4
    subscribe: bool = False
    """Each subscribes to a topic of its own."""
    keep_alive_s: int = 0
    prefix: str = "hold"
    under_way_max: int = UNDER_WAY_MAX
    """How many may be on their way to CONNACK at once."""

    def __post_init__(self) -> None:
        if self.connections < 1:
            raise FlockError("At least one connection is needed")
        if self.version not in {4, 5}:
            raise FlockError(f"Protocol level {self.version} is unknown; use 4 (MQTT 3.1.1) or 5")


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdOutcome:
    """Figures of the held connections. ``None`` means not measured."""

    connections: int
    dropped: int
    """Closed by the broker while they were held."""
    elapsed_s: float
    connect_rate: float
    connect_us_p50: float
    connect_us_p99: float
    broker_memory_kb: float | None = None
    kb_per_connection: float | None = None
    system_kb_per_connection: float | None = None
    """What the whole machine lost, socket buffers of both ends and this generator included."""

    def as_json(self) -> dict[str, object]:
        """All figures for programs."""
        return asdict(self)


Report = Callable[[int], None]
"""Called for every connection that stands, with their number."""


def hold(target: Target, crowd: Crowd, broker_pids: tuple[int, ...] = (), report: Report | None = None) -> CrowdOutcome:
    """Open connections, keep them for a while, and say what they cost."""
    allow_descriptors(crowd.connections)
    clients = Clients(target)
    try:
        before_kb, available_kb = memory_kb(broker_pids), _available_kb()
        count, elapsed_s, times = _open(clients, crowd, report, keep=True)
        _serve(clients, SETTLE_S, 0)
        after_kb, left_kb = memory_kb(broker_pids), _available_kb()
        dropped = _serve(clients, crowd.seconds, crowd.keep_alive_s)
    finally:
        clients.close()
    return _outcome(
        count,
        elapsed_s,
        times,
        dropped=dropped,
        broker_memory_kb=after_kb,
        kb_per_connection=_per(before_kb, after_kb, count),
        system_kb_per_connection=_per(left_kb, available_kb, count),
    )


def connect_rate(target: Target, crowd: Crowd, report: Report | None = None) -> CrowdOutcome:
    """Connect and leave, as fast as the broker lets us."""
    allow_descriptors(1_000 + crowd.under_way_max)
    clients = Clients(target)
    try:
        count, elapsed_s, times = _open(clients, crowd, report, keep=False)
    finally:
        clients.close()
    return _outcome(count, elapsed_s, times)


def _open(clients: Clients, crowd: Crowd, report: Report | None, *, keep: bool) -> tuple[int, float, Histogram]:
    times = Histogram()
    count = 0

    def ready(link: Link) -> None:
        nonlocal count
        count += 1
        times.record([time.monotonic_ns() - link.dialled_ns])
        if not keep:
            clients.drop(link)
        if report is not None:
            report(count)

    started = time.monotonic()
    clients.open(_links(clients, crowd), ready, crowd.under_way_max)
    return count, time.monotonic() - started, times


def _links(clients: Clients, crowd: Crowd) -> Iterator[Link]:
    run = f"{os.getpid():x}{secrets.token_hex(2)}"
    for index in range(crowd.connections):
        yield Link(
            clients.target,
            Greeting(crowd.version, f"{crowd.prefix}-{run}-{index}", crowd.keep_alive_s),
            context=clients.context,
            filters=[f"{crowd.prefix}/{index}"] if crowd.subscribe else None,
            key=secrets.token_bytes(4),
        )


def _serve(clients: Clients, seconds: float, keep_alive_s: int) -> int:
    """Be there and ping; returns how many connections the broker closed meanwhile."""
    dropped = 0
    until = time.monotonic() + seconds
    ping_at = time.monotonic() + keep_alive_s / 2 if keep_alive_s else until + 1
    while (left := until - time.monotonic()) > 0:
        if time.monotonic() >= ping_at:
            ping_at += keep_alive_s / 2
            for link in clients.links.values():
                link.send(frames.PINGREQ)
                link.flush()
        for descriptor, events in clients.poller.wait(min(left, 0.5)):
            link = clients.links[descriptor]
            try:
                if events & ~WRITE:
                    link.on_readable()
                clients.watch(descriptor, link)
            except FlockError:
                dropped += 1
                clients.drop(link)
    return dropped


def _outcome(
    count: int,
    elapsed_s: float,
    times: Histogram,
    *,
    dropped: int = 0,
    broker_memory_kb: float | None = None,
    kb_per_connection: float | None = None,
    system_kb_per_connection: float | None = None,
) -> CrowdOutcome:
    return CrowdOutcome(
        connections=count,
        dropped=dropped,
        elapsed_s=elapsed_s,
        connect_rate=count / max(elapsed_s, 1e-9),
        connect_us_p50=times.quantile(0.5) / 1_000,
        connect_us_p99=times.quantile(0.99) / 1_000,
        broker_memory_kb=broker_memory_kb,
        kb_per_connection=kb_per_connection,
        system_kb_per_connection=system_kb_per_connection,
    )


def _per(before: float | None, after: float | None, count: int) -> float | None:
    return None if before is None or after is None or not count else (after - before) / count


def _available_kb() -> float | None:
    """Free memory of the machine, where the system tells."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1])
    return None
