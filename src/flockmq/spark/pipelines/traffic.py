"""What the cluster carries per topic, client, partition and node over time, and which nodes should lead what.

```
 topics, a range of time --> one pass, grouped three ways:  partition x time | topic name | client
                                  |
 leaders now, from the API -------+--> tables, chart, page
                                  `--> advice.json --> flockmq cluster rebalance --advice advice.json
```
Bytes are those of payloads and topic names. A partition counts for the node that leads it now, wherever it was before.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from flockmq.errors import FlockError
from flockmq.spark.pipelines.charts import BARS_MAX, SERIES_MAX, Bars, Lines, Panel, moment, text_of, write_report
from flockmq.spark.pipelines.parameters import Kind, Parameter
from flockmq.spark.pipelines.placing import Measured, advise, even_leaders, node_loads, skew
from flockmq.spark.pipelines.registry import Pipeline
from flockmq.spark.pipelines.summary import Cell, Summary, Table
from flockmq.spark.pipelines.tape import moment_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from flockmq.admin.durable_model import Partition
    from flockmq.spark.pipelines.run import Job

FINE_BUCKETS: Final = 2_000
"""The asked range is cut into about so many, to find where there was traffic at all."""
BUCKETS: Final = 100
"""Points of a chart."""
LISTED_MAX: Final = 20
ADVICE_FILE: Final = "advice.json"
_SCHEMA: Final = "topic string, partition int, timestamp timestamp, mqtt_topic string, client_id string, payload binary"

PARAMETERS: Final = (
    Parameter("topic", Kind.LIST, None, "Durable topics, separated by commas; without it all of the namespace."),
    Parameter("last", Kind.DURATION, "1h", "How far back to look, from --to on.", minimum=1),
    Parameter("from", Kind.TEXT, None, "First moment, like 2026-05-01T12:00:00Z; instead of --last."),
    Parameter("to", Kind.TEXT, None, "Moment to end before; without it now."),
    Parameter("report", Kind.PATH, "flockmq-traffic", "Folder of chart, page and advice."),
)


@dataclass(frozen=True, slots=True)
class Carried:
    """Messages and bytes of something."""

    messages: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one pass over the records found."""

    start_ms: int
    end_ms: int
    step_ms: int
    shards: Mapping[tuple[str, int], Mapping[int, Carried]]
    """By topic and shard, then by the beginning of a bucket."""
    names: Sequence[tuple[str, Carried]]
    clients: Sequence[tuple[str, Carried]]
    """The largest ones."""

    @property
    def seconds(self) -> float:
        """Between the first and the last message, by buckets."""
        return max(0.001, (self.end_ms - self.start_ms) / 1000)

    def total(self, shard: tuple[str, int]) -> Carried:
        """All that one partition carried."""
        buckets = self.shards.get(shard, {}).values()
        return Carried(sum(one.messages for one in buckets), sum(one.size_bytes for one in buckets))


def run(job: Job) -> Summary:
    """The pipeline."""
    values = job.values
    now_ms = int(time.time() * 1000)
    end_ms = moment_ms("to", values.text("to"), now_ms) if "to" in values else now_ms + 1
    start_ms = moment_ms("from", values.text("from"), now_ms) if "from" in values else end_ms - values.integer("last")
    if start_ms >= end_ms:
        raise FlockError("--from is not before --to, so that there is nothing between them.")
    client = job.servers.client()
    topics = list(values.texts("topic")) or sorted(topic.name for topic in client.topics())
    if not topics:
        where = client.namespace
        raise FlockError(
            f"There is no durable topic in namespace {where!r}; create one with `flockmq topic create NAME -n {where}`."
        )
    placed = [one for topic in topics for one in client.metadata(topic, fresh=True)]
    job.say(f"Reading {', '.join(topics)} from {moment(start_ms):%F %T} to {moment(end_ms):%F %T} UTC")
    reader = job.spark.read.format("flockmq").schema(_SCHEMA).options(**job.read_options())
    measured = measure(reader.option("subscribe", ",".join(topics)).load(), start_ms, end_ms)
    return report(measured, placed, Path(values.text("report")))


# --- on Spark -------------------------------------------------------------------------------------------------------


def measure(records: DataFrame, start_ms: int, end_ms: int) -> Measurement:
    """Group the records between two moments in one pass."""
    from pyspark.sql import functions as sql

    fine_ms = max(100, _round_up((end_ms - start_ms) / FINE_BUCKETS))
    wanted = records.where(
        (sql.col("timestamp") >= sql.timestamp_millis(sql.lit(start_ms)))
        & (sql.col("timestamp") < sql.timestamp_millis(sql.lit(end_ms)))
    ).select(
        *("topic", "partition", "mqtt_topic", "client_id"),
        (sql.floor(sql.unix_millis("timestamp") / fine_ms) * fine_ms).alias("bucket_ms"),
        (sql.octet_length("payload") + sql.octet_length("mqtt_topic")).alias("size"),
    )
    grouped = (
        wanted.groupingSets(
            [
                [sql.col("topic"), sql.col("partition"), sql.col("bucket_ms")],
                [sql.col("mqtt_topic")],
                [sql.col("client_id")],
            ],
            *("topic", "partition", "bucket_ms", "mqtt_topic", "client_id"),
        )
        .agg(sql.count("*").alias("messages"), sql.sum("size").alias("bytes"), sql.grouping_id().alias("way"))
        .persist()
    )
    try:
        return _collect(grouped, fine_ms)
    finally:
        grouped.unpersist()


