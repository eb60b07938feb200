"""Runs a store's commits and chores beside the event loop, which goes on while the disk works.

```
 event loop: logs stage ... kick() --> take_commit() ---> kernel, or journal thread: one durable write --+
                 ^                                                         witness(its number)           |
                 +--- on_committed(commit); whatever was staged meanwhile is the next commit <-----------+
                      kick() --> take_chore() ----> chore thread: checkpoints, fresh journal files, snapshots
```
That is group commit: while one write runs everything else gathers, and goes with the next one. The first failure is the
last: the store is down, nothing more is begun, ``on_failed`` is told why.

Where the kernel can write by itself (``kernel_writes.py``) it does; then only a file system that is frozen, as some
backups do, holds up the event loop. The thread writes what begins a file, and elsewhere everything. When it has written
it has to wait until the event loop's thread lets go of the interpreter, which by default it need not for 5 ms: as long
as several writes take. So it is asked much sooner.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from flockmq.drivers.disk import FileDisk
from flockmq.drivers.kernel_writes import kernel_writes
from flockmq.log.recovery import open_store
from flockmq.log.settings import StoreSettings
from flockmq.log.work import Checkpoint, Chore, Commit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from flockmq.log.store import Store

SYNC_THREADS: Final = 16
"""Segments synced at once by a checkpoint: the file system then writes its own journal once for all of them. Those that
have much to be written go one after the other: commits have to share the disk with them."""
SWITCH_S: Final = 0.0005
"""How long a thread works while another one waits for the interpreter. Less costs switches, more delays commits."""


class JournalDriver:
    """Drives one store. All methods belong to the event loop's thread.

    ``witness``: keeps the number of a commit that is durable, before anything of it is acknowledged.
    """

    def __init__(
        self,
        store: Store,
        disk: FileDisk,
        witness: Callable[[int], None],
        on_committed: Callable[[Commit], None],
        on_failed: Callable[[str], None],
    ) -> None:
        self.store = store
        self.commits = 0
        self._disk = disk
        self._witness = witness
        self._on_committed = on_committed
        self._on_failed = on_failed
        self._loop = asyncio.get_running_loop()
        self._kernel = kernel_writes(self._loop, self._kernel_wrote)
        self._in_kernel: Commit | None = None
        self._commits: SimpleQueue[Commit | None] = SimpleQueue()
        self._chores: SimpleQueue[Chore | None] = SimpleQueue()
        self._busy = 0
        self._closing = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._threads = [
            threading.Thread(target=self._write_commits, name="flockmq-journal", daemon=True),
            threading.Thread(target=self._do_chores, name="flockmq-chores", daemon=True),
        ]
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_S))
        for thread in self._threads:
            thread.start()
        self.kick()

    def kick(self) -> None:
        """Start what can be started: call it after logs staged something. Cheap when there is nothing to do."""
        commit = self.store.take_commit()
        if commit is not None:
            self._started()
            self._begin(commit)
        chore = self.store.take_chore()
        if chore is not None:
            self._started()
            self._chores.put(chore)

    async def close(self, *, checkpoint: bool = True) -> None:
        """Finish what is staged, bring the files up to date for a quick start, and stop. Once, however often called."""
        if self._closing:
            return
        self._closing = True
        if checkpoint and not self.store.down:
            self.store.request_checkpoint()
        self.kick()
        await self._idle.wait()
        self._commits.put(None)
        self._chores.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)
        kernel, self._kernel = self._kernel, None
        if kernel is not None:
            await kernel.close()
        self._disk.close()

    def _started(self) -> None:
        self._busy += 1
        self._idle.clear()

    def _finished(self) -> None:
        self._busy = max(self._busy - 1, 0)
        if not self._busy:
            self._idle.set()

    def _begin(self, commit: Commit) -> None:
        file = self._disk.following(commit.path, commit.position)
        if file is not None and self._kernel is not None and self._kernel.begin(file, commit.position, commit.record):
            self._in_kernel = commit
        else:
            self._commits.put(commit)

    def _kernel_wrote(self, error: OSError | None) -> None:
        commit, self._in_kernel = self._in_kernel, None
        assert commit is not None
        if error is not None:
            self._failed(error)
        else:
            self._witness(commit.sequence)
            self._committed(commit)

    def _write_commits(self) -> None:
        while True:
            commit = self._commits.get()
            if commit is None:
                return
            try:
                commit.perform(self._disk)
                self._witness(commit.sequence)
            except Exception as error:  # whatever it was, nothing is certain any more
                self._report(self._failed, error)
                return
            self._report(self._committed, commit)

    def _do_chores(self) -> None:
        with ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="flockmq-sync") as pool:
            while True:
                chore = self._chores.get()
                if chore is None:
                    return
                try:
                    if isinstance(chore, Checkpoint):
                        small = [flush for flush in chore.flushes if not flush.is_large]
                        list(pool.map(lambda flush: flush.perform(self._disk), small))
                        for flush in chore.flushes:
                            if flush.is_large:
                                flush.perform(self._disk)
                        chore.publish(self._disk)
                    else:
                        chore.perform(self._disk)
                except Exception as error:
                    self._report(self._failed, error)
                    return
                self._report(self._done, chore)

    def _report(self, method: Callable[..., None], value: object) -> None:
        with suppress(RuntimeError):  # the loop was closed before this driver: no caller is left
            self._loop.call_soon_threadsafe(method, value)

    def _committed(self, commit: Commit) -> None:
        self.commits += 1
        self.store.committed(commit)
        if not self.store.down:
            self._on_committed(commit)
        self.kick()
        self._finished()

    def _done(self, chore: Chore) -> None:
        self.store.done(chore)
        self.kick()
        self._finished()

    def _failed(self, error: Exception) -> None:
        if not self.store.down:
            self.store.failed(error)
            self._on_failed(self.store.down)
        self._busy = 0
        self._idle.set()


def open_disk(root: Path, settings: StoreSettings) -> tuple[Store, FileDisk]:
    """The store in a folder, recovered. Blocks while it reads the journal."""
    disk = FileDisk(root, kernel_writes=settings.kernel_writes)
    try:
        return open_store(disk, settings, random.SystemRandom()), disk
    except BaseException:
        disk.close()
        raise
