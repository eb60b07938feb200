"""Sinks: batches that are staged at the leaders of partitions and committed there exactly once, from any node.

```
 stage(group, name, chunk)         pieces --> the leader --> STAGE in its log --> applied: answered
 commit(group, query, batch, ...)  --> the leader: ``committing.py``, asked again until it is done
 drop(group, query, batch)         --> the leader --> DROP in its log
 states(groups, query)             --> the leaders: last batch, bytes staged
```
All of it may be said twice. A chunk is larger than a question between nodes may be, so it comes in pieces; a new leader
begins with the first piece again. The leader sweeps out stages that no query commits, also where no entry comes that
would tell the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import LATER, OK, REFUSED, TIMED_OUT, Reply
from flockmq.durable.machine.sink_bodies import (
    CHUNKS_MAX,
    QUERY_BYTES_MAX,
    drop_body,
    stage_name,
)
from flockmq.durable.sinks.committing import DONE, NO_OFFSET, Committing, PartKey
from flockmq.durable.sinks.staging import KEPT, STAGED, Staging
from flockmq.log.batch import SINK
from flockmq.peering.fields import U32, U64, Reader, malformed, sized
from flockmq.peering.kinds import SINK_COMMIT_CALL, SINK_DROP_CALL, SINK_STAGE_CALL, SINK_STATE_CALL

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.machine.control import Control
    from flockmq.durable.machine.machines import Machines
    from flockmq.raft.entry import Entry
    from flockmq.tasks import Promise, Task

PIECE_BYTES: Final = 512 * 1024
RESTARTS_MAX: Final = 4
TIMEOUT_MS: Final = 8_000
COMMIT_MS: Final = 5_000


class Staged:
    """The outcome of staging a chunk; ``reason`` is empty when it is staged. ``is_final``: do not ask again."""

    def __init__(self, reason: str, is_final: bool) -> None:
        self.reason = reason
        self.is_final = is_final


class Committed:
    """The outcome of a commit in a partition; with a ``reason`` nothing was committed."""

    def __init__(self, reason: str = "", is_final: bool = False) -> None:
        self.reason = reason
        self.is_final = is_final
        """Asking again does not help: it has to be staged again."""
        self.is_done = False
        self.is_repeat = False
        self.first = -1
        self.next = -1
        self.chunks_done = 0


class SinkStatus:
    """What a partition knows of a query."""

    def __init__(self, last: int, staged_bytes: int) -> None:
        self.last = last
        self.staged_bytes = staged_bytes


class Sinks:
    """See the module. A listener of ``Machines``, behind ``Control``."""

    def __init__(self, calls: PartitionCalls, control: Control, machines: Machines) -> None:
        self.committing = Committing(calls, machines, control)
        self._staging = Staging(calls, control, machines, self.committing)
        self.piece_bytes = PIECE_BYTES
        self._calls = calls
        self._control = control
        self._machines = machines
        # Another start of this node must not go on with what an earlier one sent.
        self._number = (calls.engine.host.boot & 0xFFFF_FFFF) << 32
        calls.serve_leader(SINK_STAGE_CALL, self._staging.on_piece)
        calls.serve_leader(SINK_COMMIT_CALL, self._on_commit)
        calls.serve_leader(SINK_DROP_CALL, self._on_drop)
        calls.serve_each(SINK_STATE_CALL, self._on_state)

    # Staging.

    def stage(
        self, group: int, query: bytes, batch: int, task: int, attempt: int, sequence: int, chunk: bytes
    ) -> Promise[Staged]:
        """Keep a chunk at the leader of a group. It has to be a batch that was checked (``checking.py``)."""
        self._number += 1
        name = stage_name(query, batch, task, attempt, sequence)
        return self._calls.tasks.start("stage a chunk", self._stage(group, self._number, name, chunk))

    def _stage(self, group: int, number: int, name: bytes, chunk: bytes) -> Task[Staged]:
        due_at = self._calls.now + TIMEOUT_MS
        sent = restarts = 0
        while self._calls.now < due_at and restarts <= RESTARTS_MAX:
            piece = chunk[sent : sent + self.piece_bytes]
            head = U64.pack(self._calls.me) + U64.pack(number) + U32.pack(sent) + U32.pack(len(chunk))
            left_ms = due_at - self._calls.now
            code, body = yield from self._calls.ask_leader(group, SINK_STAGE_CALL, head + name + piece, left_ms)
            if code == REFUSED:
                return Staged(body.decode(errors="replace"), True)
            if code == TIMED_OUT or len(body) != 1:
                break
            if body[0] == STAGED:
                return Staged("", True)
            sent += len(piece)
            if body[0] != KEPT or sent >= len(chunk):
                sent = 0
                restarts += 1
        return Staged("No leader of the partition took the chunk in time; try again.", False)

    # Committing.

    def commit(self, group: int, query: bytes, batch: int, parts: list[PartKey]) -> Promise[Committed]:
        """Commit what was staged of a batch in a group; also told when it is only begun."""
        return self._calls.tasks.start("commit staged chunks", self._commit(group, query, batch, parts))

    def _commit(self, group: int, query: bytes, batch: int, parts: list[PartKey]) -> Task[Committed]:
        told = [U32.pack(task) + U64.pack(attempt) + U32.pack(chunks) for task, attempt, chunks in parts]
        question = sized(query) + U64.pack(batch) + U32.pack(len(told)) + b"".join(told)
        code, body = yield from self._calls.ask_leader(group, SINK_COMMIT_CALL, question, COMMIT_MS)
        if code == REFUSED:
            return Committed(body.decode(errors="replace"), True)
        if code != OK:
            return Committed("No leader of the partition could be reached in time; commit again.", False)
        return _read_committed(body)

    def _on_commit(self, group: int, reader: Reader) -> Task[Reply]:
        query = reader.sized()
        batch = reader.number()
        parts: list[PartKey] = []
        total = 0
        for _ in range(reader.count(CHUNKS_MAX, 16)):
            task = reader.u32()
            attempt = reader.u64()
            chunks = reader.u32()
            total += chunks
            parts.append((task, attempt, chunks))
        if not query or len(query) > QUERY_BYTES_MAX or total > CHUNKS_MAX:
            raise malformed("a commit that can't be")
        return (yield from self.committing.commit(group, query, batch, parts))

    # Dropping.

    def drop(self, group: int, query: bytes, batch: int) -> Promise[bool]:
        """Forget what was staged of a batch in a group; False: no leader was reached in time."""
        return self._calls.tasks.start("drop staged chunks", self._drop(group, query, batch))

    def _drop(self, group: int, query: bytes, batch: int) -> Task[bool]:
        reply = yield from self._calls.ask_leader(group, SINK_DROP_CALL, sized(query) + U64.pack(batch))
        return reply.code == OK

    def _on_drop(self, group: int, reader: Reader) -> Task[Reply]:
        query = reader.sized()
        batch = reader.number()
        machine = self._machines.by_group.get(group)
        if machine is None or not self.committing.is_current(group):
            return Reply(LATER)
        if not machine.sinks.staged_bytes(query):
            return Reply(OK)
        now = self._calls.now
        body = drop_body(self._control.wall.at(now), query, batch)
        is_done = yield from self._control.put(group, SINK, body, now)
        return Reply(OK if is_done else LATER)

    # What is known.

    def states(self, groups: list[int], query: bytes) -> Promise[tuple[dict[int, SinkStatus], list[int]]]:
        """What groups know of a query, and the groups whose leader did not answer."""
        return self._calls.tasks.start("states of a sink", self._states(groups, query))

    def _states(self, groups: list[int], query: bytes) -> Task[tuple[dict[int, SinkStatus], list[int]]]:
        told = yield from self._calls.ask_leaders(groups, SINK_STATE_CALL, sized(query))
        states: dict[int, SinkStatus] = {}
        for group, body in told.found.items():
            reader = Reader(body)
            states[group] = SinkStatus(reader.u64() - 1, reader.u64())
        return states, told.missing

    def _on_state(self, group: int, reader: Reader) -> bytes | None:
        machine = self._machines.by_group.get(group)
        if machine is None or not self.committing.is_current(group):
            return None
        query = reader.sized()
        known = machine.sinks.queries.get(query)
        last = known.last + 1 if known is not None else 0
        return U64.pack(last) + U64.pack(machine.sinks.staged_bytes(query))

    # Listener.

    def applied(self, group: int, entries: list[Entry]) -> None:  # noqa: ARG002
        """A machine has moved on."""
        self.committing.applied(group)

    def closed(self, group: int) -> None:
        """There is no replica here any more."""
        self.committing.closed(group)
        self._staging.closed(group)


def _read_committed(body: bytes) -> Committed:
    reader = Reader(body)
    told = Committed()
    told.is_done = reader.u8() == DONE
    told.is_repeat = reader.u8() == 1
    first = reader.u64()
    following = reader.u64()
    if first != NO_OFFSET:
        told.first = first
        told.next = following
    told.chunks_done = reader.u32()
    return told