_BY_SHARD: Final = 0b00011
_BY_NAME: Final = 0b11101
_BY_CLIENT: Final = 0b11110
"""Which columns a row does not have, as ``grouping_id`` says it."""


def _collect(grouped: DataFrame, fine_ms: int) -> Measurement:
    from pyspark.sql import functions as sql

    by_shard = grouped.where(sql.col("way") == _BY_SHARD)
    span = by_shard.agg(sql.min("bucket_ms").alias("first"), sql.max("bucket_ms").alias("last")).first()
    if span is None or span["first"] is None:
        return Measurement(0, 0, fine_ms, {}, [], [])
    start_ms, end_ms = int(span["first"]), int(span["last"]) + fine_ms
    step_ms = max(fine_ms, _round_up((end_ms - start_ms) / BUCKETS))
    step_ms -= step_ms % fine_ms
    coarse = by_shard.groupBy(
        "topic", "partition", (sql.floor((sql.col("bucket_ms") - start_ms) / step_ms) * step_ms + start_ms).alias("at")
    ).agg(sql.sum("messages").alias("messages"), sql.sum("bytes").alias("bytes"))
    shards: dict[tuple[str, int], dict[int, Carried]] = defaultdict(dict)
    for row in coarse.collect():
        shards[(row["topic"], row["partition"])][int(row["at"])] = Carried(row["messages"], row["bytes"])
    return Measurement(
        start_ms,
        end_ms,
        step_ms,
        dict(shards),
        _largest(grouped.where(sql.col("way") == _BY_NAME), "mqtt_topic"),
        _largest(grouped.where(sql.col("way") == _BY_CLIENT), "client_id"),
    )


def _largest(groups: DataFrame, column: str) -> list[tuple[str, Carried]]:
    from pyspark.sql import functions as sql

    rows = groups.orderBy(sql.desc("bytes"), column).limit(LISTED_MAX).collect()
    return [(row[column] or "", Carried(row["messages"], row["bytes"])) for row in rows]


