"""Writes whole batches into durable topics exactly once: the part of ``LogClient`` that sinks use.

```
 stage(...) --> the leader of the shard, else any other node, which passes it on
 commit_stages(...) --> any node --> leaders: done | being done, asked again | "stage again"
```
Everything here may be said twice, so it is said again whenever no node can tell what became of it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from flockmq.admin import durable_sinks_model as model
from flockmq.client.failover import PAUSE_S, Failover, Patience
from flockmq.client.topic_calls import TopicCalls
from flockmq.client.transport import UnreachableError
from flockmq.errors import ApiError, FlockError

_AGAIN: Final = frozenset({401, 403, 421, 429, 500, 502, 503, 504})
_UNCLEAR: Final = frozenset({500, 502, 504})
"""Status codes after which the request may have been done or not."""


class StageName(NamedTuple):
    """The owner of a chunk: attempt ``attempt`` at task ``task`` of batch ``batch`` of ``query``."""

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
    """Where a batch is in one shard; -1 where a later batch was committed already and no node knows any more."""

    first_offset: int
    next_offset: int
    is_repeat: bool
    """The shard had it before it was asked."""


class LogSinks(Failover):
    """See the module."""

    def stage(self, topic: str, shard: int, stage: StageName, sequence: int, batch: bytes) -> None:
        """Keep a chunk (made by ``log.assembling.assemble``) at the shard's leader; it is replicated on return.

        FlockError when no node took it for ``retry_s``, or when it can't be taken at all.
        """
        named = model.StageQuery(
            query=stage.query, batch=stage.batch, task=stage.task, attempt=stage.attempt, sequence=sequence
        )
        patience = Patience(self._retry_s)
        while True:
            problem: FlockError | None = None
            for url in self._leader_first(topic, shard):
                try:
                    self._server(url).stage_batch(topic, shard, named, batch, namespace=self.namespace)
                except UnreachableError as error:
                    problem = error
                except ApiError as error:
                    if error.status not in _AGAIN:
                        raise
                    problem = error
                else:
                    return
            if patience.is_over():
                raise FlockError(
                    f"No node could stage a chunk in shard {shard} of topic {topic!r} for {self._retry_s:g} s; "
                    f"the last one said: {problem}"
                )
            patience.pause()
            # What was known before is better than nothing.
            with contextlib.suppress(ApiError, UnreachableError):
                self.metadata(topic, fresh=True)

    def _leader_first(self, topic: str, shard: int) -> list[str]:
        """The leader saves a hop; any other node passes the chunk on to it."""
        urls = self._holders(topic, shard, self.metadata(topic), lambda one: one.role != "leader")
        return list(dict.fromkeys([*urls[:1], *self._named, *urls[1:]]))

    def commit_stages(
        self, topic: str, query: str, batch: int, stages: Mapping[int, Sequence[StagePart]]
    ) -> dict[int, CommittedStage]:
        """Publish what was staged, by shard; nothing happens where a shard has this batch of the query, or a later one.

        Conflict: something that is named is not staged (any more): stage it again. Returns when all of it can be read.
        A commit that was begun is finished even if no client asks again.
        """
        done: dict[int, CommittedStage] = {}
        repeats = dict.fromkeys(stages, True)
        progress = -1
        patience = Patience(self._retry_s)
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
                found = self._anywhere(partial(_commit, topic, query, request, self.namespace))
            except ApiError as error:
                if error.status not in _UNCLEAR or patience.is_over():
                    raise
                time.sleep(PAUSE_S)
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
                patience.renew()
            elif patience.is_over():
                raise FlockError(
                    f"Batch {batch} of query {query!r} is being committed to topic {topic!r}, but nothing moved for "
                    f"{self._retry_s:g} s; commit it again"
                )
            if len(done) < len(stages):
                time.sleep(PAUSE_S)

    def drop_stages(self, topic: str, query: str, batch: int) -> None:
        """Forget what was staged of a batch, as far as nodes can be reached: stages go by themselves after an hour."""
        with contextlib.suppress(ApiError, UnreachableError):
            self._anywhere(lambda server: server.drop_stages(topic, query, batch, namespace=self.namespace))

    def last_batches(self, topic: str, query: str) -> dict[int, int]:
        """The latest batch of a query that each shard has; -1 where there is none."""
        found = self._anywhere(lambda server: server.sink(topic, query, namespace=self.namespace))
        return {one.shard: one.last_batch for one in found.shards}


def _commit(
    topic: str, query: str, request: model.SinkCommit, namespace: str, server: TopicCalls
) -> model.SinkCommitted:
    return server.commit_sink(topic, query, request, namespace=namespace)
