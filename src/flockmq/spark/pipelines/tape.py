"""What `replay` plays: records in the order of time, of a topic or of a table, in slices that can be read again.

```
 TopicTape   mark(moment) = offset in each shard      slice = offsets [start, end)     the log never changes
 LakeTape    mark(moment) = the moment                slice = times [start, end)       rows that are there stay
```
A slice between two marks is the same whenever it is read: that is what lets one be published again without harm.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from flockmq.config.units import MILLISECONDS, parse_number
from flockmq.errors import FlockError
from flockmq.spark.pipelines.lake import find_format, open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from flockmq.spark.pipelines.run import Job

Mark = int | list[int]
COLUMNS: Final = ("mqtt_topic", "payload", "qos", "retain", "headers", "key")
"""Columns that are replayed: all that the sink takes."""


class Span(NamedTuple):
    """A part of a tape: moments and their marks. The end is not in it."""

    begin_ms: int
    end_ms: int
    start: Mark
    end: Mark


class Tape(Protocol):
    """See the module."""

    def span(self, begin_ms: int | None, end_ms: int) -> Span:
        """From the first record to the last one, within what is wanted; empty where there is none."""
        ...

    def mark(self, moment_ms: int) -> Mark:
        """The place of a moment."""
        ...

    def count(self, start: Mark, end: Mark) -> int | None:
        """Records in between, where that is cheap to know."""
        ...

    def frame(self, start: Mark, end: Mark) -> DataFrame:
        """The records in between, those of one MQTT topic in their order."""
        ...


class TopicTape:
    """A durable topic."""

    def __init__(self, job: Job, topic: str, filters: str) -> None:
        self._job = job
        self._topic = topic
        self._filters = filters
        self._client = job.servers.client()

    def span(self, begin_ms: int | None, end_ms: int) -> Span:
        """See Tape."""
        end = self.mark(end_ms)
        assert isinstance(end, list)
        start = [head.first_offset for head in self._client.heads(self._topic).heads]
        if begin_ms is not None:
            start = [max(one) for one in zip(start, self._client.offsets_at(self._topic, begin_ms), strict=True)]
        # Only the first and the last record of each shard are looked at.
        edges = [
            self._time(shard, at)
            for shard, (low, high) in enumerate(zip(start, end, strict=True))
            if low < high
            for at in (low, high - 1)
        ]
        begin, last = (min(edges), max(edges) + 1) if edges else (end_ms, end_ms)
        return Span(begin, last, start, end)

    def mark(self, moment_ms: int) -> Mark:
        """See Tape."""
        return self._client.offsets_at(self._topic, moment_ms)

    def count(self, start: Mark, end: Mark) -> int | None:
        """See Tape."""
        assert isinstance(start, list)
        assert isinstance(end, list)
        return sum(max(0, high - low) for low, high in zip(start, end, strict=True))

    def frame(self, start: Mark, end: Mark) -> DataFrame:
        """See Tape."""
        options = {
            "subscribe": self._topic,
            "startingOffsets": self._offsets(start),
            "endingOffsets": self._offsets(end),
        }
        if self._filters:
            options["topicFilter"] = self._filters
        return self._job.read(**options).select(*COLUMNS)

    def _offsets(self, mark: Mark) -> str:
        assert isinstance(mark, list)
        return json.dumps({self._topic: {str(shard): offset for shard, offset in enumerate(mark)}})

    def _time(self, shard: int, offset: int) -> int:
        view = self._client.read(self._topic, shard, offset, max_bytes=1).views[0]
        return view.timestamps()[offset - view.base_offset]


class LakeTape:
    """A table that `archive` wrote, or any Parquet files with the same columns."""

    def __init__(self, job: Job, folder: str, filters: str) -> None:
        if filters:
            raise FlockError("--filter is for topics; a table is replayed as a whole, by time.")
        self._table = open_table(find_format(folder, job.spark), folder).read(job.spark)
        missing = {"timestamp", "mqtt_topic", "payload"} - set(self._table.columns)
        if missing:
            raise FlockError(f"The table in {folder} has no column {', '.join(sorted(missing))}; replay needs these.")

    def span(self, begin_ms: int | None, end_ms: int) -> Span:
        """See Tape."""
        from pyspark.sql import functions as F  # noqa: N812  (PySpark's usual name)

        wanted = self._between(begin_ms or 0, end_ms)
        edges = wanted.select(F.unix_millis(F.min("timestamp")), F.unix_millis(F.max("timestamp"))).first()
        assert edges is not None
        begin, last = (end_ms, end_ms) if edges[0] is None else (int(edges[0]), int(edges[1]) + 1)
        return Span(begin, last, begin, last)

    def mark(self, moment_ms: int) -> Mark:
        """See Tape."""
        return moment_ms

    def count(self, _start: Mark, _end: Mark) -> int | None:
        """See Tape."""
        return None

    def frame(self, start: Mark, end: Mark) -> DataFrame:
        """See Tape."""
        assert isinstance(start, int)
        assert isinstance(end, int)
        found = self._between(start, end)
        keys = [name for name in ("topic", "partition") if name in found.columns]
        order = [*keys, *(name for name in ("offset",) if name in found.columns)] or ["timestamp"]
        # Files know no order among each other; a shard's records go through one task, sorted.
        found = (found.repartition(*keys) if keys else found.coalesce(1)).sortWithinPartitions(*order)
        return found.select(*(name for name in COLUMNS if name in found.columns))

    def _between(self, start_ms: int, end_ms: int) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        column = self._table["timestamp"]
        low, high = F.timestamp_millis(F.lit(start_ms)), F.timestamp_millis(F.lit(end_ms))
        return self._table.filter((column >= low) & (column < high))


def clamped(mark: Mark, low: Mark, high: Mark) -> Mark:
    """A mark that is not outside of two others: clocks of leaders differ, so times of a log may go back a little."""
    if isinstance(mark, int):
        return mark
    assert isinstance(low, list)
    assert isinstance(high, list)
    return [min(max(one), top) for *one, top in zip(mark, low, high, strict=True)]


def moment_ms(name: str, text: str, now_ms: int) -> int:
    """``2026-03-01T12:00:00Z``, ``2026-03-01``, milliseconds since 1970, ``now``, or how long ago: ``2h``."""
    if text == "now":
        return now_ms
    if text.isdigit():
        return int(text)
    try:
        return now_ms - parse_number(text, MILLISECONDS)
    except ValueError:
        pass
    try:
        found: Any = datetime.fromisoformat(text)
    except ValueError:
        right = "a time like 2026-03-01T12:00:00Z, or how long ago like 2h"
        raise FlockError(f"--{name} can't be {text!r}: give {right}.") from None
    moment = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1_000)
