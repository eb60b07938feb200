"""Strangers at the admin API hold connections, trickle bytes, guess tokens: the operator is served all the same."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from faults.attacks.support import attacked
from flockmq.client.admin import AdminClient
from flockmq.errors import ApiError
from flockmq.testing.nodes import HOST, NodeCluster, NodeProcess

STRANGERS = 300
"""More than the API takes at once."""
HEAD = b"POST /api/v1/publish HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\n"
KINDS = {
    "silent": b"",
    "half a request line": b"GET /health/li",
    "half a header": b"GET /health/live HTTP/1.1\r\nHost: local",
    "a body that does not come": b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n",
    "idle after a request": b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    with NodeCluster(tmp_path_factory.mktemp("api"), 1) as cluster:
        yield cluster


@contextmanager
def strangers(port: int, count: int, said: bytes) -> Iterator[list[socket.socket]]:
    """So many connections that say this, and then no more than a byte now and then."""
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            one = socket.create_connection((HOST, port), 10)
            stack.callback(one.close)
            with suppress(OSError):
                one.sendall(said)
            found.append(one)
        yield found


@pytest.mark.parametrize("kind", KINDS)
def test_idle_strangers_do_not_keep_the_operator_out(cluster: NodeCluster, kind: str) -> None:
    node = cluster.nodes[0]
    with attacked(cluster) as attack, strangers(node.api_port, STRANGERS, KINDS[kind]):
        for _ in range(5):
            began = time.monotonic()
            assert node.admin().node().name == node.name
            assert time.monotonic() - began < 2.0
        attack.wait_pings()


def is_closed(one: socket.socket) -> bool:
    """Whether the other side has closed a connection, after a byte more."""
    one.settimeout(0.05)
    try:
        one.sendall(b"x")
        return one.recv(65_536) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_requests_that_trickle_in_have_a_deadline(cluster: NodeCluster) -> None:
    node = cluster.nodes[0]
    head = f"POST /api/v1/publish HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {admin_token(node)}\r\n"
    body = head + "Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
    with ExitStack() as stack:
        slow = [
            stack.enter_context(strangers(node.api_port, 1, said))[0]
            for said in (KINDS["half a header"], head.encode(), body.encode())
        ]
        for one in slow:
            cluster.wait(lambda one=one: is_closed(one), "an end of the trickle", 15.0)  # type: ignore[misc]


def admin_token(node: NodeProcess) -> str:
    text = Path(node.folder, "credentials.toml").read_text("utf-8")
    return text.split('token = "')[1].split('"')[0]


def test_wrong_tokens_do_not_keep_the_right_one_out(cluster: NodeCluster) -> None:
    node = cluster.nodes[0]
    wrong = AdminClient(f"http://{HOST}:{node.api_port}", "wrong")
    stop = threading.Event()
    codes: list[int] = []

    def guess() -> None:
        while not stop.is_set():
            try:
                wrong.node()
            except ApiError as error:
                codes.append(error.status)

    with attacked(cluster):
        guesser = threading.Thread(target=guess)
        guesser.start()
        try:
            cluster.wait(lambda: 429 in codes, "the guesser to be throttled")
            for _ in range(20):
                assert node.admin().node().name == node.name
        finally:
            stop.set()
            guesser.join()
    assert set(codes) == {401, 429}
