"""Clients that ask for more than their share: everybody else is served, and no node is taken for dead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from faults.attacks.support import Raw, attacked, connect_packet, flood
from flockmq.mqtt import reasons
from flockmq.security.passwords import set_password
from flockmq.testing.nodes import NodeCluster

STRANGERS = 80
USER_PROPERTY = b"\x26\x00\x00\x00\x00"

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("faults")]  # a cluster at a time


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    folder = tmp_path_factory.mktemp("nodes")
    passwords = folder / "passwords"
    set_password(passwords, "user", b"right")
    with NodeCluster(folder, 3, [f"--set=security.password_file={passwords}"]) as nodes:
        nodes.wait_settled()
        yield nodes


@pytest.mark.parametrize("copies", [209_000, 13_000], ids=["too large", "too many"])
def test_strangers_with_connects_full_of_properties(cluster: NodeCluster, copies: int) -> None:
    properties = USER_PROPERTY * copies
    connects = [connect_packet(f"stranger{number}", properties, "user", b"wrong") for number in range(STRANGERS)]
    answers: list[bytes] = []
    all_answered = threading.Barrier(STRANGERS)

    def say(number: int, raw: Raw) -> None:
        raw.say(connects[number])
        answers.append(raw.hear())
        all_answered.wait()  # nobody leaves before

    with attacked(cluster) as attack:
        flood(attack.port, STRANGERS, say)
    code = reasons.PACKET_TOO_LARGE if copies > 100_000 else reasons.QUOTA_EXCEEDED
    assert [(answer[0], answer[3]) for answer in answers] == [(0x20, code)] * STRANGERS


def test_strangers_with_half_a_connect(cluster: NodeCluster) -> None:
    """A thousand of them, each with 60 KB: they hold no more than they may together, and all is given back."""
    half = connect_packet("stranger", b"", "user", b"x" * 64_000)[:60_000]

    with attacked(cluster) as attack, ExitStack() as stack:
        for _ in range(1_000):
            stack.enter_context(Raw(attack.port)).say(half)
        gauges = attack.node.admin().stats().gauges
        assert 0 < gauges["strangers_bytes"] <= 16_777_216
        assert gauges["strangers"] < 1_000
