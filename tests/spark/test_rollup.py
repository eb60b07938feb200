"""The rollup on a real cluster, against the same figures from plain Python."""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flockmq.errors import FlockError
from flockmq.spark.pipelines.rollup import PIPELINE, column_of, fractions_of
from spark.nodes import Record, SparkCluster
from spark.pipeline_jobs import job_of, messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_MS = 1_777_636_800_000
WINDOW_MS = 10_000
Figures = dict[tuple[int, str, str], tuple[int, float, float, float, float, float]]


def measurements(topic: str, first_s: int, last_s: int, seed: int) -> list[Record]:
    """Two numbers, and other things, from each of five devices, twice a second, out of order."""
    source = random.Random(seed)
    found = []
    for tick in range(2 * first_s, 2 * last_s):
        for device in range(5):
            payload = {
                "at": START_MS + 500 * tick + source.randrange(400),
                "temperature": round(source.gauss(70, 3), 3),
                "pieces": source.randrange(100),
                "unit": "celsius",
                "ok": True,
            }
            found.append((f"{topic}/line{device % 2}/press{device}", json.dumps(payload).encode()))
    source.shuffle(found)
    return found


def figures(records: list[Record]) -> Figures:
    """What should come out, by window, device and metric."""
    groups: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    for name, payload in records:
        fields = json.loads(payload)
        window = fields["at"] // WINDOW_MS * WINDOW_MS
        for metric in ("temperature", "pieces"):
            groups[(window, name.split("/")[2], metric)].append(float(fields[metric]))
    found: Figures = {}
    for key, values in groups.items():
        values.sort()
        median, highest = (values[math.ceil(part * len(values)) - 1] for part in (0.5, 0.95))
        found[key] = (len(values), values[0], sum(values) / len(values), values[-1], median, highest)
    return found


def table(spark: SparkSession, lake: Path) -> Figures:
    from pyspark.sql import functions as sql

    rows = spark.read.parquet(str(lake)).withColumn("start_ms", sql.unix_millis("window_start")).collect()
    found: Figures = {
        (row.start_ms, row.device, row.metric): (row["count"], row.min, row.mean, row.max, row.p50, row.p95)
        for row in rows
    }
    assert len(found) == len(rows), "each window is written once"
    return found


def as_figures(message: dict[str, Any]) -> tuple[int, float, float, float, float, float]:
    return (message["count"], message["min"], message["mean"], message["max"], message["p50"], message["p95"])


def key_of(message: dict[str, Any]) -> tuple[int, str, str]:
    start = datetime.fromisoformat(message["window_start"])
    return (round(start.timestamp() * 1_000), message["device"], message["metric"])


def same(found: Figures, expected: Figures) -> None:
    """Sums of floats may differ by the order of their parts."""
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert found[key] == pytest.approx(values), key


def test_windows_are_what_plain_python_says_and_late_readings_are_counted(
    cluster: SparkCluster, spark: SparkSession, checkpoint: str, tmp_path: Path
) -> None:
    topic, results = cluster.create_topic(shards=3), cluster.create_topic()
    lake = tmp_path / "lake"
    parameters = {
        "topic": topic,
        "columns": "+/{line}/{device}",
        "metrics": "temperature,pieces",
        "time": "at",
        "window": "10s",
        "watermark": "5s",
        "percentiles": "95,50",
        "lake": str(lake),
        "publish": f"{results}/{{device}}",
    }
    first, second = measurements(topic, 0, 40, seed=1), measurements(topic, 40, 80, seed=2)
    cluster.publish(topic, first)
    summary = PIPELINE.run(job_of(PIPELINE, spark, cluster, checkpoint, **parameters)).to_json()
    assert summary["records_read"] == len(first)
    assert summary["late_groups_dropped"] == 0
    expected = figures([*first, *second])
    found = table(spark, lake)
    same(found, {key: expected[key] for key in expected if key[0] < START_MS + 30_000})

    late = measurements(topic, 0, 1, seed=3)[:4]
    cluster.publish(topic, [*second, *late])
    summary = PIPELINE.run(job_of(PIPELINE, spark, cluster, checkpoint, **parameters)).to_json()
    assert summary["records_read"] == len(second) + len(late)
    groups = {name for name, _ in late}
    assert summary["late_groups_dropped"] == 2 * len(groups)
    assert summary["windows_still_open"] == 10, "five devices with two metrics in the last window"
    found = table(spark, lake)
    final = {key: expected[key] for key in expected if key[0] < START_MS + 70_000}
    same(found, final)

    published = messages(cluster, results)
    assert {name for name, _ in published} == {f"{results}/press{device}" for device in range(5)}
    assert len(published) == len(final)
    same({key_of(one): as_figures(one) for _, one in published}, final)

    assert summary["readings_in_the_table"] == sum(one[0] for one in final.values())
    tables = summary["tables"]
    assert isinstance(tables, dict)
    assert len(tables["devices_and_metrics"]) == 10
    assert (lake / "_report" / "rollup.png").read_bytes().startswith(b"\x89PNG")
    assert "press3" in (lake / "_report" / "rollup.html").read_text(encoding="utf-8")


def test_a_topic_without_readings_gives_an_empty_table_and_a_report(
    cluster: SparkCluster, spark: SparkSession, checkpoint: str, tmp_path: Path
) -> None:
    topic = cluster.create_topic()
    cluster.publish(topic, [(f"{topic}/a", b"hello"), (f"{topic}/a", b'{"state": "online"}')])
    job = job_of(PIPELINE, spark, cluster, checkpoint, topic=topic, lake=str(tmp_path / "lake"))
    summary = PIPELINE.run(job)
    assert summary.to_json()["readings_in_the_table"] == 0
    assert (tmp_path / "lake" / "_report" / "rollup.png").is_file()


def test_percentiles_are_numbers_between_0_and_100() -> None:
    assert [column_of(one) for one in fractions_of(["99.9", "p50", "50"])] == ["p50", "p99_9"]
    for wrong in ("median", "-1", "101", "nan"):
        with pytest.raises(FlockError, match="between 0 and 100"):
            fractions_of([wrong])
