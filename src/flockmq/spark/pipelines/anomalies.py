"""Finds values that are strange for their device, and says so in a topic within a micro-batch.

```
 topics --> readings(device, metric, value, time) --> by device and metric: Detector, its state in RocksDB
                                                          `--> alerts --> MQTT, as JSON:
                          {"device": ..., "metric": ..., "value": ..., "expected": ..., "score": ..., "time": ...}
```
Each value is compared with the weighted mean and deviation of those before it. Alerts are exactly once, as the sink is;
micro-batches follow each other without a pause, so that an alert leaves with the one that holds the value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from flockmq.spark.pipelines.baseline import Rule
from flockmq.spark.pipelines.parameters import Kind, Parameter
from flockmq.spark.pipelines.readings import READING_PARAMETERS, from_parameter, per_topic, read_readings
from flockmq.spark.pipelines.registry import Pipeline
from flockmq.spark.pipelines.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from flockmq.spark.pipelines.run import Job

_CHANGELOG: Final = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"

PARAMETERS: Final = (
    *READING_PARAMETERS,
    Parameter(
        "publish",
        Kind.TEXT,
        None,
        "MQTT topic of the alerts; {device} and {metric} are filled in. A durable topic must capture it.",
        required=True,
    ),
    Parameter("threshold", Kind.NUMBER, "6", "How many standard deviations off a value is strange.", minimum=0),
    Parameter("weight", Kind.NUMBER, "0.05", "Weight of the newest value in what is usual.", minimum=0),
    Parameter("warm-up", Kind.INTEGER, "30", "Values of each device and metric that are only learned from.", minimum=2),
    Parameter("least-deviation", Kind.NUMBER, "0.001", "Least deviation, as a part of the mean.", minimum=0),
    Parameter(
        "parallel",
        Kind.INTEGER,
        "1",
        "Tasks that share the devices; one is fastest for some thousand. The first run on a checkpoint decides.",
        minimum=1,
    ),
    from_parameter("latest"),
)


def run(job: Job) -> Summary:
    """The pipeline."""
    values = job.values
    rule = Rule(
        threshold=values.number("threshold"),
        weight=min(1.0, values.number("weight")),
        warm_up=values.integer("warm-up"),
        least_deviation=values.number("least-deviation"),
    )
    prepare(job.spark, values.integer("parallel"))
    alerts = detect(read_readings(job), rule)
    query = job.publish(to_messages(alerts, values.text("publish")), "anomalies")
    [tally] = job.follow(query)

    summary = Summary(f"Anomalies in {', '.join(values.texts('topic'))}")
    summary.add("records read", tally.rows)
    summary.add("micro-batches", tally.batches)
    summary.add("median trigger ms", tally.trigger_ms_median)
    summary.add("devices and metrics known", known_groups(query.lastProgress))
    summary.add("alerts go to", values.text("publish"))
    return summary


def prepare(spark: SparkSession, parallel: int) -> None:
    """Commit what changed in the state instead of all of it: the larger part of a small micro-batch otherwise."""
    spark.conf.set(_CHANGELOG, "true")
    spark.conf.set("spark.sql.shuffle.partitions", str(parallel))


def detect(readings: DataFrame, rule: Rule) -> DataFrame:
    """Alerts in a stream of readings (device, metric, value, time)."""
    from flockmq.spark.pipelines.detector import ALERT, Detector

    groups = readings.groupBy("device", "metric")
    return groups.transformWithState(Detector(rule), ALERT, outputMode="append", timeMode="None")


def to_messages(alerts: DataFrame, topic: str) -> DataFrame:
    """As they are published."""
    from pyspark.sql import functions as sql

    payload = sql.to_json(sql.struct(*alerts.columns), {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"})
    return alerts.select(per_topic(topic).alias("mqtt_topic"), payload.alias("payload"))


def known_groups(progress: Any) -> int:
    """How many baselines there are, by a query's last report."""
    operators = (progress or {}).get("stateOperators") or ()
    return sum(int(one.get("numRowsTotal") or 0) for one in operators)


PIPELINE: Final = Pipeline(
    name="anomalies",
    summary="Publish an alert when a device's value is far from what is usual for it.",
    parameters=PARAMETERS,
    run=run,
    example=(
        "flockmq pipeline run anomalies --topic plant --columns 'plant/{site}/{line}/{machine}/{metric}' "
        "--device site,line,machine --metrics value --publish 'alerts/{device}'"
    ),
    is_prompt=True,
)
