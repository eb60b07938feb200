"""Positions of a query over its topics' shards: their JSON, and what words and moments mean in numbers.

```
 {"plant": {"0": 12, "1": 40}}  <-- to_json / from_json -->  Offsets, by topic and shard
 Bound (earliest, latest, offsets, moments) + how far the shards reach now --> Offsets
```
Spark compares offsets as text, so the JSON is the same for the same positions: topics by name, shards by number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from flockmq.admin.durable_model import Head
from flockmq.errors import FlockError
from flockmq.spark.options import EARLIEST, LATEST, Bound, ByShard, Strategy

Offsets = dict[str, dict[int, int]]
"""Next offset to read, by topic and shard."""
Reach = Mapping[str, Sequence[Head]]
"""How far the shards of each topic reach."""
OffsetsAt = Callable[[str, int], list[int]]
"""(topic, ms) -> for each shard the first offset of that time or later."""


def to_json(offsets: ByShard) -> dict[str, dict[str, int]]:
    """For Spark, which writes it down."""
    return {topic: {str(shard): shards[shard] for shard in sorted(shards)} for topic, shards in sorted(offsets.items())}


def from_json(tree: Mapping[str, Mapping[str, int]]) -> Offsets:
    """What Spark had written down."""
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
