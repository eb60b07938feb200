"""The part of the admin client that is about durable topics: their records, cursors over them, and staged batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from flockmq.admin import durable_model as model
from flockmq.admin import durable_sinks_model as sinks
from flockmq.admin import durable_tenants_model as tenants
from flockmq.admin.model import Page
from flockmq.admin.moments import rfc3339
from flockmq.client.calls import DECISION_S, v1
from flockmq.client.group_calls import DEFAULT_NAMESPACE, GroupCalls

BATCHES: Final = "application/vnd.flockmq.batches"


__all__ = ["DEFAULT_NAMESPACE", "TopicCalls"]


class TopicCalls(GroupCalls):
    """See the module; with all that reads topics, groups as well."""

    # --- topics -----------------------------------------------------------------------------------------------------

    def topics(self, *, namespace: str | None = None, with_hidden: bool = False) -> Iterator[model.DataTopic]:
        """Durable topics of a namespace, or of all."""
        filters = {"namespace": namespace, "all": with_hidden or None}
        return self._listing(v1("topics"), Page[model.DataTopic], filters)

    def create_topic(self, request: model.TopicRequest) -> model.DataTopic:
        """Create a durable topic; Conflict when it exists or its filters meet those of another."""
        return self._send("POST", v1("topics"), model.DataTopic, request)

    def topic(self, name: str, *, namespace: str = DEFAULT_NAMESPACE, with_hidden: bool = False) -> model.DataTopic:
        """One durable topic; NotFound when there is none of that name."""
        return self._get(v1("topics", name, namespace=namespace, all=with_hidden or None), model.DataTopic)

    def alter_topic(
        self, name: str, change: model.TopicChange, *, namespace: str = DEFAULT_NAMESPACE
    ) -> model.DataTopic:
        """Change a durable topic; what the change leaves out stays as it is."""
        return self._send("PATCH", v1("topics", name, namespace=namespace), model.DataTopic, change)

    def delete_topic(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Delete a durable topic with all of its records."""
        self._delete(v1("topics", name, namespace=namespace))

    def topic_partitions(
        self, name: str, *, namespace: str = DEFAULT_NAMESPACE, with_hidden: bool = False
    ) -> list[model.Partition]:
        """The partitions of a topic, by shard, with their replicas."""
        path = v1("topics", name, "partitions", namespace=namespace, all=with_hidden or None)
        return self._get(path, list[model.Partition])

    # --- records ----------------------------------------------------------------------------------------------------

    def heads(
        self, name: str, *, after: str | None = None, wait_ms: int = 0, namespace: str = DEFAULT_NAMESPACE
    ) -> model.Heads:
        """How far the partitions reach; with ``after`` it waits until one of them reaches further."""
        path = v1("topics", name, "heads", namespace=namespace, after=after, wait_ms=wait_ms)
        return self._get(path, model.Heads, wait_s=wait_ms / 1000)

    def offsets_at(self, name: str, time: str | int, *, namespace: str = DEFAULT_NAMESPACE) -> list[int]:
        """For each shard, the first offset whose record came at that time (ISO 8601, or ms since 1970) or later."""
        return self._get(v1("topics", name, "offsets", namespace=namespace, time=_moment(time)), model.Offsets).offsets

    def records(
        self,
        name: str,
        shard: int,
        *,
        offset: int | None = None,
        time: str | int | None = None,
        max_bytes: int = model.READ_BYTES_DEFAULT,
        limit: int = 1_000,
        wait_ms: int = 0,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> model.Records:
        """Records of a partition for people; programs that want many use ``LogClient.read``."""
        path = v1(
            *("topics", name, "partitions", shard, "records"),
            namespace=namespace,
            offset=offset,
            time=None if time is None else _moment(time),
            max_bytes=max_bytes,
            limit=limit,
            wait_ms=wait_ms,
        )
        return self._get(path, model.Records, wait_s=wait_ms / 1000)

    def publish_records(
        self, name: str, request: model.PublishRecords, *, namespace: str = DEFAULT_NAMESPACE
    ) -> model.Publication:
        """Append messages to a durable topic; the answer comes after they are committed and says where they are."""
        return self._send("POST", v1("topics", name, "records", namespace=namespace), model.Publication, request)

    # --- staged batches: all of it may be asked twice ---------------------------------------------------------------

    def stage_batch(
        self, topic: str, shard: int, stage: sinks.StageQuery, data: bytes, *, namespace: str = DEFAULT_NAMESPACE
    ) -> None:
        """Keep a chunk of a batch at the leader of a shard; answered when it is replicated."""
        path = v1(
            *("topics", topic, "partitions", shard, "stages"),
            namespace=namespace,
            query=stage.query,
            batch=stage.batch,
            task=stage.task,
            attempt=stage.attempt,
            sequence=stage.sequence,
        )
        self.transport.request("POST", path, data=data, data_type=BATCHES, is_repeatable=True, wait_s=DECISION_S)

    def commit_sink(
        self, topic: str, query: str, request: sinks.SinkCommit, *, namespace: str = DEFAULT_NAMESPACE
    ) -> sinks.SinkCommitted:
        """Publish what was staged of a batch, unless that was done before."""
        path = v1("topics", topic, "sinks", query, "commit", namespace=namespace)
        answer = self.transport.request("POST", path, request, is_repeatable=True, wait_s=DECISION_S)
        return self._decode(answer.body, sinks.SinkCommitted)

    def sink(self, topic: str, query: str, *, namespace: str = DEFAULT_NAMESPACE) -> sinks.SinkState:
        """What the shards of a topic know of a query."""
        return self._get(v1("topics", topic, "sinks", query, namespace=namespace), sinks.SinkState)

    def drop_stages(self, topic: str, query: str, batch: int, *, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Forget what was staged of a batch."""
        self._delete(v1("topics", topic, "sinks", query, "stages", batch=batch, namespace=namespace))

    # --- cursors ----------------------------------------------------------------------------------------------------

    def cursors(self, *, namespace: str | None = None) -> Iterator[tenants.ReadCursor]:
        """Cursors of a namespace, or of all."""
        return self._listing(v1("cursors"), Page[tenants.ReadCursor], {"namespace": namespace})

    def create_cursor(self, request: tenants.CursorRequest) -> tenants.ReadCursor:
        """Create a cursor."""
        return self._send("POST", v1("cursors"), tenants.ReadCursor, request)

    def cursor(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> tenants.ReadCursor:
        """Where a cursor stands, and how far it is behind."""
        return self._get(v1("cursors", name, namespace=namespace), tenants.ReadCursor)

    def reset_cursor(
        self, name: str, to: str, *, shard: int | None = None, namespace: str = DEFAULT_NAMESPACE
    ) -> tenants.ReadCursor:
        """Put a cursor somewhere: ``earliest``, ``latest``, ``offset:N`` (of one shard), ``offset:SHARD=N,...`` (the
        others stay) or ``time:...``."""
        change = tenants.CursorChange(to=to, shard=shard)
        return self._send("PATCH", v1("cursors", name, namespace=namespace), tenants.ReadCursor, change)

    def commit_cursor(self, name: str, positions: Mapping[int, int], *, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Say how far a reader has come, by shard: the next offset that it will read. Answered after commit."""
        request = tenants.CursorCommit(
            positions=[tenants.CommitPosition(shard=shard, offset=offset) for shard, offset in positions.items()]
        )
        path = v1("cursors", name, "commit", namespace=namespace)
        self.transport.request("POST", path, request, wait_s=DECISION_S)

    def delete_cursor(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Forget a cursor; retention waits for it no longer."""
        self._delete(v1("cursors", name, namespace=namespace))


def _moment(time: str | int) -> str:
    """A moment as every server reads it: of few digits it could not know what they mean."""
    return rfc3339(time) if isinstance(time, int) else time
