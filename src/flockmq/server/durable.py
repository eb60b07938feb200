"""The disk and the clock of a node's durable topics: what ``durable/`` decides is carried out here.

```
 open    the store in DATA_DIR/store, recovered off the loop --> DurableNode around the ClusterNode
 start   a tick every 50 ms; the journal driver writes what turns stage, and its word starts the next turn
 stop    no more turns --> what is staged is written, files are brought up to date for a quick start
```
Turns themselves are the node's: consensus speaks at the end of each loop turn, with everything else that it has to say.
"""

from __future__ import annotations

import asyncio
import os
import struct
import traceback
from typing import TYPE_CHECKING, Any, Final

from flockmq.admin.durable_port import BehindError
from flockmq.cluster.codec import StateFormatError
from flockmq.cluster.state import ClusterState
from flockmq.drivers.clock import now_ms, wall_ms
from flockmq.drivers.journal import JournalDriver, open_disk
from flockmq.durable.node import DurableNode
from flockmq.errors import FlockError
from flockmq.log.checksum import crc32c
from flockmq.raft.host import RaftHost
from flockmq.raft.settings import RaftSettings
from flockmq.server.cluster_id import forget_founded
from flockmq.server.data_dir import STORE_FOLDER

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from flockmq.cluster.policy import PolicySettings
    from flockmq.drivers.disk import FileDisk
    from flockmq.drivers.runner import Runner
    from flockmq.log.settings import StoreSettings
    from flockmq.log.store import Store
    from flockmq.log.work import Commit
    from flockmq.peering.node import ClusterNode
    from flockmq.server.log import Log

STATE_FILE: Final = "cluster-state"
"""What a node without a replica of the cluster state keeps of it."""

_MAGIC: Final = b"FLKS"
_HEAD: Final = struct.Struct("<4sI")
"""Before the copy: magic, CRC-32C of what follows."""

WHY_STOPPED: Final = "This node was stopped, or went to another cluster."
WHY_NO_ANSWER: Final = (
    "There was no answer before that; ask another one. What was to be changed may have been changed, or not."
)


class DurableService:
    """Made by ``open_durable`` in a running event loop."""

    def __init__(
        self,
        cluster: ClusterNode,
        boot: int,
        store: Store,
        disk: FileDisk,
        folder: Path,
        runner: Runner,
        log: Log,
        rng: random.Random,
        policy: PolicySettings,
    ) -> None:
        settings = RaftSettings(commit_news_at_once=True)
        host = RaftHost(cluster.node_id, boot, settings, rng, now_ms())
        self.log = log
        self._folder = folder
        self._runner = runner
        self._tick_s = settings.tick_ms / 1_000
        self._timer: asyncio.TimerHandle | None = None
        self._set_reading: Callable[[bool], None] | None = None
        self._may_be_founding = True
        self.expected: set[asyncio.Future[Any]] = set()
        """Answers that somebody waits for."""
        self.node = DurableNode(cluster, host, store, self._stopped, self._keep_state, now_ms(), wall_ms(), policy)
        self.journal = JournalDriver(store, disk, self._committed, self.node.engine.stop)
        self.node.engine.kick = self.journal.kick
        self.node.engine.wake = runner.flush_soon
        for note in store.notes:
            log.event("warning", "store_damaged", message=note)
        copy, trouble = load_state(folder)
        if trouble:
            log.event("warning", "cluster_state_set_aside", message=trouble)
        self.node.open(copy, now_ms(), is_copy_lost=bool(trouble))

    def start(self, set_reading: Callable[[bool], None]) -> None:
        """Begin to take part. ``set_reading``: let other nodes wait, or go on."""
        self._set_reading = set_reading
        self._tick()

    async def stop(self) -> None:
        """Take part no more and finish what is being written."""
        if self._timer is not None:
            self._timer.cancel()
        self.node.meta.save()
        self.node.engine.stop(WHY_STOPPED)
        await self.journal.close()

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._tick)
        node = self.node
        is_turn_due = True
        try:
            is_turn_due = node.tick(now_ms(), wall_ms())
        except Exception as error:
            self._fail(error)
        if self._set_reading is not None:
            self._set_reading(not node.engine.is_overwhelmed())
        if self._may_be_founding and node.meta.state.cluster_id:
            self._may_be_founding = False
            forget_founded(self._folder)
        for kind, fields in node.take_events():
            self._runner.events.note(kind, fields)
        if is_turn_due:
            self._runner.flush_soon()

    def _committed(self, commit: Commit) -> None:
        try:
            self.node.engine.committed(commit)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.node.engine.fail(error, "".join(traceback.format_exception(error)[-8:]))

    def _stopped(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for answer in [answer for answer in self.expected if not answer.done()]:
            answer.set_exception(BehindError(f"{reason} {WHY_NO_ANSWER}"))
        level = "info" if reason == WHY_STOPPED else "error"
        self.log.event(level, "consensus_stopped", message=reason)

    def _keep_state(self, data: bytes) -> None:
        """Replace the copy in one step; losing it costs a pull from another node, so it need not be synced."""
        partial = self._folder / f"{STATE_FILE}.partial"
        partial.unlink(missing_ok=True)
        # For its owner alone: hashes of passwords are in it.
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(_HEAD.pack(_MAGIC, crc32c(data)) + data)
        partial.replace(self._folder / STATE_FILE)


def has_topics(folder: Path) -> bool:
    """Whether this node was in a cluster with durable topics, or can't say."""
    try:
        data = _checked(_read(folder / STATE_FILE))
        return bool(data) and bool(ClusterState.decode(data).topics)
    except FlockError:
        return True


def load_state(folder: Path) -> tuple[bytes, str]:
    """The copy of the cluster state, empty without one; and why the copy was set aside, empty when it was not.

    A copy that can't be read is renamed: group 0's log, or another node, has all of what it held.
    """
    path = folder / STATE_FILE
    data = _read(path)
    if not data:
        return b"", ""
    try:
        data = _checked(data)
        ClusterState.decode(data)
    except StateFormatError:
        raise  # a newer version wrote it, and would miss it
    except FlockError:
        number = 1
        while (folder / f"{STATE_FILE}-damaged-{number}").exists():
            number += 1
        aside = path.rename(folder / f"{STATE_FILE}-damaged-{number}")
        return b"", (
            f"The copy of the cluster state in {path} is damaged; it is kept as {aside.name}, and this node takes the "
            "state from group 0's log or from another node. Clients are served once that is done; look at the disk."
        )
    return data, ""


def _checked(data: bytes) -> bytes:
    """What follows the checksum; FlockError when it is not what was written. Without a checksum: all of it."""
    if data[:4] != _MAGIC:
        return data
    if len(data) < _HEAD.size or _HEAD.unpack_from(data)[1] != crc32c(data[_HEAD.size :]):
        raise FlockError("The copy of the cluster state does not match its checksum.")
    return data[_HEAD.size :]


async def open_durable(
    cluster: ClusterNode,
    boot: int,
    folder: Path,
    settings: StoreSettings,
    runner: Runner,
    log: Log,
    rng: random.Random,
    policy: PolicySettings,
) -> DurableService:
    """Recover the store, off the loop, and put everything together. FlockError: the disk is not usable."""
    store, disk = await asyncio.to_thread(open_disk, folder / STORE_FOLDER, settings)
    return DurableService(cluster, boot, store, disk, folder, runner, log, rng, policy)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
