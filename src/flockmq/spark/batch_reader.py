"""``spark.read.format("flockmq")``: a range of each shard, fixed when the query is planned.

```
 heads now --> start and end --> ranges --cut by predicates--> tasks
```
Spark asks for predicates only where ``spark.sql.python.filterPushdown.enabled`` is true, and where it is not it refuses
a reader that could take them. Which of both holds shows in the worker that asks: one for predicates, or one for plans.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, Filter

from flockmq.errors import FlockError
from flockmq.spark.cursors import positions_of
from flockmq.spark.heads import heads_now
from flockmq.spark.options import ReadOptions
from flockmq.spark.planning import FlockPartition, Offsets, Reach, ends, firsts, plan, ranges_between, resolve
from flockmq.spark.pushdown import Wanted
from flockmq.spark.reading import TaskReader, plain_errors, report_loss
from flockmq.spark.schema import checked_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from flockmq.client.log_client import LogClient

_PUSHING: Final = "pyspark.sql.worker.data_source_pushdown_filters"


def batch_reader(options: Mapping[str, str], schema: StructType) -> FlockBatchReader:
    """The reader that this process may have."""
    with plain_errors():
        parsed = ReadOptions.parse(options)
        parsed.check_batch()
        checked = checked_schema(schema, parsed.template)
    return (FlockPushingReader if _takes_predicates() else FlockBatchReader)(parsed, checked)


def _takes_predicates() -> bool:
    """Whether this is the worker that Spark starts to push predicates down."""
    started = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHING in sys.modules or (started is not None and started.name == _PUSHING)


class FlockBatchReader(TaskReader, DataSourceReader):
    """See the module."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._wanted = Wanted()

    def partitions(self) -> list[FlockPartition]:
        """Tasks for everything between start and end."""
        options = self.options
        with plain_errors():
            client = options.servers.client()
            reach = heads_now(options, client)
            start = self._start(client, reach)
            end = ends(reach) if options.end is None else resolve(options.end, reach, client.offsets_at)
            _check(options, start, end, reach)
            ranges = self._wanted.cut(ranges_between(start, end), client.offsets_at)
        return plan(
            ranges,
            tasks_min=options.tasks_min,
            task_records_max=options.task_records_max,
            tasks_max=options.tasks_max,
        )

    def _start(self, client: LogClient, reach: Reach) -> Offsets:
        options = self.options
        if options.start is not None:
            return resolve(options.start, reach, client.offsets_at, strategy=options.strategy)
        return positions_of(options, client, reach) or firsts(reach)


class FlockPushingReader(FlockBatchReader):
    """Where predicates are pushed down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Read less; Spark still evaluates all of them."""
        self._wanted = self._wanted.narrowed(filters)
        self.want(self._wanted.few_names())
        return filters


def _check(options: ReadOptions, start: Offsets, end: Offsets, reach: Reach) -> None:
    """Offsets that were named must be there."""
    for topic, heads in reach.items():
        for head in heads:
            low, high = start[topic][head.shard], end[topic][head.shard]
            if low < head.first_offset:
                report_loss(options, topic, head.shard, low, head.first_offset)
                start[topic][head.shard] = head.first_offset
            if low > head.end_offset or high > head.end_offset:
                if options.fail_on_data_loss:
                    raise FlockError(
                        f"Shard {head.shard} of topic {topic!r} ends at offset {head.end_offset:,} and the query wants "
                        f"{low:,} to {high:,}; check startingOffsets and endingOffsets, or set failOnDataLoss=false to "
                        "read what there is"
                    )
                end[topic][head.shard] = min(high, head.end_offset)
