"""Writes whole batches into durable topics exactly once: the part of ``LogClient`` that sinks use.

```
 stage(...) --> the leader of the shard, else any other node, which passes it on
 commit_stages(...) --> any node --> leaders: done | being done, asked again | "stage again"
```
Everything here may be said twice, so it is said again whenever nobody can tell what became of it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from flockmq.admin import durable_sinks_model as model
from flockmq.client.transport import AdminError, UnreachableError
from flockmq.errors import FlockError
from flockmq.wording import no_shard

if TYPE_CHECKING:
    from flockmq.admin.durable_model import Partition
    from flockmq.client.durable_calls import DurableCalls

T = TypeVar("T")

_AGAIN: Final = frozenset({401, 403, 421, 429, 500, 502, 503, 504})
_UNCLEAR: Final = frozenset({500, 502, 504})
"""What was asked may have been done or not."""
_PAUSE_S: Final = 0.05
_PAUSE_S_MAX: Final = 1.0


class StageName(NamedTuple):
    """Whose chunk it is: attempt ``attempt`` at task ``task`` of batch ``batch`` of ``query``."""

    query: str
    batch: int
    task: int
    attempt: int


class StagePart(NamedTuple):
    """An attempt at a task that has staged ``chunks`` chunks, numbered from 0."""

    task: int
    attempt: int
    chunks: int


class CommittedStage(NamedTuple):
    """Where a batch is in one shard; -1 where a later batch was committed already and nobody knows any more."""

    first_offset: int
    next_offset: int
    is_repeat: bool
    """The shard had it before it was asked."""


class LogSinks:
    """See the module."""

    namespace: str
    _named: list[str]
    _retry_s: float

    def _anywhere(self, ask: Callable[[DurableCalls], T], *, is_repeatable: bool = True) -> T:
        raise NotImplementedError

    def _server(self, url: str) -> DurableCalls:
        raise NotImplementedError

    def _is_safe(self, url: str) -> bool:
        raise NotImplementedError

    def metadata(self, topic: str, *, fresh: bool = False) -> list[Partition]:
        """See ``LogClient``."""
        raise NotImplementedError

    def stage(self, topic: str, shard: int, stage: StageName, sequence: int, batch: bytes) -> None:
        """Keep a chunk (made by ``log.assembling.assemble``) at the shard's leader; it is replicated on return.

        FlockError when no node took it for ``retry_s``, or when it can't be taken at all.
        """
        named = model.StageQuery(
            query=stage.query, batch=stage.batch, task=stage.task, attempt=stage.attempt, sequence=sequence
        )
        deadline = time.monotonic() + self._retry_s
        pause_s = _PAUSE_S
        while True:
            problem: FlockError | None = None
            for url in self._leader_first(topic, shard):
                try:
                    self._server(url).stage_batch(topic, shard, named, batch, namespace=self.namespace)
                except UnreachableError as error:
                    problem = error
                except AdminError as error:
                    if error.status not in _AGAIN:
                        raise
                    problem = error
                else:
                    return
            if time.monotonic() >= deadline:
                raise FlockError(
                    f"No node could stage a chunk in shard {shard} of topic {topic!r} for {self._retry_s:g} s; "
                    f"the last one said: {problem}"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
            self._look_again(topic)

    def _leader_first(self, topic: str, shard: int) -> list[str]:
        """The leader saves a hop; whoever else is asked passes the chunk on to it."""
        partitions = self.metadata(topic)
        if not 0 <= shard < len(partitions):
            raise FlockError(no_shard(topic, len(partitions), shard))
        replicas = sorted(partitions[shard].replicas, key=lambda one: one.role != "leader")
        urls = [one.api for one in replicas if one.api is not None and self._is_safe(one.api)]
        return list(dict.fromkeys([*urls[:1], *self._named, *urls[1:]]))

    def _look_again(self, topic: str) -> None:
        # What was known before is better than nothing.
        with contextlib.suppress(AdminError, UnreachableError):
            self.metadata(topic, fresh=True)

    def commit_stages(
        self, topic: str, query: str, batch: int, stages: Mapping[int, Sequence[StagePart]]
    ) -> dict[int, CommittedStage]:
        """Publish what was staged, by shard; nothing happens where a shard has this batch of the query, or a later one.

        AdminError ``conflict`` when something that is named is not staged (any more): stage it again. Returns when all
        of it can be read. A commit that was begun is finished even if nobody asks again.
        """
        done: dict[int, CommittedStage] = {}
        repeats = dict.fromkeys(stages, True)
        progress = -1
        deadline = time.monotonic() + self._retry_s
        while True:
            left = [
                model.ShardStages(shard=shard, parts=[model.StagedPart(*part) for part in parts])
                for shard, parts in stages.items()
                if shard not in done
            ]
            if not left:
                return done
            request = model.SinkCommit(batch=batch, shards=left)
            try:
                found = self._anywhere(partial(self._ask_commit, topic, query, request))
            except AdminError as error:
                if error.status not in _UNCLEAR or time.monotonic() >= deadline:
                    raise
                time.sleep(_PAUSE_S)
                continue
            chunks = sum(one.chunks_done for one in found.shards)
            for one in found.shards:
                repeats[one.shard] = repeats[one.shard] and one.repeat
                if one.done:
                    first = -1 if one.first_offset is None else one.first_offset
                    following = -1 if one.next_offset is None else one.next_offset
                    done[one.shard] = CommittedStage(first, following, repeats[one.shard])
            if chunks != progress:  # it goes on: that may take as long as it takes
                progress = chunks
                deadline = time.monotonic() + self._retry_s
            elif time.monotonic() >= deadline:
                raise FlockError(
                    f"Batch {batch} of query {query!r} is being committed to topic {topic!r}, but nothing moved for "
                    f"{self._retry_s:g} s; commit it again"
                )
            if len(done) < len(stages):
                time.sleep(_PAUSE_S)

    def _ask_commit(
        self, topic: str, query: str, request: model.SinkCommit, server: DurableCalls
    ) -> model.SinkCommitted:
        return server.commit_sink(topic, query, request, namespace=self.namespace)

    def drop_stages(self, topic: str, query: str, batch: int) -> None:
        """Forget what was staged of a batch, as far as nodes can be reached: stages go by themselves after an hour."""
        with contextlib.suppress(AdminError, UnreachableError):
            self._anywhere(lambda server: server.drop_stages(topic, query, batch, namespace=self.namespace))

    def last_batches(self, topic: str, query: str) -> dict[int, int]:
        """The latest batch of a query that each shard has; -1 where there is none."""
        found = self._anywhere(lambda server: server.sink(topic, query, namespace=self.namespace))
        return {one.shard: one.last_batch for one in found.shards}
