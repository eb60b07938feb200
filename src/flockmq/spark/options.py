"""The options of a query that reads: their names, what they may be, and what a wrong one is told.

```
 option("...") --> one spelling (Spark ignores case; our words and Kafka's) --> ReadOptions (frozen, pickled into tasks)
                       `-- unknown, contradictory, no number: one sentence with what is right
```
Names are those of Spark's Kafka source, so that a query moves over by changing its format; our own words stand beside
them in ``ALIASES``.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from flockmq.errors import FlockError, RemoteProtocolError
from flockmq.mqtt.topics import check_topic_filter
from flockmq.spark.schema import COLUMNS
from flockmq.spark.servers import SERVER_OPTIONS, Servers, flag
from flockmq.spark.template import Template

ReadFrom = Literal["any", "leader", "follower"]
Strategy = Literal["error", "latest"]
EARLIEST: Final = -2
LATEST: Final = -1
"""What these offsets mean in JSON, as in Kafka's."""
MAX_TRIGGER_DELAY: Final = "15m"

NAMES: Final = (
    *SERVER_OPTIONS,
    *("subscribe", "subscribePattern", "assign", "topicFilter", "columns", "includeHeaders", "readFrom"),
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
    *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "failOnDataLoss", "cursor", "cursorHold"),
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger"),
    *("minPartitions", "maxRecordsPerPartition", "maxTasks", "groupIdPrefix"),
)
ALIASES: Final = {
    "topics": "subscribe",
    "path": "subscribe",
    "topicPattern": "subscribePattern",
    "shards": "assign",
    "maxRecordsPerTrigger": "maxOffsetsPerTrigger",
    "minRecordsPerTrigger": "minOffsetsPerTrigger",
    "minTasks": "minPartitions",
    "maxRecordsPerTask": "maxRecordsPerPartition",
}
"""Our words for options that Kafka's source has, too. ``path`` is what ``load("plant")`` gives."""
_BY_LOWER: Final = {name.lower(): name for name in NAMES} | {ours.lower(): kafka for ours, kafka in ALIASES.items()}
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS_BYTES: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

ByShard = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Where reading starts or ends: a word, offsets, or moments; the last that is given of these wins."""

    word: Literal["earliest", "latest"]
    offsets: ByShard = field(default_factory=dict)
    """With ``EARLIEST`` and ``LATEST`` for these words."""
    times_ms: ByShard = field(default_factory=dict)
    time_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """See the module."""

    servers: Servers
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    filters: tuple[str, ...] = ()
    columns: str = ""
    include_headers: bool = True
    read_from: ReadFrom = "any"
    start: Bound | None = None
    """None: not given."""
    end: Bound | None = None
    strategy: Strategy = "error"
    fail_on_data_loss: bool = True
    cursor: str = ""
    cursor_hold: bool | None = None
    """None: not given. Cursors that are made hold, and those that are there stay as they are."""
    records_max: int | None = None
    records_min: int = 0
    delay_ms_max: int = 0
    bytes_max: int | None = None
    tasks_min: int = 0
    task_records_max: int | None = None
    tasks_max: int | None = None

    @property
    def template(self) -> Template | None:
        """The template of option columns."""
        return Template(self.columns, frozenset(COLUMNS)) if self.columns else None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """From Spark's options; FlockError says what is wrong."""
        given = spelled(options, _BY_LOWER)
        topics = _listed(given.get("subscribe", ""))
        assigned = _assigned(given)
        pattern = given.get("subscribePattern", "")
        if sum((bool(topics), bool(assigned), bool(pattern))) != 1:
            raise FlockError(
                "A query names its topics with exactly one of the options subscribe (names with commas), "
                'subscribePattern (a regular expression) and assign (JSON like {"plant":[0,1]})'
            )
        _check_pattern(pattern)
        found = cls(
            servers=Servers.from_options(given),
            topics=topics,
            pattern=pattern,
            assigned=assigned,
            filters=_filters(given.get("topicFilter", "")),
            columns=given.get("columns", ""),
            include_headers=flag("includeHeaders", given.get("includeHeaders", "true")),
            read_from=_choice(given, "readFrom", "any", get_args(ReadFrom)),  # type: ignore[arg-type]
            start=_bound(given, "starting"),
            end=_bound(given, "ending"),
            strategy=_choice(given, "startingOffsetsByTimestampStrategy", "error", get_args(Strategy)),  # type: ignore[arg-type]
            fail_on_data_loss=flag("failOnDataLoss", given.get("failOnDataLoss", "true")),
            cursor=given.get("cursor", ""),
            cursor_hold=flag("cursorHold", given.get("cursorHold", "true")) if "cursorHold" in given else None,
            records_max=_number(given, "maxOffsetsPerTrigger"),
            records_min=_number(given, "minOffsetsPerTrigger") or 0,
            delay_ms_max=_sized(given, "maxTriggerDelay", MAX_TRIGGER_DELAY, _UNITS_MS, "15m or 30s") or 0,
            bytes_max=_sized(given, "maxBytesPerTrigger", "", _UNITS_BYTES, "64m or 1g"),
            tasks_min=_number(given, "minPartitions") or 0,
            task_records_max=_number(given, "maxRecordsPerPartition"),
            tasks_max=_number(given, "maxTasks"),
        )
        found.check()
        return found

    def check(self) -> None:
        """Refuse what contradicts itself."""
        _ = self.template  # says itself what is wrong with it
        if self.records_max is not None and self.records_min > self.records_max:
            raise FlockError(
                f"minOffsetsPerTrigger={self.records_min} is more than maxOffsetsPerTrigger={self.records_max}; "
                "no micro-batch could be both"
            )
        if self.tasks_max is not None and self.tasks_min > self.tasks_max:
            raise FlockError(f"minPartitions={self.tasks_min} is more than maxTasks={self.tasks_max}; lower it")

    def check_streaming(self) -> None:
        """Refuse what has no meaning in a stream."""
        if self.end is not None:
            raise FlockError(
                "A stream has no end: leave out endingOffsets, endingTimestamp and endingOffsetsByTimestamp, or read "
                "with spark.read"
            )

    def check_batch(self) -> None:
        """Refuse what has no meaning outside of a stream."""
        for name, bound, wrong in (("startingOffsets", self.start, LATEST), ("endingOffsets", self.end, EARLIEST)):
            word = {LATEST: "latest", EARLIEST: "earliest"}[wrong]
            values = [] if bound is None else [one for shards in bound.offsets.values() for one in shards.values()]
            if bound is not None and (
                wrong in values or (bound.word == word and not bound.offsets and not _timed(bound))
            ):
                raise FlockError(f"Option {name}={word} ({wrong} in JSON) would read nothing in a batch query")


