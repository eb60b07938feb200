"""The disk and the clock of a node's durable topics, which carry out the decisions of ``durable/``.

```
 open_store    DATA_DIR/store, recovered off the loop; the node is assembled with it
 open    the replicas in the store run
 start   a tick every 50 ms; the journal driver writes what turns stage, and its word starts the next turn
 stop    no more turns --> what is staged is written, files are brought up to date for a quick start
```
The node has the turns: consensus sends its frames at the end of each loop turn, with those of all other components.
"""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING, Any, Final

from flockmq.cluster.state import ClusterState
from flockmq.drivers.clock import now_ms, wall_ms
from flockmq.drivers.journal import JournalDriver
from flockmq.durable.state.refounding import GROUP, refound
from flockmq.errors import NotReady
from flockmq.raft.state import SOUND
from flockmq.server.cluster_id import forget_founded, note_founded
from flockmq.server.folder_trouble import why_unwritable
from flockmq.server.scrub_driver import ScrubDriver
from flockmq.server.state_copy import is_outdated, load_state, outdate_state, peek_state, save_state
from flockmq.server.store_opening import OpenedStore, open_checked, used_acceptance

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from flockmq.drivers.runner import Runner
    from flockmq.durable.node import DurableNode
    from flockmq.log.settings import StoreSettings
    from flockmq.log.work import Commit
    from flockmq.server.log import Log

WHY_STOPPED: Final = "This node was stopped, or went to another cluster."
WHY_NO_ANSWER: Final = (
    "There was no answer before that; ask another one. What was to be changed may have been changed, or not."
)
WHY_UNDECIDED: Final = (
    "The log of the cluster state is damaged, and no other node has it, so nothing can be decided. Put the store back; "
    "or run `flockmq log accept-loss {folder}` and start again to go on with the copy of the state."
)


class DurableService:
    """See the module. Make it in a running event loop, then ``open`` it once."""

    def __init__(self, node: DurableNode, opened: OpenedStore, folder: Path, runner: Runner, log: Log) -> None:
        self.log = log
        self.node = node
        self._folder = folder
        self._runner = runner
        self._tick_s = node.engine.host.settings.tick_ms / 1_000
        self._timer: asyncio.TimerHandle | None = None
        self._set_reading: Callable[[bool], None] | None = None
        self._may_be_founding = True
        self.trouble = ""
        """Why files beside the store can't be written; empty when they can."""
        self.expected: set[asyncio.Future[Any]] = set()
        """Futures of requests that wait for an outcome."""
        self._opened = opened
        self._witness = opened.witness
        self.scrub = ScrubDriver(node, opened.disk, folder, runner.flush_soon, self._fail)
        self.journal = JournalDriver(
            opened.store, opened.disk, self._witness.committed, self._committed, node.engine.stop
        )

    def open(self) -> None:
        """Run the replicas that the store holds, with the copy of cluster state beside it."""
        log, node, folder = self.log, self.node, self._folder
        if self._opened.lost:
            log.event("error", "store_lost", message=self._opened.lost)
        for note in self._opened.store.notes:
            log.event("warning", "store_damaged", message=note)
        copy, trouble = load_state(folder)
        if trouble:
            log.event("warning", "cluster_state_set_aside", message=trouble)
        node.open(copy, now_ms(), is_copy_lost=bool(trouble) or is_outdated(folder))
        host = node.engine.host
        decider = host.groups.get(GROUP)
        is_alone = decider is not None and decider.state.configuration.voters == (host.node_id,)
        if decider is not None and is_alone and decider.state.health != SOUND:
            log.event("error", "store_damaged", message=WHY_UNDECIDED.format(folder=folder))

    def start(self, set_reading: Callable[[bool], None]) -> None:
        """Start the ticks. ``set_reading`` pauses and resumes reading from other nodes."""
        self._set_reading = set_reading
        self._tick()

    async def stop(self) -> None:
        """Stop taking turns, and finish writes under way."""
        if self._timer is not None:
            self._timer.cancel()
        self.node.meta.save()
        self.node.engine.stop(WHY_STOPPED)
        await self.scrub.close()
        await self.journal.close()
        self._witness.close()

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
            try:
                forget_founded(self._folder)
            except OSError as error:
                self._tell_trouble(error)
        for kind, fields in node.take_events():
            self._runner.events.note(kind, fields)
        if is_turn_due:
            self._runner.flush_soon()
        self.scrub.tick()

    def _committed(self, commit: Commit) -> None:
        try:
            self.node.engine.committed(commit)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.node.engine.fail(error, "".join(traceback.format_exception(error)[-8:]))

    def stopped(self, reason: str) -> None:
        """Consensus has stopped: fail the requests that wait for it."""
        if self._timer is not None:
            self._timer.cancel()
        for answer in [answer for answer in self.expected if not answer.done()]:
            answer.set_exception(NotReady(f"{reason} {WHY_NO_ANSWER}"))
        level = "info" if reason == WHY_STOPPED else "error"
        self.log.event(level, "consensus_stopped", message=reason)

    def keep(self, state: bytes) -> None:
        """Save a copy of cluster state. Without one the next start asks the others first: no reason to stop now."""
        try:
            save_state(self._folder, state)
            self.trouble = ""
        except OSError as error:
            self._tell_trouble(error)

    def outdate(self) -> None:
        """Note that the copy of cluster state lacks a change."""
        try:
            outdate_state(self._folder)
        except OSError as error:
            self._tell_trouble(error)

    def _tell_trouble(self, error: OSError) -> None:
        text = why_unwritable(self._folder, error)
        if text != self.trouble:
            self.trouble = text
            self.log.event("error", "data_folder_not_writable", message=text)


def open_store(node_id: int, folder: Path, settings: StoreSettings) -> OpenedStore:
    """Recover the store. Blocks. FlockError: the disk is not usable."""
    opened = open_checked(folder, node_id, settings)
    if opened.is_accepted:
        state = peek_state(folder) or ClusterState()
        if state.index or GROUP in opened.store.groups:
            if refound(opened.store, opened.disk, node_id, state):
                save_state(folder, state.encode())
        elif not opened.store.groups:
            note_founded(folder, opened.store.identity)
    used_acceptance(folder)
    return opened
