"""A machine of a simulated cluster: its disk outlives the processes that run on it.

```
 start --> boot(): a process, its life counted --> do(life, action): now | after the pause | never, if that life is over
 die ----> what the disk was doing is torn, done or not begun; with a power loss, what was not synced is at risk
```
"""

from __future__ import annotations

import random
from typing import Generic, Protocol, TypeVar

from flockmq.testing.simulation.disk import SimulatedDisk
from flockmq.testing.simulation.events import Action
from flockmq.testing.simulation.world import World


class Process(Protocol):
    """One life of a node."""

    def die(self, rng: random.Random) -> None:
        """The process ends now; the write that is under way may have happened, or a part of it."""


P = TypeVar("P", bound=Process)


class Machine(Generic[P]):
    """``life`` counts the processes; there is at most one at a time."""

    def __init__(self, world: World, number: int, rng: random.Random, tick_ms: int) -> None:
        self.world = world
        self.number = number
        self.rng = rng
        self.disk = SimulatedDisk(rng)
        self.life = 0
        self.process: P | None = None
        self.paused = False
        self.tick_us = tick_ms * 1_000
        self._inbox: list[tuple[Action, tuple[object, ...]]] = []

    # What a layer decides.

    def boot(self) -> P:
        """Make a process from what the disk holds."""
        raise NotImplementedError

    def begin(self, process: P) -> None:
        """Let a process that was just made do its first work."""
        raise NotImplementedError

    def tick(self, process: P) -> None:
        """Let a process look at its clock."""
        raise NotImplementedError

    def act(self, action: Action, arguments: tuple[object, ...]) -> None:
        """Let the process that runs do something."""
        action(*arguments)

    # Lives.

    def start(self) -> None:
        """Start a process, if there is none."""
        if self.process is not None:
            return
        self.life += 1
        self.paused = False
        self._inbox.clear()
        self.world.trace.note("start", self.number, self.life)
        process = self.process = self.boot()
        self.begin(process)
        self.world.queue.after(self.rng.randrange(self.tick_us), self._tick, self.life)

    def die(self, rng: random.Random, power: bool) -> None:
        """The process ends; with ``power`` what it had not synced is at risk."""
        process = self.process
        if process is None:
            return
        self.world.trace.note("die", self.number, self.life, int(power))
        self.process = None
        process.die(rng)
        if power:
            self.disk.lose_power(rng)
        else:
            self.disk.kill()
        self.world.died(self.number)

    def pause(self, ms: int) -> None:
        """Stand still for a while: messages wait, time passes."""
        if self.process is not None and not self.paused:
            self.paused = True
            self.world.queue.after(ms * 1_000, self.resume, self.life)

    def resume(self, life: int) -> None:
        """Go on, with all that came meanwhile."""
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
            self.act(action, arguments)

    def _tick(self, life: int) -> None:
        process = self.process
        if process is None or self.life != life:
            return
        self.world.queue.after(self.tick_us, self._tick, life)
        if not self.paused:
            self.tick(process)
