"""Clients that send a byte now and then: bytes keep no connection, packets do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from faults.attacks.support import PINGREQ, Raw, attacked, connect_packet, packet, publish_packet, text
from flockmq.testing.nodes import NodeCluster

COUNT = 200
KEEP_ALIVE_S = 1
CONNECT_MS = 2_000
TRICKLE_S = 0.1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    options = [f"--set=listeners.tcp.default.limits.connect_timeout_ms={CONNECT_MS}"]
    with NodeCluster(tmp_path_factory.mktemp("trickle"), 1, options) as cluster:
        yield cluster


def connect(number: int) -> bytes:
    """A CONNECT with a short keep alive."""
    body = text(b"MQTT") + bytes((5, 2, 0, KEEP_ALIVE_S, 0)) + text(f"c{number}".encode())
    return packet(0x10, body)


def trickle(raws: list[Raw], data: bytes, seconds: float) -> int:
    """Send a byte of this now and then on each connection; how many were closed by the node."""
    until = time.monotonic() + seconds
    left = dict.fromkeys(raws, 0)
    while left and time.monotonic() < until:
        for raw, at in list(left.items()):
            if raw.say(data[at : at + 1]):
                left[raw] = at + 1
            else:
                del left[raw]
        time.sleep(TRICKLE_S)
    return len(raws) - len(left)


@pytest.mark.parametrize("size", [200, 100_000], ids=["a small packet", "a large packet"])
def test_packets_that_trickle_in_defeat_no_keep_alive(cluster: NodeCluster, size: int) -> None:
    data = publish_packet(b"t", bytes(size))
    with attacked(cluster) as attack, ExitStack() as stack:
        raws = [stack.enter_context(Raw(attack.port)) for _ in range(COUNT)]
        for number, raw in enumerate(raws):
            raw.say(connect(number))
            assert raw.hear()[3] == 0
        assert trickle(raws, data, 5.0) == COUNT


def test_connects_that_trickle_in_have_a_deadline(cluster: NodeCluster) -> None:
    with attacked(cluster) as attack, ExitStack() as stack:
        raws = [stack.enter_context(Raw(attack.port)) for _ in range(COUNT)]
        assert trickle(raws, connect_packet("c" * 200), 8.0) == COUNT


def test_a_client_that_sends_whole_packets_stays(cluster: NodeCluster) -> None:
    with Raw(cluster.nodes[0].mqtt_port) as raw:
        raw.say(connect(0))
        assert raw.hear()[3] == 0
        for _ in range(10):  # each in two halves
            raw.say(PINGREQ[:1])
            time.sleep(0.3)
            raw.say(PINGREQ[1:])
            assert raw.hear() == b"\xd0\x00"
