"""Wrong passwords from many addresses: right ones are served, and hashes of clients that are gone are not made."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from faults.attacks.support import ANSWER_S_MAX, Raw, attacked, connect_packet
from flockmq.security.passwords import HashCost, set_password
from flockmq.testing.nodes import HOST, NodeCluster

ADDRESSES = 15
LOGINS = 10
"""Of each address."""
GOOD_S_MAX = 5.0
"""What a right login from another address may take while those wait: some hashes that run, not all."""
PASSWORD = b"wonderland"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    folder = tmp_path_factory.mktemp("logins")
    users = folder / "passwords"
    set_password(users, "alice", PASSWORD)
    set_password(users, "bob", PASSWORD, cost=HashCost(iterations=1, memory_kib=8, lanes=1))
    with NodeCluster(folder, 1, [f"--set=security.password_file={users}"]) as cluster:
        yield cluster


class Stranger(Raw):
    """A client of another address of this machine."""

    def __init__(self, port: int, number: int) -> None:
        self.socket = socket.create_connection((HOST, port), ANSWER_S_MAX, (f"127.0.1.{number + 1}", 0))
        self._held = b""


def log_in(port: int, user: str, number: int) -> tuple[int, float]:
    """The code of the CONNACK, and how long it took."""
    began = time.monotonic()
    with Stranger(port, number) as raw:
        raw.say(connect_packet(f"good-{user}-{number}", user=user, password=PASSWORD))
        connack = raw.hear()
        return connack[3], time.monotonic() - began


@pytest.mark.parametrize("stay", [True, False], ids=["that wait", "that are gone at once"])
def test_a_right_login_is_served_beside_a_flood_of_wrong_ones(cluster: NodeCluster, stay: bool) -> None:
    wrong = [connect_packet(f"bad-{number}", user="alice", password=b"%d" % number) for number in range(LOGINS)]
    port = cluster.nodes[0].mqtt_port
    with attacked(cluster):
        strangers = [Stranger(port, address) for address in range(ADDRESSES) for _ in range(LOGINS)]
        for number, stranger in enumerate(strangers):
            stranger.say(wrong[number % LOGINS])
            if not stay:
                stranger.socket.close()
        code, took_s = log_in(port, "alice", 50)
        assert code == 0
        assert took_s < GOOD_S_MAX
        for stranger in strangers:
            with suppress(OSError):
                stranger.socket.close()


def test_a_login_that_is_remembered_is_served_from_an_address_that_guesses(cluster: NodeCluster) -> None:
    port = cluster.nodes[0].mqtt_port
    assert log_in(port, "bob", 60)[0] == 0
    codes: list[int] = []

    def guess() -> None:
        with suppress(OSError), Stranger(port, 60) as raw:
            raw.say(connect_packet("guess", user="bob", password=b"wrong"))
            codes.append(raw.hear()[3])

    with attacked(cluster):
        while 0x8A not in codes:
            guessers = [threading.Thread(target=guess) for _ in range(10)]
            for guesser in guessers:
                guesser.start()
            for guesser in guessers:
                guesser.join()
        code, took_s = log_in(port, "bob", 60)
        assert code == 0
        assert took_s < 1.0
        assert log_in(port, "alice", 61)[0] == 0
