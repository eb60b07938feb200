"""A group of RaftNodes in one process, with a network and disks that tests hold in their hands.

```
 cluster.tick(ms)   time passes everywhere, messages stay where they are
 cluster.settle()   disks write, messages are delivered, until nothing moves (time stands still)
 cluster.run(ms)    both in turn
 cluster.cut(1, 2)  messages from 1 to 2 are lost; ``isolate``, ``heal``
 replica.slow_disk  writes wait for ``replica.sync()``
```
"""

from __future__ import annotations

from collections.abc import Callable

from flockmq.log.batch import BatchBuilder, BatchView, stamp
from flockmq.log.errors import SpoiledError
from flockmq.raft.clock import TickClock
from flockmq.raft.configuration import Configuration
from flockmq.raft.entry import Entry, entry_of
from flockmq.raft.messages import Checkpoint, Message, SnapshotMeta
from flockmq.raft.node import RaftNode
from flockmq.raft.ports import BROKEN, SAVED, SAVING
from flockmq.raft.ready import Proposal, Ready
from flockmq.raft.settings import RaftSettings
from flockmq.raft.state import LEADER, SOUND, HardState, ReadAnswer, Stored
from flockmq.testing.lockstep import Lockstep

GROUP = 7
SETTINGS = RaftSettings()


class MemoryLog:
    """A disk with the entries of one group."""

    def __init__(self, base: int = 0, base_term: int = 0, base_offset: int = 0) -> None:
        self.base = base
        self.base_term = base_term
        self.base_offset = base_offset
        self.items: list[bytes] = []
        self.spoiled: set[int] = set()
        """Entries that can't be read."""

    @property
    def first_offset(self) -> int:
        return self.base_offset

    def first_index(self) -> int:
        return self.base + 1

    def last_index(self) -> int:
        return self.base + len(self.items)

    def term_at(self, index: int) -> int:
        if index == self.base:
            return self.base_term
        if self.base < index <= self.last_index():
            return BatchView(self.items[index - self.base - 1]).term
        return -1

    def entries(self, low: int, high: int, bytes_max: int) -> list[bytes]:
        assert self.base < low <= self.last_index(), f"{low} is not between {self.base} and {self.last_index()}"
        found = self.items[low - self.base - 1 : high - self.base - 1]
        size = 0
        for position, item in enumerate(found):
            size += len(item)
            if low + position in self.spoiled:
                if position:
                    return found[:position]
                raise SpoiledError("damaged", low)
            if position and size > bytes_max:
                return found[:position]
        return found

    def next_offset(self) -> int:
        return BatchView(self.items[-1]).next_offset if self.items else self.base_offset

    def settle(self, index: int) -> None:
        pass

    def compact(self, index: int) -> None:
        """Forget entries up to ``index``."""
        last = BatchView(self.items[index - self.base - 1])
        del self.items[: index - self.base]
        self.base, self.base_term, self.base_offset = index, last.term, last.next_offset

    def write(self, ready: Ready, content: bytes) -> None:
        if ready.install is not None:
            meta = ready.install
            self.base, self.base_term, self.base_offset = meta.index, meta.term, meta.next_offset
            self.items = []
        if ready.truncate_from:
            del self.items[ready.truncate_from - self.base - 1 :]
        for entry in ready.entries:
            assert entry.index == self.last_index() + 1
            self.items.append(entry.data)


