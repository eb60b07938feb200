"""One life of a whole node: a clustered broker with durable topics on a simulated disk.

```
 frames, datagrams, clients' bytes, ticks --> ClusterNode, DurableNode, Broker --> a turn soon after:
      frames --> LinkNetwork         store.take_commit --> StorageWorker --> engine.committed --> the next turn
      bytes of clients --> their HarnessClient
```
Everything above disk and sockets is the real thing.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from flockmq.log.recovery import open_store
from flockmq.log.settings import StoreSettings
from flockmq.log.witness import OLDER, OTHER, Witnessing, begin_life, is_marked, judge, read_witness
from flockmq.testing.cluster_harness import CLUSTER_ID, RAFT, ClusterProcess, NodeMachine
from flockmq.testing.simulation.nodes.plan import SEGMENT_BYTES
from flockmq.testing.simulation.storage import StorageWorker
from flockmq.testing.simulation.world import Violation

if TYPE_CHECKING:
    from flockmq.log.store import Store
    from flockmq.log.work import Commit

TICK_MS: Final = RAFT.tick_ms
SETTLE_MS: Final = 5_000
"""How long a node that starts waits for others, see ``server/cluster.py``."""
STORE: Final = StoreSettings(
    journal_bytes=262_144,
    commit_bytes=65_536,
    segment_bytes=SEGMENT_BYTES,
    index_bytes=2_048,
    cache_bytes=65_536,
    verify_bytes=262_144,
)


class DurableProcess(ClusterProcess):
    """See the module."""

    def __init__(self, machine: NodeMachine[Any]) -> None:
        rng = machine.next_rng()
        self.store = _open_checked(machine, replace(STORE, segment_bytes=machine.segment_bytes), rng)
        machine.witness = begin_life(self.store, machine.disk)
        self._witnessing = Witnessing(self.store.identity)
        super().__init__(machine, rng, self.store)
        assert self.whole.durable is not None
        self.durable = self.whole.durable
        self.engine = self.durable.engine
        self.worker = StorageWorker(self.cluster.queue, rng, machine.disk, self.store, self._written, self._disk_failed)
        self._commit: Commit | None = None
        self._started = self.cluster.now_ms()

    def begin(self) -> None:
        """Open what the store holds, and join the others."""
        machine = self.machine
        self.durable.open(machine.kept_state, self.cluster.now_ms(), is_copy_lost=machine.is_kept_outdated)
        if self.number == 1 and self.life == 1:
            machine.founding = self.store.identity
        if machine.founding == self.store.identity and not self.durable.meta.state.cluster_id:
            self.durable.begin(CLUSTER_ID)
        super().begin()

    def die(self, rng: random.Random) -> None:
        """The process ends, perhaps in the middle of a write."""
        self.worker.die(rng)

    def takes_clients(self) -> bool:
        """Real nodes listen once they know what there is, or after a while without others, unless they are in doubt."""
        waited = self.cluster.now_ms() - self._started
        return self.durable.is_ready() or (waited >= SETTLE_MS and self.durable.may_serve_alone())

    def tick(self) -> None:
        """Time passes."""
        super().tick()
        now, wall_ms = self.cluster.now_ms(), self.machine.wall_ms()
        self.harness.broker.set_wall(wall_ms, now)
        self.durable.tick(now, wall_ms)
        self.durable.take_events()
        work = self.durable.scrubbing.take(now, wall_ms)
        if work is not None:
            work.perform(self.machine.disk)
            self.durable.scrubbing.done(work, now, wall_ms)

    # The disk.

    def kick(self) -> None:
        """The store may have something to write."""
        if not self.worker.is_writing:
            commit = self.store.take_commit()
            if commit is not None:
                self._commit = commit
                self.worker.begin(commit)
        self.worker.look_for_chores()

    def _written(self) -> None:
        self.machine.do(self.life, self._settle)

    def _settle(self) -> None:
        commit = self._commit
        assert commit is not None
        self._commit = None
        self.worker.settle()
        self._testify(commit.sequence)
        self.engine.committed(commit)
        self.kick()

    def _testify(self, sequence: int) -> None:
        """A record is durable: write the witness."""
        position, slot = self._witnessing.committed(sequence)
        known = self.machine.witness
        self.machine.witness = known[:position] + slot + known[position + len(slot) :]

    def _disk_failed(self, error: OSError) -> None:
        self.engine.stop(str(error))

    def keep(self, state: bytes) -> None:
        """Save this copy of the cluster state."""
        self.machine.kept_state = state
        self.machine.is_kept_outdated = False

    def outdate(self) -> None:
        """The copy lacks a change."""
        self.machine.is_kept_outdated = True

    def stopped(self, reason: str) -> None:
        """The node takes part in consensus no more: here that is always a bug."""
        told = self.engine.events[-1:] if self.machine.process is self else []
        raise Violation("no exception", f"node {self.number} stopped: {reason}; {told}")


DurableMachine = NodeMachine[DurableProcess]


def _open_checked(machine: NodeMachine[Any], settings: StoreSettings, rng: random.Random) -> Store:
    """As ``server/store_opening.py`` does it: a store that is not the one that was here is set aside."""
    store = open_store(machine.disk, settings, rng)
    verdict = judge(
        read_witness(machine.witness),
        store.identity,
        store.sequence - 1,
        is_new=store.is_new,
        is_damaged=is_marked(store),
    )
    if verdict not in (OTHER, OLDER):
        return store
    machine.cluster.count("stores set aside")
    machine.disk.wipe()
    return open_store(machine.disk, settings, rng)
