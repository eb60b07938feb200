"""Does a store's work on the simulated disk, in virtual time, and dies in the middle of it.

```
 Store.take_commit --> write_through, some time later --> committed(commit)
 Store.take_chore ---> its calls one by one, each some time after the other --> done(chore)
                       `-- OSError anywhere: failed(error), for good
 crash: the call that is under way is torn, performed or not begun; those after it never happen
```
Commits and chores run side by side, as the threads of the real driver do, so their calls mix in every order.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from flockmq.log.store import Store
from flockmq.log.work import Chore, Commit
from flockmq.testing.simulation.disk import PowerLoss, SimulatedDisk
from flockmq.testing.simulation.events import EventQueue

WRITE_US: Final = (100, 1_500)
CALL_US: Final = (50, 1_000)

Call = tuple[Callable[..., None], tuple[object, ...]]


class _Recorder:
    """Writes down which calls a chore makes, so that they can be done one by one."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.calls: list[Call] = []
        self._disk = disk
        self._sizes: dict[str, int] = {}

    def read(self, path: str, position: int, length: int) -> bytes:
        return self._disk.read(path, position, length)

    def names(self, folder: str) -> list[str]:
        return self._disk.names(folder)

    def size(self, path: str) -> int:
        return self._sizes.get(path, self._disk.size(path))

    def write(self, path: str, position: int, data: bytes) -> None:
        self._sizes[path] = max(self.size(path), position + len(data))
        self.calls.append((self._disk.write, (path, position, data)))

    def write_through(self, path: str, position: int, data: bytes) -> None:
        self.calls.append((self._disk.write_through, (path, position, data)))

    def allocate(self, path: str, length: int) -> None:
        self._sizes[path] = length
        self.calls.append((self._disk.allocate, (path, length)))

    def truncate(self, path: str, length: int) -> None:
        self._sizes[path] = length
        self.calls.append((self._disk.truncate, (path, length)))

    def sync(self, path: str) -> None:
        self.calls.append((self._disk.sync, (path,)))

    def sync_folder(self, folder: str) -> None:
        self.calls.append((self._disk.sync_folder, (folder,)))

    def rename(self, old: str, new: str) -> None:
        self._sizes[new] = self.size(old)
        self._sizes[old] = -1
        self.calls.append((self._disk.rename, (old, new)))

    def remove(self, path: str) -> None:
        self._sizes[path] = -1
        self.calls.append((self._disk.remove, (path,)))


class StorageWorker:
    """One life of one store. ``committed`` is answered with ``settle()``, at once or when the process gets to it."""

    def __init__(
        self,
        queue: EventQueue,
        rng: random.Random,
        disk: SimulatedDisk,
        store: Store,
        committed: Callable[[], None],
        failed: Callable[[OSError], None],
    ) -> None:
        self.slow_us = 0
        """Every call may take up to this much longer."""
        self._queue = queue
        self._rng = rng
        self._disk = disk
        self._store = store
        self._committed = committed
        self._failed = failed
        self._commit: Commit | None = None
        self._chore: Chore | None = None
        self._calls: list[Call] = []
        self._is_written = False
        self._over = False

    @property
    def is_writing(self) -> bool:
        """Whether a commit is under way."""
        return self._commit is not None

    def begin(self, commit: Commit) -> None:
        """Start to write a commit that the store gave out."""
        self._commit = commit
        self._queue.after(self._delay(WRITE_US), self._finish_commit)

    def look_for_chores(self) -> None:
        """Start what the store wants to be done beside."""
        if self._chore is not None or self._over:
            return
        chore = self._store.take_chore()
        if chore is not None:
            recorder = _Recorder(self._disk)
            chore.perform(recorder)
            self._chore = chore
            self._calls = recorder.calls[::-1]
            self._queue.after(self._delay(CALL_US), self._step_chore)

    def die(self, rng: random.Random) -> None:
        """The process ends now; whatever was under way may have happened, or a part of it."""
        self._over = True
        if self._commit is not None and not self._is_written:
            self._half_do(rng, partial(self._commit.perform, self._disk))
        if self._calls:
            action, arguments = self._calls[-1]
            self._half_do(rng, lambda: action(*arguments))

    def _half_do(self, rng: random.Random, work: Callable[[], None]) -> None:
        how = rng.randrange(4)
        if how == 0:
            return
        self._disk.disarm()
        if how > 1:
            self._disk.lose_power_after(1)
        with suppress(PowerLoss, OSError):
            work()
        self._disk.disarm()

    def _delay(self, span: tuple[int, int]) -> int:
        return span[0] + int(self._rng.random() * (span[1] - span[0] + self.slow_us))

    def _finish_commit(self) -> None:
        commit = self._commit
        if self._over or commit is None:
            return
        try:
            commit.perform(self._disk)
        except OSError as error:
            self._fail(error)
            return
        self._is_written = True
        self._committed()

    def settle(self) -> None:
        """Let the store know that its commit is durable."""
        commit = self._commit
        assert commit is not None
        self._commit = None
        self._is_written = False
        self._store.committed(commit)

    def _step_chore(self) -> None:
        if self._over:
            return
        chore = self._chore
        assert chore is not None
        try:
            if self._calls:
                action, arguments = self._calls.pop()
                action(*arguments)
        except OSError as error:
            self._fail(error)
            return
        if self._calls:
            self._queue.after(self._delay(CALL_US), self._step_chore)
            return
        self._chore = None
        self._store.done(chore)
        self.look_for_chores()

    def _fail(self, error: OSError) -> None:
        self._over = True
        self._store.failed(error)
        self._failed(error)
