"""The reader that FlockMQ does not have: the same log, but a Python tuple for each record.

It plans and fetches as ``format("flockmq")`` does; only the way from bytes to Spark differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from flockmq.log.columns import QOS_MASK, RETAIN
from flockmq.spark.batch_reader import FlockBatchReader, batch_reader
from flockmq.spark.options import ReadOptions
from flockmq.spark.planning import FlockPartition, Range
from flockmq.spark.schema import full_schema

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
READ_BYTES = 4 * 1024 * 1024


class TupleSource(DataSource):
    """``format("flockmq_tuples")``, with the options of ``format("flockmq")``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "flockmq_tuples"

    def schema(self) -> StructType:
        """All columns."""
        return full_schema(None)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads all there is."""
        return TupleReader(self.options, schema)


class TupleReader(DataSourceReader):
    """See the module."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = ReadOptions.parse(options)
        self._planner: FlockBatchReader = batch_reader(options, schema)

    def partitions(self) -> list[FlockPartition]:
        """As FlockMQ's own reader plans them."""
        return self._planner.partitions()

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The rows of a task, one by one."""
        if isinstance(partition, FlockPartition):
            for one in partition.ranges:
                yield from self._records(one)

    def _records(self, one: Range) -> Iterator[tuple[Any, ...]]:
        client = self._options.servers.client()
        offset = one.start
        while offset < one.end:
            found = client.read(one.topic, one.shard, offset, max_bytes=READ_BYTES, wait_ms=1_000)
            for view in found:
                for record in view.records():
                    if not offset <= record.offset < one.end:
                        continue
                    yield (
                        one.topic,
                        one.shard,
                        record.offset,
                        EPOCH + timedelta(milliseconds=record.timestamp_ms),
                        record.topic.decode(),
                        record.client.decode(),
                        record.key,
                        record.payload,
                        record.flags & QOS_MASK,
                        bool(record.flags & RETAIN),
                        [(key.decode(), value.decode()) for key, value in record.user] or None,
                    )
            offset = found.next_offset
