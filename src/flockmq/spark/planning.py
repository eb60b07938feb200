"""Where a query stands, how much a micro-batch takes, and which task reads what.

```
 {"plant": {"0": 12, "1": 40}}  <-- to_json / from_json -->  Offsets, by topic and shard
 Bound (earliest, latest, offsets, moments) + how far the shards reach now --resolve--> Offsets
 start, latest --limit--> end      each shard the same part of what it is behind
 start, end --> ranges --split--> pieces of at most so many records --pack--> tasks
                                   (maxRecordsPerPartition, minPartitions)     (small pieces share one, maxTasks)
```
Spark compares offsets as text, so the JSON is the same for the same positions: topics by name, shards by number.
A task costs some 50 ms whatever it reads, so ten records in eight shards are one task and not eight.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

from flockmq.admin.durable_model import Head
from flockmq.errors import FlockError
from flockmq.spark.options import EARLIEST, LATEST, Bound, ByShard, Strategy

Offsets = dict[str, dict[int, int]]
"""Next offset to read, by topic and shard."""
Reach = Mapping[str, Sequence[Head]]
"""How far the shards of each topic reach."""
OffsetsAt = Callable[[str, int], list[int]]
"""(topic, ms) -> for each shard the first offset of that time or later."""
TASK_RECORDS_MIN: Final = 20_000
"""Pieces are packed together until a task has about so many."""
TASK_RECORDS_MAX: Final = 2_000_000
"""Longer ranges are split even without an option: a task that fails reads all of its records again."""


# --- positions --------------------------------------------------------------------------------------------------------


def to_json(offsets: ByShard) -> dict[str, dict[str, int]]:
    """For Spark, which writes the offsets down."""
    return {topic: {str(shard): shards[shard] for shard in sorted(shards)} for topic, shards in sorted(offsets.items())}


def from_json(tree: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The offsets that Spark had written down."""
    try:
        return {topic: {int(shard): int(at) for shard, at in shards.items()} for topic, shards in tree.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise FlockError(
            f"The checkpoint of this query holds offsets of another source ({str(tree)[:100]}); use a new folder"
        ) from error


def ends(reach: Reach) -> Offsets:
    """Where all shards end."""
    return {topic: {head.shard: head.end_offset for head in heads} for topic, heads in reach.items()}


def firsts(reach: Reach) -> Offsets:
    """Where all shards start."""
    return {topic: {head.shard: head.first_offset for head in heads} for topic, heads in reach.items()}


def resolve(bound: Bound, reach: Reach, offsets_at: OffsetsAt, *, strategy: Strategy = "latest") -> Offsets:
    """What a bound means now. ``strategy`` is for moments after the last record."""
    if bound.time_ms is not None:
        times = {topic: {head.shard: bound.time_ms for head in heads} for topic, heads in reach.items()}
        return _at_times(times, reach, offsets_at, strategy)
    if bound.times_ms:
        _check_complete(bound.times_ms, reach, "moment")
        return _at_times(bound.times_ms, reach, offsets_at, strategy)
    if not bound.offsets:
        return firsts(reach) if bound.word == "earliest" else ends(reach)
    _check_complete(bound.offsets, reach, "offset")
    found: Offsets = {}
    for topic, heads in reach.items():
        found[topic] = {head.shard: _number(bound.offsets[topic][head.shard], head) for head in heads}
    return found


def _number(offset: int, head: Head) -> int:
    return {EARLIEST: head.first_offset, LATEST: head.end_offset}.get(offset, offset)


def _at_times(times: ByShard, reach: Reach, offsets_at: OffsetsAt, strategy: Strategy) -> Offsets:
    found: Offsets = {}
    for topic, heads in reach.items():
        answers = {moment: offsets_at(topic, moment) for moment in sorted(set(times[topic].values()))}
        found[topic] = {}
        for head in heads:
            moment = times[topic][head.shard]
            offset = answers[moment][head.shard]
            if offset >= head.end_offset and strategy == "error":
                raise FlockError(
                    f"Shard {head.shard} of topic {topic!r} has no record of {moment} ms since 1970 or later; take an "
                    "earlier moment, or start at the end with startingOffsetsByTimestampStrategy=latest"
                )
            found[topic][head.shard] = min(offset, head.end_offset)
    return found


def _check_complete(given: ByShard, reach: Reach, what: str) -> None:
    """All shards that are read, and no others: as Kafka's source has it, nothing is guessed."""
    read = {(topic, head.shard) for topic, heads in reach.items() for head in heads}
    named = {(topic, shard) for topic, shards in given.items() for shard in shards}
    for wrong, sentence in ((read - named, "needs one"), (named - read, "is not read by this query")):
        if wrong:
            topic, shard = min(wrong)
            raise FlockError(
                f"The option names an {what} for each shard that the query reads, and shard {shard} of topic {topic!r} "
                f"{sentence} ({len(wrong)} such)"
            )


# --- ranges and tasks -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """Records of one shard, from ``start`` to before ``end``."""

    topic: str
    shard: int
    start: int
    end: int

    @property
    def records(self) -> int:
        """How many."""
        return self.end - self.start


class FlockPartition(InputPartition):
    """What one task reads, in this order."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


def ranges_between(start: Offsets, end: Offsets) -> list[Range]:
    """The ranges from ``start`` to ``end``; a shard missing in ``start`` is read from offset 0."""
    return [
        Range(topic, shard, start.get(topic, {}).get(shard, 0), until)
        for topic, shards in sorted(end.items())
        for shard, until in sorted(shards.items())
        if until > start.get(topic, {}).get(shard, 0)
    ]


def plan(
    ranges: Sequence[Range], *, tasks_min: int = 0, task_records_max: int | None = None, tasks_max: int | None = None
) -> list[FlockPartition]:
    """Tasks for these ranges."""
    total = sum(one.records for one in ranges)
    if not total:
        return []
    piece_max = min(TASK_RECORDS_MAX, task_records_max or TASK_RECORDS_MAX)
    if tasks_min:
        piece_max = min(piece_max, max(1, total // tasks_min))
    pieces = [piece for one in ranges for piece in _split(one, piece_max)]
    wanted = max(tasks_min, min(len(pieces), -(-total // min(TASK_RECORDS_MIN, piece_max))))
    count = min(wanted, len(pieces), tasks_max or wanted)
    return _pack(pieces, count, None if tasks_max else task_records_max)


def _split(one: Range, records_max: int) -> list[Range]:
    """Equal pieces, none longer than that."""
    count = -(-one.records // records_max)
    edges = [one.start + one.records * number // count for number in range(count + 1)]
    return [Range(one.topic, one.shard, low, high) for low, high in pairwise(edges)]


def _pack(pieces: Sequence[Range], count: int, records_max: int | None) -> list[FlockPartition]:
    """Longest first into the task that has least; into a new one when it would get longer than allowed."""
    tasks: list[list[Range]] = [[] for _ in range(count)]
    least = [(0, number) for number in range(count)]
    for piece in sorted(pieces, key=lambda one: (-one.records, one)):
        records, number = heapq.heappop(least)
        if records and records_max is not None and records + piece.records > records_max:
            heapq.heappush(least, (records, number))
            number = len(tasks)
            records = 0
            tasks.append([])
        tasks[number].append(piece)
        heapq.heappush(least, (records + piece.records, number))
    return [FlockPartition(sorted(task)) for task in tasks if task]


def limit(
    start: Offsets,
    latest: Offsets,
    *,
    records_max: int | None = None,
    bytes_max: int | None = None,
    record_bytes: Mapping[str, float] | None = None,
) -> Offsets:
    """How far a micro-batch goes: each shard the same part of what it is behind, at least one record in all.

    ``record_bytes`` is how long a record of a topic is on average.
    """
    behind = {(one.topic, one.shard): one.records for one in ranges_between(start, latest)}
    total = sum(behind.values())
    if not total:
        return latest
    part = 1.0
    if records_max is not None:
        part = min(part, records_max / total)
    if bytes_max is not None and record_bytes is not None:
        part = min(part, bytes_max / max(1.0, sum(n * record_bytes[topic] for (topic, _), n in behind.items())))
    if part >= 1.0:
        return latest
    taken = {place: int(records * part) for place, records in behind.items()}
    if not any(taken.values()):
        taken[max(behind, key=lambda place: (behind[place], place))] = 1
    return {
        topic: {
            shard: start.get(topic, {}).get(shard, 0) + taken[(topic, shard)] if (topic, shard) in taken else until
            for shard, until in shards.items()
        }
        for topic, shards in latest.items()
    }
