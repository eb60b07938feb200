"""Rolls readings up: count, smallest, mean, largest and percentiles per device, metric and window of time.

```
 topics --> readings(device, metric, value, time) --> window, watermark --> groups --+--> Parquet, by date
                                                          |                          `--> --publish: MQTT, as JSON
                                                          `-- later than the watermark: dropped and counted
```
A window is written once, when the watermark has passed its end: it is final then. Windows that are still open when a
run ends wait in the checkpoint; the next run goes on with them. Publishing is a second query with a checkpoint of its
own, so that each of the two ways is exactly once by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from flockmq.errors import FlockError
from flockmq.spark.pipelines.charts import BARS_MAX, Bars, Lines, Panel, moment, write_report
from flockmq.spark.pipelines.parameters import Kind, Parameter, absolute
from flockmq.spark.pipelines.readings import READING_PARAMETERS, from_parameter, per_topic, read_readings
from flockmq.spark.pipelines.registry import Pipeline
from flockmq.spark.pipelines.summary import Summary, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.types import StructType

    from flockmq.spark.pipelines.run import Job

METRICS_DRAWN_MAX: Final = 6
WINDOWS_DRAWN_MAX: Final = 500
ROWS_SHOWN_MAX: Final = 20

PARAMETERS: Final = (
    *READING_PARAMETERS,
    from_parameter("earliest"),
    Parameter("window", Kind.DURATION, "1m", "Length of a window.", minimum=1),
    Parameter("slide", Kind.DURATION, None, "A window begins this often; without it one begins where the last ends."),
    Parameter("watermark", Kind.DURATION, "10s", "How much later than the newest a reading may come and still count."),
    Parameter("percentiles", Kind.LIST, "50,95,99", "Percentiles to compute, between 0 and 100."),
    Parameter("lake", Kind.PATH, "flockmq-rollup", "Folder of the Parquet table."),
    Parameter(
        "publish", Kind.TEXT, None, "Also publish each window to this MQTT topic; {device} and {metric} are filled in."
    ),
    Parameter("every", Kind.DURATION, "1s", "Least time between two micro-batches."),
    Parameter("report", Kind.PATH, None, "Folder of chart and page; without it _report in the lake's folder, or here."),
)


def run(job: Job) -> Summary:
    """The pipeline."""
    values = job.values
    lake = values.text("lake")
    fractions = fractions_of(values.texts("percentiles"))

    def rolled(second: str = "") -> DataFrame:
        return roll_up(
            read_readings(job, second),
            window_ms=values.integer("window"),
            slide_ms=values.integer("slide") if "slide" in values else values.integer("window"),
            watermark_ms=values.integer("watermark"),
            fractions=fractions,
        )

    writers = {"rollup": to_table(rolled()).writeStream.format("parquet").partitionBy("date").option("path", lake)}
    if "publish" in values:
        messages = to_messages(rolled("-publish"), values.text("publish"))
        writers["rollup-publish"] = messages.writeStream.format("flockmq").options(**job.write_options())
    queries, tallies = [], []
    for name, writer in writers.items():
        queries.append(job.start(writer, name, beside=lake, every_ms=values.integer("every")))
        if job.once:
            tallies += job.follow(queries[-1])  # one after the other: what ends need not compete
    tallies = tallies or job.follow(*queries)

    summary = Summary(f"Rollup of {', '.join(values.texts('topic'))}")
    summary.add("records read", tallies[0].rows)
    summary.add("micro-batches", tallies[0].batches)
    summary.add("late groups dropped", tallies[0].late_rows)
    summary.add("windows still open", open_windows(queries[0].lastProgress))
    if "publish" in values:
        summary.add("published to", values.text("publish"))
    report = values.text("report") or absolute("flockmq-rollup-report" if "://" in lake else f"{lake}/_report")
    show(job.spark.read.schema(table_schema(fractions)).parquet(lake), summary, Path(report), fractions)
    summary.files.append(lake)
    return summary


def roll_up(
    readings: DataFrame, *, window_ms: int, slide_ms: int, watermark_ms: int, fractions: Sequence[float]
) -> DataFrame:
    """Readings (device, metric, value, time) by window: works on streams and, without watermark, on tables."""
    from pyspark.sql import functions as sql

    window = sql.window("time", f"{window_ms} milliseconds", f"{slide_ms} milliseconds")
    grouped = readings.withWatermark("time", f"{watermark_ms} milliseconds").groupBy(window, "device", "metric")
    percentiles = sql.percentile_approx("value", list(fractions), 1_000)
    found = grouped.agg(
        sql.count("value").alias("count"),
        sql.min("value").alias("min"),
        sql.avg("value").alias("mean"),
        sql.max("value").alias("max"),
        percentiles.alias("percentiles"),
    )
    return found.select(
        sql.col("window.start").alias("window_start"),
        sql.col("window.end").alias("window_end"),
        *("device", "metric", "count", "min", "mean", "max"),
        *(sql.col("percentiles")[place].alias(column_of(one)) for place, one in enumerate(fractions)),
    )


def to_table(rolled: DataFrame) -> DataFrame:
    """As it is stored: by date, so that a query of a week reads that week."""
    from pyspark.sql import functions as sql

    return rolled.withColumn("date", sql.to_date("window_start"))


def to_messages(rolled: DataFrame, topic: str) -> DataFrame:
    """As it is published: one JSON object for each window, device and metric."""
    from pyspark.sql import functions as sql

    payload = sql.to_json(sql.struct(*rolled.columns), {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"})
    return rolled.select(per_topic(topic).alias("mqtt_topic"), payload.alias("payload"))


def table_schema(fractions: Sequence[float]) -> StructType:
    """Columns of the table."""
    from pyspark.sql.types import StructType

    percentiles = ", ".join(f"{column_of(one)} double" for one in fractions)
    schema = StructType.fromDDL(
        "window_start timestamp, window_end timestamp, device string, metric string, count bigint, min double, "
        f"mean double, max double, {percentiles}, date date"
    )
    assert isinstance(schema, StructType)
    return schema


def fractions_of(percentiles: Sequence[str]) -> list[float]:
    """``50`` is 0.5; at least one, each between 0 and 100."""
    try:
        found = sorted({float(one.removeprefix("p")) / 100 for one in percentiles})
    except ValueError:
        found = [-1.0]
    if not all(0 <= one <= 1 for one in found):
        raise FlockError(
            f"--percentiles can't be {','.join(percentiles)!r}: give numbers between 0 and 100, like 50,95,99"
        )
    return found


def column_of(fraction: float) -> str:
    """Name of a percentile's column: ``p50``, ``p99_9``."""
    return f"p{round(100 * fraction, 6):g}".replace(".", "_")


