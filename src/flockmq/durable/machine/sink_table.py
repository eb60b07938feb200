"""What a partition knows of sinks: chunks that are staged, batches that are being committed, the last that were.

```
 STAGE --> stages: (query, batch, task, attempt) --> index of the entry of each chunk     gone after an hour of log time
 BEGIN --> query: batch b is being committed, its chunks are entries i, j, k: no other     |  DROP, a later BEGIN
 PART  --> query: part 0, 1, 2 of b are in the log --> all: b is the query's last batch    v
```
Part of the state of a partition (``machine.py``), so made of committed entries alone and the same on all replicas. From
BEGIN on it is certain what will be committed: any leader goes on with the next part, and no node can put others in.

Everything is bounded. Queries are remembered as long as there is room: the one that committed least recently goes
first, but none within an hour.
"""

from __future__ import annotations

import struct
from typing import Final

from flockmq.durable.machine.sink_bodies import (
    BEGIN,
    CHUNKS_MAX,
    DROP,
    STAGE,
    PartName,
    SinkBody,
    read_indexes,
)
from flockmq.peering.fields import U32, Reader, sized

QUERIES_MAX: Final = 4_096
STAGED_BYTES_MAX: Final = 4 << 30
"""Staged in one partition."""
STAGE_MS: Final = 3_600_000
"""How long a stage is kept after its last chunk came."""
QUERY_MS: Final = 3_600_000
"""How long a query is remembered at least."""

_QUERY: Final = struct.Struct("<qQQqQQI")
_STAGE: Final = struct.Struct("<QIQQI")
_CHUNK: Final = struct.Struct("<IQI")

StageKey = tuple[bytes, int, int, int]
"""(query, batch, task, attempt)"""


class Stage:
    """Chunks of one attempt at a task."""

    def __init__(self) -> None:
        self.until_ms = 0
        self.bytes = 0
        self.indexes: dict[int, int] = {}
        """Sequence -> entry that holds the chunk,"""
        self.sizes: dict[int, int] = {}
        """and how large that is."""


class SinkQuery:
    """A query that has committed here, or is about to."""

    def __init__(self) -> None:
        self.last = -1
        """Last batch that was committed; its records lie between"""
        self.first_offset = 0
        self.next_offset = 0
        self.committing = -1
        """Batch that is being committed; -1: none."""
        self.plan: list[int] = []
        """Entries that hold its chunks, in order."""
        self.done = 0
        """How many of them readers can see."""
        self.begun_offset = 0
        self.heard_ms = 0


