"""Runs all Raft groups of a node: sockets, disk and clock on one side, the pure ``RaftHost`` on the other.

```
 frames of peers, records to append, time: all that comes in one turn of the event loop
        |
        v
 turn():  records --> one run per group (``raft_appends``)
          host.take_turn() --> writes: staged in the store --> journal thread --> host.persisted --> the next turn
                           --> frames: one per peer
                           --> committed entries: to whoever applies them, then outcomes to whoever waits
```
No rules in here: what must be durable before what is said, and what a turn contains, is the host's business. When the
disk fails, or something happens that can't, the node takes part no more: it says nothing that it could not keep.
"""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING, Final, Protocol

from flockmq.drivers.clock import now_ms
from flockmq.drivers.journal import JournalDriver
from flockmq.drivers.raft_appends import Appends
from flockmq.errors import FlockError
from flockmq.log.errors import DamageError, StoreDown
from flockmq.node.events import EventList
from flockmq.raft.replay import ReplayBound
from flockmq.raft.replicas import stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.drivers.disk import FileDisk
    from flockmq.log.store import Store
    from flockmq.log.work import Commit
    from flockmq.raft.host import GroupReady, RaftHost
    from flockmq.raft.ready import Ready
    from flockmq.raft.replicas import Replica

UNWRITTEN_BYTES_MAX: Final = 64 * 1024 * 1024
"""Frames that are taken in while the disk has no room; then peers have to wait."""
REPLAY_BYTES_MAX: Final = 32 * 1024 * 1024
"""Entries that a restart applies again, of all groups together; beyond that checkpoints are made."""
CHECKPOINTS_MAX: Final = 16
"""That are being saved at once."""


class FrameLinks(Protocol):
    """What consensus needs of ``drivers/links.py``."""

    def send(self, peer_id: int, frame: bytes) -> bool:
        """Send a frame, or drop it."""

    def set_reading(self, reading: bool) -> None:
        """Let peers wait, or go on."""

    def hang_up(self) -> None:
        """Nothing more is to be said or heard."""


