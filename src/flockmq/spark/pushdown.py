"""Predicates of a batch query that say which records can be left out before they are read.

```
 offset, partition, topic, timestamp, mqtt_topic  with  = <=> < <= > >= in
     |--> ranges cut: by offset, shard, topic; by time with the logs' own index
     `--> mqtt_topic: the nodes leave out batches without these names
```
Everything is only made smaller: Spark evaluates all predicates again. So what is not understood here costs time, not
rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from flockmq.spark.planning import OffsetsAt, Range

NAMES_MAX: Final = 64
"""More topic names than these are not sent to nodes."""


@dataclass(frozen=True, slots=True)
class Span:
    """Whole numbers from ``low`` to before ``high``; None: no bound."""

    low: int | None = None
    high: int | None = None

    def within(self, low: int | None, high: int | None) -> Span:
        """Only what is also between these."""
        lows = [one for one in (self.low, low) if one is not None]
        highs = [one for one in (self.high, high) if one is not None]
        return Span(max(lows, default=None), min(highs, default=None))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What predicates leave of a query; None in a set: everything."""

    offsets: Span = field(default_factory=Span)
    times_ms: Span = field(default_factory=Span)
    shards: frozenset[int] | None = None
    topics: frozenset[str] | None = None
    names: frozenset[str] | None = None

    def narrowed(self, filters: Iterable[Filter]) -> Wanted:
        """With these predicates, too."""
        found = self
        for one in filters:
            column = _column(one)
            if column == "offset":
                found = replace(found, offsets=found.offsets.within(*_bounds(one, _whole)))
            elif column == "timestamp":
                found = replace(found, times_ms=found.times_ms.within(*_bounds(one, _milliseconds)))
            elif column in {"partition", "topic", "mqtt_topic"}:
                values = _values(one, int if column == "partition" else str)
                place = {"partition": "shards", "topic": "topics", "mqtt_topic": "names"}[column]
                known = getattr(found, place)
                if values is not None:
                    left: Any = {place: values if known is None else known & values}
                    found = replace(found, **left)
        return found

    def is_nothing(self) -> bool:
        """Whether no record can be meant."""
        return any(one is not None and not one for one in (self.shards, self.topics, self.names))

    def cut(self, ranges: Iterable[Range], offsets_at: OffsetsAt) -> list[Range]:
        """What is left of ranges."""
        found: list[Range] = []
        moments: dict[tuple[str, int], list[int]] = {}
        if self.is_nothing():
            return found
        for one in ranges:
            if self.topics is not None and one.topic not in self.topics:
                continue
            if self.shards is not None and one.shard not in self.shards:
                continue
            span = Span(one.start, one.end).within(self.offsets.low, self.offsets.high)
            if self.times_ms.low is not None:
                low = _moment(moments, one.topic, self.times_ms.low, offsets_at)[one.shard]
                span = span.within(low, None)
            assert span.low is not None
            assert span.high is not None
            if span.low < span.high:
                found.append(Range(one.topic, one.shard, span.low, span.high))
        return found

    def few_names(self) -> tuple[str, ...]:
        """Topic names that nodes can look for; none when all are wanted, or too many to tell."""
        return tuple(sorted(self.names)) if self.names is not None and len(self.names) <= NAMES_MAX else ()


def _moment(known: dict[tuple[str, int], list[int]], topic: str, time_ms: int, offsets_at: OffsetsAt) -> list[int]:
    if (topic, time_ms) not in known:
        known[(topic, time_ms)] = offsets_at(topic, time_ms)
    return known[(topic, time_ms)]


def _column(one: Filter) -> str:
    path: tuple[str, ...] = getattr(one, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _values(one: Filter, kind: type) -> frozenset[Any] | None:
    """The values that a column may have; None when the predicate says something else."""
    if isinstance(one, EqualTo | EqualNullSafe):
        values: tuple[Any, ...] = (one.value,)
    elif isinstance(one, In):
        values = tuple(value for value in one.value if value is not None)
    else:
        return None
    return frozenset(values) if all(isinstance(value, kind) for value in values) else None


def _bounds(one: Filter, number: Any) -> tuple[int | None, int | None]:
    """From .. to before .. of a predicate on a column of numbers."""
    if isinstance(one, In):
        numbers = [number(value) for value in one.value if value is not None]
        if not numbers or None in numbers:
            return None, None
        return min(numbers), max(numbers) + 1
    value = number(getattr(one, "value", None))
    if value is None:
        return None, None
    if isinstance(one, EqualTo | EqualNullSafe):
        return value, value + 1
    # Milliseconds cut off what Spark has of microseconds, so both ends stay one short of sharp.
    if isinstance(one, GreaterThan | GreaterThanOrEqual):
        return (value + 1 if isinstance(one, GreaterThan) and number is _whole else value), None
    if isinstance(one, LessThan | LessThanOrEqual):
        return None, (value if isinstance(one, LessThan) and number is _whole else value + 1)
    return None, None


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def _milliseconds(value: object) -> int | None:
    """Timestamps come as moments with or without a zone; those without are in UTC."""
    if not isinstance(value, datetime):
        return None
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)
