"""The address on which a node listens for other nodes, and the address that it tells them.

```
 cluster.host is set ----------------------------------------------------------> there
 advertise_host, contact points (--join), discovery, a known node elsewhere ---> every address
 none of these: no other machine was ever spoken of ---------------------------> 127.0.0.1
```
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from flockmq.drivers.links import ALL_ADDRESSES
from flockmq.security.link_tls import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flockmq.config.sections import ClusterConfig
    from flockmq.peering.contact import Contact

LOOPBACK: Final = "127.0.0.1"


def listening_host(config: ClusterConfig, known: Iterable[Contact]) -> str:
    """The address to listen on, empty for every one; ``known`` are the nodes that this one met before it stopped."""
    if config.host:
        return config.host
    if config.advertise_host or config.contact_points or config.discovery != "manual":
        return ""
    return LOOPBACK if all(is_here(one) for one in known) else ""


def advertised_host(host: str, advertise_host: str) -> str:
    """The address for other nodes: the advertised one, else the one listened on, else the machine's name."""
    if advertise_host:
        return advertise_host
    if host not in ALL_ADDRESSES:
        return host
    return socket.getfqdn() or socket.gethostname()


def is_here(contact: Contact) -> bool:
    """Whether an address is one of loopback."""
    return contact.host == "localhost" or is_loopback(contact.host)


def unreachable_from(contact: Contact, me: Contact) -> str:
    """Why a node there could not reach this one, and what to do; empty when it can."""
    if is_here(contact) or not is_here(me):
        return ""
    return (
        f"This node listens for other nodes on this machine only ({me}), so {contact} could not reach it; start it "
        "with --advertise-host ADDRESS, the address that others reach this machine by."
    )
