"""What the API asks the composition about sinks: the part of ``DurablePort`` that stages batches and commits them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ChunkName:
    """Which chunk of which attempt at which task of whose batch."""

    query: bytes
    batch: int
    task: int
    attempt: int
    sequence: int


@dataclass(frozen=True, slots=True)
class CommitStatus:
    """What became of a batch in one group; offsets are -1 when they are not known any more."""

    is_done: bool
    is_repeat: bool
    first: int
    next: int
    chunks_done: int


class SinkPort(Protocol):
    """See the module. All of it may be asked twice. Conflict: something that is named is not staged; stage it again."""

    async def stage(self, group: int, name: ChunkName, chunk: bytes) -> None:
        """Keep a chunk that was checked; answered when it is replicated."""

    async def commit_sink(
        self, group: int, query: bytes, batch: int, parts: Sequence[tuple[int, int, int]]
    ) -> CommitStatus:
        """Publish what was staged, as (task, attempt, chunks); answered when that is done, or takes long."""

    async def sink_states(self, groups: Sequence[int], query: bytes) -> list[tuple[int, int]]:
        """For each group, the last batch of a query (-1: none) and the bytes that it has staged."""

    async def drop_stages(self, group: int, query: bytes, batch: int) -> None:
        """Forget what was staged of a batch."""