def spelled(options: Mapping[str, str], known: Mapping[str, str], unknown: str = "There is") -> dict[str, str]:
    """The same options under their right names; ``known`` has these by their lower case and by other words for them.

    FlockError names the right ones when one is unknown.
    """
    found: dict[str, str] = {}
    for name, value in options.items():
        right = known.get(name.lower())
        if right is None:
            near = difflib.get_close_matches(name.lower(), list(known), 1)
            hint = f"did you mean {known[near[0]]}? " if near else ""
            names = ", ".join(sorted(set(known.values()), key=str.lower))
            raise FlockError(f"{unknown} no option {name!r}; {hint}There are {names}")
        if right in found:
            raise FlockError(f"Option {name} is given twice, once in other words; leave one of them out")
        found[right] = str(value)
    return found


def _timed(bound: Bound) -> bool:
    return bound.time_ms is not None or bool(bound.times_ms)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))


def _filters(text: str) -> tuple[str, ...]:
    found = _listed(text)
    for one in found:
        try:
            check_topic_filter(one.encode())
        except RemoteProtocolError as error:
            raise FlockError(f"Option topicFilter has {one!r}, which is no MQTT topic filter: {error}") from None
    return found


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise FlockError(f"Option subscribePattern={pattern!r} is no regular expression: {error}") from None


def _assigned(given: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    if "assign" not in given:
        return {}
    tree = _json("assign", given["assign"])
    good = isinstance(tree, dict) and all(isinstance(shards, list) and shards for shards in tree.values())
    if not good or not all(type(one) is int and one >= 0 for shards in tree.values() for one in shards):
        raise FlockError('Option assign is JSON with the shards of each topic, like {"plant":[0,1]}')
    return {topic: tuple(sorted(set(shards))) for topic, shards in sorted(tree.items())}


def _bound(given: Mapping[str, str], which: str) -> Bound | None:
    """``which`` is starting or ending. As in Kafka's source one moment goes before many, and these before offsets."""
    single, many, words = f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets"
    # Where a moment lies behind the last record, reading ends at the end; for starts the strategy decides.
    word: Literal["earliest", "latest"] = "latest"
    if single in given:
        return Bound(word=word, time_ms=_moment(single, given[single]))
    if many in given:
        return Bound(word=word, times_ms=_by_shard(many, given[many], 0, "milliseconds since 1970"))
    if words not in given:
        return None
    text = given[words].strip()
    if text.lower() in {"earliest", "latest"}:
        return Bound(word="earliest" if text.lower() == "earliest" else "latest")
    return Bound(word=word, offsets=_by_shard(words, text, EARLIEST, "offsets (-2 earliest, -1 latest)"))


def _by_shard(name: str, text: str, least: int, what: str) -> dict[str, dict[int, int]]:
    tree = _json(name, text)
    wrong = FlockError(
        f'Option {name} is JSON with {what} of each shard, like {{"plant":{{"0":23,"1":345}}}}'
        + ("" if least == 0 else ", or a word: earliest, latest")
    )
    if not isinstance(tree, dict) or not tree or not all(isinstance(shards, dict) for shards in tree.values()):
        raise wrong
    for shards in tree.values():
        if not all(str(shard).isdecimal() and type(value) is int and value >= least for shard, value in shards.items()):
            raise wrong
    return {topic: {int(shard): value for shard, value in shards.items()} for topic, shards in tree.items()}


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise FlockError(f"Option {name} is no JSON ({error}): {text[:100]!r}") from None


def _moment(name: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise FlockError(f"Option {name} is in milliseconds since 1970, like 1772366400000; not {text!r}")
    return int(text)


def _choice(given: Mapping[str, str], name: str, usual: str, allowed: tuple[str, ...]) -> str:
    text = given.get(name, usual).strip().lower()
    if text not in allowed:
        raise FlockError(f"Option {name} is one of {', '.join(allowed)}, not {given[name]!r}")
    return text


def _number(given: Mapping[str, str], name: str) -> int | None:
    if name not in given:
        return None
    text = given[name].strip()
    if not text.isdecimal() or int(text) < 1:
        raise FlockError(f"Option {name} is a number of 1 or more, not {given[name]!r}")
    return int(text)


def _sized(given: Mapping[str, str], name: str, usual: str, units: Mapping[str, int], example: str) -> int | None:
    text = given.get(name, usual).strip().lower()
    if not text:
        return None
    found = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text)
    unit = found.group(2) if found else ""
    if "b" in units and len(unit) > 1:
        unit = unit.removesuffix("b").removesuffix("i")  # kb, kib
    if found is None or (unit or ("" if "" in units else "?")) not in units:
        raise FlockError(f"Option {name} is a number with a unit like {example}, not {given.get(name)!r}")
    return int(found.group(1)) * units[unit]
