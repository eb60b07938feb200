from __future__ import annotations

import socket
from contextlib import suppress

import pytest

from flockmq.testing.ports import FIRST, PORTS, free_port, free_ports


def test_no_port_is_given_twice_or_to_outgoing_connections() -> None:
    found = [*free_ports(50), free_port()]
    assert len(set(found)) == len(found)
    assert all(FIRST <= port < FIRST + PORTS for port in found)


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_that_somebody_has_is_left_out(kind: int) -> None:
    taken = FIRST + (free_port() - FIRST + 1) % PORTS  # whose turn it is
    with socket.socket(socket.AF_INET, kind) as holder:
        with suppress(OSError):  # or somebody else has it
            holder.bind(("127.0.0.1", taken))
        assert free_port() != taken
