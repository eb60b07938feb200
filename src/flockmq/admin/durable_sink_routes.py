"""The part of the table of operations that is about sinks."""

from __future__ import annotations

from typing import Final

from flockmq.admin import durable_sinks
from flockmq.admin import durable_sinks_model as model
from flockmq.admin.durable_logs import BATCHES
from flockmq.admin.durable_model import InNamespace
from flockmq.admin.operations import Operation
from flockmq.errors import CONFLICT, NOT_FOUND, TRY_AGAIN, UNAVAILABLE

_TOPIC: Final = "/api/v1/topics/{name}"
_ERRORS: Final = (NOT_FOUND, *TRY_AGAIN, UNAVAILABLE)

SINK_OPERATIONS: Final = (
    Operation(
        at=f"POST {_TOPIC}/partitions/{{shard}}/stages",
        tag="sinks",
        summary="Keep a chunk of a batch, one batch in the format of logs, at the leader of a partition, replicated, "
        "for an hour. It can't be read before it is committed. Saying it twice does no harm",
        handler=durable_sinks.stage_batch,
        query=model.StageQuery,
        body_type=BATCHES,
        body_bytes_max=model.STAGE_BYTES_MAX,
        answer_text="The chunk is staged",
        audited=False,
        errors=(*_ERRORS, CONFLICT),
    ),
    Operation(
        at=f"POST {_TOPIC}/sinks/{{query}}/commit",
        tag="sinks",
        summary="Publish what was staged of a batch: each shard does so once, however often it is asked, and not at "
        "all when it has a later batch of the query. Refused with `conflict` when something that is named is not "
        "staged (any more): stage the batch again",
        handler=durable_sinks.commit_sink,
        query=InNamespace,
        body=model.SinkCommit,
        answer=model.SinkCommitted,
        answer_text="What became of the batch",
        audited=False,
        errors=(*_ERRORS, CONFLICT),
    ),
    Operation(
        at=f"GET {_TOPIC}/sinks/{{query}}",
        tag="sinks",
        summary="The last batch of a query that each shard has committed",
        handler=durable_sinks.get_sink,
        query=InNamespace,
        answer=model.SinkState,
        answer_text="What the shards know of the query",
        errors=_ERRORS,
    ),
    Operation(
        at=f"DELETE {_TOPIC}/sinks/{{query}}/stages",
        tag="sinks",
        summary="Forget what was staged of a batch that no query will commit",
        handler=durable_sinks.drop_stages,
        query=model.DropQuery,
        answer_text="Nothing of it is staged",
        errors=_ERRORS,
    ),
)
