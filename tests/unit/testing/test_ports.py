from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress

import pytest

from flockmq.testing.ports import BLOCK, FIRST, PORTS, free_port, free_ports

GIVE = f"from flockmq.testing.ports import free_ports; print(*free_ports({BLOCK}), flush=True); input()"


def test_no_port_is_given_twice_or_to_outgoing_connections() -> None:
    found = [*free_ports(50), free_port()]
    assert len(set(found)) == len(found)
    assert all(FIRST <= port < FIRST + PORTS for port in found)


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_that_somebody_has_is_left_out(kind: int) -> None:
    taken = free_port() + 1  # whose turn it is, unless a block ends
    with socket.socket(socket.AF_INET, kind) as holder:
        with suppress(OSError):  # or somebody else has it
            holder.bind(("127.0.0.1", taken))
        assert free_port() != taken


def test_processes_at_the_same_time_have_ports_of_their_own() -> None:
    """So many that they would meet by chance."""
    others = [
        subprocess.Popen([sys.executable, "-c", GIVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(12)
    ]
    try:
        found = free_ports(BLOCK)
        for other in others:
            assert other.stdout is not None
            found += [int(word) for word in other.stdout.readline().split()]
    finally:
        for other in others:
            other.communicate("\n")
    assert len(set(found)) == len(found) == (len(others) + 1) * BLOCK
