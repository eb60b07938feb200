"""Runs the consensus of a node that is nothing but consensus: sockets, disk and clock around the pure ``RaftEngine``.

```
 frames of peers, records to append, time: all that comes in one turn of the event loop
        |
        v
 engine.turn() --> frames: one per peer         --> kick(): the journal  --> engine.committed() --> the next turn
```
While there is much to do a turn waits until a few more looks at the sockets have found what else is there: fewer turns,
larger entries, and less processor time for each message. Alone, a message waits for nothing.

No rules in here. A whole broker drives its engine through ``server/durable.py`` instead, in its own loop turns.
"""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING, Final

from flockmq.drivers.clock import now_ms
from flockmq.drivers.journal import JournalDriver
from flockmq.errors import FlockError
from flockmq.raft.engine import REPLAY_BYTES_MAX, RaftEngine

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.drivers.disk import FileDisk
    from flockmq.drivers.links import Links
    from flockmq.log.store import Store
    from flockmq.log.work import Commit
    from flockmq.raft.host import RaftHost
    from flockmq.raft.ready import Ready


BUSY_BYTES: Final = 4_096
"""Peers said so much in the last turns, those long past counting less and less: there is much to do."""
LOOKS: Final = 3
"""How often sockets are looked at before a turn, then."""


class RaftDriver:
    """See the module. Made in a running event loop; the links call ``receive`` and ``writable``."""

    def __init__(
        self,
        host: RaftHost,
        store: Store,
        disk: FileDisk,
        links: Links,
        on_applied: Callable[[int, Ready], None],
        state_of: Callable[[int], bytes],
        on_stopped: Callable[[str], None],
        replay_bytes_max: int = REPLAY_BYTES_MAX,
    ) -> None:
        """As ``RaftEngine``, with the disk of its store and the links of its node."""
        self.links = links
        self._on_stopped = on_stopped
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._closed = False
        self._heard_bytes = 0
        """What peers said lately."""
        self.engine = RaftEngine(
            host,
            store,
            on_applied,
            state_of,
            self._stopped,
            self._kick,
            self.schedule,
            replay_bytes_max=replay_bytes_max,
        )
        self.journal = JournalDriver(store, disk, _without_witness, self._committed, self.engine.stop)

    def _kick(self) -> None:
        self.journal.kick()

    def start(self) -> None:
        """Begin to take part."""
        self._tick()

    async def close(self, *, checkpoint: bool = True) -> None:
        """Take part no more, finish what is being written. A second call changes nothing."""
        self.engine.stop("This node was stopped.")
        if not self._closed:
            self._closed = True
            await self.journal.close(checkpoint=checkpoint)

    # What the links say.

    def receive(self, peer: int, frame: bytes) -> None:  # noqa: ARG002  (a frame names its sender itself)
        """A frame of a peer has come; FlockError when it can't be read."""
        self._heard_bytes += len(frame)
        try:
            self.engine.receive(frame)
        except FlockError:
            raise
        except Exception as error:
            self._fail(error)
        if self.engine.is_overwhelmed():
            self.links.set_reading(False)

    def writable(self, peer: int, is_writable: bool) -> None:
        """The link to a peer has room for entries, or not."""
        self.engine.writable(peer, is_writable)

    # Turns.

    def schedule(self) -> None:
        """There is work: have a turn once everything that is there to be read was read."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._look, LOOKS if self._heard_bytes >= BUSY_BYTES else 0)

    def _look(self, times: int) -> None:
        if times:
            self._loop.call_soon(self._look, times - 1)
        else:
            self._turn()

    def _tick(self) -> None:
        if self.engine.stopped:
            return
        self._timer = self._loop.call_later(self.engine.host.settings.tick_ms / 1_000, self._tick)
        try:
            self.engine.tick(now_ms())
        except Exception as error:
            self._fail(error)

    def _turn(self) -> None:
        self._scheduled = False
        self._heard_bytes = self._heard_bytes * 3 // 4
        try:
            self.engine.turn(self.links.send)
        except Exception as error:
            self._fail(error)

    def _committed(self, commit: Commit) -> None:
        """The journal has a record more, on the disk."""
        try:
            self.engine.committed(commit)
        except Exception as error:
            self._fail(error)
        self.links.set_reading(True)

    # Ends.

    def _fail(self, error: Exception) -> None:
        self.engine.fail(error, "".join(traceback.format_exception(error)[-8:]))

    def _stopped(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.links.hang_up()
        self._on_stopped(reason)


def _without_witness(sequence: int) -> None:
    """Nothing replaces the stores of these processes."""
