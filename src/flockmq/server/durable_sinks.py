"""Sinks as the admin API asks for them: questions to the leaders of partitions, and their answers to await."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flockmq.admin.durable_port import ChunkName, CommitStatus
from flockmq.drivers.clock import now_ms
from flockmq.durable.sinks.sinks import Committed
from flockmq.errors import Conflict, NoLeader, Refused
from flockmq.node.publishing import WHY_NAMESPACE_FULL
from flockmq.server.durable_asking import Asking

COMMIT_MS: Final = 4_000
"""How long a commit is followed; then the caller hears how far it is."""


class SinkView(Asking):
    """See the module; the part of ``DurablePort`` that is about sinks."""

    async def stage(self, group: int, name: ChunkName, chunk: bytes) -> None:
        """See ``DurablePort``."""
        node = self._working()
        sinks = node.sinks
        topic = node.layout.topic_of(group)
        if topic is not None and topic.namespace.encode() in node.broker.node.spaces.full:
            raise Refused(WHY_NAMESPACE_FULL)
        staged = await self._await(
            sinks.stage(group, name.query, name.batch, name.task, name.attempt, name.sequence, chunk)
        )
        if staged.reason:
            raise Conflict(staged.reason) if staged.is_final else NoLeader(staged.reason)

    async def commit_sink(
        self, group: int, query: bytes, batch: int, parts: Sequence[tuple[int, int, int]]
    ) -> CommitStatus:
        """See ``DurablePort``."""
        due_at = now_ms() + COMMIT_MS
        is_repeat = True
        while True:
            told = await self._commit_once(group, query, batch, list(parts))
            is_repeat = is_repeat and told.is_repeat
            if told.is_done or now_ms() >= due_at:
                return CommitStatus(told.is_done, is_repeat, told.first, told.next, told.chunks_done)

    async def _commit_once(self, group: int, query: bytes, batch: int, parts: list[tuple[int, int, int]]) -> Committed:
        sinks = self._working().sinks
        told = await self._await(sinks.commit(group, query, batch, parts))
        if told.reason:
            raise Conflict(told.reason) if told.is_final else NoLeader(told.reason)
        return told

    async def sink_states(self, groups: Sequence[int], query: bytes) -> list[tuple[int, int]]:
        """See ``DurablePort``."""
        sinks = self._working().sinks
        found, missing = await self._await(sinks.states(list(groups), query))
        if missing:
            raise NoLeader.of(missing[0])
        return [(found[group].last, found[group].staged_bytes) for group in groups]

    async def drop_stages(self, group: int, query: bytes, batch: int) -> None:
        """See ``DurablePort``."""
        sinks = self._working().sinks
        if not await self._await(sinks.drop(group, query, batch)):
            raise NoLeader.of(group)