def _round_up(step_ms: float) -> int:
    """The next length that people count in."""
    for known in (100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000, 1_800_000, 3_600_000):
        if step_ms <= known:
            return known
    return -(-int(step_ms) // 3_600_000) * 3_600_000


# --- what comes of it -----------------------------------------------------------------------------------------------


def report(measured: Measurement, placed: Sequence[Partition], folder: Path) -> Summary:
    """Tables, chart, page and advice."""
    partitions = [_measured(one, measured) for one in placed]
    nodes = sorted({name for one in partitions for name in (one.leader, *one.copies)} - {""})
    leaders = even_leaders(partitions, nodes)
    now = node_loads({one: one.leader for one in partitions}, nodes)
    after = node_loads(dict(zip(partitions, leaders, strict=True)), nodes)
    totals = [measured.total((one.topic, one.shard)) for one in partitions]
    messages, size_bytes = sum(one.messages for one in totals), sum(one.size_bytes for one in totals)

    summary = Summary("What the cluster carried")
    if messages:
        summary.add("from", _text(measured.start_ms))
        summary.add("to", _text(measured.end_ms))
    summary.add("messages", messages)
    summary.add("bytes", size_bytes)
    summary.add("messages a second", round(messages / measured.seconds, 1))
    summary.add("bytes a second", round(size_bytes / measured.seconds, 1))
    summary.add("largest partition by the mean", round(skew(one.bytes_per_s for one in partitions), 2))
    summary.add("busiest node by the mean", round(skew(now.values()), 2))
    summary.add("busiest node by the mean after the advice", round(skew(after.values()), 2))
    summary.add("leaders to move", sum(one.leader != leader for one, leader in zip(partitions, leaders, strict=True)))
    summary.tables += [
        _node_table(partitions, measured, now, after),
        _partition_table(partitions, leaders, measured),
        _named_table("Topic names", "topic name", measured.names, measured, size_bytes),
        _named_table("Clients", "client", measured.clients, measured, size_bytes),
    ]
    files = write_report(
        folder,
        "traffic",
        summary.title,
        _panels(partitions, measured, now, after),
        facts=[(label, text_of(value)) for label, value in summary.rows],
        tables=summary.tables,
    )
    advice = folder / ADVICE_FILE
    made_at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    advice.write_bytes(msgspec.json.format(msgspec.json.encode(advise(partitions, leaders, made_at)), indent=2))
    summary.files += [str(file) for file in (*files, advice)]
    return summary


def _measured(partition: Partition, measured: Measurement) -> Measured:
    carried = measured.total((partition.topic, partition.shard))
    able = [one.node for one in partition.replicas if one.role in ("leader", "follower")]
    return Measured(
        namespace=partition.namespace,
        topic=partition.topic,
        shard=partition.shard,
        group=partition.group,
        leader=partition.leader or "",
        copies=tuple(sorted(able)),
        bytes_per_s=carried.size_bytes / measured.seconds,
    )


def _text(time_ms: int) -> str:
    return moment(time_ms).isoformat(timespec="seconds").replace("+00:00", "Z")


def _node_table(
    partitions: Sequence[Measured], measured: Measurement, now: Mapping[str, float], after: Mapping[str, float]
) -> Table:
    rows: list[list[Cell]] = []
    for node in sorted(now, key=lambda name: (-now[name], name)):
        led = [one for one in partitions if one.leader == node]
        messages = sum(measured.total((one.topic, one.shard)).messages for one in led)
        rate = round(messages / measured.seconds, 1)
        rows.append([node, len(led), messages, rate, round(now[node], 1), round(after[node], 1)])
    return Table("Nodes", ["node", "leads", "messages", "messages/s", "bytes/s", "bytes/s after the advice"], rows)


def _partition_table(partitions: Sequence[Measured], leaders: Sequence[str], measured: Measurement) -> Table:
    pairs = sorted(
        zip(partitions, leaders, strict=True), key=lambda pair: (-pair[0].bytes_per_s, pair[0].topic, pair[0].shard)
    )
    total = sum(one.bytes_per_s for one in partitions) or 1.0
    rows: list[list[Cell]] = [
        [
            one.topic,
            one.shard,
            one.leader or None,
            leader if leader != one.leader else None,
            measured.total((one.topic, one.shard)).messages,
            round(one.bytes_per_s, 1),
            round(100 * one.bytes_per_s / total, 1),
        ]
        for one, leader in pairs[:LISTED_MAX]
    ]
    return Table("Partitions", ["topic", "shard", "leader", "advised", "messages", "bytes/s", "% of bytes"], rows)


def _named_table(
    title: str, column: str, largest: Sequence[tuple[str, Carried]], measured: Measurement, size_bytes: int
) -> Table:
    rows: list[list[Cell]] = [
        [
            name,
            carried.messages,
            round(carried.messages / measured.seconds, 1),
            round(carried.size_bytes / measured.seconds, 1),
            round(100 * carried.size_bytes / (size_bytes or 1), 1),
        ]
        for name, carried in largest
    ]
    return Table(title, [column, "messages", "messages/s", "bytes/s", "% of bytes"], rows)


def _panels(
    partitions: Sequence[Measured], measured: Measurement, now: Mapping[str, float], after: Mapping[str, float]
) -> list[Panel]:
    by_node: dict[str, dict[int, Carried]] = {}
    by_topic: dict[str, dict[int, Carried]] = {}
    for one in partitions:
        buckets = measured.shards.get((one.topic, one.shard), {})
        for of, name in ((by_node, one.leader or "no leader"), (by_topic, one.topic)):
            sums = of.setdefault(name, {})
            for at, carried in buckets.items():
                known = sums.get(at, Carried(0, 0))
                sums[at] = Carried(known.messages + carried.messages, known.size_bytes + carried.size_bytes)
    shards = {f"{one.topic} {one.shard}": one.bytes_per_s for one in partitions}
    names, clients = (
        {name: carried.size_bytes / measured.seconds for name, carried in largest[:BARS_MAX]}
        for largest in (measured.names, measured.clients)
    )
    return [
        Lines(title="Messages by node", unit="messages/s", series=_rates(by_node, measured, False), stacked=True),
        Lines(title="Bytes by durable topic", unit="bytes/s", series=_rates(by_topic, measured, True), stacked=True),
        Bars(title="Bytes by node", unit="bytes/s", values=now, marks=after, mark_name="after the advice"),
        Bars(title="Bytes by partition", unit="bytes/s", values=shards),
        Bars(title="Largest topic names", unit="bytes/s", values=names),
        Bars(title="Largest clients", unit="bytes/s", values=clients),
    ]


def _rates(
    groups: Mapping[str, Mapping[int, Carried]], measured: Measurement, of_bytes: bool
) -> dict[str, list[tuple[datetime, float]]]:
    """Lines of the largest groups; a bucket in which nothing came is 0, not a gap."""
    step_s = measured.step_ms / 1000
    moments = range(measured.start_ms, measured.end_ms, measured.step_ms)
    ranked = sorted(groups, key=lambda name: (-sum(one.size_bytes for one in groups[name].values()), name))
    found = {}
    for name in ranked[:SERIES_MAX]:
        buckets = [(at, groups[name].get(at, Carried(0, 0))) for at in moments]
        found[name] = [(moment(at), (one.size_bytes if of_bytes else one.messages) / step_s) for at, one in buckets]
    return found


PIPELINE: Final = Pipeline(
    name="traffic",
    summary="What topics, clients, partitions and nodes carried over time: charts, advice on leaders.",
    parameters=PARAMETERS,
    run=run,
    example="flockmq pipeline run traffic --last 1h && flockmq cluster rebalance --advice flockmq-traffic/advice.json",
)
