"""Nodes that a test moves by hand: time stands still until the test lets it pass, and all that follows is done at once.

```
 run(ms)     time passes in steps: every node ticks, then settle()
 settle()    turn() again and again, until nothing moves; time stands still
 turn()      every node takes a turn, then all parts that fly arrive: cut and lost ones don't
```
The nodes are what a test is about: one replica, a host of them, an engine on a disk, a broker. For whole nodes whose
network has delays, and for faults from a seed, see ``cluster_harness`` and ``simulation``.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from flockmq.log.recovery import open_store
from flockmq.raft.host import RaftHost
from flockmq.testing.simulation.disk import SimulatedDisk

if TYPE_CHECKING:
    from flockmq.log.settings import StoreSettings
    from flockmq.log.store import Store
    from flockmq.raft.engine import RaftEngine
    from flockmq.raft.settings import RaftSettings

START_MS: Final = 1_000_000
TURNS_MAX: Final = 1_000


class LockstepNode(Protocol):
    """What a node must be able to do."""

    @property
    def running(self) -> bool:
        """Whether it takes part."""

    def tick(self, now: int) -> None:
        """Time passes."""

    def turn(self) -> bool:
        """Do what is to be done, and send what is to be sent; whether there was anything."""


N = TypeVar("N", bound=LockstepNode)
T = TypeVar("T")


class Lockstep(Generic[N, T]):
    """Nodes of one kind, and the parts that fly between them: tuples that begin with sender and receiver, if a subclass
    says nothing else."""

    def __init__(self, seed: int = 1, now: int = START_MS, step_ms: int = 50) -> None:
        self.rng = random.Random(seed)  # noqa: S311  (to be repeated)
        self.now = now
        self.step_ms = step_ms
        self.nodes: dict[int, N] = {}
        self.flying: list[T] = []
        self.cuts: set[tuple[int, int]] = set()
        """Sender and receiver between whom parts are lost."""

    def __getitem__(self, number: int) -> N:
        return self.nodes[number]

    def running(self) -> list[N]:
        """Nodes that take part."""
        return [node for node in self.nodes.values() if node.running]

    # What a subclass says.

    def deliver(self, node: N, part: T) -> None:
        """Let a part arrive at a node that runs."""
        raise NotImplementedError

    def ends(self, part: T) -> tuple[int, int]:
        """Sender and receiver of a part."""
        assert isinstance(part, tuple)
        return part[0], part[1]

    def is_lost(self, part: T) -> bool:
        """Whether a part is lost on its way."""
        return self.ends(part) in self.cuts

    # Time.

    def turn(self) -> bool:
        """One turn of all nodes, then everything arrives; whether anything moved."""
        moved = [node.turn() for node in self.running()]
        flying, self.flying = self.flying, []
        for part in flying:
            self.arrive(part)
        return any(moved) or bool(flying)

    def arrive(self, part: T) -> None:
        """A part reaches its receiver, unless it is lost or no node is there."""
        node = self.nodes.get(self.ends(part)[1])
        if node is not None and node.running and not self.is_lost(part):
            self.deliver(node, part)

    def settle(self, turns_max: int = TURNS_MAX) -> None:
        """Until nothing moves."""
        for _ in range(turns_max):
            if not self.turn():
                return
        raise AssertionError("The nodes don't come to rest")

    def settle_until(self, reached: Callable[[], bool]) -> None:
        """Turn by turn, until something is so."""
        for _ in range(TURNS_MAX):
            if reached():
                return
            self.turn()
        raise AssertionError("The nodes don't get there")

    def tick(self, ms: int = 0) -> None:
        """Time passes, one step if nothing else is said; no part arrives."""
        for _ in range((ms or self.step_ms) // self.step_ms):
            self.now += self.step_ms
            for node in self.running():
                node.tick(self.now)

    def run(self, ms: int) -> None:
        """Time passes, and all is done that follows."""
        for _ in range(ms // self.step_ms):
            self.tick()
            self.settle()

    def until(self, condition: Callable[[], bool], ms_max: int = 60_000) -> None:
        """Let time pass until this is so."""
        for _ in range(ms_max // self.step_ms):
            if condition():
                return
            self.run(self.step_ms)
        raise AssertionError(f"This did not become so within {ms_max} ms")

    # The network.

    def cut(self, sender: int, receiver: int) -> None:
        """Parts this way are lost."""
        self.cuts.add((sender, receiver))

    def isolate(self, *numbers: int) -> None:
        """These nodes talk only among themselves."""
        for inside in numbers:
            for outside in self.nodes:
                if outside not in numbers:
                    self.cuts |= {(inside, outside), (outside, inside)}

    def heal(self) -> None:
        """The network works again."""
        self.cuts.clear()


class Wires(Generic[T]):
    """Links with a queue of parts in each direction, for tests that say which part arrives next."""

    def __init__(self) -> None:
        self.queues: dict[tuple[int, int], deque[T]] = {}
        self.parts = 0
        """Parts that arrived."""
        self.lost = 0
        """Parts that did not."""

    def is_up(self, one: int, other: int) -> bool:
        """Whether there is a link."""
        return (one, other) in self.queues

    def connect(self, one: int, other: int) -> None:
        """Have a new link."""
        self.queues[one, other] = deque()
        self.queues[other, one] = deque()

    def cut(self, one: int, other: int) -> bool:
        """Lose a link with all that is under way; whether there was one."""
        if not self.is_up(one, other):
            return False
        self.lost += len(self.queues.pop((one, other))) + len(self.queues.pop((other, one)))
        return True

    def send(self, sender: int, receiver: int, part: T) -> None:
        """Put a part on a link; without one it is lost."""
        queue = self.queues.get((sender, receiver))
        if queue is None:
            self.lost += 1
        else:
            queue.append(part)

    def take(self, sender: int, receiver: int) -> T:
        """The next part that arrives."""
        self.parts += 1
        return self.queues[sender, receiver].popleft()

    def busy(self) -> list[tuple[int, int]]:
        """Directions in which parts are under way."""
        return [pair for pair, queue in self.queues.items() if queue]


class StoreNode:
    """A node with consensus on a disk that outlives it."""

    engine: RaftEngine
    """Hears of what is durable; a subclass makes it for each life."""

    def __init__(self, cluster: Lockstep[Any, Any], number: int, settings: StoreSettings, raft: RaftSettings) -> None:
        self.number = number
        self.boot = 0
        self.running = False
        self.disk = SimulatedDisk(cluster.rng)
        self._cluster = cluster
        self._settings = settings
        self._raft = raft

    def recover(self) -> Store:
        """Begin a life with what is on the disk."""
        self.boot += 1
        self.running = True
        self.store = open_store(self.disk, self._settings, self._cluster.rng)
        return self.store

    def open(self, admits: Callable[[int, bytes], int] | None = None) -> tuple[RaftHost, Store]:
        """Begin a life with a host for the groups on the disk. ``admits``: see ``RaftHost``."""
        store = self.recover()
        return RaftHost(self.number, self.boot, self._raft, self._cluster.rng, self._cluster.now, admits), store

    def lose_power(self) -> None:
        """End this life; of what was not synced some may be gone."""
        self.running = False
        self.disk.lose_power(self._cluster.rng)

    def write(self) -> bool:
        """Do all that the store wants to be done; whether there was anything."""
        return perform(self.store, self.disk, self.engine)


def perform(store: Store, disk: SimulatedDisk, engine: RaftEngine | None = None) -> bool:
    """Write all commits of a store and do its chores; whether there was any."""
    wrote = False
    while (commit := store.take_commit()) is not None:
        commit.perform(disk)
        store.committed(commit)
        if engine is not None:
            engine.committed(commit)
        wrote = True
    while (chore := store.take_chore()) is not None:
        chore.perform(disk)
        store.done(chore)
        wrote = True
    return wrote
