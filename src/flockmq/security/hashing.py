"""Checks passwords off the event loop: a few threads behind a bounded queue.

```
 submit(peer, hash, password, done) -> False: the queue is full, say so        event loop
        |
        v  thread: argon2id, 50 to 200 ms, without the interpreter's lock
 call_soon(done(matches))                                                       event loop again
```
All bookkeeping happens on the event loop's thread; the threads only hash.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from argon2.exceptions import Argon2Error
from argon2.low_level import Type, verify_secret

if TYPE_CHECKING:
    from collections.abc import Callable

    CallSoon = Callable[[Callable[[], None]], object]
    """Runs a function on the event loop's thread, called from any thread: ``loop.call_soon_threadsafe``."""


class HashingPool:
    """Threads that compare passwords with argon2id hashes."""

    def __init__(self, threads: int, queue_max: int, per_peer_max: int, call_soon: CallSoon) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="flockmq-hash")
        self._pending_max = queue_max + threads
        self._per_peer_max = per_peer_max
        self._call_soon = call_soon
        self._pending: dict[str, int] = {}
        self._closed = False
        self.pending = 0
        """Checks that wait or run."""
        self.checked = 0
        """Checks done since the start."""

    def submit(self, peer: str, password_hash: str, password: bytes, done: Callable[[bool], None]) -> bool:
        """Queue a check; ``done`` is called with the outcome. False when there is no room, and nothing is called."""
        of_peer = self._pending.get(peer, 0)
        if self._closed or self.pending >= self._pending_max or of_peer >= self._per_peer_max:
            return False
        self.pending += 1
        self._pending[peer] = of_peer + 1
        self._executor.submit(self._check, peer, password_hash, password, done)
        return True

    def close(self) -> None:
        """Take no more work and forget what waits; nothing is called back from now on."""
        self._closed = True
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _check(self, peer: str, password_hash: str, password: bytes, done: Callable[[bool], None]) -> None:
        matches = verify(password_hash, password)
        with suppress(RuntimeError):  # the loop is closed: nobody is left to hear it
            self._call_soon(lambda: self._finish(peer, matches, done))

    def _finish(self, peer: str, matches: bool, done: Callable[[bool], None]) -> None:
        self.pending -= 1
        self.checked += 1
        if self._pending[peer] == 1:
            del self._pending[peer]
        else:
            self._pending[peer] -= 1
        if not self._closed:
            done(matches)


def verify(password_hash: str, password: bytes) -> bool:
    """Whether a password fits a hash. What goes wrong inside argon2 (as out of memory) is a no."""
    try:
        return verify_secret(password_hash.encode("ascii"), password, Type.ID)
    except Argon2Error:
        return False
