"""The cluster state on one node: commands go in on any node, come back when they are applied here.

```
 submit(command) --> ``submitting.py`` --> the log of group 0
 committed commands --> Ledger --> watchers, once a turn --> results to submitters
        ^--- group 0's log, here     or     peers that are ahead (``pulling.py``)
```
A node gets a replica of group 0 in two ways: it mints the cluster (``begin``), or the leader adds it (``invited``). A
node that was taken out, and so hears no leader any more, asks and removes its replica.

*Current*: everything that was committed before this start of the node is applied. Until then state may name groups to
this node that it left long ago; no log is begun on the word of such a state.

*In doubt*: the log here has changes behind what is known to be committed (``doubt.py``), or the copy is outdated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from flockmq.cluster.commands import Command, Result, SetClusterId
from flockmq.durable.state.confirming import Confirmation
from flockmq.durable.state.doubt import last_doubtful
from flockmq.durable.state.group0 import GROUP, has_replica
from flockmq.durable.state.ledger import Ledger
from flockmq.durable.state.pulling import Puller
from flockmq.durable.state.removal import ReplicaRemoval
from flockmq.durable.state.submitting import Submitting
from flockmq.log.batch import DATA, BatchView
from flockmq.tasks import Sleep

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from flockmq.cluster.state import ClusterState
    from flockmq.durable.state.facts import Facts
    from flockmq.durable.state.wall import WallClock
    from flockmq.peering.calls import Calls
    from flockmq.raft.engine import RaftEngine
    from flockmq.raft.ready import Ready
    from flockmq.tasks import Promise, Task

KEEP_MS: Final = 1_000
"""How often a node keeps a copy of a state that changes, at the most."""
LOOK_MS: Final = 100


class StateCopy(Protocol):
    """The copy of the state beside the store."""

    def keep(self, state: bytes) -> None:
        """Save this copy; the next start reads it."""

    def outdate(self) -> None:
        """Note that the copy lacks a change that other nodes rely on, until the next ``keep``."""


def _tell_no_part(state: ClusterState) -> None:
    """No part of this node follows the state."""


def _close_nothing(group: int) -> None:
    """No part of this node has anything of a group."""


class Meta:
    """See the module."""

    def __init__(
        self,
        engine: RaftEngine,
        calls: Calls,
        facts: Facts,
        rng: random.Random,
        wall: WallClock,
        copy: StateCopy,
        changed: Callable[[ClusterState], None] = _tell_no_part,
        closed: Callable[[int], None] = _close_nothing,
    ) -> None:
        """``changed`` is called at most once a turn when the state has changed; ``closed`` with a group whose replica
        was taken out of it and removed here."""
        self.engine = engine
        self.calls = calls
        self.facts = facts
        self.ledger = Ledger()
        self.removal = ReplicaRemoval(engine, calls, facts, rng, self._was_taken_out)
        self.cluster_id = 0
        """The cluster that this node founded, until the state says so itself."""
        self.is_current = False
        """See the module."""
        self.groups_at_start = 0
        """Groups from this number on were made after this start of the node; 0 while that is not known."""
        self.wall = wall
        self._copy = copy
        self._submitting = Submitting(engine, calls, facts, rng, self.ledger, wall)
        self._puller = Puller(self.ledger, engine, calls, facts, rng, self._submitting)
        self._confirmation = Confirmation(GROUP, self.ledger, engine, calls, facts, rng)
        self._changed = changed
        self._closed = closed
        self._told_index = -1
        self._told_replica = False
        self._is_told = False
        """Whether peers have told how far they are since the last turn."""
        self._kept_index = 0
        self._keep_at = 0
        """Not before that time is another copy written, but for a stop."""
        self._is_outdated = False
        """Whether the copy is known to lack changes."""
        self._doubt = 0
        """The index that the last doubtful change in the log here would have."""
        self._doubts_all = False

    @property
    def state(self) -> ClusterState:
        """What is known here now."""
        return self.ledger.state

    @property
    def has_replica(self) -> bool:
        """Whether this node has a replica of group 0 that works."""
        return has_replica(self.engine)

    @property
    def is_leader(self) -> bool:
        """Whether this node decides what goes into group 0's log."""
        return self.engine.is_leader(GROUP)

    # Replicas of group 0.

    def start(self) -> None:
        """Run the replica that the store has, if any, and follow the state. Call it once, before anything else."""
        if GROUP in self.engine.store.groups:
            self._open(None)
            self._doubt = last_doubtful(self.engine.replicas[GROUP], self.ledger.index)
        tasks = self.calls.tasks
        tasks.repeat("confirm the committed state", self._confirmation.confirm, LOOK_MS)
        tasks.repeat("found the cluster", self._found, LOOK_MS)
        tasks.repeat("pull the state from peers", self._puller.pull, LOOK_MS)
        tasks.every("see whether group 0 goes on without this node", LOOK_MS, self._consider_removal)
        tasks.repeat("keep a copy of the state", self._keep_copy, LOOK_MS)

    @property
    def is_in_doubt(self) -> bool:
        """See the module."""
        return not self.is_current and (self._doubts_all or self._doubt > self.ledger.index)

    def begin(self, cluster_id: int) -> None:
        """This node minted the cluster: found its state. Harmless when that was done before.

        Only in a store that nothing was ever written to: a second group 0 would be a second truth. A founder that was
        taken out of it, or lost it, has to wait until the others fill it again.
        """
        self.cluster_id = cluster_id
        store = self.engine.store
        if GROUP in self.engine.replicas or self.ledger.index or store.sequence > 1 or store.groups or store.notes:
            return
        self._open((self.engine.host.node_id,))

    def invited(self) -> None:
        """Other nodes speak of group 0 as if it were here: the leader wants a replica on this node."""
        if GROUP not in self.engine.replicas and not self.engine.stopped:
            self._open(None)

    def _open(self, founders: tuple[int, ...] | None) -> None:
        replica = self.engine.open(GROUP, founders)
        if replica.state:
            self.ledger.replace(replica.state)

    def applied(self, ready: Ready) -> None:
        """Group 0 has something to apply."""
        if ready.install is not None and ready.restores:
            content = self.engine.replicas[GROUP].checkpoints.content()
            if content is not None and content.state:
                self.ledger.replace(content.state)
        for entry in ready.committed:
            if entry.kind != DATA or entry.next_offset <= self.ledger.index:
                continue
            view = BatchView(entry.data)
            for position in range(entry.count):
                index = entry.base_offset + position + 1
                if index > self.ledger.index:
                    data = view.record(position).payload
                    result = self.ledger.feed(index, data)
                    if result is not None:
                        self._submitting.applied(index, data, result)

    def state_bytes(self) -> bytes:
        """For a checkpoint of group 0."""
        return self.state.encode()

    def restore(self, data: bytes) -> None:
        """Begin with a copy; FlockError when it can't be read. Whatever is newer stays."""
        if self.ledger.replace(data):
            self._kept_index = self.ledger.index

    def doubt_all(self) -> None:
        """The copy is lost or outdated: which topics there are is not known here before state is current."""
        self._doubts_all = True

    # Commands and turns.

    def submit(self, command: Command) -> Promise[Result]:
        """Change the state, see ``Submitting.submit``."""
        return self._submitting.submit(command)

    def committed(self, timeout_ms: int) -> Task[int]:
        """Ask how much was committed when the question was put: an index of the state; -1: no leader answered."""
        return self._confirmation.ask(timeout_ms)

    def flush(self, now: int) -> None:
        """A turn of the engine, or of the links, ends: tell watchers what changed, then submitters their results."""
        self.calls.tasks.now = now
        if self._is_told:
            self._is_told = False
            self._submitting.news.fire()
        index = self.ledger.index
        has_replica = self.has_replica
        if index != self._told_index or has_replica != self._told_replica:
            self._told_index = index
            self._told_replica = has_replica
            self._remember()
            self.facts.tell(index, has_replica)
            self.engine.wake()  # maps have had their part of this turn, and other nodes may wait for this one
            self._changed(self.state)
        if not self.is_current and self._confirmation.is_reached():
            self.is_current = True
            self.groups_at_start = self.state.next_group
            self._changed(self.state)
        self._submitting.told.fire()

    def peer_told(self) -> None:
        """Another node has told how far it is."""
        self._is_told = True

    def _found(self) -> Task[bool]:
        """A cluster that this node minted gets its id into the state, as its first command; True: it has one."""
        if self.cluster_id and not self.state.cluster_id and self.is_leader:
            yield from self.submit(SetClusterId(self.cluster_id))
        return self.state.cluster_id != 0

    def _consider_removal(self) -> None:
        if self.has_replica:
            self.removal.consider(GROUP, self.calls.now)

    # What is on the disk.

    def save(self) -> bool:
        """A copy for a restart, if there is something new. A node with a replica needs a copy as well: only a leader
        can tell how much of a log is committed, and clients must not be served meanwhile as if there were no topics.
        """
        replica = self.engine.replicas.get(GROUP)
        if self.engine.stopped:
            return False  # the disk may be what failed
        if replica is not None:
            checkpoint = replica.checkpoints.latest()
            if checkpoint is not None and replica.log.first_index() <= checkpoint.index:
                replica.log.compact_to(checkpoint.index)
        if self._kept_index == self.ledger.index:
            return False
        self._kept_index = self.ledger.index
        self._keep_at = self.calls.now + KEEP_MS
        self._is_outdated = False
        self._copy.keep(self.state.encode())
        return True

    def _keep_copy(self) -> Task[None]:
        if self.calls.now >= self._keep_at:
            self.save()
        yield Sleep(max(self._keep_at - self.calls.now, 0))

    def _remember(self) -> None:
        """Other nodes are about to hear that this one has applied a change, and may tell a client that it is made.

        A restart must not forget that: without its topics a node would acknowledge messages that no log has.
        """
        replica = self.engine.replicas.get(GROUP)
        if self._kept_index == self.ledger.index or (replica and replica.log.end_offset >= self.ledger.index):
            return  # ``doubt.py`` finds what is in the log
        if self.calls.now >= self._keep_at:
            self.save()
        elif not self._is_outdated:
            self._is_outdated = True
            self._copy.outdate()

    def _was_taken_out(self, group: int) -> None:
        """The replica here is gone: what it knew must not be, or this node would not know that it ever had one."""
        if group == GROUP and self.ledger.index:
            self.save()
        self._closed(group)
