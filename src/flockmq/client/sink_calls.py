"""The part of the admin client that is about sinks: staging batches at partition leaders, and committing them."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from flockmq.admin import durable_sinks_model as model
from flockmq.client.calls import DECISION_S, ApiCalls, segment

_V1: Final = "/api/v1"
_BATCHES: Final = "application/vnd.flockmq.batches"
_DEFAULT_NAMESPACE: Final = "default"


class SinkCalls(ApiCalls):
    """See the module. All of it may be asked twice."""

    def stage_batch(
        self, topic: str, shard: int, stage: model.StageQuery, data: bytes, *, namespace: str = _DEFAULT_NAMESPACE
    ) -> None:
        """Keep a chunk of a batch at the leader of a shard; answered when it is replicated."""
        path = _path(
            topic,
            f"/partitions/{shard}/stages",
            namespace,
            query=stage.query,
            batch=stage.batch,
            task=stage.task,
            attempt=stage.attempt,
            sequence=stage.sequence,
        )
        self._transport.request("POST", path, data=data, data_type=_BATCHES, is_repeatable=True, wait_s=DECISION_S)

    def commit_sink(
        self, topic: str, query: str, request: model.SinkCommit, *, namespace: str = _DEFAULT_NAMESPACE
    ) -> model.SinkCommitted:
        """Publish what was staged of a batch, unless that was done before."""
        path = _path(topic, f"/sinks/{segment(query)}/commit", namespace)
        answer = self._transport.request("POST", path, request, is_repeatable=True, wait_s=DECISION_S)
        return self._decode(answer.body, model.SinkCommitted)

    def sink(self, topic: str, query: str, *, namespace: str = _DEFAULT_NAMESPACE) -> model.SinkState:
        """What the shards of a topic know of a query."""
        return self._get(_path(topic, f"/sinks/{segment(query)}", namespace), model.SinkState)

    def drop_stages(self, topic: str, query: str, batch: int, *, namespace: str = _DEFAULT_NAMESPACE) -> None:
        """Forget what was staged of a batch."""
        self._call("DELETE", _path(topic, f"/sinks/{segment(query)}/stages", namespace, batch=batch))


def _path(topic: str, rest: str, namespace: str, **query: str | int) -> str:
    pairs = {name: str(value) for name, value in query.items()}
    if namespace != _DEFAULT_NAMESPACE:
        pairs["namespace"] = namespace
    return f"{_V1}/topics/{segment(topic)}{rest}" + (f"?{urlencode(pairs)}" if pairs else "")
