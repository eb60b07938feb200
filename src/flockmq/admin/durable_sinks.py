"""The operations on sinks: a batch is staged chunk by chunk, then committed once, however often that is asked.

```
 POST .../partitions/{shard}/stages   a batch as logs store them --> checked --> the leader: answered when replicated
 POST .../sinks/{query}/commit        by shard: which attempts --> leaders --> done, or being done
 GET  .../sinks/{query}               by shard: the last batch that was committed
 DELETE .../sinks/{query}/stages      what no query will commit
```
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from flockmq.admin import durable_sinks_model as model
from flockmq.admin.durable_common import durable, find_topic, group_of, owner_of
from flockmq.admin.durable_port import ChunkName, CommitStatus
from flockmq.cluster.filters import namespace_prefix
from flockmq.durable.machine.sink_bodies import QUERY_BYTES_MAX
from flockmq.durable.sinks.checking import ChunkRules, check_chunk, names_in
from flockmq.errors import INVALID_BODY, INVALID_PARAMETER, ApiError
from flockmq.log.batch import BatchError

if TYPE_CHECKING:
    from flockmq.admin.desk import Desk
    from flockmq.admin.durable_model import InNamespace
    from flockmq.admin.durable_port import DurablePort
    from flockmq.admin.operations import Call
    from flockmq.cluster.model import TopicRecord

NAMES_AT_ONCE: Final = 1_000
"""Chunks with more names are checked off the event loop."""


async def stage_batch(desk: Desk, call: Call[model.StageQuery, bytes]) -> None:
    """Keep a chunk at the leader of a shard."""
    port = durable(desk)
    state = port.state()
    query = call.query
    topic = find_topic(port, query.namespace, call.path["name"])
    group = group_of(topic, call.path["shard"])
    rules = ChunkRules(
        namespace_prefix(topic.namespace),
        int(call.path["shard"]),
        len(topic.partitions),
        topic.key,
        lambda name: owner_of(state, name) is topic,
        model.STAGE_BYTES_MAX,
    )
    try:
        if names_in(call.body) > NAMES_AT_ONCE:
            await asyncio.to_thread(check_chunk, call.body, rules)  # clients of this node should not wait for it
        else:
            check_chunk(call.body, rules)
    except BatchError as error:
        raise ApiError(INVALID_BODY, str(error)) from None
    name = ChunkName(_query(query.query), query.batch, query.task, query.attempt, query.sequence)
    await port.stage(group, name, call.body)


async def commit_sink(desk: Desk, call: Call[InNamespace, model.SinkCommit]) -> model.SinkCommitted:
    """Publish what was staged."""
    port = durable(desk)
    topic = find_topic(port, call.query.namespace, call.path["name"])
    query = _query(call.path["query"])
    shards = [one.shard for one in call.body.shards]
    if len(set(shards)) != len(shards):
        raise ApiError(INVALID_BODY, "A shard is named twice; put all of its parts together")
    asked = [_commit(port, topic, query, call.body.batch, one) for one in call.body.shards]
    found = await asyncio.gather(*asked, return_exceptions=True)
    answers: list[model.CommittedShard] = []
    for shard, one in zip(shards, found, strict=True):
        if isinstance(one, BaseException):
            raise one
        answers.append(_told(shard, one))
    return model.SinkCommitted(shards=answers)


async def _commit(
    port: DurablePort, topic: TopicRecord, query: bytes, batch: int, stages: model.ShardStages
) -> CommitStatus:
    group = group_of(topic, str(stages.shard))
    tasks = {one.task for one in stages.parts}
    if len(tasks) != len(stages.parts) or sum(one.chunks for one in stages.parts) > model.CHUNKS_MAX:
        raise ApiError(
            INVALID_BODY, f"A batch has one attempt for each task, and {model.CHUNKS_MAX:,} chunks in a shard at most"
        )
    parts = [(one.task, one.attempt, one.chunks) for one in stages.parts]
    return await port.commit_sink(group, query, batch, parts)


def _told(shard: int, status: CommitStatus) -> model.CommittedShard:
    return model.CommittedShard(
        shard=shard,
        done=status.is_done,
        repeat=status.is_repeat,
        first_offset=status.first if status.first >= 0 else None,
        next_offset=status.next if status.next >= 0 else None,
        chunks_done=status.chunks_done,
    )


async def get_sink(desk: Desk, call: Call[InNamespace, None]) -> model.SinkState:
    """What the shards know of a query."""
    port = durable(desk)
    topic = find_topic(port, call.query.namespace, call.path["name"])
    groups = [one.group for one in topic.partitions]
    found = await port.sink_states(groups, _query(call.path["query"]))
    return model.SinkState(
        shards=[
            model.ShardSink(shard=shard, last_batch=last, staged_bytes=staged)
            for shard, (last, staged) in enumerate(found)
        ]
    )


async def drop_stages(desk: Desk, call: Call[model.DropQuery, None]) -> None:
    """Forget what was staged of a batch, in all shards."""
    port = durable(desk)
    topic = find_topic(port, call.query.namespace, call.path["name"])
    query = _query(call.path["query"])
    await asyncio.gather(*(port.drop_stages(one.group, query, call.query.batch) for one in topic.partitions))


def _query(text: str) -> bytes:
    name = text.encode()
    if not 0 < len(name) <= QUERY_BYTES_MAX or "\0" in text:
        raise ApiError(INVALID_PARAMETER, f"A query's name has 1 to {QUERY_BYTES_MAX} bytes, none of them 0")
    return name
