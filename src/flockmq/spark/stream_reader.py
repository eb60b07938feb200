"""``spark.readStream.format("flockmq")``: what Spark asks for each micro-batch, in one process beside the driver.

```
 initialOffset   where a new query starts: option, else its cursor, else the end
 latestOffset    heads (followed in the background), not further than limits, or than AvailableNow's end
 partitions      ranges between two offsets --> tasks
 read            in workers: see reading
 commit          Spark is done with everything before: the query's cursor moves there
```
Offsets are committed ones, so [start, end) is the same whenever and wherever it is read again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from flockmq.admin.durable_model import Head
from flockmq.errors import FlockError
from flockmq.spark.cursors import QueryCursors, positions_of
from flockmq.spark.heads import HeadsWatch, heads_now
from flockmq.spark.options import ReadOptions
from flockmq.spark.planning import (
    FlockPartition,
    Offsets,
    Reach,
    ends,
    from_json,
    limit,
    plan,
    ranges_between,
    resolve,
    to_json,
)
from flockmq.spark.reading import RECORD_BYTES, TaskReader, logger, plain_errors, report_loss
from flockmq.spark.schema import checked_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SHORT_S: Final = 5.0
"""How long a log that is shorter than what was read of it may be just behind."""
Place = tuple[str, int]
"""Topic and shard."""


class FlockStreamReader(TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the module. Pickled into tasks, so everything that is open comes with the first question."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        with plain_errors():
            parsed = ReadOptions.parse(options)
            parsed.check_streaming()
            super().__init__(parsed, checked_schema(schema, parsed.template))
        self._watch: HeadsWatch | None = None
        self._cursors: QueryCursors | None = None
        self._until: Offsets | None = None
        """The end of an AvailableNow query."""
        self._groups: dict[Place, int] = {}
        """Raft group of each shard that was seen: another one is another log."""
        self._short_since_s: dict[Place, float] = {}
        self._told_gone: set[str] = set()
        self._batch_at_s = time.monotonic()

    # --- offsets ----------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's names)
        """Where a query without a checkpoint starts."""
        options = self.options
        with plain_errors():
            client = options.servers.client()
            reach = heads_now(options, client)
            if options.start is not None:
                found = resolve(options.start, reach, client.offsets_at, strategy=options.strategy)
            else:
                found = positions_of(options, client, reach) or ends(reach)
            self._hold(found)
            return to_json(found)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next micro-batch ends."""
        with plain_errors():
            began = from_json(start)
            found = self._reachable(began)
            if self.options.cursor:
                # Spark plans a micro-batch when the one before is done and written down.
                self._query_cursors().move(began)
            if not isinstance(limit, ReadAllAvailable):
                found = self._limited(began, found)
            if found != began:
                self._batch_at_s = time.monotonic()
            return to_json(found)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Whether there are limits: Spark gives this back, or everything. Which ones the options say."""
        options = self.options
        if options.records_max is not None:
            return ReadMaxRows(options.records_max)
        if options.bytes_max is not None:
            return ReadMaxBytes(options.bytes_max)
        return ReadMinRows(options.records_min) if options.records_min else ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """How far the topics reach, for the progress of the query."""
        if self._watch is None:
            return None
        with plain_errors():
            return to_json(ends(self._watch.latest()[0]))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read what is there now, and nothing that comes later."""
        with plain_errors():
            self._until = ends(heads_now(self.options, self.options.servers.client()))

    # --- tasks ------------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[FlockPartition]:
        """Tasks for a micro-batch."""
        options = self.options
        with plain_errors():
            return plan(
                ranges_between(from_json(start), from_json(end)),
                tasks_min=options.tasks_min,
                task_records_max=options.task_records_max,
                tasks_max=options.tasks_max,
            )

    def commit(self, end: dict[str, Any]) -> None:
        """Spark will not ask for anything before ``end`` again."""
        if self.options.cursor:
            with plain_errors():
                self._query_cursors().move(from_json(end))

    def stop(self) -> None:
        """The query ended."""
        if self._watch is not None:
            self._watch.stop()

    # --- within -----------------------------------------------------------------------------------------------------

    def _hold(self, offsets: Offsets) -> None:
        """From the start on, retention waits for the query, if it has a cursor."""
        if self.options.cursor:
            self._query_cursors().create(list(offsets))
            self._query_cursors().move(offsets)

    def _query_cursors(self) -> QueryCursors:
        if self._cursors is None:
            self._cursors = QueryCursors(self.options)
        return self._cursors

    def _reachable(self, began: Offsets) -> Offsets:
        """How far could be read now."""
        if self._watch is None:
            self._watch = HeadsWatch(self.options)
            self._check_firsts(began, self._watch.start())
            self._hold(began)
        reach, gone = self._watch.latest()
        anew = self._check_logs(began, reach, gone)
        found = ends(reach)
        if self._until is not None:
            found = {
                topic: {shard: min(end, self._until[topic].get(shard, 0)) for shard, end in shards.items()}
                for topic, shards in found.items()
                if topic in self._until
            }
        # What the query has seen stays in its offsets: a topic that is away must not be read again when it returns.
        for topic, shards in began.items():
            known = found.setdefault(topic, {})
            for shard, at in shards.items():
                # Less than before: nothing is read, and the next micro-batch starts there.
                known[shard] = 0 if (topic, shard) in anew else max(at, known.get(shard, at))
        return found

    def _check_firsts(self, began: Offsets, reach: Reach) -> None:
        """When a query starts again: is everything still there that it has not read?"""
        for topic, heads in reach.items():
            for head in heads:
                at = began.get(topic, {}).get(head.shard, head.first_offset)
                if at < head.first_offset and at < head.end_offset:
                    report_loss(self.options, topic, head.shard, at, head.first_offset)

    def _check_logs(self, began: Offsets, reach: Reach, gone: set[str]) -> set[Place]:
        """A topic that was deleted, or created again, is not what the query's offsets are about. Those to read anew."""
        for topic in sorted(gone & began.keys() - self._told_gone):
            self._told_gone.add(topic)
            self._other_log(f"Topic {topic!r} was deleted")
        anew: set[Place] = set()
        for topic, heads in reach.items():
            for head in heads:
                place = (topic, head.shard)
                at = began.get(topic, {}).get(head.shard)
                if at is not None and self._is_another(place, head, at):
                    self._told_gone.discard(topic)
                    anew.add(place)
                    self._other_log(
                        f"Topic {topic!r} was deleted and created again: its shard {head.shard} ends at offset "
                        f"{head.end_offset:,}, and the query has read up to {at:,}"
                    )
                self._groups[place] = head.group
        return anew

    def _is_another(self, place: Place, head: Head, at: int) -> bool:
        """Whether this is not the log that the query has read: of another group, or shorter and staying so."""
        if self._groups.get(place, head.group) != head.group:
            return True
        if head.end_offset >= at:
            self._short_since_s.pop(place, None)
            return False
        # A leader that was elected just now may not know yet all that is committed.
        since_s = self._short_since_s.setdefault(place, time.monotonic())
        return time.monotonic() - since_s > SHORT_S

    def _other_log(self, sentence: str) -> None:
        if self.options.fail_on_data_loss:
            raise FlockError(
                f"{sentence}; start the query with a new checkpoint folder, or set failOnDataLoss=false to read the "
                "new topic from its start"
            )
        logger.warning("%s; going on, as failOnDataLoss=false says", sentence)

    def _limited(self, began: Offsets, latest: Offsets) -> Offsets:
        options = self.options
        behind = sum(one.records for one in ranges_between(began, latest))
        waited_ms = (time.monotonic() - self._batch_at_s) * 1000
        if behind < options.records_min and waited_ms < options.delay_ms_max and self._until is None:
            return began
        return limit(
            began,
            latest,
            records_max=options.records_max,
            bytes_max=options.bytes_max,
            record_bytes=None if options.bytes_max is None else self._record_bytes(list(latest)),
        )

    def _record_bytes(self, topics: list[str]) -> dict[str, float]:
        """Bytes on disk for each record, on average: what is known of a batch before it is read."""
        client = self.options.servers.client()
        found: dict[str, float] = {}
        for topic in topics:
            partitions = client.metadata(topic)
            records = sum((one.end_offset or 0) - (one.first_offset or 0) for one in partitions)
            size = sum(one.bytes or 0 for one in partitions)
            found[topic] = size / records if records and size else float(RECORD_BYTES)
        return found
