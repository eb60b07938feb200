"""What counts as a reading of a device, in all the shapes that payloads have."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from flockmq.errors import FlockError
from flockmq.spark.pipelines.readings import Shape, per_topic, readings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CAME = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
CAME_MS = 1_777_636_800_000
PLAIN = "timestamp timestamp, mqtt_topic string, client_id string, payload binary"


def records(spark: SparkSession, *payloads: Any, client: str = "press7") -> DataFrame:
    written = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in payloads]
    return spark.createDataFrame([(CAME, "plant/press7", client, bytearray(one)) for one in written], PLAIN)


def found(frame: DataFrame) -> list[tuple[str, str, float]]:
    return sorted((row.device, row.metric, row.value) for row in frame.collect())


def test_numbers_are_metrics_and_nothing_else_is(spark: SparkSession) -> None:
    payload = {"a": 1, "b": 2.5, "c": "12", "d": True, "e": {"x": 1}, "f": [1], "g": None, "h": -1e3, "i": 2**70}
    frame = records(spark, payload, b" 17.5\n", b"nonsense", b"", b"\xff\xfe", b"[1, 2]", b'"7"', b"{", b'{"z": 1e999}')
    assert found(readings(frame, Shape())) == [
        ("press7", "a", 1.0),
        ("press7", "b", 2.5),
        ("press7", "h", -1000.0),
        ("press7", "i", float(2**70)),
        ("press7", "value", 17.5),
    ]


def test_topics_name_devices_and_metrics(spark: SparkSession) -> None:
    from pyspark.sql import functions as sql

    frame = records(spark, {"value": 68.2, "seq": 7}).select(
        "*", sql.lit("lyon").alias("site"), sql.lit(3).alias("line"), sql.lit("temperature").alias("metric")
    )
    assert found(readings(frame, Shape(device=("site", "line")))) == [
        ("lyon/3", "temperature", 68.2),
        ("lyon/3", "temperature.seq", 7.0),
    ]
    assert found(readings(frame, Shape(device=("site",), metrics=("value",)))) == [("lyon", "temperature", 68.2)]
    with_device = frame.withColumn("device", sql.lit("press7"))
    assert {one[0] for one in found(readings(with_device, Shape()))} == {"press7"}


def test_the_json_names_devices(spark: SparkSession) -> None:
    frame = records(spark, {"id": "x1", "v": 1}, {"id": 7, "v": 2}, {"v": 3})
    assert found(readings(frame, Shape(device=("$.id",), metrics=("v",)))) == [
        ("", "v", 3.0),
        ("7", "v", 2.0),
        ("x1", "v", 1.0),
    ]


def test_a_column_that_is_not_there_is_refused(spark: SparkSession) -> None:
    with pytest.raises(FlockError, match=r"no column 'site'.*client_id"):
        readings(records(spark, 1), Shape(device=("site",)))


def test_times_in_all_usual_ways(spark: SparkSession) -> None:
    from pyspark.sql import functions as sql

    times: dict[Any, int] = {
        "2026-05-01T12:00:01Z": CAME_MS + 1_000,
        "2026-05-01T14:00:01.250+02:00": CAME_MS + 1_250,
        1_777_636_801: CAME_MS + 1_000,
        1_777_636_801.5: CAME_MS + 1_500,
        1_777_636_801_250: CAME_MS + 1_250,
        1_777_636_801_250_000: CAME_MS + 1_250,
        1_777_636_801_250_000_000: CAME_MS + 1_250,
        "yesterday": CAME_MS,
        None: CAME_MS,
    }
    frame = records(spark, *({"value": number, "at": time} for number, time in enumerate(times)))
    rows = readings(frame, Shape(time="at")).select("metric", "value", sql.unix_millis("time").alias("ms")).collect()
    assert {row.metric for row in rows} == {"value"}
    assert [row.ms for row in sorted(rows, key=lambda row: row.value)] == list(times.values())


def test_results_have_topics_without_wildcards(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("lyon/+/#", "t")], "device string, metric string")
    [row] = frame.select(per_topic("r/{device}/{metric}").alias("a"), per_topic("all").alias("b")).collect()
    assert (row.a, row.b) == ("r/lyon/_/_/t", "all")
