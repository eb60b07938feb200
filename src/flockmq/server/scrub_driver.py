"""Reads files for a node's scrub in a thread of its own, and keeps the scrub's state over restarts.

```
 tick --> Scrubbing.take --> Inspection.perform (thread) --> Scrubbing.done --> the next one
      `-> once a minute: DATA_DIR/scrub-state, when each log was read and what is known to be damaged
```
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from flockmq.drivers.clock import now_ms, wall_ms

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from flockmq.drivers.disk import FileDisk
    from flockmq.durable.node import DurableNode
    from flockmq.log.survey import Inspection

SCRUB_FILE: Final = "scrub-state"
KEEP_MS: Final = 60_000
_state: Final = msgspec.json.Decoder(dict[str, list[list[int]]])


class ScrubDriver:
    """See the module. Belongs to the event loop's thread."""

    def __init__(
        self,
        node: DurableNode,
        disk: FileDisk,
        folder: Path,
        flush_soon: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._node = node
        self._disk = disk
        self._path = folder / SCRUB_FILE
        self._flush_soon = flush_soon
        self._fail = fail
        self._thread = ThreadPoolExecutor(1, "flockmq-scrub")
        self._kept = b""
        self._keep_at = now_ms() + KEEP_MS
        self._is_closed = False
        with suppress(OSError, msgspec.DecodeError, KeyError, ValueError):
            self._kept = self._path.read_bytes()
            node.scrubbing.recall(_state.decode(self._kept))

    def tick(self) -> None:
        """Begin to read if something is due."""
        if now_ms() >= self._keep_at:
            self._keep_at = now_ms() + KEEP_MS
            self._keep()
        self._begin()

    def _begin(self) -> None:
        work = None if self._is_closed else self._node.scrubbing.take(now_ms(), wall_ms())
        if work is not None:
            reading = asyncio.get_running_loop().run_in_executor(self._thread, work.perform, self._disk)
            reading.add_done_callback(partial(self._done, work))

    def _done(self, work: Inspection, reading: asyncio.Future[None]) -> None:
        if reading.cancelled() or self._is_closed or self._node.engine.stopped:
            return
        try:
            reading.result()
            self._node.scrubbing.done(work, now_ms(), wall_ms())
        except Exception as error:
            self._fail(error)
            return
        self._flush_soon()
        self._begin()

    def _keep(self) -> None:
        """Save the scrub's state. It need not be synced: losing it only makes a scrub come too early."""
        data = msgspec.json.encode(self._node.scrubbing.remember())
        if data == self._kept:
            return
        new = self._path.with_name(f"{SCRUB_FILE}.partial")
        with suppress(OSError):
            new.unlink(missing_ok=True)
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
            new.replace(self._path)
            self._kept = data

    async def close(self) -> None:
        """Read no more, before the disk is closed."""
        if not self._is_closed:
            self._is_closed = True
            self._keep()
            await asyncio.to_thread(self._thread.shutdown)
