"""Durable topics without nodes, for tests of what the API does: real cluster state, logs in lists."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from flockmq.admin.durable_port import (
    NOWHERE,
    Chunk,
    ChunkName,
    CommitStatus,
    Message,
    MetaStatus,
)
from flockmq.admin.session_records import RecordListings
from flockmq.cluster.commands import Command, NodeSeen, Result, encode_envelope
from flockmq.cluster.dump import SegmentReport
from flockmq.cluster.model import TopicRecord
from flockmq.cluster.state import ClusterState
from flockmq.cluster.wanted_names import WantedNames
from flockmq.durable.logs.locating import Located
from flockmq.durable.machine.session_record import SessionRecord
from flockmq.durable.machine.session_table import SessionTable
from flockmq.durable.replicas.status import FOLLOWING, LEADING, ReplicaStatus
from flockmq.durable.sessions.lag import NO_LAG, Lag
from flockmq.errors import Behind, BeyondEnd, Conflict, NoLeader, OffsetGone
from flockmq.log.batch import BatchBuilder, BatchView, stamp
from flockmq.log.extents_reading import filter_batches
from flockmq.log.starts import LATEST, TIME, Start
from flockmq.routing.durable import shard_of
from flockmq.session.session import Session
from unit.admin.memory_groups import MemoryGroups

WALL_MS = 1_772_366_400_000


class MemoryLog:
    """A partition's log."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.first = 0
        self.end = 0

    def append(self, messages: Sequence[tuple[bytes, bytes, bytes, list[tuple[bytes, bytes]]]], at_ms: int) -> int:
        builder = BatchBuilder()
        for topic, client, payload, user in messages:
            builder.add(topic, client, at_ms, 1, payload)
            builder.mark(user=list(user))
        base = self.end
        self.batches.append(stamp(builder.build(), 1, len(self.batches) + 1, base))
        self.end += len(messages)
        return base

    def read(self, offset: int, bytes_max: int) -> list[bytes]:
        found: list[bytes] = []
        for batch in self.batches:
            if BatchView(batch).next_offset > offset:
                if found and sum(map(len, found)) + len(batch) > bytes_max:
                    break
                found.append(batch)
        return found