class MemorySnapshots:
    """Source and sink of snapshots: the content is the payloads applied, joined."""

    def __init__(self) -> None:
        self.checkpoint: Checkpoint | None = None
        self.content = b""
        self.coming: SnapshotMeta | None = None
        self.buffer = b""
        self.pieces = 0
        self.saving = 0
        """How often to say that a snapshot is not saved yet."""

    def latest(self) -> Checkpoint | None:
        return self.checkpoint

    def read(self, meta: SnapshotMeta, position: int, length: int) -> bytes:
        if self.checkpoint is None or self.checkpoint.index != meta.applied:
            return b""
        return self.content[position : position + length]

    def install(self, meta: SnapshotMeta) -> None:
        """What came has become our own."""
        assert self.coming is not None
        assert self.coming.is_same(meta)
        self.checkpoint = Checkpoint(meta.applied, meta.applied_term, meta.configuration, meta.size, meta.checksum)
        self.content = self.buffer

    def received(self, meta: SnapshotMeta) -> int:
        if self.coming is None or not self.coming.is_same(meta):
            self.coming = meta
            self.buffer = b""
        return len(self.buffer)

    def write(self, meta: SnapshotMeta, position: int, data: bytes) -> None:
        assert position == len(self.buffer)
        self.buffer += data
        self.pieces += 1

    def complete(self, meta: SnapshotMeta) -> int:
        if sum(self.buffer) != meta.checksum:
            self.coming = None
            return BROKEN
        if self.saving:
            self.saving -= 1
            return SAVING
        return SAVED


class Replica:
    """One node: what is on its disk, and while it runs a RaftNode."""

    def __init__(self, cluster: Cluster, node_id: int, configuration: Configuration, health: int = SOUND) -> None:
        self.cluster = cluster
        self.id = node_id
        self.log = MemoryLog()
        self.hard = HardState(0, 0, health)
        self.checkpoint = Checkpoint(0, 0, configuration)
        self.snapshots = MemorySnapshots()
        self.slow_disk = False
        self.writes: list[Ready] = []
        self.applied: list[Entry] = []
        self.reads: list[ReadAnswer] = []
        self.clock_error_ms = 0
        self.running = False
        self.start()

    def start(self) -> None:
        """Start from what is on the disk, all else is forgotten."""
        self.clock = TickClock(SETTINGS.tick_ms, self.cluster.now + self.clock_error_ms)
        self.writes = []
        self.applied = [entry for entry in self.applied if entry.index <= self.checkpoint.index]
        self.reads = []
        stored = Stored(self.log, self.checkpoint, self.hard)
        settings, rng, snapshots = self.cluster.settings, self.cluster.rng, self.snapshots
        self.node = RaftNode(GROUP, self.id, settings, self.clock, rng, stored, source=snapshots, sink=snapshots)
        self.state = self.node.state
        self.running = True

    def crash(self) -> None:
        """Stop; writes that were not synced are lost."""
        self.running = False
        self.writes = []

    @property
    def payloads(self) -> list[bytes]:
        """What was applied, in order."""
        return [record.payload for entry in self.applied if entry.count for record in BatchView(entry.data).records()]

    def terms(self) -> list[int]:
        """The terms of all entries of the log in memory."""
        return [self.state.log.term_at(index) for index in range(1, self.state.log.last_index + 1)]

    def tick(self, now: int) -> None:
        """Time passes, as its own clock has it."""
        self.node.tick(now + self.clock_error_ms)

    def turn(self) -> bool:
        return self.take()

    def take(self) -> bool:
        """One turn; whether anything happened."""
        if not self.running or not self.node.has_ready():
            return False
        ready = self.node.take_ready()
        if ready.number:
            self.writes.append(ready)
        self.cluster.flying += ready.messages
        self.applied += ready.committed
        self.reads += ready.reads
        if not self.slow_disk:
            self.sync()
        return True

    def sync(self) -> None:
        """Everything that was handed out becomes durable."""
        for ready in self.writes:
            self.log.write(ready, b"")
            if ready.hard_state is not None:
                self.hard = ready.hard_state
            if ready.install is not None:
                self.snapshots.install(ready.install)
                self.checkpoint = self.snapshots.checkpoint or self.checkpoint
                self.applied = []
        if self.writes:
            number = self.writes[-1].number
            self.writes = []
            self.node.persisted(number)

    def snapshot(self, keep: int = 0) -> None:
        """Take a snapshot of what is applied, and forget all entries up to there, but ``keep`` of them."""
        state = self.state
        content = b"".join(self.payloads)
        index = state.applied
        configuration = next(found for at, found in reversed(state.configurations) if at <= index)
        self.checkpoint = Checkpoint(index, state.log.term_at(index), configuration, len(content), sum(content))
        self.snapshots.checkpoint, self.snapshots.content = self.checkpoint, content
        state.log.tail_bytes_max = 0
        state.log.trim()
        state.log.tail_bytes_max = self.cluster.settings.tail_bytes_max
        self.log.compact(index - keep)


