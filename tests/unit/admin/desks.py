"""A desk on a broker without sockets or clock, for tests of what the API does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import Any

import msgspec

from flockmq.admin.cluster_port import ClusterPort
from flockmq.admin.description import Description
from flockmq.admin.desk import Desk, NodeInfo, Ports
from flockmq.admin.durable_port import DurablePort
from flockmq.admin.guard import AttemptThrottle, Guard
from flockmq.admin.loop_lag import LagWindow
from flockmq.admin.model import Listener
from flockmq.admin.operations import Call, NoQuery
from flockmq.admin.paging import Pager
from flockmq.admin.routes import OPERATIONS
from flockmq.testing.harness import START_MS, WALL_MS, BrokerHarness

NODE = NodeInfo(name="n1@host", version="1.2.3", build="pure")


def make_desk(
    harness: BrokerHarness,
    *,
    listeners: Sequence[Listener] = (),
    config: Callable[[], Mapping[str, object]] | None = None,
    reload: Callable[[], Awaitable[Sequence[str]]] | None = None,
    scan_max: int = 10_000,
    durable: DurablePort | None = None,
    cluster: ClusterPort | None = None,
    name: str = NODE.name,
) -> Desk:
    numbers = count()
    log: list[tuple[str, str, dict[str, object]]] = []

    def note(level: str, event: str, **fields: object) -> None:
        log.append((level, event, fields))

    ports = Ports(
        broker=lambda: harness.broker,
        clock=lambda: harness.now,
        wall_clock=lambda: WALL_MS + harness.now - START_MS,
        flush=harness.flush,
        listeners=lambda: listeners,
        config=config,
        reload=reload,
        log=note,
        find_durable=lambda: durable,
        find_cluster=lambda: cluster,
    )
    return Desk(
        NodeInfo(name=name, version=NODE.version, build=NODE.build),
        ports,
        Pager(lambda: f"walk{next(numbers)}", scan_max=scan_max),
        Guard(lambda token: token == "right", AttemptThrottle(), lambda peer: None),
        LagWindow(),
        Description(OPERATIONS, NODE.version),
    )


def call(query: msgspec.Struct | None = None, body: Any = None, accept: str = "", **path: str) -> Call[Any, Any]:
    return Call(path, query if query is not None else NoQuery(), body, "127.0.0.1", accept)
