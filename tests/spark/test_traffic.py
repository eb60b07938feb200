"""Traffic on a real cluster: every figure against what was published, and advice that the cluster follows."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from flockmq.cluster.advice import Advice
from flockmq.errors import FlockError
from flockmq.spark.pipelines.traffic import PIPELINE
from spark.nodes import Record, SparkCluster
from spark.pipeline_jobs import job_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARDS = 6


def rows_of(summary: dict[str, Any], table: str) -> list[dict[str, Any]]:
    found = summary["tables"][table]
    assert isinstance(found, list)
    return found


def test_all_is_counted_and_the_advice_evens_it_out(
    cluster: SparkCluster, spark: SparkSession, checkpoint: str, tmp_path: Path
) -> None:
    topic = cluster.create_topic(shards=SHARDS)
    published: dict[str, list[Record]] = {
        "big": [(f"{topic}/camera{number % 2}", bytes(2_000)) for number in range(200)],
        "small": [(f"{topic}/sensor{number % 30}", b"%d" % number) for number in range(300)],
    }
    by_shard: Counter[int] = Counter()
    bytes_by_shard: Counter[int] = Counter()
    for client, records in published.items():
        for record, place in zip(records, cluster.publish(topic, records, client_id=client), strict=True):
            by_shard[place.shard] += 1
            bytes_by_shard[place.shard] += len(record[0]) + len(record[1])

    job = job_of(PIPELINE, spark, cluster, checkpoint, topic=topic, last="10m", report=str(tmp_path))
    summary: dict[str, Any] = json.loads(json.dumps(PIPELINE.run(job).to_json()))
    assert summary["messages"] == 500
    assert summary["bytes"] == sum(bytes_by_shard.values())
    partitions = {row["shard"]: row for row in rows_of(summary, "partitions")}
    assert {shard: row["messages"] for shard, row in partitions.items() if row["messages"]} == dict(by_shard)
    assert sum(row["messages"] for row in rows_of(summary, "nodes")) == 500
    clients = {row["client"]: row for row in rows_of(summary, "clients")}
    assert {name: row["messages"] for name, row in clients.items()} == {"big": 200, "small": 300}
    names = rows_of(summary, "topic_names")
    assert [row["topic_name"] for row in names[:2]] == [f"{topic}/camera0", f"{topic}/camera1"]
    assert [row["messages"] for row in names[:2]] == [100, 100]
    camera = 100 * (len(f"{topic}/camera0") + 2_000)
    assert names[0]["of_bytes"] == round(100 * camera / summary["bytes"], 1)
    assert (tmp_path / "traffic.png").read_bytes().startswith(b"\x89PNG")
    assert "camera0" in (tmp_path / "traffic.html").read_text(encoding="utf-8")

    advice = msgspec.json.decode((tmp_path / "advice.json").read_bytes(), type=Advice)
    assert {one.shard for one in advice.leaders} == set(range(SHARDS))
    leaders = {one.shard: one.to_node for one in advice.leaders}
    by_node: Counter[str] = Counter()
    for shard, node in leaders.items():
        by_node[node] += bytes_by_shard[shard]
    assert max(by_node.values()) <= max(bytes_by_shard.values()) + camera // 50, "no node has two large partitions"
    admin = cluster.admin()
    cluster.nodes.wait_settled()  # what moves takes no advice
    assert admin.apply_advice(advice).refused == 0
    cluster.nodes.wait(
        lambda: {one.shard: one.leader for one in admin.topic_partitions(topic)} == leaders, "leaders as advised"
    )


def test_a_time_without_messages_is_empty(
    cluster: SparkCluster, spark: SparkSession, checkpoint: str, tmp_path: Path
) -> None:
    topic = cluster.create_topic()
    cluster.publish(topic, [(f"{topic}/a", b"1")])
    moments = {"from": "2020-01-01T00:00:00Z", "to": "2020-01-01T01:00:00Z"}
    job = job_of(PIPELINE, spark, cluster, checkpoint, topic=topic, report=str(tmp_path), **moments)
    summary = PIPELINE.run(job).to_json()
    assert summary["messages"] == 0
    assert (tmp_path / "traffic.png").is_file()


def test_times_that_make_no_sense_are_refused(
    cluster: SparkCluster, spark: SparkSession, checkpoint: str, tmp_path: Path
) -> None:
    def run(**moments: str) -> None:
        PIPELINE.run(job_of(PIPELINE, spark, cluster, checkpoint, report=str(tmp_path), **moments))

    with pytest.raises(FlockError, match="--from is not before --to"):
        run(**{"from": "2026-05-02T00:00:00Z", "to": "2026-05-01T00:00:00Z"})
    with pytest.raises(FlockError, match="--to can't be 'tomorrow'"):
        run(to="tomorrow")
