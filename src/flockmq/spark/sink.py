"""Writes the rows of a query into durable topics, each once, where MQTT subscribers and other queries find them.

```
 task   write(rows) --> chunks --> stage at each shard's leader under (query, batch, task, attempt) --> Staged
 driver commit(Staged of all tasks) --> each shard publishes what it has of (query, batch), unless it did so before
        abort                       --> stages are dropped; those that are not expire
```
A stream's query and batch are Spark's own and the same after a restart from one checkpoint. A batch write is a query
of its own, made on the driver, unless options ``query`` and ``batch`` name it. An attempt is a random number: Spark's
own numbers begin anew with each driver, and what a driver that died has staged must not mix with what the next one
stages.
"""

from __future__ import annotations

import os
import secrets
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from flockmq.client.log_sinks import StageName, StagePart
from flockmq.errors import Conflict, FlockError
from flockmq.spark.sink_options import SinkColumns, SinkOptions
from flockmq.spark.sink_topics import Directory

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from flockmq.client.log_client import LogClient
    from flockmq.spark.servers import Servers
    from flockmq.spark.sink_rows import Chunk

_QUERY_PROPERTY: Final = "sql.streaming.queryId"
_BATCH_PROPERTY: Final = "streaming.sql.batchId"
_DIRECTORIES_MAX: Final = 16
_ATTEMPT_BITS: Final = 59
"""Bits that 18 digits hold: the API takes no longer numbers."""


class StagedShard(NamedTuple):
    """What a task has staged at a shard."""

    topic: str
    shard: int
    part: StagePart
    rows: int


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What a task tells the driver."""

    query: str
    batch: int
    shards: tuple[StagedShard, ...]


class _Sink:
    """The part that both writers share."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options = SinkOptions.parse(options)
        self._columns = SinkColumns.of(schema, fixed_topic=bool(self.options.topic))

    def stage(self, query: str, batch: int, task: int, rows: Iterator[pa.RecordBatch]) -> Staged:
        """On a worker: stage rows at the leaders of their shards."""
        from flockmq.spark.sink_rows import RowSink

        options = self.options
        client = options.servers.client()
        directory = _directory(options.servers, options.client_id, client)
        sink = RowSink(self._columns, options.topic, directory)
        name = StageName(query, batch, task, secrets.randbits(_ATTEMPT_BITS))
        counts: dict[tuple[str, int], tuple[int, int]] = {}
        full = (chunk for batches in rows for chunk in sink.add(batches))
        for chunk in chain(full, sink.rest()):
            _stage(client, name, counts, chunk)
        shards = [
            StagedShard(topic, shard, StagePart(task, name.attempt, chunks), count)
            for (topic, shard), (chunks, count) in counts.items()
        ]
        return Staged(query, batch, tuple(shards))

    def publish(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: have each shard publish what tasks have staged there. Again does no harm."""
        client = self.options.servers.client()
        for (query, batch, topic), stages in _by_topic(messages).items():
            try:
                client.commit_stages(topic, query, batch, stages)
            except Conflict as error:
                raise FlockError(
                    f"Batch {batch} of query {query} can't be committed to topic {topic!r}: {error}. "
                    "Nothing of it is lost or doubled: start the query again, which writes this batch again"
                ) from error

    def drop(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: forget what was staged, as far as the tasks reported it."""
        client = self.options.servers.client()
        for query, batch, topic in _by_topic(messages):
            client.drop_stages(topic, query, batch)


class FlockWriter(DataSourceArrowWriter):
    """Behind ``df.write``."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise FlockError("What was published can't be overwritten; write with .mode('append')")
        self._sink = _Sink(options, schema)
        given = self._sink.options
        self._query = given.query or f"write-{uuid.uuid4().hex}"
        self._batch = given.batch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """On a worker."""
        return self._sink.stage(self._query, self._batch, _task().partitionId(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when all tasks are done."""
        self._sink.publish(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when a task has failed."""
        self._sink.drop(messages)


class FlockStreamWriter(DataSourceStreamArrowWriter):
    """Behind ``df.writeStream``; in mode complete all of the result is published with each micro-batch."""

    def __init__(self, options: Mapping[str, str], schema: StructType, _overwrite: bool) -> None:
        self._sink = _Sink(options, schema)
        if self._sink.options.query:
            raise FlockError("A stream has a query and batches of its own: leave out the options query and batch")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """On a worker."""
        task = _task()
        query = task.getLocalProperty(_QUERY_PROPERTY)
        batch = task.getLocalProperty(_BATCH_PROPERTY)
        if not query or not batch:
            raise FlockError("Spark does not say which micro-batch this is, so it can't be written exactly once")
        return self._sink.stage(query, int(batch), task.partitionId(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """On the driver, when all tasks of a micro-batch are done."""
        self._sink.publish(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """On the driver, when a task of a micro-batch has failed."""
        self._sink.drop(messages)


_directories: dict[tuple[int, Servers, str], Directory] = {}


def _directory(servers: Servers, client_id: str, client: LogClient) -> Directory:
    """The topics of a namespace, kept between the tasks of a worker; at most ``AGE_S_MAX`` old when a task begins."""
    place = (os.getpid(), servers, client_id)
    found = _directories.get(place)
    if found is None:
        while len(_directories) >= _DIRECTORIES_MAX:
            _directories.pop(next(iter(_directories)))
        found = _directories[place] = Directory(servers.namespace, client_id, client.topics)
    found.refresh()
    return found


def _task() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise FlockError("Rows are written by Spark's tasks only")
    return context


def _stage(client: LogClient, name: StageName, counts: dict[tuple[str, int], tuple[int, int]], chunk: Chunk) -> None:
    place = (chunk.topic, chunk.shard)
    chunks, rows = counts.get(place, (0, 0))
    client.stage(chunk.topic, chunk.shard, name, chunks, chunk.data)
    counts[place] = (chunks + 1, rows + chunk.rows)


def _by_topic(messages: list[WriterCommitMessage | None]) -> dict[tuple[str, int, str], dict[int, list[StagePart]]]:
    """What to commit: by query, batch and topic, then by shard, in the order of tasks."""
    found: dict[tuple[str, int, str], dict[int, list[StagePart]]] = {}
    for message in messages:
        if isinstance(message, Staged):
            for topic, shard, part, _rows in message.shards:
                found.setdefault((message.query, message.batch, topic), {}).setdefault(shard, []).append(part)
    for stages in found.values():
        for parts in stages.values():
            parts.sort()
    return found
