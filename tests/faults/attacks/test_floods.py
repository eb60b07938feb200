"""Clients that ask for more than their share: everybody else is served, and no node is taken for dead."""

from __future__ import annotations

import selectors
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from faults.attacks.support import (
    Raw,
    attacked,
    connect_packet,
    flood,
    publish_packet,
    subscribe_packet,
)
from flockmq.mqtt import reasons
from flockmq.security.passwords import set_password
from flockmq.server.build import build_kind
from flockmq.testing.nodes import NodeCluster

STRANGERS = 80
SUBSCRIBES_BYTES = 3_000_000
"""Enough for ten seconds without turns, and for few with them."""
LEAVING = 20
LEAVING_FILTERS = 4_000 if build_kind() == "compiled" else 1_000
"""Of each. Plain Python takes several times as long for each."""
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


SUBSCRIBES = {
    "same": [b"a"] * 64,
    "exact": [b"flood/%d" % number for number in range(64)],
    "wild": [b"+/%d/#" % number for number in range(64)],
}


@pytest.mark.parametrize("filters", SUBSCRIBES.values(), ids=SUBSCRIBES.keys())
def test_a_user_with_many_subscribes(cluster: NodeCluster, filters: list[bytes]) -> None:
    """Thousands of SUBSCRIBEs in a row: the others have their turns in between, and so have other nodes."""
    one = subscribe_packet(1, filters)
    count = SUBSCRIBES_BYTES // len(one)
    said = one * count

    def say(_: int, raw: Raw) -> None:
        assert raw.connect("greedy")[3] == 0
        sending = threading.Thread(target=raw.say, args=(said,))
        sending.start()
        for _one in range(count):
            assert raw.hear()[0] == 0x90
        sending.join()

    with attacked(cluster) as attack:
        flood(attack.port, 1, say)


def test_a_user_whose_messages_go_to_everybody(cluster: NodeCluster) -> None:
    """Two topics in turns, so that no two messages are one run, and 100 subscribers of both."""
    said = (publish_packet(b"fan/a", b"x") + publish_packet(b"fan/b", b"x")) * 5_000
    with attacked(cluster) as attack, ExitStack() as stack:
        readers = []
        for number in range(100):
            raw = stack.enter_context(Raw(attack.port))
            assert raw.connect(f"reader{number}")[3] == 0
            raw.say(subscribe_packet(1, [b"fan/+"]))
            assert raw.hear()[0] == 0x90
            readers.append(raw)
        reading = threading.Thread(target=_read_all, args=(readers, 100 * len(said)))
        reading.start()
        publisher = stack.enter_context(Raw(attack.port))
        publisher.connect("publisher")
        publisher.say(said)
        reading.join()


def _read_all(readers: list[Raw], wanted: int) -> None:
    """Read so many bytes from all of them together."""
    with selectors.DefaultSelector() as selector:
        for raw in readers:
            selector.register(raw.socket, selectors.EVENT_READ, raw)
        while wanted > 0:
            for key, _ in selector.select():
                wanted -= len(key.data.socket.recv(1 << 16))


@pytest.mark.parametrize("pattern", ["flood/%d/%d", "+/%d/%d/#"], ids=["exact", "wild"])
def test_many_users_that_leave_at_once(cluster: NodeCluster, pattern: str) -> None:
    """Each has thousands of subscriptions: neither their node nor the others stop while all these routes go."""
    packets = [subscribes(pattern, number) for number in range(LEAVING)]
    all_there = threading.Barrier(LEAVING)

    def say(number: int, raw: Raw) -> None:
        assert raw.connect(f"leaving{number}")[3] == 0
        for one in packets[number]:
            raw.say(one)
            assert raw.hear()[0] == 0x90
        all_there.wait()

    with attacked(cluster) as attack:
        flood(attack.port, LEAVING, say)


def subscribes(pattern: str, number: int) -> list[bytes]:
    """All subscriptions of one user, 64 in a packet."""
    filters = [(pattern % (number, one)).encode() for one in range(LEAVING_FILTERS)]
    return [subscribe_packet(1, filters[low : low + 64]) for low in range(0, LEAVING_FILTERS, 64)]
