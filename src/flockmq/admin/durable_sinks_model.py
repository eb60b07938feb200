"""What the REST API says about sinks: writers that stage a batch at the leaders of partitions and commit it there,
once, however often they say so."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from flockmq.admin.durable_model import InNamespace
from flockmq.admin.model import Request, Response

QUERY_CHARS_MAX = 128
CHUNKS_MAX = 16_384
"""Chunks of one batch in one shard, of all tasks together."""
STAGE_BYTES_MAX = 4 * 1024 * 1024 - 65_536
"""Longest chunk: it has to fit into an entry of a log, with a little beside it."""

Number = Annotated[int, Meta(ge=0, le=(1 << 62) - 1)]
Small = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
QueryText = Annotated[str, Meta(min_length=1, max_length=QUERY_CHARS_MAX)]


class StageQuery(InNamespace, frozen=True, kw_only=True):
    """Which chunk of which batch this is."""

    query: Annotated[QueryText, Meta(description="The writer: the same at every start of one query")]
    batch: Annotated[Number, Meta(description="Number of the batch; later batches have larger ones")]
    task: Annotated[Small, Meta(description="Which part of the batch; parts are committed in this order")]
    attempt: Annotated[
        Number, Meta(description="Tells attempts at one task apart; only those that a commit names count")
    ]
    sequence: Annotated[
        Annotated[int, Meta(ge=0, lt=CHUNKS_MAX)], Meta(description="Number of the chunk in the attempt, from 0")
    ] = 0


class StagedPart(Request, frozen=True):
    """An attempt at a task that has staged all it wanted to."""

    task: Small
    attempt: Number
    chunks: Annotated[int, Meta(ge=0, le=CHUNKS_MAX)]


class ShardStages(Request, frozen=True):
    """What to commit in one shard."""

    shard: Annotated[int, Meta(ge=0, lt=1_024)]
    parts: Annotated[list[StagedPart], Meta(max_length=CHUNKS_MAX)]


class SinkCommit(Request, frozen=True):
    """A batch to commit."""

    batch: Number
    shards: Annotated[list[ShardStages], Meta(max_length=1_024, description="Shards where the batch has anything")]


class CommittedShard(Response, frozen=True):
    """What became of a batch in one shard."""

    shard: int
    done: Annotated[bool, Meta(description="false: it is being committed and will be, whichever node dies; ask again")]
    repeat: Annotated[bool, Meta(description="The shard had this batch, or a later one, before it was asked")]
    first_offset: Annotated[
        int | None, Meta(description="Where its records begin; null when a later batch was committed")
    ]
    next_offset: Annotated[int | None, Meta(description="Behind its last record; others' records may lie between")]
    chunks_done: Annotated[int, Meta(description="Chunks that readers can see")]


class SinkCommitted(Response, frozen=True):
    """What became of a batch, by shard, in the order of the request."""

    shards: list[CommittedShard]


class ShardSink(Response, frozen=True):
    """What a shard knows of a query."""

    shard: int
    last_batch: Annotated[int, Meta(description="The latest batch that was committed; -1: none")]
    staged_bytes: Annotated[int, Meta(description="What it has staged here and not committed")]


class SinkState(Response, frozen=True):
    """What the shards of a topic know of a query."""

    shards: list[ShardSink]


class DropQuery(InNamespace, frozen=True, kw_only=True):
    """Whose stages to forget."""

    batch: Annotated[Number, Meta(description="Number of the batch that no query will commit")]
