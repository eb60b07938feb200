"""Sinks: batches that are staged at the leaders of partitions and committed there exactly once, from any node.

```
 stage(group, name, chunk)         pieces --> the leader --> STAGE in its log --> applied: answered
 commit(group, query, batch, ...)  --> the leader: ``sinks_committing.py``, asked again until it is done
 drop(group, query, batch)         --> the leader --> DROP in its log
 states(groups, query)             --> the leaders: last batch, bytes staged
```
All of it may be said twice. A chunk is larger than a question between nodes may be, so it comes in pieces; a leader
that is new begins with the first one again. Stages that nobody commits are swept out by the leader, also where no entry
comes that would tell the time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import LATER, OK, REFUSED, TIMED_OUT
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
    from flockmq.durable.calls import PartitionCalls, Replied
    from flockmq.durable.machine.control import Control
    from flockmq.durable.machine.machines import Machines
    from flockmq.raft.entry import Entry

PIECE_BYTES: Final = 512 * 1024
RESTARTS_MAX: Final = 4
TIMEOUT_MS: Final = 8_000
COMMIT_MS: Final = 5_000


class Staged:
    """What became of a chunk: ``reason`` is empty when it is staged; ``is_final``: asking again does not help."""

    def __init__(self, reason: str, is_final: bool) -> None:
        self.reason = reason
        self.is_final = is_final


class Committed:
    """What became of a batch in a partition; with ``reason`` nothing did."""

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


StagedReply = Callable[[Staged], None]
CommittedReply = Callable[[Committed], None]
StatusReply = Callable[[dict[int, SinkStatus], list[int]], None]


class _Sending:
    """A chunk on its way to a leader."""

    def __init__(self, group: int, number: int, name: bytes, chunk: bytes, reply: StagedReply, due_at: int) -> None:
        self.group = group
        self.number = number
        self.name = name
        self.chunk = chunk
        self.reply = reply
        self.due_at = due_at
        self.sent = 0
        self.restarts = 0


class Sinks:
    """See the module. A listener of ``Machines``, behind ``Control``."""

    def __init__(self, calls: PartitionCalls, control: Control, machines: Machines) -> None:
        self.committing = Committing(calls.engine, machines, control)
        self._staging = Staging(calls, control, machines, self.committing)
        self.piece_bytes = PIECE_BYTES
        self._calls = calls
        self._control = control
        self._machines = machines
        # Another start of this node must not go on with what an earlier one sent.
        self._number = (calls.engine.host.boot & 0xFFFF_FFFF) << 32
        calls.serve(SINK_STAGE_CALL, self._staging.on_piece)
        calls.serve(SINK_COMMIT_CALL, self._on_commit)
        calls.serve(SINK_DROP_CALL, self._on_drop)
        calls.serve_each(SINK_STATE_CALL, self._on_state)

    # Staging.

    def stage(
        self, group: int, query: bytes, batch: int, task: int, attempt: int, sequence: int, chunk: bytes,
        reply: StagedReply, now: int,
    ) -> None:  # fmt: skip
        """Keep a chunk at the leader of a group. It has to be a batch that was checked (``sinks_checking.py``)."""
        self._number += 1
        name = stage_name(query, batch, task, attempt, sequence)
        self._send_piece(_Sending(group, self._number, name, chunk, reply, now + TIMEOUT_MS), now)

    def _send_piece(self, sending: _Sending, now: int) -> None:
        at = sending.sent
        piece = sending.chunk[at : at + self.piece_bytes]
        head = U64.pack(self._calls.me) + U64.pack(sending.number) + U32.pack(at) + U32.pack(len(sending.chunk))
        body = head + sending.name + piece
        replied = partial(self._on_piece_answer, sending, len(piece))
        self._calls.ask(sending.group, SINK_STAGE_CALL, body, replied, now, max(sending.due_at - now, 1))

    def _on_piece_answer(self, sending: _Sending, size: int, code: int, body: bytes) -> None:
        now = self._calls.now
        if code == REFUSED:
            sending.reply(Staged(body.decode(errors="replace"), True))
        elif code == TIMED_OUT or now >= sending.due_at or len(body) != 1 or sending.restarts > RESTARTS_MAX:
            sending.reply(Staged("No leader of the partition took the chunk in time; try again.", False))
        elif body[0] == STAGED:
            sending.reply(Staged("", True))
        else:
            sending.sent += size
            if body[0] != KEPT or sending.sent >= len(sending.chunk):
                sending.sent = 0
                sending.restarts += 1
            self._send_piece(sending, now)

    # Committing.

    def commit(
        self, group: int, query: bytes, batch: int, parts: list[PartKey], reply: CommittedReply, now: int
    ) -> None:
        """Commit what was staged of a batch in a group; also answered when it is only begun."""
        told = [U32.pack(task) + U64.pack(attempt) + U32.pack(chunks) for task, attempt, chunks in parts]
        body = sized(query) + U64.pack(batch) + U32.pack(len(told)) + b"".join(told)
        self._calls.ask(group, SINK_COMMIT_CALL, body, partial(_committed, reply), now, COMMIT_MS)

    def _on_commit(self, group: int, reader: Reader, answer: Replied) -> None:
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
        self.committing.commit(group, query, batch, parts, answer, self._calls.now)

    def drop(self, group: int, query: bytes, batch: int, reply: Callable[[bool], None], now: int) -> None:
        """Forget what was staged of a batch in a group."""
        body = sized(query) + U64.pack(batch)
        self._calls.ask(group, SINK_DROP_CALL, body, partial(_dropped, reply), now)

    def _on_drop(self, group: int, reader: Reader, answer: Replied) -> None:
        query = reader.sized()
        batch = reader.number()
        machine = self._machines.by_group.get(group)
        if machine is None or not self.committing.is_current(group):
            answer(LATER, b"")
        elif not machine.sinks.staged_bytes(query):
            answer(OK, b"")
        else:
            now = self._calls.now
            body = drop_body(max(now + self._control.wall_offset_ms, 0), query, batch)
            self._control.put(group, SINK, body, partial(_put_dropped, answer), now)

    # What is known.

    def states(self, groups: list[int], query: bytes, reply: StatusReply, now: int) -> None:
        """What groups know of a query."""
        self._calls.gather(groups, SINK_STATE_CALL, sized(query), partial(_gathered, reply), now)

    def _on_state(self, group: int, reader: Reader) -> bytes | None:
        machine = self._machines.by_group.get(group)
        if machine is None or not self.committing.is_current(group):
            return None
        query = reader.sized()
        known = machine.sinks.queries.get(query)
        last = known.last + 1 if known is not None else 0
        return U64.pack(last) + U64.pack(machine.sinks.staged_bytes(query))

    # Listener, and time.

    def applied(self, group: int, entries: list[Entry]) -> None:
        """A machine has moved on."""
        self.committing.applied(group, entries)

    def closed(self, group: int) -> None:
        """There is no replica here any more."""
        self.committing.closed(group)
        self._staging.closed(group)

    def tick(self, now: int) -> None:
        """Time passes."""
        self.committing.tick(now)
        self._staging.tick(now)


def _committed(reply: CommittedReply, code: int, body: bytes) -> None:
    if code != OK:
        reason = "No leader of the partition could be reached in time; commit again."
        reply(Committed(body.decode(errors="replace") if code == REFUSED else reason, code == REFUSED))
        return
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
    reply(told)


def _dropped(reply: Callable[[bool], None], code: int, body: bytes) -> None:  # noqa: ARG001
    reply(code == OK)


def _put_dropped(answer: Replied, done: bool) -> None:
    answer(OK if done else LATER, b"")


def _gathered(reply: StatusReply, found: dict[int, bytes], missing: list[int]) -> None:
    states: dict[int, SinkStatus] = {}
    for group, body in found.items():
        reader = Reader(body)
        last = reader.u64() - 1
        states[group] = SinkStatus(last, reader.u64())
    reply(states, missing)
