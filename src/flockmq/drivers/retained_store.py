"""Keeps the broker's retained messages on disk, and never lets the event loop wait for it.

```
 start    open the file --> rows, some at a time --> store.restore --> listeners may open
 running  store.unsaved: names that changed --every SAVE_MS--> their present messages --> one thread: one transaction
 stop     what is unsaved is written, the file is closed
```
Only names wait, each once, and one batch is on its way at a time: when the disk is slower than publishers, a
topic that changed a thousand times is written once, with what it holds then.

| what goes wrong | what happens |
| --- | --- |
| the file is damaged | it is set aside under another name, what could be read of it stays, a new one gets everything |
| the disk is full, or fails | the broker goes on in memory, says so (``problem``), and tries again and again |
| more names than can be remembered wait | everything is written anew, in one transaction |
"""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

from flockmq.drivers.clock import now_ms
from flockmq.drivers.retained_db import DamagedFile, RetainedDb, Row, set_aside
from flockmq.errors import RemoteProtocolError
from flockmq.mqtt.stored import stored_run
from flockmq.routing.buckets import ORIGIN_BITS, ORIGIN_MASK
from flockmq.routing.clock import AHEAD_MS_MAX, STAMP_MAX, stamp_wall_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import TypeVar

    from flockmq.mqtt.run import Run
    from flockmq.node.events import EventList
    from flockmq.routing.retained import RetainedStore

    T = TypeVar("T")

SAVE_MS: Final = 100
"""Gap between two looks for something to write."""
BATCH_TOPICS: Final = 2_000
BATCH_BYTES: Final = 8_388_608
RETRY_MS: Final = (1_000, 5_000, 15_000, 60_000)
"""Gaps between attempts while the disk fails; the last one goes on."""
STOP_S_MAX: Final = 5.0


