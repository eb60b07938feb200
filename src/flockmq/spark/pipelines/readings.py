"""What devices measured, from records whose JSON has no schema: (device, metric, value, time).

```
 topic plant/lyon/line3/press7/temperature, payload {"value": 68.2, "seq": 7, "unit": "celsius", "at": "2026-05-01T..."}
   --columns plant/{site}/{line}/{machine}/{metric} --device site,line,machine --metrics value --time at
   --> device lyon/line3/press7, metric temperature, value 68.2, time 2026-05-01T...
```
Every number in a JSON object is a metric, named by its field; a payload that is just a number is the field ``value``.
Where the topic names the metric (a template column ``metric``), fields stand behind it (``temperature.seq``), but for
``value``. Texts, truth values and nested things are no numbers. It is all Spark SQL: no Python runs per row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flockmq.errors import FlockError
from flockmq.spark.pipelines.parameters import Kind, Parameter

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from flockmq.spark.pipelines.run import Job

VALUE: Final = "value"
_NUMBER: Final = "^(TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|DECIMAL)"
_RECORD_COLUMNS: Final = ("timestamp", "mqtt_topic", "client_id", "payload")

READING_PARAMETERS: Final = (
    Parameter("topic", Kind.LIST, None, "Durable topics to read, separated by commas.", required=True),
    Parameter(
        "filter", Kind.LIST, None, "Only MQTT topic names that match one of these filters, like plant/+/line3/#."
    ),
    Parameter("columns", Kind.TEXT, None, "Parts of topic names as columns, like plant/{site}/{device}/{metric}."),
    Parameter(
        "device",
        Kind.LIST,
        None,
        "What names a device: columns (joined by /), or $.FIELD of the JSON; without it column device, else client_id.",
    ),
    Parameter("metrics", Kind.LIST, None, "Fields that are metrics; without it all that are numbers."),
    Parameter(
        "time",
        Kind.TEXT,
        None,
        "JSON field with the time of a measurement: ISO 8601, or a number since 1970 in s, ms, us or ns.",
    ),
    Parameter("cursor", Kind.TEXT, None, "Name of a cursor that shows the lag of this query and holds retention."),
)
"""What `rollup` and `anomalies` have in common."""


def from_parameter(default: str) -> Parameter:
    """Where a first run begins."""
    return Parameter("from", Kind.CHOICE, default, "Where a first run begins.", choices=("earliest", "latest"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How to find devices, metrics and times in records."""

    device: Sequence[str] = ()
    metrics: Sequence[str] = ()
    time: str = ""


def read_readings(job: Job, second: str = "") -> DataFrame:
    """The stream of readings that a job's parameters describe; ``second`` names another query of the same job."""
    from pyspark.sql.types import StructType

    from flockmq.spark.schema import full_schema
    from flockmq.spark.template import Template

    values = job.values
    template = Template(values.text("columns")) if "columns" in values else None
    named = {*_RECORD_COLUMNS, *(template.names if template else ())}
    # Columns that the query does not ask for are not even decoded.
    schema = StructType([field for field in full_schema(template) if field.name in named])
    options = {
        **job.read_options(),
        "subscribe": ",".join(values.texts("topic")),
        "startingOffsets": values.text("from"),
    }
    if "cursor" in values:
        options["cursor"] = values.text("cursor") + second  # a cursor has one reader
    if "filter" in values:
        options["topicFilter"] = ",".join(values.texts("filter"))
    if template is not None:
        options["columns"] = template.text
    records = job.spark.readStream.format("flockmq").schema(schema).options(**options).load()
    return readings(
        records, Shape(device=values.texts("device"), metrics=values.texts("metrics"), time=values.text("time"))
    )


def readings(records: DataFrame, shape: Shape) -> DataFrame:
    """One row for each number in records (timestamp, mqtt_topic, client_id, payload, and columns of a template)."""
    from pyspark.sql import functions as sql

    text = sql.trim(sql.col("payload").cast("string"))
    as_object = sql.when(text.startswith("{"), text).otherwise(sql.concat(sql.lit(f'{{"{VALUE}":'), text, sql.lit("}")))
    fields = sql.from_json(as_object, "map<string,variant>")
    parsed = records.withColumn("fields", fields).withColumn("time", _time(shape.time))
    opened = parsed.select(
        _device(records, shape.device).alias("device"), "time", *_metric_column(records), sql.explode("fields")
    )
    # A text "12" would pass for a number in a cast: only what was written as a number is one.
    wanted = sql.schema_of_variant("value").rlike(_NUMBER)
    if shape.metrics:
        wanted &= sql.col("key").isin(*shape.metrics)
    elif shape.time:
        wanted &= sql.col("key") != shape.time
    found = opened.where(wanted).select(
        sql.coalesce("device", sql.lit("")).alias("device"),
        _metric(opened).alias("metric"),
        sql.try_variant_get("value", "$", "double").alias("value"),
        "time",
    )
    return found.where(sql.abs("value") < math.inf)  # 1e999 is JSON, too


def _device(records: DataFrame, names: Sequence[str]) -> Column:
    from pyspark.sql import functions as sql

    parts = []
    for name in names or ["device" if "device" in records.columns else "client_id"]:
        if name.startswith("$."):
            parts.append(sql.try_variant_get(sql.col("fields").getItem(name[2:]), "$", "string"))
        elif name in records.columns:
            parts.append(sql.col(name).cast("string"))
        else:
            known = ", ".join(one for one in records.columns if one != "payload")
            raise FlockError(
                f"There is no column {name!r} to name devices by; there are {known}, and $.FIELD of the JSON"
            )
    return sql.concat_ws("/", *parts)


def _time(field: str) -> Column:
    """Time of a measurement; records that don't say it have that at which the broker took them."""
    from pyspark.sql import functions as sql

    if not field:
        return sql.col("timestamp")
    found = sql.col("fields").getItem(field)
    number = sql.try_variant_get(found, "$", "double")
    # Seconds since 1970 have 10 digits for the next 260 years; ms, us and ns have 3, 6 and 9 more.
    digits = sql.floor(sql.log10(sql.greatest(number, sql.lit(1.0))))
    thousands = sql.greatest(sql.lit(0), sql.least(sql.lit(3), sql.floor((digits - 8) / 3)))
    seconds = number / sql.pow(sql.lit(1000.0), thousands)
    from_number = sql.timestamp_micros(sql.round(seconds * 1_000_000).cast("long"))
    from_text = sql.try_to_timestamp(sql.try_variant_get(found, "$", "string"))
    is_number = sql.schema_of_variant(found).rlike(_NUMBER)
    return sql.coalesce(sql.when(is_number, from_number).otherwise(from_text), sql.col("timestamp"))


def _metric_column(records: DataFrame) -> list[str]:
    return ["metric"] if "metric" in records.columns else []


def _metric(opened: DataFrame) -> Column:
    from pyspark.sql import functions as sql

    if "metric" not in opened.columns:
        return sql.col("key")
    return sql.when(sql.col("key") == VALUE, sql.col("metric")).otherwise(sql.concat_ws(".", "metric", "key"))


def per_topic(pattern: str) -> Column:
    """The MQTT topic of a result: a pattern with its ``{device}`` and ``{metric}`` filled in, without wildcards."""
    from pyspark.sql import functions as sql

    name = sql.lit(pattern)
    for part in ("device", "metric"):
        if f"{{{part}}}" in pattern:
            name = sql.replace(name, sql.lit(f"{{{part}}}"), sql.translate(sql.col(part), "+#\0", "___"))
    return name
