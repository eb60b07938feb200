"""Waits for many sockets at once: epoll where there is one, the standard selector elsewhere.

epoll is used bare because the selectors module builds an object for each event, which costs more than the event.
Waiting has microsecond precision, which epoll itself lacks: the epoll descriptor is itself waited for with select.
"""

from __future__ import annotations

import select
import selectors
from typing import Final

READ: Final = 1
WRITE: Final = 4
EVENTS_MAX: Final = 1_024


class EpollPoller:
    """Linux."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._descriptor = [self._epoll.fileno()]

    def add(self, descriptor: int, events: int) -> None:
        """Watch a descriptor."""
        self._epoll.register(descriptor, events)

    def change(self, descriptor: int, events: int) -> None:
        """Watch it for something else."""
        self._epoll.modify(descriptor, events)

    def remove(self, descriptor: int) -> None:
        """Watch it no more."""
        self._epoll.unregister(descriptor)

    def wait(self, timeout_s: float) -> list[tuple[int, int]]:
        """Descriptors with their events; an error or a hang-up shows as readable."""
        if 0 < timeout_s < 0.01 and self._descriptor[0] < 1_024:
            select.select(self._descriptor, (), (), timeout_s)
            timeout_s = 0
        return self._epoll.poll(timeout_s, EVENTS_MAX)

    def close(self) -> None:
        """Let go of it."""
        self._epoll.close()


class SelectorPoller:
    """Everywhere else."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def add(self, descriptor: int, events: int) -> None:
        """Watch a descriptor."""
        self._selector.register(descriptor, _to_selector(events))

    def change(self, descriptor: int, events: int) -> None:
        """Watch it for something else."""
        self._selector.modify(descriptor, _to_selector(events))

    def remove(self, descriptor: int) -> None:
        """Watch it no more."""
        self._selector.unregister(descriptor)

    def wait(self, timeout_s: float) -> list[tuple[int, int]]:
        """Descriptors with their events."""
        return [(key.fd, _from_selector(events)) for key, events in self._selector.select(timeout_s)]

    def close(self) -> None:
        """Let go of it."""
        self._selector.close()


def _to_selector(events: int) -> int:
    return (selectors.EVENT_READ if events & READ else 0) | (selectors.EVENT_WRITE if events & WRITE else 0)


def _from_selector(events: int) -> int:
    return (READ if events & selectors.EVENT_READ else 0) | (WRITE if events & selectors.EVENT_WRITE else 0)


Poller = EpollPoller | SelectorPoller


def make_poller() -> Poller:
    """The fastest this system has."""
    return EpollPoller() if hasattr(select, "epoll") else SelectorPoller()
