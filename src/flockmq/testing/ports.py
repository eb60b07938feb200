"""Ports for servers that can't be given 0, on loopback.

The kernel's own choice, bind to port 0, comes from the range that it gives outgoing connections as well: between the
moment when a port was found free and the moment when its server starts, anybody's connection may get it. So ports are
taken from below that range, one after the other from a random one on, and none is given twice by a process.
"""

from __future__ import annotations

import random
import socket
from itertools import count
from typing import Final

_HOST: Final = "127.0.0.1"
FIRST: Final = 20_000
PORTS: Final = 12_000
"""Linux gives outgoing connections ports from 32,768 on."""

_numbers = count(random.SystemRandom().randrange(PORTS))


def free_ports(wanted: int) -> list[int]:
    """Ports that nobody has now, TCP and UDP."""
    found: list[int] = []
    while len(found) < wanted:
        port = FIRST + next(_numbers) % PORTS
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
