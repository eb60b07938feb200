"""What must be over some fixed time after it began: handshakes, and goodbyes to peers that do not read.

All entries of one list wait equally long, so a queue in order of arrival is a queue in order of deadlines: no timer per
connection, and the runner's tick looks at its head only. An entry that finished in time stays until its turn and is
then ignored, which bounds the list by the rate of arrivals times the wait.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol


class Waiting(Protocol):
    """Something with a deadline."""

    def deadline_passed(self) -> None:
        """Give up, unless it has been over for long."""


class Deadlines:
    """Deadlines a fixed time after their beginning; with 0 ms there are none."""

    __slots__ = ("_queue", "_wait_ms")

    def __init__(self, wait_ms: int) -> None:
        self._wait_ms = wait_ms
        self._queue: deque[tuple[int, Waiting]] = deque()

    def begin(self, waiting: Waiting, now: int) -> None:
        """Start its time."""
        if self._wait_ms:
            self._queue.append((now + self._wait_ms, waiting))

    def expire(self, now: int) -> None:
        """Tell those whose time is up."""
        queue = self._queue
        while queue and queue[0][0] <= now:
            queue.popleft()[1].deadline_passed()

    def end_all(self) -> None:
        """Call all callbacks now."""
        while self._queue:
            self._queue.popleft()[1].deadline_passed()