class SinkTable:
    """See the module."""

    def __init__(self) -> None:
        self.queries: dict[bytes, SinkQuery] = {}
        """Least recently heard of first."""
        self.stages: dict[StageKey, Stage] = {}
        """The one that expires first is first."""
        self.committing: dict[bytes, SinkQuery] = {}
        """Those of ``queries`` with a batch that is being committed."""
        self.bytes = 0
        self.chunks = 0
        self.forgotten = 0
        """Queries that had to go because there was no room; not replicated."""

    def apply(self, body: SinkBody, index: int, size: int, end_offset: int, clock_ms: int) -> None:
        """An entry of kind SINK is committed: ``index`` is its own, ``end_offset`` that behind all records so far."""
        self._sweep(clock_ms)
        if body.what == STAGE:
            self._stage(body, index, size, clock_ms)
        elif body.what == BEGIN:
            self._begin(body, end_offset, clock_ms)
        elif body.what == DROP:
            self._drop(body.query, body.batch, body.batch)

    def has_passed(self, query: bytes, batch: int) -> bool:
        """Whether a batch, or a later one, is committed or about to be, so that nothing more is staged for it."""
        known = self.queries.get(query)
        return known is not None and batch <= max(known.last, known.committing)

    def has_room(self, size: int) -> bool:
        """Whether another chunk may be staged."""
        return self.chunks < CHUNKS_MAX and self.bytes + size <= STAGED_BYTES_MAX

    def has_room_for(self, query: bytes, clock_ms: int) -> bool:
        """Whether a query may commit: it is known, or there is room for one more."""
        return query in self.queries or len(self.queries) < QUERIES_MAX or self._oldest(clock_ms) is not None

    def index_of(self, key: StageKey, sequence: int) -> int:
        """The entry that holds a chunk; 0 when it is not staged."""
        stage = self.stages.get(key)
        return 0 if stage is None else stage.indexes.get(sequence, 0)

    def staged_bytes(self, query: bytes) -> int:
        """What a query has staged."""
        return sum([stage.bytes for key, stage in self.stages.items() if key[0] == query])

    def held_index(self) -> int:
        """The oldest entry that is still needed; 0: none. Each node that may lead some day has to have it."""
        held = 0
        for known in self.committing.values():
            held = _lower(held, known.plan[known.done :])
        for stage in self.stages.values():
            held = _lower(held, list(stage.indexes.values()))
        return held

    def oldest_stage(self) -> StageKey | None:
        """The one that expires first."""
        for key in self.stages:
            return key
        return None

    def expires_ms(self) -> int:
        """Log time at which the next stage expires; 0: there is none."""
        for stage in self.stages.values():
            return stage.until_ms
        return 0

    # What entries say.

    def _stage(self, body: SinkBody, index: int, size: int, clock_ms: int) -> None:
        if self.has_passed(body.query, body.batch):
            return
        key = (body.query, body.batch, body.task, body.attempt)
        stage = self.stages.get(key)
        before = 0 if stage is None else stage.sizes.get(body.sequence, 0)
        if not before and not self.has_room(size):
            return
        if stage is None:
            stage = Stage()
        else:
            del self.stages[key]
        stage.until_ms = clock_ms + STAGE_MS
        stage.indexes[body.sequence] = index  # said twice: the later one is there for longer
        stage.sizes[body.sequence] = size
        stage.bytes += size - before
        self.stages[key] = stage
        self.bytes += size - before
        self.chunks += 0 if before else 1

    def _begin(self, body: SinkBody, end_offset: int, clock_ms: int) -> None:
        known = self.queries.get(body.query)
        if known is not None and (body.batch <= known.last or known.committing >= 0):
            return
        staged: set[int] = set()
        for key, stage in self.stages.items():
            if key[0] == body.query and key[1] == body.batch:
                staged.update(stage.indexes.values())
        if not staged.issuperset(body.indexes) or not self._make_room(body.query, clock_ms):
            return
        if known is None:
            known = SinkQuery()
        else:
            del self.queries[body.query]
        known.heard_ms = clock_ms
        self.queries[body.query] = known
        known.committing = body.batch
        known.plan = body.indexes
        known.done = 0
        known.begun_offset = end_offset
        self._drop(body.query, 0, body.batch)
        if body.indexes:
            self.committing[body.query] = known
        else:
            self._finish(known, end_offset)

    def part(self, name: PartName, base_offset: int, next_offset: int) -> None:
        """Records of a batch that is being committed are in the log."""
        known = self.committing.get(name.query)
        if known is None or known.committing != name.batch or known.done != name.part:
            return
        if known.done == 0:
            known.begun_offset = base_offset
        known.done += 1
        if known.done == len(known.plan):
            del self.committing[name.query]
            self._finish(known, next_offset)

    def _finish(self, known: SinkQuery, next_offset: int) -> None:
        known.last = known.committing
        known.first_offset = known.begun_offset
        known.next_offset = next_offset
        known.committing = -1
        known.plan = []
        known.done = 0

    def _oldest(self, clock_ms: int) -> bytes | None:
        """The query that may be forgotten next, if any may."""
        for query, known in self.queries.items():
            if known.heard_ms + QUERY_MS > clock_ms:
                return None
            if known.committing < 0:
                return query
        return None

    def _make_room(self, query: bytes, clock_ms: int) -> bool:
        if query in self.queries or len(self.queries) < QUERIES_MAX:
            return True
        oldest = self._oldest(clock_ms)
        if oldest is None:
            return False
        del self.queries[oldest]
        self.forgotten += 1
        return True

    def _drop(self, query: bytes, low: int, high: int) -> None:
        """Forget what is staged of batches from ``low`` to ``high``."""
        for key in [key for key in self.stages if key[0] == query and low <= key[1] <= high]:
            self._remove(key)

    def _sweep(self, clock_ms: int) -> None:
        while self.stages:
            key = next(iter(self.stages))
            if self.stages[key].until_ms > clock_ms:
                return
            self._remove(key)

    def _remove(self, key: StageKey) -> None:
        stage = self.stages.pop(key)
        self.bytes -= stage.bytes
        self.chunks -= len(stage.indexes)

    # Checkpoints.

    def is_empty(self) -> bool:
        """Whether nothing is known."""
        return not self.queries and not self.stages

    def encode(self) -> bytes:
        """For a checkpoint: the same bytes on every replica."""
        parts = [U32.pack(len(self.queries))]
        for query, known in self.queries.items():
            parts.append(sized(query))
            parts.append(
                _QUERY.pack(
                    known.last,
                    known.first_offset,
                    known.next_offset,
                    known.committing,
                    known.begun_offset,
                    known.heard_ms,
                    known.done,
                )
            )
            parts.append(U32.pack(len(known.plan)) + struct.pack(f"<{len(known.plan)}Q", *known.plan))
        parts.append(U32.pack(len(self.stages)))
        for (query, batch, task, attempt), stage in self.stages.items():
            parts.append(sized(query) + _STAGE.pack(batch, task, attempt, stage.until_ms, len(stage.indexes)))
            for sequence, index in stage.indexes.items():
                parts.append(_CHUNK.pack(sequence, index, stage.sizes[sequence]))
        return b"".join(parts)


def decode_sinks(content: bytes) -> SinkTable:
    """Read ``SinkTable.encode``; RemoteProtocolError when it is not that."""
    table = SinkTable()
    reader = Reader(content)
    for _ in range(reader.count(QUERIES_MAX, 2 + _QUERY.size + 4)):
        query = reader.sized()
        known = SinkQuery()
        fields: tuple[int, ...] = _QUERY.unpack_from(content, reader.skip(_QUERY.size))
        known.last, known.first_offset, known.next_offset, known.committing = fields[:4]
        known.begun_offset, known.heard_ms, known.done = fields[4:]
        known.plan = read_indexes(reader)
        table.queries[query] = known
        if known.committing >= 0:
            table.committing[query] = known
    for _ in range(reader.count(CHUNKS_MAX, 2 + _STAGE.size)):
        query = reader.sized()
        batch, task, attempt, until_ms, count = _STAGE.unpack_from(content, reader.skip(_STAGE.size))
        stage = Stage()
        stage.until_ms = until_ms
        for _ in range(count):
            sequence, index, size = _CHUNK.unpack_from(content, reader.skip(_CHUNK.size))
            stage.indexes[sequence] = index
            stage.sizes[sequence] = size
            stage.bytes += size
        table.stages[(query, batch, task, attempt)] = stage
        table.bytes += stage.bytes
        table.chunks += count
    return table


def _lower(held: int, indexes: list[int]) -> int:
    if not indexes:
        return held
    lowest = min(indexes)
    return min(held, lowest) if held else lowest
