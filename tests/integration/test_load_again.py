"""A client that the broker refuses comes again, where a load asks for that."""

from __future__ import annotations

import socket
import threading

import pytest

from flockmq.client.load.clients import Clients
from flockmq.client.load.link import READY, Greeting, Link
from flockmq.client.load.plan import Target
from flockmq.errors import FlockError

REFUSED = b"\x20\x02\x00\x03"
WELCOME = b"\x20\x02\x00\x00"


def serve(listener: socket.socket, answers: list[bytes]) -> None:
    """Answer CONNECTs, one connection after the other; one that is welcome stays open until its client goes."""
    for answer in answers:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1_024)
            connection.sendall(answer)
            if answer == WELCOME:
                connection.recv(1_024)


def link_to(target: Target, name: str) -> Link:
    return Link(target, Greeting(4, name))


@pytest.mark.parametrize("refusals", [0, 1, 3])
def test_a_client_that_is_refused_comes_again(refusals: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = Target(port=listener.getsockname()[1])
        server = threading.Thread(target=serve, args=(listener, [REFUSED] * refusals + [WELCOME]))
        server.start()
        clients = Clients(target)
        asked: list[str] = []

        def again(link: Link) -> Link:
            asked.append(link.client_id)
            return link_to(target, link.client_id)

        assert clients.open(iter([link_to(target, "c")]), again=again) == 1
        assert [link.stage for link in clients.links.values()] == [READY]
        assert asked == ["c"] * refusals
        clients.close()
        server.join()


def test_without_that_a_refusal_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = Target(port=listener.getsockname()[1])
        server = threading.Thread(target=serve, args=(listener, [REFUSED]))
        server.start()
        clients = Clients(target)
        with pytest.raises(FlockError, match="server unavailable"):
            clients.open(iter([link_to(target, "c")]))
        clients.close()
        server.join()
