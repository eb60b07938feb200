from __future__ import annotations

import select
import socket
from collections.abc import Iterator

import pytest

from flockmq.client.load.poller import READ, WRITE, EpollPoller, Poller, SelectorPoller

KINDS = [SelectorPoller, *([EpollPoller] if hasattr(select, "epoll") else [])]


@pytest.fixture(params=KINDS)
def poller(request: pytest.FixtureRequest) -> Iterator[Poller]:
    made: Poller = request.param()
    yield made
    made.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    yield near, far
    near.close()
    far.close()


def test_events_are_those_asked_for(poller: Poller, pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    poller.add(near.fileno(), READ)
    assert poller.wait(0.001) == []
    far.send(b"x")
    assert poller.wait(1) == [(near.fileno(), READ)]
    poller.change(near.fileno(), READ | WRITE)
    assert poller.wait(1) == [(near.fileno(), READ | WRITE)]
    poller.remove(near.fileno())
    assert poller.wait(0) == []


def test_a_short_wait_ends_early_when_something_comes(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    near, far = pair
    poller.add(near.fileno(), READ)
    far.send(b"x")
    assert poller.wait(0.005) == [(near.fileno(), READ)]
