"""Requests that wait for something to happen: how many may at once, since each holds a connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from flockmq.errors import UNAVAILABLE, ApiError

POLLS_MAX: Final = 64
"""Half of the connections that the API takes: there is always room for callers that ask and go."""


class Polls:
    """Counts those that wait."""

    def __init__(self, most: int = POLLS_MAX) -> None:
        self._most = most
        self.waiting = 0

    @contextmanager
    def waits(self, wait_ms: int) -> Iterator[None]:
        """Around something that may wait so long; refused when too many do already."""
        if not wait_ms:
            yield
            return
        if self.waiting >= self._most:
            raise ApiError(
                UNAVAILABLE,
                f"{self._most} requests wait here already; ask another node, or ask again in a second",
                {"Retry-After": "1"},
            )
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1