class MemoryDurable:
    """A ``DurablePort``."""

    def __init__(self, nodes: int = 3) -> None:
        self._state = ClusterState()
        self.groups = MemoryGroups(self)
        self._number = 0
        self.now_ms = WALL_MS
        self.logs: dict[int, MemoryLog] = {}
        self.cursors: dict[tuple[str, int], int] = {}
        self.stages: dict[tuple[int, bytes, int, int, int], dict[int, bytes]] = {}
        self.committed: dict[tuple[int, bytes], tuple[int, int, int]] = {}
        self.silent: set[int] = set()
        self.refuse: str = ""
        self.refused_topics: set[bytes] = set()
        """Only these; none: all."""
        self.no_quorum = False
        self.has_heard = True
        self.leaderless: set[int] = set()
        """Groups that nobody leads: followers tell of their logs, and nobody where cursors stand."""
        self.grown = asyncio.Event()
        self.tables: dict[int, SessionTable] = {}
        """Shards of ``$sessions`` by group."""
        self.lags: dict[str, Lag] = {}
        """What waits for sessions in logs, by client id."""
        self.ended: list[str] = []
        """Sessions whose end the API has waited for."""
        self.records: RecordListings | None = None
        """How their leaders list them."""
        for node in range(1, nodes + 1):
            self.apply(NodeSeen(node, f"n{node}@host", "127.0.0.1", 16000 + node, f"http://127.0.0.1:{18000 + node}"))

    def apply(self, command: Command) -> Result:
        self._number += 1
        return self._state.apply(encode_envelope(1, 1, self._number, self.now_ms, command))

    def log(self, group: int) -> MemoryLog:
        return self.logs.setdefault(group, MemoryLog())

    # --- the port ---

    def state(self) -> ClusterState:
        return self._state

    async def meta(self) -> MetaStatus:
        return MetaStatus(1, [1, 2, 3], [], self._state.index)

    def figures(self) -> dict[str, int | float]:
        return {"cluster_state_index": self._state.index, "topics": self._state.user_topic_count(), "partitions_led": 1}

    def is_current(self) -> bool:
        return self.has_heard

    def ends(self) -> dict[int, int]:
        return {group: log.end for group, log in self.logs.items()}

    def leader_of(self, group: int) -> int:
        return self._state.partition(group).preferred

    async def command(self, command: Command) -> Result:
        if self.no_quorum:
            return Result(False, "No majority of the core nodes can be reached; try again.", None, "timeout")
        return self.apply(command)

    async def replicas(self, groups: Sequence[int] | None) -> dict[int, list[ReplicaStatus]]:
        return {
            one.group: [
                ReplicaStatus(
                    node,
                    LEADING if node == one.preferred and one.group not in self.leaderless else FOLLOWING,
                    one.preferred,
                    7,
                    self.log(one.group).first,
                    self.log(one.group).end,
                    sum(map(len, self.log(one.group).batches)),
                )
                for node in one.replicas
                if node not in self.silent
            ]
            for one in self._state.partitions()
            if groups is None or one.group in groups
        }

    async def scrub(self, groups: Sequence[int]) -> tuple[int, list[int]]:
        return len(groups), []

    async def segments(self) -> list[SegmentReport]:
        return [
            SegmentReport(node, one.group, 0, self.log(one.group).end, sum(map(len, self.log(one.group).batches)))
            for one in self._state.partitions()
            for node in one.replicas
        ]

    async def read(
        self, group: int, offset: int, bytes_max: int, wait_ms: int, wanted: WantedNames | None = None
    ) -> Chunk:
        log = self.log(group)
        if offset < log.first:
            raise OffsetGone(log.first, f"Offset {offset}")
        if offset > log.end:
            if self.no_quorum:
                raise Behind(log.end, offset)
            raise BeyondEnd(log.end, f"Offset {offset}")
        if offset == log.end and wait_ms:
            await self._wait(wait_ms)
        batches, following = filter_batches(
            log.read(offset, bytes_max), offset, None if wanted is None else wanted.wants_any
        )
        return Chunk(b"".join(batches), log.first, log.end, following)

    async def _wait(self, wait_ms: int) -> None:
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self.grown.wait()
        except TimeoutError:
            return

    async def locate(
        self, groups: Sequence[int], start: Start, after: Sequence[int] = (), wait_ms: int = 0
    ) -> list[Located]:
        if after and all(self.log(group).end <= end for group, end in zip(groups, after, strict=True)):
            await self._wait(wait_ms)
        return [self._located(self.log(group), start) for group in groups]

    def _located(self, log: MemoryLog, start: Start) -> Located:
        offset = log.end if start.what == LATEST else log.first
        if start.what == TIME:
            views = [BatchView(batch) for batch in log.batches]
            offset = next((view.base_offset for view in views if view.latest_timestamp >= start.value), log.end)
        return Located(offset, log.first, log.end)

    async def publish(
        self, topic: TopicRecord, client: bytes, messages: Sequence[Message]
    ) -> list[tuple[int, int] | str]:
        placed: list[tuple[int, int] | str] = []
        for one in messages:
            if self.refuse and one.topic in (self.refused_topics or {one.topic}):
                placed.append(self.refuse)
                continue
            shard = shard_of(one.topic, topic.shards)
            user = [(name.encode(), value.encode()) for name, value in one.properties.user] if one.properties else []
            base = self.log(topic.partitions[shard].group).append([(one.topic, client, one.payload, user)], self.now_ms)
            placed.append((shard, base))
        self.grown.set()
        return placed

    def session_shards(self) -> list[int]:
        return list(self.tables)

    def session_shard_of(self, client_id: str) -> int:
        groups = list(self.tables)
        return groups[shard_of(client_id.encode(), len(groups))] if groups else 0

    async def session_records(self, group: int, question: bytes) -> bytes | None:
        return None if group in self.leaderless or self.records is None else self.records.answer(group, question)

    async def session_record(self, client_id: str) -> SessionRecord | None:
        group = self.session_shard_of(client_id)
        if group in self.leaderless:
            raise NoLeader
        return self.tables[group].records.get(client_id.encode()) if group else None

    def session_lag(self, session: Session) -> Lag:
        return self.lags.get(session.client_id, NO_LAG)

    async def record_lag(self, record: SessionRecord) -> Lag | None:
        return self.lags.get(record.client.decode(), NO_LAG)

    async def end_session_record(self, client_id: str) -> bool:
        group = self.session_shard_of(client_id)
        return group > 0 and self.tables[group].records.pop(client_id.encode(), None) is not None

    async def session_record_ended(self, client_id: str) -> None:
        self.ended.append(client_id)

    async def stage(self, group: int, name: ChunkName, chunk: bytes) -> None:
        if self.refuse:
            raise Conflict(self.refuse)
        self.stages.setdefault((group, name.query, name.batch, name.task, name.attempt), {})[name.sequence] = chunk

    async def commit_sink(
        self, group: int, query: bytes, batch: int, parts: Sequence[tuple[int, int, int]]
    ) -> CommitStatus:
        last, first, following = self.committed.get((group, query), (-1, 0, 0))
        if batch <= last:
            return CommitStatus(True, True, *((first, following) if batch == last else (-1, -1)), 0)
        log = self.log(group)
        chunks: list[bytes] = []
        for task, attempt, count in sorted(parts):
            staged = self.stages.get((group, query, batch, task, attempt), {})
            if sorted(staged) != list(range(count)):
                raise Conflict(f"Task {task} is not staged; stage it again.")
            chunks += [staged[sequence] for sequence in range(count)]
        first = log.end
        for chunk in chunks:
            log.batches.append(stamp(chunk, 1, len(log.batches) + 1, log.end))
            log.end += BatchView(chunk).count
        self.committed[(group, query)] = (batch, first, log.end)
        return CommitStatus(True, False, first, log.end, 0)

    async def sink_states(self, groups: Sequence[int], query: bytes) -> list[tuple[int, int]]:
        return [
            (
                self.committed.get((group, query), (-1, 0, 0))[0],
                sum(
                    len(chunk)
                    for key, chunks in self.stages.items()
                    if key[:2] == (group, query)
                    for chunk in chunks.values()
                ),
            )
            for group in groups
        ]

    async def drop_stages(self, group: int, query: bytes, batch: int) -> None:
        for key in [key for key in self.stages if key[:3] == (group, query, batch)]:
            del self.stages[key]

    async def positions(self, wanted: Sequence[tuple[str, int]]) -> list[int | None]:
        return [None if one[1] in self.leaderless else self.cursors.get(one, NOWHERE) for one in wanted]

    async def commit(self, cursor: str, group: int, offset: int, *, is_reset: bool = False) -> None:
        if group in self.leaderless:
            raise NoLeader
        if is_reset or offset > self.cursors.get((cursor, group), -1):
            self.cursors[(cursor, group)] = offset
