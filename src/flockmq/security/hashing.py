"""Checks passwords off the event loop: a few threads behind a queue that is bounded, and fair to addresses.

```
 submit(...) -> False: no room, say so                                          event loop
        |
        v   one line per address; those that failed before come last; else the shortest line, or whose turn it is
   a thread is free --> the client is gone? forgotten : argon2id, 50 to 200 ms, without the interpreter's lock
        |
        v
 call_soon(done(matches))                                                       event loop again
```
So a flood of wrong passwords delays a right one from another address by the checks that run, not by those that wait:
also when the queue is full, for then the address with the longest line gives a place to one that has none.
All bookkeeping happens on the event loop's thread; the threads only hash.
"""

from __future__ import annotations

import hmac
import os
import re
from base64 import b64decode
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from argon2.low_level import Type, core, ffi

if TYPE_CHECKING:
    from collections.abc import Callable

    CallSoon = Callable[[Callable[[], None]], object]
    """Runs a function on the event loop's thread, called from any thread: ``loop.call_soon_threadsafe``."""

THREADS_MAX: Final = 4
"""Most threads that are used unless a setting asks for more: each takes 64 MiB."""
_HASH: Final = re.compile(r"\$argon2id\$v=(\d+)\$m=(\d+),t=(\d+),p=(\d+)\$([^$]+)\$([^$]+)")


class Check(NamedTuple):
    """A password to compare."""

    peer: str
    """Whose turn it takes: the client's address, or the network it counts by."""
    password_hash: str
    password: bytes
    done: Callable[[bool | None], None]
    """Gets the outcome; None: it had to give way and was not looked at."""
    is_wanted: Callable[[], bool]
    """Whether anyone still waits for the outcome, asked before the work begins."""


class HashingPool:
    """Threads that compare passwords with argon2id hashes."""

    def __init__(
        self,
        threads: int,
        queue_max: int,
        per_peer_max: int,
        call_soon: CallSoon,
        is_suspect: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._threads = threads
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="flockmq-hash")
        self._waiting_max = queue_max
        self._per_peer_max = per_peer_max
        self._call_soon = call_soon
        self._is_suspect = is_suspect
        self._lines: dict[str, deque[Check]] = {}  # whose turn is next stands first
        self._running: dict[str, int] = {}
        self._taken = 0
        self._closed = False
        self.running = 0
        """Checks that a thread works on."""
        self.waiting = 0
        """Checks that wait for a thread."""
        self.checked = 0
        """Checks done since the start."""
        self.forgotten = 0
        """Checks dropped since the start: their clients were gone, or they gave way."""

    @property
    def pending(self) -> int:
        """Checks that wait or run."""
        return self.running + self.waiting

    def submit(self, check: Check) -> bool:
        """Queue a check. False when there is no room, and nothing is called."""
        if self._closed:
            return False
        if self._of(check.peer) >= self._per_peer_max:
            self._forget_unwanted(check.peer)
            if self._of(check.peer) >= self._per_peer_max:
                return False
        if self.running >= self._threads and self.waiting >= self._waiting_max and not self._make_room(check.peer):
            return False
        self._lines.setdefault(check.peer, deque()).append(check)
        self.waiting += 1
        self._start_next()
        return True

    def close(self) -> None:
        """Take no more work and forget what waits; nothing is called back from now on."""
        self._closed = True
        self._lines.clear()
        self.waiting = 0
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _of(self, peer: str) -> int:
        return len(self._lines.get(peer, ())) + self._running.get(peer, 0)

    def _start_next(self) -> None:
        while self.running < self._threads and self._lines:
            check = self._take()
            if not check.is_wanted():
                self.forgotten += 1
                continue
            self.running += 1
            self._running[check.peer] = self._running.get(check.peer, 0) + 1
            self._executor.submit(self._check, check)

    def _take(self) -> Check:
        """Take the next one, and put its address at the end of the round.

        A single login of an address goes before the many of others, every second time: those get on as well.
        """
        peers = [peer for peer in self._lines if not self._is_suspect(peer)] or list(self._lines)
        self._taken += 1
        peer = min(peers, key=lambda one: len(self._lines[one])) if self._taken % 2 else peers[0]
        line = self._lines.pop(peer)
        check = line.popleft()
        self.waiting -= 1
        if line:
            self._lines[peer] = line
        return check

    def _make_room(self, peer: str) -> bool:
        """Forget those that are gone; else have the longest line give its last place to a shorter one."""
        for other in list(self._lines):
            self._forget_unwanted(other)
        if self.waiting < self._waiting_max:
            return True
        longest = max(self._lines, key=lambda other: len(self._lines[other]))
        if len(self._lines[longest]) < len(self._lines.get(peer, ())) + 2:
            return False
        loser = self._lines[longest].pop()
        self.waiting -= 1
        self.forgotten += 1
        self._call_soon(lambda: loser.done(None))  # not from within a call of its own
        return True

    def _forget_unwanted(self, peer: str) -> None:
        line = self._lines.get(peer)
        if line is None:
            return
        wanted = deque(check for check in line if check.is_wanted())
        self.waiting -= len(line) - len(wanted)
        self.forgotten += len(line) - len(wanted)
        if wanted:
            self._lines[peer] = wanted
        else:
            del self._lines[peer]

    def _check(self, check: Check) -> None:
        try:
            matches = verify(check.password_hash, check.password)
        except Exception:  # a damaged hash, no memory: a no, or the thread would count as busy for ever
            matches = False
        with suppress(RuntimeError):  # the loop is closed: no caller is left to hear it
            self._call_soon(lambda: self._finish(check, matches))

    def _finish(self, check: Check, matches: bool) -> None:
        self.running -= 1
        self.checked += 1
        if self._running[check.peer] == 1:
            del self._running[check.peer]
        else:
            self._running[check.peer] -= 1
        if not self._closed:
            check.done(matches)
            self._start_next()


def threads_for(setting: int) -> int:
    """How many threads hash: what was set or, with 0, one for each core but the one that the broker needs."""
    if setting:
        return setting
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(THREADS_MAX, cores - 1))


def verify(password_hash: str, password: bytes) -> bool:
    """Whether a password fits a hash. What goes wrong inside argon2 (as out of memory) is a no.

    All lanes of a hash are worked on by the one thread that calls: argon2's own ``verify`` starts a thread for each,
    and the checks would then take all cores of a small machine, whatever ``hash_threads`` says.
    """
    match = _HASH.fullmatch(password_hash)
    if match is None:
        return False
    version, memory_kib, iterations, lanes = (int(part) for part in match.groups()[:4])
    salt, expected = (b64decode(part + "=" * (-len(part) % 4)) for part in match.groups()[4:])
    out = ffi.new("uint8_t[]", len(expected))
    held = ffi.new("uint8_t[]", password), ffi.new("uint8_t[]", salt)  # alive as long as argon2 reads them
    context = {
        "version": version, "out": out, "outlen": len(expected), "pwd": held[0], "pwdlen": len(password),
        "salt": held[1], "saltlen": len(salt), "secret": ffi.NULL, "secretlen": 0, "ad": ffi.NULL, "adlen": 0,
        "t_cost": iterations, "m_cost": memory_kib, "lanes": lanes, "threads": 1,
        "allocate_cbk": ffi.NULL, "free_cbk": ffi.NULL, "flags": 0,
    }  # fmt: skip
    if core(ffi.new("argon2_context *", context), Type.ID.value) != 0:
        return False
    return hmac.compare_digest(bytes(ffi.buffer(out)), expected)
