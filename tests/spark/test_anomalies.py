"""Anomalies on a real cluster: the same alerts as plain Python finds, and state that outlives a run."""

from __future__ import annotations

import json
import math
import random
from typing import TYPE_CHECKING, Any

from flockmq.spark.pipelines.anomalies import PIPELINE
from spark.nodes import Record, SparkCluster
from spark.pipeline_jobs import job_of, messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_MS = 1_777_636_800_000
THRESHOLD, WEIGHT, WARM_UP = 5.0, 0.1, 20
DEVICES = 4


def measurements(topic: str, first: int, last: int, spikes: dict[int, float]) -> list[Record]:
    """A steady temperature of each device; ``spikes`` (by tick) are for device 1."""
    source = random.Random(first)
    found = []
    for tick in range(first, last):
        for device in range(DEVICES):
            value = source.gauss(20.0 + device, 0.3)
            if device == 1:
                value = spikes.get(tick, value)
            payload = {"device": f"press{device}", "at": START_MS + 1_000 * tick, "temperature": round(value, 3)}
            found.append((f"{topic}/press{device}", json.dumps(payload).encode()))
    return found


def strange(records: list[Record]) -> list[tuple[str, int, float, float, float]]:
    """Device, time, value, what was expected and the score, by the definition: weighted sums over all values before."""
    by_device: dict[str, list[tuple[int, float]]] = {}
    for _, payload in records:
        fields = json.loads(payload)
        by_device.setdefault(fields["device"], []).append((fields["at"], fields["temperature"]))
    found = []
    for device, values in by_device.items():
        taken: list[float] = []  # values as they count: strange ones at the edge of what is not
        for at, value in sorted(values):
            counted = value
            if taken:
                weights = weights_of(len(taken))
                mean = sum(weight * one for weight, one in zip(weights, taken, strict=True))
                variance = sum(weight * (one - mean) ** 2 for weight, one in zip(weights, taken, strict=True))
                deviation = max(math.sqrt(variance), 0.001 * abs(mean))
                score = (value - mean) / deviation
                if len(taken) >= WARM_UP and abs(score) > THRESHOLD:
                    found.append((device, at, value, mean, score))
                    counted = mean + math.copysign(THRESHOLD * deviation, score)
            taken.append(counted)
    return sorted(found)


def weights_of(count: int) -> list[float]:
    """Of the first, second, ... value after so many: each takes its share of what those before it had."""
    weights: list[float] = []
    for number in range(1, count + 1):
        share = max(WEIGHT, 1 / number)
        weights = [weight * (1 - share) for weight in weights] + [share]
    return weights


def as_tuple(alert: dict[str, Any]) -> tuple[str, str, float, float, float]:
    rounded = (round(alert["value"], 6), round(alert["expected"], 6), round(alert["score"], 4))
    return (alert["device"], alert["time"], *rounded)


def test_alerts_are_those_of_plain_python_and_the_next_run_remembers(
    cluster: SparkCluster, spark: SparkSession, checkpoint: str
) -> None:
    topic, alerts = cluster.create_topic(shards=3), cluster.create_topic()
    parameters = {
        "topic": topic,
        "device": "$.device",
        "time": "at",
        "publish": f"{alerts}/{{device}}",
        "threshold": f"{THRESHOLD}",
        "weight": f"{WEIGHT}",
        "warm_up": f"{WARM_UP}",
        "from": "earliest",
    }
    first = measurements(topic, 0, 60, {10: 22.5, 40: 30.0, 41: 30.0, 50: 5.0})
    cluster.publish(topic, first)
    summary = PIPELINE.run(job_of(PIPELINE, spark, cluster, checkpoint, **parameters)).to_json()
    assert summary["records_read"] == len(first)
    assert summary["devices_and_metrics_known"] == DEVICES
    found = messages(cluster, alerts)
    assert sorted(as_tuple(one) for _, one in found) == expected(first)
    assert {name for name, _ in found} == {f"{alerts}/press1"}
    assert {one["metric"] for _, one in found} == {"temperature"}

    # Not warming up again: a spike right after the restart is found.
    second = measurements(topic, 60, 62, {60: 35.0})
    cluster.publish(topic, second)
    PIPELINE.run(job_of(PIPELINE, spark, cluster, checkpoint, **parameters))
    found = messages(cluster, alerts)
    assert sorted(as_tuple(one) for _, one in found) == expected([*first, *second])
    assert any(one["value"] == 35.0 for _, one in found)


def expected(records: list[Record]) -> list[tuple[str, str, float, float, float]]:
    found = []
    for device, at, value, mean, score in strange(records):
        seconds = (at - START_MS) // 1_000
        time = f"2026-05-01T12:{seconds // 60:02}:{seconds % 60:02}.000Z"
        found.append((device, time, round(value, 6), round(mean, 6), round(score, 4)))
    assert found, "there is something to find"
    return sorted(found)