class RetainedStorage:
    """The disk's side of one RetainedStore. ``open`` before listeners, ``stop`` after the last client.

    ``sqlite3.Error`` and OSError never leave it: ``problem`` is a sentence while messages are in memory only, else "".
    """

    def __init__(
        self,
        path: Path,
        store: RetainedStore,
        events: EventList,
        clock: Callable[[], int] = now_ms,
        save_ms: int = SAVE_MS,
    ) -> None:
        self.path = path
        self.problem = ""
        self.loaded = 0
        """Messages that the last start found."""
        self.saved = 0
        """Rows written or deleted since."""
        self._store = store
        self._unsaved = store.keep_unsaved()
        self._events = events
        self._clock = clock
        self._save_s = save_ms / 1000
        self._db: RetainedDb | None = None
        self._has_read = False
        self._rewrite: list[bytes] | None = None
        """What is left to write of everything, when everything is written anew."""
        self._rewrite_begun = False
        self._failures = 0
        self._thread = ThreadPoolExecutor(1, "flockmq-retained")
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._waiters: list[asyncio.Future[None]] = []
        self._stopping = False

    async def open(self) -> None:
        """Bring back what the file has, and begin to save."""
        with suppress(Unusable):
            await self._open()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Write what is unsaved, close the file; gives up on a disk that does not answer."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._task, STOP_S_MAX)
        self._thread.shutdown(wait=False)

    async def flush(self) -> None:
        """Have what is unsaved written now; back when it is, or can't be. Not after ``stop``."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._wake.set()
        await waiter

    # --- the task that saves ---

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopping:
            delay_s = RETRY_MS[min(self._failures, len(RETRY_MS)) - 1] / 1000 if self._failures else self._save_s
            due = loop.call_later(delay_s, self._wake.set)
            await self._wake.wait()
            due.cancel()
            self._wake.clear()
            waiters, self._waiters = self._waiters, []
            await self._save_some()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
        await self._save_some()  # what clients did last, and wills
        if self._db is not None:
            await self._in_thread(self._db.close)

    async def _save_some(self) -> None:
        """Write until nothing is left, or the disk fails; what was set aside as damaged is replaced at once."""
        for _ in range(2):
            try:
                if self._db is None:
                    await self._open()
                while self._has_unsaved():
                    await self._save()
            except Unusable:
                if not self._failures:
                    continue
            return

    def _has_unsaved(self) -> bool:
        return bool(self._unsaved.topics) or self._unsaved.lost_count or self._rewrite is not None

    async def _save(self) -> None:
        """Write one batch; Unusable when it can't be written now, and nothing is forgotten."""
        db = self._db
        if db is None:
            raise Unusable
        if self._unsaved.lost_count:
            self._unsaved.lost_count = False
            self._write_all_anew()
        names = self._next_names()
        puts: list[Row] = []
        deletes: list[bytes] = []
        size = 0
        for at, topic in enumerate(names):
            row = self._row(topic)
            if row is None:
                deletes.append(topic)
            else:
                puts.append(row)
                size += len(row.wire or b"")
            if size >= BATCH_BYTES:
                self._give_back(names[at + 1 :])
                names = names[: at + 1]
                break
        clear = self._rewrite is not None and not self._rewrite_begun
        more = bool(self._rewrite)
        try:
            await self._in_thread(lambda: db.write(puts, deletes, clear, more))
        except (DamagedFile, sqlite3.Error, OSError) as error:
            self._give_back(names)
            await self._failed(error)
        self._rewrite_begun = more
        if not more:
            self._rewrite = None
        self.saved += len(names)
        self._worked()

    def _next_names(self) -> list[bytes]:
        if self._rewrite is None:
            return self._unsaved.take(BATCH_TOPICS)
        names = self._rewrite[-BATCH_TOPICS:]
        del self._rewrite[-BATCH_TOPICS:]
        return names

    def _give_back(self, names: list[bytes]) -> None:
        if self._rewrite is not None:
            self._rewrite.extend(names)
            return
        for topic in names:
            self._unsaved.add(topic)

    def _write_all_anew(self) -> None:
        self._unsaved.topics.clear()
        self._rewrite = self._store.entries()
        self._rewrite_begun = False

    def _row(self, topic: bytes) -> Row | None:
        """What the file should have for a topic; None for nothing."""
        store = self._store
        message = store.message(topic)
        if message is None:
            version = store.version(topic)
            if not version:
                return None
            return Row(topic, version >> ORIGIN_BITS, _signed(version & ORIGIN_MASK), 0, 0, None)
        run = message.run
        expires = max(run.expires_at + store.wall_offset_ms, 1) if run.expires_at else 0
        return Row(topic, message.stamp, _signed(message.origin), expires, run.version, run.wire)

    # --- opening and reading ---

    async def _open(self) -> None:
        """Open the file and read it if that was not done yet; Unusable when it can't be."""
        try:
            db = await self._in_thread(lambda: RetainedDb(self.path))
            self._db = db
            if not self._has_read:
                await self._read(db)
        except (DamagedFile, sqlite3.Error, OSError) as error:
            await self._failed(error)
        if not self._has_unsaved():
            self._worked()  # else the next batch will show

    async def _read(self, db: RetainedDb) -> None:
        batches = db.read()
        unreadable = 0
        latest = 0
        while (rows := await self._in_thread(lambda: _next_batch(batches))) is not None:
            for row in rows:
                stamp = self._restore(row)
                unreadable += stamp == 0
                latest = max(latest, stamp)
        self._has_read = True
        if unreadable:
            self._events.note(
                "retained_rows_unreadable",
                {
                    "file": str(self.path),
                    "rows": unreadable,
                    "message": "These retained messages can't be read and are left out; publish them again.",
                },
            )
        ahead_ms = stamp_wall_ms(latest) - self._clock() - self._store.wall_offset_ms
        if ahead_ms > AHEAD_MS_MAX:
            self._events.note(
                "retained_clock_behind",
                {
                    "behind_ms": ahead_ms,
                    "message": "This machine's clock is behind the newest retained message by that much, so that "
                    "other nodes won't believe what is retained here; set the clock.",
                },
            )

    def _restore(self, row: Row) -> int:
        """Take a row over; its stamp, or 0 when it is none of ours."""
        if not _is_sound(row):
            return 0
        topic, stamp, origin, expires, version, wire = row
        if topic in self._unsaved.topics:
            return stamp  # the file could not be opened for a while: what happened since counts
        run: Run | None = None
        if wire is not None:
            expires_at = max(expires - self._store.wall_offset_ms, 1) if expires else 0
            try:
                run = stored_run(version, wire, expires_at)
            except RemoteProtocolError:
                self._unsaved.add(topic)
                return 0
        if not 0 < stamp <= STAMP_MAX or (run is not None and run.topic != topic):
            self._unsaved.add(topic)
            return 0
        if self._store.restore(topic, run, stamp, origin & ORIGIN_MASK, self._clock()):
            self.loaded += run is not None
        else:
            self._unsaved.add(topic)  # expired, or forgotten by now: the file need not have it any more
        return stamp

    # --- when it does not work ---

    async def _failed(self, error: Exception) -> NoReturn:
        """Say what is wrong and raise Unusable; a damaged file is set aside so that the next attempt has a new one."""
        db, self._db = self._db, None
        if db is not None:
            await self._in_thread(lambda: _close(db))
        if self._rewrite is not None:
            self._write_all_anew()
        self._failures += 1
        if isinstance(error, DamagedFile):
            await self._replace(str(error))
        elif not self.problem:
            self.problem = (
                f"Retained messages are kept in memory only, because {self.path} can't be written ({error}); make room "
                "on that disk or repair it, and they are saved again."
            )
            self._events.note("retained_not_saved", {"file": str(self.path), "message": self.problem})
        raise Unusable from error

    async def _replace(self, why: str) -> None:
        try:
            aside = await self._in_thread(lambda: set_aside(self.path))
        except OSError:
            return  # the next attempt finds the same damage, or the reason why it can't be moved
        self._has_read = True  # what could be read of it has been
        self._write_all_anew()
        self._failures = 0  # the next attempt comes at once
        self._wake.set()
        self._events.note(
            "retained_damaged",
            {
                "file": str(aside),
                "restored": self.loaded,
                "message": f"The file of retained messages is damaged ({why}); it was set aside under this name, and "
                "what could be read of it is kept. Publish the missing messages again.",
            },
        )

    def _worked(self) -> None:
        self._failures = 0
        if self.problem:
            self.problem = ""
            self._events.note(
                "retained_saved_again",
                {"file": str(self.path), "message": "Retained messages are saved again."},
            )

    async def _in_thread(self, action: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, action)


class Unusable(Exception):  # noqa: N818  (no error of the caller)
    """The file can't be used now; it was said why."""


def _next_batch(batches: Iterator[list[Row]]) -> list[Row] | None:
    return next(batches, None)


def _is_sound(row: tuple[object, ...]) -> bool:
    """Whether the columns have the types they should: SQLite itself does not insist."""
    topic, *numbers, wire = row
    return (
        isinstance(topic, bytes)
        and all(isinstance(number, int) for number in numbers)
        and (wire is None or isinstance(wire, bytes))
    )


def _close(db: RetainedDb) -> None:
    with suppress(sqlite3.Error):
        db.close()


def _signed(origin: int) -> int:
    return origin - (1 << 64) if origin >> 63 else origin
