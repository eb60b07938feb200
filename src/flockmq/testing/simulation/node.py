"""A machine of the simulated cluster: its disk and clock outlive the processes that run on it."""

from __future__ import annotations

import random
import zlib
from typing import TYPE_CHECKING, Final

from flockmq.log.errors import DamageError
from flockmq.testing.simulation.clock import NodeClock
from flockmq.testing.simulation.disk import SimulatedDisk
from flockmq.testing.simulation.events import Action
from flockmq.testing.simulation.process import Process

if TYPE_CHECKING:
    from flockmq.testing.simulation.cluster import Cluster


TICK_MS: Final = 50
RESTART_US: Final = 100_000


class SimulatedNode:
    """``life`` counts its processes; there is at most one at a time."""

    def __init__(self, cluster: Cluster, number: int, rng: random.Random) -> None:
        self.cluster = cluster
        self.number = number
        self.rng = rng
        self.disk = SimulatedDisk(rng)
        self.clock = NodeClock(cluster.queue, rng.randrange(1_000_000), rng.randrange(-2_000, 2_000))
        self.life = 0
        self.process: Process | None = None
        self.paused = False
        self.trap = ""
        self._inbox: list[tuple[Action, tuple[object, ...]]] = []

    def start(self) -> None:
        """Start a process, if there is none."""
        if self.process is not None:
            return
        self.life += 1
        self.disk.full = False
        self.disk.disarm()
        self.paused = False
        self._inbox.clear()
        self.trap = ""
        self.cluster.trace.note("start", self.number, self.life)
        self.process = self._boot()
        self.process.turn()
        self.cluster.queue.after(self.rng.randrange(TICK_MS * 1_000), self._tick, self.life)

    def _boot(self) -> Process:
        """Start; a store that can't be read at all is moved aside, as its error asks people to do."""
        try:
            return Process(self, self.rng)
        except DamageError:
            if self.number not in self.cluster.plan.victims:
                raise
            self.cluster.count("stores lost")
            self.disk.wipe()
            return Process(self, self.rng)

    def die(self, rng: random.Random, power: bool) -> None:
        """The process ends; with ``power`` what it had not synced is at risk."""
        process = self.process
        if process is None:
            return
        self.cluster.trace.note("die", self.number, self.life, int(power))
        self.process = None
        process.worker.die(rng)
        if power:
            self.disk.lose_power(rng)
        else:
            self.disk.kill()
        self.cluster.died(self.number)

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

    def pause(self, ms: int) -> None:
        """Stand still for a while: messages wait, time passes."""
        if self.process is not None and not self.paused:
            self.paused = True
            self.cluster.queue.after(ms * 1_000, self._resume, self.life)

    def _resume(self, life: int) -> None:
        if self.life != life or not self.paused:
            return
        self.paused = False
        inbox = self._inbox
        self._inbox = []
        for action, arguments in inbox:
            self.do(life, action, *arguments)

    def do(self, life: int, action: Action, *arguments: object) -> None:
        """Let the process do something: now, when its pause is over, or never if it died."""
        if self.process is None or self.life != life:
            return
        if self.paused:
            self._inbox.append((action, arguments))
        else:
            action(*arguments)

    def receive(self, sender: int, frame: bytes) -> None:
        """A frame arrives; nobody may be there."""
        if self.process is not None:
            self.cluster.trace.note("frame", sender, self.number, zlib.crc32(frame))
            self.do(self.life, self.process.receive, frame)

    def heal(self) -> None:
        """Nothing is wrong with this machine any more."""
        self.trap = ""
        self.disk.disarm()
        self.disk.full = False
        self._resume(self.life)
        self.start()
        if self.process is not None:
            self.process.worker.slow_us = 0

    def _tick(self, life: int) -> None:
        process = self.process
        if process is None or self.life != life:
            return
        self.cluster.queue.after(TICK_MS * 1_000, self._tick, life)
        if not self.paused:
            process.tick(self.clock.now_ms())

    def spring(self, what: str) -> None:
        """Something happens that a trap may wait for: then the power fails right after it."""
        if self.trap == what:
            self.trap = ""
            self.cluster.queue.after(0, self._spring, self.life)

    def _spring(self, life: int) -> None:
        if self.life == life:
            self.die(self.rng, power=True)