class RaftDriver:
    """See the module. Made in a running event loop; the links call ``receive`` and ``writable``."""

    def __init__(
        self,
        host: RaftHost,
        store: Store,
        disk: FileDisk,
        links: FrameLinks,
        on_applied: Callable[[int, Ready], None],
        state_of: Callable[[int], bytes],
        on_stopped: Callable[[str], None],
        replay_bytes_max: int = REPLAY_BYTES_MAX,
    ) -> None:
        """Make a driver for a host whose groups are yet to be opened.

        ``on_applied``: a group has something to apply: ``install`` (the checkpoint of its replica has the state), then
        ``committed``. ``state_of``: the state after all of that, for a checkpoint. ``on_stopped``: why.
        """
        self.host = host
        self.store = store
        self.links = links
        self.replicas: dict[int, Replica] = {}
        """All groups of the host, as ``open_replica`` made them."""
        self.events = EventList()
        self.stopped = ""
        """Why this node takes part no more; empty while it does."""
        self.turns = 0
        self.appends = Appends(host, self.schedule)
        self.after_turn: list[Callable[[], None]] = []
        """Called once, at the end of a turn when all its outcomes are known: write your answers then."""
        self.journal = JournalDriver(store, disk, self._committed, self._stop)
        self._on_applied = on_applied
        self._state_of = state_of
        self._replay = ReplayBound(replay_bytes_max)
        self._on_stopped = on_stopped
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._closed = False
        self._writing: list[tuple[int, int]] = []
        """(number of the journal record, number of the turn) of turns that are not durable."""
        self._unwritten_bytes = 0
        self._broken: set[int] = set()
        self._reads: dict[int, tuple[int, Callable[[bool], None]]] = {}
        self._reads_due: dict[int, list[tuple[int, Callable[[bool], None]]]] = {}
        self._read_number = 0

    def start(self) -> None:
        """Begin to take part."""
        self._tick()

    async def close(self, *, checkpoint: bool = True) -> None:
        """Take part no more, finish what is being written. A second call changes nothing."""
        self._stop("This node was stopped.")
        if not self._closed:
            self._closed = True
            await self.journal.close(checkpoint=checkpoint)

    def read(self, group: int, answer: Callable[[bool], None]) -> None:
        """Call back when all that was committed before now is applied here; False: not here, ask the leader."""
        self._read_number += 1
        self._reads[self._read_number] = (group, answer)
        if self.stopped or not self.host.read(group, self._read_number, now_ms()):
            del self._reads[self._read_number]
            answer(False)
            return
        self.schedule()

    @property
    def replay_bytes(self) -> int:
        """What a restart would apply again."""
        return self._replay.bytes

    # What the links say.

    def receive(self, peer: int, frame: bytes) -> None:  # noqa: ARG002  (a frame names its sender itself)
        """A frame of a peer has come; FlockError when it can't be read."""
        if self.stopped:
            return
        if not self.store.has_room():
            self._unwritten_bytes += len(frame)
            if self._unwritten_bytes > UNWRITTEN_BYTES_MAX:
                self.links.set_reading(False)
        try:
            self.host.receive(frame)
        except FlockError:
            raise
        except Exception as error:
            self._fail(error)
        self.schedule()

    def writable(self, peer: int, is_writable: bool) -> None:
        """The link to a peer has room for entries, or not."""
        if is_writable:
            self.host.resume(peer)
            self.schedule()
        else:
            self.host.pause(peer)

    # Turns.

    def schedule(self) -> None:
        """There is work: have a turn once everything that is there to be read was read."""
        if not self._scheduled and not self.stopped:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(self.host.settings.tick_ms / 1_000, self._tick)
        try:
            self.host.tick(now_ms())
        except Exception as error:
            self._fail(error)
        try:
            self._checkpoint()
        except StoreDown as error:
            self._stop(str(error))
            return
        if self.host.has_work():
            self.schedule()

    def _checkpoint(self) -> None:
        """Let checkpoints count that are saved, and begin others when a restart would have too much to do."""
        replay = self._replay
        for group in replay.saving:
            if self.replicas[group].checkpoints.use_saved():
                replay.saved(group)
        for group in replay.due(CHECKPOINTS_MAX):
            replica = self.replicas[group]
            if replica.checkpoints.save(replica.node, self.host.desks[group].table, self._state_of(group)):
                replay.begun(group)
        self.journal.kick()

    def _turn(self) -> None:
        self._scheduled = False
        if self.stopped:
            return
        self.turns += 1
        try:
            self._take_turn()
        except StoreDown as error:
            self._stop(str(error))
        except Exception as error:
            self._fail(error)

    def _take_turn(self) -> None:
        self.appends.submit()
        turn = self.host.take_turn(self.store.has_room())
        for peer, frame in turn.frames:
            self.links.send(peer, frame)
        if turn.number:
            self._stage(turn.writes)
            # Whatever is staged now goes with the next record that is taken, whenever that is.
            self._writing.append((self.store.sequence, turn.number))
            self.journal.kick()
        for one in turn.applies:
            self._apply(one)
        self.appends.settle()
        after = self.after_turn
        self.after_turn = []
        for action in after:
            action()
        if self.host.broken:
            self._note_broken()
        if self.store.has_room() and self.host.has_work():
            self.schedule()

    def _stage(self, writes: list[GroupReady]) -> None:
        for write in writes:
            try:
                stage(self.replicas[write.group], write.ready)
            except DamageError as error:
                # What it was to forget can't be found. Nothing of this group becomes durable any more.
                self.host.break_group(write.group, error)

    def _apply(self, one: GroupReady) -> None:
        ready = one.ready
        if ready.install is not None:
            self._replay.installed(one.group)
        if ready.install is not None or ready.committed:
            self._on_applied(one.group, ready)
            self._replay.applied(one.group, sum([len(entry.data) for entry in ready.committed]))
        due = self._reads_due.pop(one.group, [])
        for read in ready.reads:
            _, answer = self._reads.pop(read.number)
            if read.index < 0:
                answer(False)
            else:
                due.append((read.index, answer))
        if due:
            applied = self.host.groups[one.group].state.applied
            waiting = [(index, answer) for index, answer in due if index > applied]
            if waiting:
                self._reads_due[one.group] = waiting
            for index, answer in due:
                if index <= applied:
                    answer(True)

    def _committed(self, commit: Commit) -> None:
        """The journal thread has written a record."""
        if self.stopped:
            return
        number = 0
        while self._writing and self._writing[0][0] <= commit.sequence:
            number = self._writing.pop(0)[1]
        try:
            self.host.persisted(number)
        except Exception as error:
            self._fail(error)
        self._unwritten_bytes = 0
        self.links.set_reading(True)
        self.schedule()

    # Ends.

    def _note_broken(self) -> None:
        for group, error in self.host.broken.items():
            if group not in self._broken:
                self._broken.add(group)
                self.events.note("group_stopped", {"group": group, "reason": str(error)})

    def _fail(self, error: Exception) -> None:
        """A bug: after it nobody knows what is true."""
        trace = "".join(traceback.format_exception(error)[-8:])
        self.events.note("internal_error", {"doing": "consensus", "error": repr(error), "traceback": trace})
        self._stop(f"Consensus met an error that it should not ({error!r}); report it with the log, restart the node.")

    def _stop(self, reason: str) -> None:
        if self.stopped:
            return
        self.stopped = reason
        if self._timer is not None:
            self._timer.cancel()
        self.links.hang_up()
        self.appends.stop()
        for _, answer in [*self._reads.values(), *(one for due in self._reads_due.values() for one in due)]:
            answer(False)
        self._reads = {}
        self._reads_due = {}
        for action in self.after_turn:
            action()
        self.after_turn = []
        self._on_stopped(reason)