def open_windows(progress: Any) -> int:
    """Groups of windows that are not final yet, by a query's last report."""
    operators = (progress or {}).get("stateOperators") or ()
    return sum(int(one.get("numRowsTotal") or 0) for one in operators)


# --- what people see at the end -------------------------------------------------------------------------------------


def show(table: DataFrame, summary: Summary, folder: Path, fractions: Sequence[float]) -> None:
    """Add figures, a table and a chart of what is in the lake now."""
    from pyspark.sql import functions as sql

    totals = table.agg(
        sql.count("*").alias("rows"),
        sql.sum("count").alias("readings"),
        sql.countDistinct("device").alias("devices"),
        sql.countDistinct("metric").alias("metrics"),
        sql.countDistinct("window_start").alias("windows"),
    ).first()
    assert totals is not None
    for label, value in totals.asDict().items():
        summary.add(f"{label} in the table", int(value or 0))
    highest = column_of(fractions[-1])
    summary.tables.append(_largest_groups(table, highest))
    files = write_report(folder, "rollup", summary.title, _panels(table), facts=summary.rows, tables=summary.tables)
    summary.files += [str(file) for file in files]


def _largest_groups(table: DataFrame, highest: str) -> Table:
    from pyspark.sql import functions as sql

    columns = ["device", "metric", "windows", "count", "min", "mean", "max", f"{highest} max"]
    groups = table.groupBy("device", "metric").agg(
        sql.count("*").alias("windows"),
        sql.sum("count").alias("count"),
        sql.min("min").alias("min"),
        (sql.sum(sql.col("mean") * sql.col("count")) / sql.sum("count")).alias("mean"),
        sql.max("max").alias("max"),
        sql.max(highest).alias(f"{highest} max"),
    )
    rows = groups.orderBy(sql.desc("count"), "device", "metric").limit(ROWS_SHOWN_MAX).collect()
    return Table("Devices and metrics", columns, [[row[name] for name in columns] for row in rows])


def _panels(table: DataFrame) -> list[Panel]:
    """A panel for each of the metrics that were read most: mean over devices, between the smallest and the largest."""
    from pyspark.sql import functions as sql

    ranked = table.groupBy("metric").agg(sql.sum("count").alias("n")).orderBy(sql.desc("n"), "metric")
    names = [row["metric"] for row in ranked.limit(METRICS_DRAWN_MAX).collect()]
    by_window = (
        table.where(sql.col("metric").isin(*names) if names else sql.lit(False))
        .groupBy("metric", "window_start")
        .agg(
            sql.unix_millis("window_start").alias("start_ms"),
            sql.min("min").alias("min"),
            (sql.sum(sql.col("mean") * sql.col("count")) / sql.sum("count")).alias("mean"),
            sql.max("max").alias("max"),
            sql.sum("count").alias("count"),
        )
        .orderBy(sql.desc("window_start"))
        .limit(WINDOWS_DRAWN_MAX * METRICS_DRAWN_MAX)
        .collect()
    )
    rows = sorted(by_window, key=lambda row: row["window_start"])
    panels: list[Panel] = [_metric_panel(name, [row for row in rows if row["metric"] == name]) for name in names]
    devices = table.groupBy("device").agg(sql.sum("count").alias("n")).orderBy(sql.desc("n")).limit(BARS_MAX).collect()
    bars = Bars(title="Readings by device", unit="readings", values={row["device"]: row["n"] for row in devices})
    return [*panels, bars]


def _metric_panel(name: str, rows: Sequence[Row]) -> Lines:
    def points(column: str) -> list[tuple[Any, float]]:
        return [(moment(row["start_ms"]), row[column]) for row in rows]

    return Lines(
        title=name,
        unit="",
        series={"mean of all": points("mean")},
        bands={"mean of all": (points("min"), points("max"))},
        band_name="smallest to largest",
    )


PIPELINE: Final = Pipeline(
    name="rollup",
    summary="Count, min, mean, max and percentiles of JSON readings per device, metric and window of event time.",
    parameters=PARAMETERS,
    run=run,
    example=(
        "flockmq pipeline run rollup --topic plant --columns 'plant/{site}/{line}/{machine}/{metric}' "
        "--device site,line,machine --metrics value --window 10s --once"
    ),
)
