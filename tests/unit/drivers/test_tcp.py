"""The small pure parts of the TCP driver."""

from __future__ import annotations

import pytest

from flockmq.drivers.tcp import plain_peer


@pytest.mark.parametrize(
    ("peername", "peer"),
    [
        (("192.0.2.1", 5), "192.0.2.1"),
        (("2001:db8::1", 5, 0, 0), "2001:db8::1"),
        (("::ffff:192.0.2.1", 5, 0, 0), "192.0.2.1"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::1"),
        (None, ""),
        ("", ""),
    ],
)
def test_a_peer_has_one_name(peername: object, peer: str) -> None:
    assert plain_peer(peername) == peer
