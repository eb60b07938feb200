"""Ports for servers that can't be given 0, on loopback.

The kernel's own choice, bind to port 0, comes from the range that it gives outgoing connections as well: between the
moment when a port was found free and the moment when its server starts, any other connection may get it. So ports are
taken from below that range.

```
 20000 ........ blocks of 100 ........ 31999      a process takes a block (a name that only one can have, and that is
           ^ from a random one on                  gone with the process), then its ports one after the other
```
Processes that look for ports at the same time, as test runners do, would find the same ones free otherwise.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from typing import Final

_HOST: Final = "127.0.0.1"
FIRST: Final = 20_000
PORTS: Final = 12_000
"""Linux gives outgoing connections ports from 32,768 on."""
BLOCK: Final = 100

_held: list[socket.socket] = []
"""Names of this process's blocks."""


def _numbers() -> Iterator[int]:
    """Every port that this process may have, again and again."""
    count = PORTS // BLOCK
    start = random.SystemRandom().randrange(count)
    own: list[int] = []
    for place in range(count):
        block = (start + place) % count
        if _take(block):
            own.append(block)
            yield from range(FIRST + block * BLOCK, FIRST + (block + 1) * BLOCK)
    while own:
        for block in own:
            yield from range(FIRST + block * BLOCK, FIRST + (block + 1) * BLOCK)
    raise OSError("All ports for servers of tests are taken; stop some of the processes that test.")


def _take(block: int) -> bool:
    """Make a block this process's own, until it ends."""
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0flockmq.testing.ports/{block}")  # an abstract name, without a file
    except FileNotFoundError:
        name.close()
        return True  # no such names on this system: as free as it looks
    except OSError:
        name.close()
        return False
    _held.append(name)
    return True


_ports = _numbers()


def free_ports(wanted: int) -> list[int]:
    """Ports that are free now, TCP and UDP."""
    found: list[int] = []
    while len(found) < wanted:
        port = next(_ports)
        if _is_free(port):
            found.append(port)
    return found


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]


def _is_free(port: int) -> bool:
    try:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_INET, kind) as probe:
                probe.bind((_HOST, port))
    except OSError:
        return False
    return True
