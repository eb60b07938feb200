"""A machine of the layer ``consensus``: besides its disk it has a clock that may be wrong, and traps."""

from __future__ import annotations

import random
import zlib
from typing import TYPE_CHECKING, Final

from flockmq.log.errors import DamageError
from flockmq.testing.simulation.clock import NodeClock
from flockmq.testing.simulation.consensus.process import Process
from flockmq.testing.simulation.machine import Machine

if TYPE_CHECKING:
    from flockmq.testing.simulation.consensus.cluster import Cluster

TICK_MS: Final = 50
RESTART_US: Final = 100_000


class SimulatedNode(Machine[Process]):
    """See the module."""

    def __init__(self, cluster: Cluster, number: int, rng: random.Random) -> None:
        super().__init__(cluster, number, rng, TICK_MS)
        self.cluster = cluster
        self.clock = NodeClock(cluster.queue, rng.randrange(1_000_000), rng.randrange(-2_000, 2_000))
        self.trap = ""

    def boot(self) -> Process:
        """Start; a store that can't be read at all is moved aside, as its error asks an operator to do."""
        self._make_sound()
        try:
            return Process(self, self.rng)
        except DamageError:
            if self.number not in self.cluster.plan.victims:
                raise
            self.cluster.count("stores lost")
            self.disk.wipe()
            return Process(self, self.rng)

    def begin(self, process: Process) -> None:
        """Take a first turn."""
        process.turn()

    def tick(self, process: Process) -> None:
        """Let it see what its own clock says."""
        process.tick(self.clock.now_ms())

    def give_up(self, reason: str, restart: bool = False) -> None:
        """The process stops by itself: its disk failed, or holds damage."""
        self.cluster.trace.note("give up", self.number)
        self.cluster.trace.say(reason)
        self.cluster.count("gave up")
        self.die(self.rng, power=False)
        if restart:
            self.cluster.queue.after(RESTART_US, self.start)

    def runs(self, process: Process) -> bool:
        """Whether this is the process that runs here now."""
        return self.process is process

    def receive(self, sender: int, frame: bytes) -> None:
        """A frame arrives; it is lost when no process runs."""
        if self.process is not None:
            self.cluster.trace.note("frame", sender, self.number, zlib.crc32(frame))
            self.do(self.life, self.process.receive, frame)

    def heal(self) -> None:
        """Nothing is wrong with this machine any more."""
        self._make_sound()
        self.resume(self.life)
        self.start()
        if self.process is not None:
            self.process.worker.slow_us = 0

    def _make_sound(self) -> None:
        self.trap = ""
        self.disk.disarm()
        self.disk.full = False

    def spring(self, what: str) -> None:
        """Something happens that a trap may wait for: then the power fails right after it."""
        if self.trap == what:
            self.trap = ""
            self.cluster.queue.after(0, self._spring, self.life)

    def _spring(self, life: int) -> None:
        if self.life == life:
            self.die(self.rng, power=True)