class Cluster(Lockstep[Replica, Message]):
    """All replicas and the messages that fly between them."""

    def __init__(self, size: int = 3, seed: int = 1, settings: RaftSettings = SETTINGS) -> None:
        super().__init__(seed, step_ms=SETTINGS.tick_ms)
        self.settings = settings
        self.lost: Callable[[Message], bool] = lambda _message: False
        configuration = Configuration(tuple(range(1, size + 1)))
        self.nodes |= {node: Replica(self, node, configuration) for node in range(1, size + 1)}
        self.delivered: list[Message] = []

    @property
    def replicas(self) -> dict[int, Replica]:
        """By node."""
        return self.nodes

    def add(self, node: int, health: int = SOUND) -> Replica:
        """An empty replica that belongs to nothing yet."""
        self.nodes[node] = Replica(self, node, Configuration(()), health)
        return self.nodes[node]

    def ends(self, part: Message) -> tuple[int, int]:
        return part.sender, part.receiver

    def is_lost(self, part: Message) -> bool:
        return super().is_lost(part) or self.lost(part)

    def deliver(self, node: Replica, part: Message) -> None:
        self.delivered.append(part)
        node.node.step(part)

    def run(self, ms: int) -> None:
        self.settle()
        super().run(ms)

    def heal(self) -> None:
        super().heal()
        self.lost = lambda _message: False

    def leaders(self) -> list[Replica]:
        """All that believe to lead, the latest term last."""
        found = [replica for replica in self.replicas.values() if replica.running and replica.state.role == LEADER]
        return sorted(found, key=lambda replica: replica.state.term)

    def elect(self, node: int) -> Replica:
        """Make a node the leader."""
        replica = self.replicas[node]
        term = max(other.state.term for other in self.replicas.values())
        for _ in range(20):
            for other in self.replicas.values():
                other.state.loyal_until = 0
                other.state.campaign_at = other.clock.elapsed + 60_000
            replica.state.campaign_at = 0
            self.run(50)
            if replica.state.role == LEADER and replica.state.term >= term:
                return replica
        raise AssertionError(f"node {node} can't be elected")

    def propose(self, payload: bytes, node: int = 0) -> Proposal:
        """A batch with one record, to the leader or to whom the test says."""
        replica = self.replicas[node] if node else self.leaders()[-1]
        proposal = replica.node.propose(batch(payload))
        assert isinstance(proposal, Proposal), proposal.reason
        return proposal


def entry(index: int, term: int) -> Entry:
    """An entry with one record, as a leader of ``term`` makes it."""
    return entry_of(stamp(batch(b"%d.%d" % (index, term)), term, index, index - 1))


def with_log(*terms: int, cluster: Cluster | None = None) -> Replica:
    """Node 1 of a cluster as follower, with entries of these terms in its log, living in the latest of them."""
    replica = (cluster or Cluster())[1]
    for index, term in enumerate(terms, start=1):
        replica.log.items.append(entry(index, term).data)
    replica.hard = HardState(max(terms, default=0))
    replica.start()
    replica.take()
    return replica


def said(replica: Replica) -> list[Message]:
    """What a replica has to say now; its disk keeps up, unless it is slow."""
    replica.cluster.flying.clear()
    while replica.take():
        pass
    return list(replica.cluster.flying)


def batch(*payloads: bytes) -> bytes:
    """Records with these payloads."""
    builder = BatchBuilder()
    for payload in payloads:
        builder.add(b"t", b"c", 0, 0, payload)
    return builder.build()
