"""What a discovery plugin is: the shapes that FlockMQ's own and other people's plugins have.

```
 Plugin(settings, make)  --make(settings, surroundings)-->  Discovery
     start(me): register this node
     find():    all registered nodes (may include this one)
     stop():    deregister
     claim(id): only where the registry can decide
```
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from flockmq.errors import FlockError
from flockmq.peering.contact import Contact


class DiscoveryError(FlockError):
    """Nodes can't be listed or registered right now; one sentence. It is tried again."""


class Discovery(Protocol):
    """A way to find other nodes."""

    lists_peers: bool
    """Whether it lists nodes by itself; false where people name contact points one by one."""

    async def start(self, me: Contact) -> None:
        """Register this node. DiscoveryError: not now; it is called again."""

    async def find(self) -> list[Contact]:
        """The nodes registered now. DiscoveryError when that can't be known; an empty list says that there are none."""

    async def stop(self) -> None:
        """Deregister and let go of everything; never raises, may be called without ``start``."""


class Claim(NamedTuple):
    """The cluster that was formed at the place where nodes register."""

    cluster_id: int
    mine: bool
    """Whether this node wrote the claim, now or before a crash."""


@runtime_checkable
class Claims(Protocol):
    """A discovery whose registry can decide which node is first."""

    async def claim(self, cluster_id: int) -> Claim:
        """Write this id as the cluster's unless there is one already; what stands there then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What plugins may know about the node."""

    node_id: int
    node_name: str = ""
    cookie: bytes = b""
    contact_points: tuple[Contact, ...] = ()
    """What people named: ``--join``, ``cluster.contact_points``."""
    wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Plugin:
    """What an entry point in the group ``flockmq.discovery`` names."""

    settings: type
    """A frozen dataclass whose fields have defaults: the section ``[discovery.NAME]``."""
    make: Callable[[Any, Surroundings], Discovery]


async def claim(discovery: Discovery, cluster_id: int) -> Claim:
    """Claim an id where the discovery can hold claims; elsewhere it is the node's own to decide."""
    if isinstance(discovery, Claims):
        return await discovery.claim(cluster_id)
    return Claim(cluster_id, mine=True)
