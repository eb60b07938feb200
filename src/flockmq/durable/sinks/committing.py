"""Commits of sinks at the leader of a partition: what was staged becomes records of the partition, once.

```
 commit(query, batch, parts) --> has it, or a later one: DONE, a repeat
      | all chunks are here?  --> no: REFUSED, stage again
      v
 BEGIN in the log, applied --> part 0, 1, 2 ... proposed as DATA, a few ahead of what is applied --> all applied: DONE
                                  ^
 a new leader, once an entry of its own term is applied: goes on with the next part, asked or not
```
Why no part is in the log twice: within a term a leader proposes each part once, and it begins with what its state says
when an entry of its own term is applied. Whatever earlier leaders have proposed is then either in that state or can
never be committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import LATER, OK, REFUSED, Reply
from flockmq.durable.machine.sink_bodies import PartName, begin_body, part_of, read_sink_entry
from flockmq.errors import FlockError
from flockmq.log.batch import SINK
from flockmq.log.errors import DamageError, SpoiledError
from flockmq.peering.fields import U32, U64
from flockmq.raft.ready import Proposal
from flockmq.tasks import Signal, within

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.machine.control import Control
    from flockmq.durable.machine.machine import PartitionMachine
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.machine.sink_table import SinkQuery, SinkTable
    from flockmq.tasks import Task

DONE: Final = 1
UNDER_WAY: Final = 2
"""The leader is committing the batch; the caller asks again."""

PARTS_AHEAD: Final = 8
"""Parts in the log that are not applied yet."""
BYTES_AHEAD: Final = 4 * 1024 * 1024
"""Few enough that reading them does not keep clients waiting."""
PATIENCE_MS: Final = 500
"""After so long the caller hears how far the commit is: sooner than questions between nodes are given up."""
AGAIN_MS: Final = 100
"""After so long a part that could not be proposed is tried again."""
WAITING_MAX: Final = 10_000
NO_OFFSET: Final = (1 << 64) - 1

PartKey = tuple[int, int, int]
"""(task, attempt, chunks)"""


class _Job:
    """The parts of a batch that this leader has proposed in this term."""

    def __init__(self, term: int, batch: int, proposed: int) -> None:
        self.term = term
        self.batch = batch
        self.proposed = proposed
        self.sizes: list[int] = []
        """Bytes of each part that is proposed and not applied."""


class Committing:
    """See the module. A listener of ``Machines``, behind ``Control``."""

    def __init__(self, calls: PartitionCalls, machines: Machines, control: Control) -> None:
        self._calls = calls
        self._engine = calls.engine
        self._machines = machines
        self._control = control
        self._jobs: dict[tuple[int, bytes], _Job] = {}
        self._beginning: set[tuple[int, bytes]] = set()
        """Whose BEGIN is on its way into the log."""
        self._waiting = 0
        """Commits that wait until their batch is committed."""
        self._moved: dict[int, Signal] = {}
        """Fires when a group's machine has moved on, or is closed; only for groups with commits that wait."""
        self._active: set[int] = set()
        """Groups with batches that are being committed."""
        self.unreadable = 0
        """How often a chunk that is certain to be committed could not be read here."""
        calls.tasks.every("go on with commits of sinks", AGAIN_MS, self._go_on_all)

    def is_current(self, group: int) -> bool:
        """Whether this node leads, and has applied all that was committed before it did."""
        node = self._engine.host.groups.get(group)
        machine = self._machines.by_group.get(group)
        if node is None or machine is None or not self._engine.is_leader(group):
            return False
        return machine.applied >= node.state.term_start

    # What is asked.

    def commit(self, group: int, query: bytes, batch: int, parts: list[PartKey]) -> Task[Reply]:
        """Commit what was staged of a batch, unless that was done before."""
        machine = self._machines.by_group.get(group)
        if machine is None or not self.is_current(group) or self._waiting >= WAITING_MAX:
            return Reply(LATER)
        known = machine.sinks.queries.get(query)
        if known is not None and known.last >= batch:
            return Reply(OK, _told(known, batch, True))
        if known is None or known.committing < 0:
            reply = yield from self._begin(machine, query, batch, parts)
            if reply is not None:
                return reply
        return (yield from self._wait(group, query, batch))

    def _begin(self, machine: PartitionMachine, query: bytes, batch: int, parts: list[PartKey]) -> Task[Reply | None]:
        """Put BEGIN into the log; None: it is there."""
        group = machine.group
        if (group, query) in self._beginning:
            return Reply(LATER)
        found = self._find(group, machine.sinks, query, batch, parts)
        if isinstance(found, str):
            return Reply(REFUSED, found.encode())
        if not machine.sinks.has_room_for(query, machine.clock_ms):
            return Reply(REFUSED, b"Too many queries write to this partition within an hour; write with fewer of them.")
        self._beginning.add((group, query))
        try:
            now = self._calls.now
            body = begin_body(self._control.wall.at(now), query, batch, found)
            is_done = yield from self._control.put(group, SINK, body, now)
        finally:
            self._beginning.discard((group, query))
        known = self._known(group, query)
        if not is_done or known is None or batch > max(known.last, known.committing):
            return Reply(LATER)  # asked again, it is looked at anew
        return Reply(OK, _told(known, batch, False)) if known.last >= batch else None

    def _find(self, group: int, table: SinkTable, query: bytes, batch: int, parts: list[PartKey]) -> list[int] | str:
        """The entries that hold the chunks, in order; or why they are not all here."""
        oldest = self._engine.host.groups[group].state.log.first_index()
        indexes: list[int] = []
        for task, attempt, chunks in sorted(parts):
            for sequence in range(chunks):
                index = table.index_of((query, batch, task, attempt), sequence)
                if index < oldest or not index:
                    return (
                        f"Chunk {sequence} of task {task}, attempt {attempt}, batch {batch} is not staged here (any "
                        "more): stages are kept for an hour. Stage the batch again, then commit it."
                    )
                indexes.append(index)
        return indexes

    def _wait(self, group: int, query: bytes, batch: int) -> Task[Reply]:
        """Wait until a batch is committed; after PATIENCE_MS say how far it is."""
        due_at = self._calls.now + PATIENCE_MS
        self._waiting += 1
        try:
            while True:
                known = self._known(group, query)
                if known is None:
                    return Reply(LATER)
                if known.last >= batch:
                    return Reply(OK, _told(known, batch, False))
                if self._calls.now >= due_at:
                    is_this = known.committing == batch and self._engine.is_leader(group)
                    return Reply(OK, _told(known, batch, False)) if is_this else Reply(LATER)
                moved = self._moved.setdefault(group, Signal())
                yield from within(moved.next(), due_at - self._calls.now)
        finally:
            self._waiting -= 1

    def _known(self, group: int, query: bytes) -> SinkQuery | None:
        machine = self._machines.by_group.get(group)
        return machine.sinks.queries.get(query) if machine is not None else None

    # What happens.

    def applied(self, group: int) -> None:
        """A machine has moved on."""
        machine = self._machines.by_group[group]
        if machine.sinks.committing:
            self._active.add(group)
            self._go_on(machine)
        elif group in self._active:
            self._active.discard(group)
            self._forget_jobs(group)
        moved = self._moved.pop(group, None)
        if moved is not None:
            moved.fire()

    def _go_on(self, machine: PartitionMachine) -> None:
        """Propose what comes next of all batches that are being committed, if this node leads."""
        group = machine.group
        if not self.is_current(group):
            return
        term = self._engine.host.groups[group].state.term
        for query, known in machine.sinks.committing.items():
            job = self._jobs.get((group, query))
            if job is None or job.term != term or job.batch != known.committing:
                job = self._jobs[(group, query)] = _Job(term, known.committing, known.done)
            del job.sizes[: len(job.sizes) - (job.proposed - known.done)]
            while job.proposed < len(known.plan) and len(job.sizes) < PARTS_AHEAD and sum(job.sizes) < BYTES_AHEAD:
                size = self._propose(group, query, known, job.proposed)
                if not size:
                    break  # tried again after AGAIN_MS
                job.proposed += 1
                job.sizes.append(size)

    def _propose(self, group: int, query: bytes, known: SinkQuery, number: int) -> int:
        """One part; how large it is, 0 when that can't be now."""
        chunk = self._read(group, known.plan[number])
        if not chunk:
            self.unreadable += 1
            return 0
        wall_ms = self._control.wall.at(self._control.now)
        batch = part_of(chunk, PartName(query, known.committing, number), wall_ms)
        proposal = self._engine.host.propose(group, batch)
        self._engine.wake()
        return len(batch) if isinstance(proposal, Proposal) else 0

    def _read(self, group: int, index: int) -> bytes:
        """The chunk that an entry holds; empty when it can't be read here."""
        log = self._engine.host.groups[group].state.log
        try:
            data = log.read(index, index + 1, 1)[0].data
        except SpoiledError:
            return b""  # it is fetched from another replica; tried again after AGAIN_MS
        except DamageError as error:
            self._engine.host.break_group(group, error)  # another replica can go on
            return b""
        except (FlockError, OSError, IndexError):
            return b""
        body = read_sink_entry(data)
        return b"" if body is None else data[body.chunk_at : body.chunk_at + _size_at(data, body.chunk_at)]

    def closed(self, group: int) -> None:
        """There is no replica here any more: the others have to be asked."""
        self._active.discard(group)
        self._forget_jobs(group)
        moved = self._moved.pop(group, None)
        if moved is not None:
            moved.fire()

    def _forget_jobs(self, group: int) -> None:
        for key in [key for key in self._jobs if key[0] == group]:
            del self._jobs[key]

    def _go_on_all(self) -> bool:
        """Go on where a chunk could not be read or proposed before."""
        for group in list(self._active):
            machine = self._machines.by_group.get(group)
            if machine is not None:
                self._go_on(machine)
        return bool(self._engine.stopped)


def _size_at(data: bytes, position: int) -> int:
    return int.from_bytes(data[position + 16 : position + 20], "little")


def _told(known: SinkQuery, batch: int, is_repeat: bool) -> bytes:
    """What to answer about a batch that is committed, or being so."""
    first = NO_OFFSET
    following = NO_OFFSET
    state = DONE if known.last >= batch else UNDER_WAY
    if known.last == batch:
        first = known.first_offset
        following = known.next_offset
    done = known.done if known.committing == batch else 0
    return bytes((state, is_repeat)) + U64.pack(first) + U64.pack(following) + U32.pack(done)
