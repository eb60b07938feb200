"""The project of ``flockmq pipeline init`` on a real cluster: two runs, each message in the tables once, results back
in MQTT once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flockmq.spark.pipelines.init import make_project
from spark.nodes import SparkCluster


def measurements(topic: str, first: int, end: int) -> list[tuple[str, bytes]]:
    return [
        (f"{topic}/berlin/line1/press{number % 2}/pressure", b'{"value": %d, "unit": "bar"}' % number)
        for number in range(first, end)
    ]


def set_up(folder: Path, topic: str, results: str) -> None:
    make_project(folder)
    spec = folder / "spark-pipeline.yml"
    changes = {
        "spark.plant.topic: plant": f"spark.plant.topic: {topic}",
        "spark.plant.levels: plant/": f"spark.plant.levels: {topic}/",
        "spark.plant.results: results": f"spark.plant.results: {results}",
        "spark.plant.window: 1 minute": "spark.plant.window: 1 second",
        "spark.plant.lateness: 10 seconds": "spark.plant.lateness: 0 seconds",
    }
    text = spec.read_text("utf-8")
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    spec.write_text(text, "utf-8")


def run(folder: Path, cluster: SparkCluster) -> str:
    where = {"FLOCKMQ_SERVER": cluster.api_urls[0], "FLOCKMQ_TOKEN": cluster.token}
    command = [sys.executable, str(folder / "run.py"), "--quick"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=600, env={**os.environ, **where}, cwd="/"
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    return done.stdout


def table(folder: Path, name: str) -> Any:
    import pandas as pd

    return pd.read_parquet(folder / "tables" / name)


def published(cluster: SparkCluster, topic: str) -> list[dict[str, Any]]:
    with cluster.client() as client:
        return [json.loads(record.payload) for view in client.read(topic, 0, 0) for record in view.records()]


@pytest.mark.timeout(1300)
def test_two_runs_take_every_message_once(cluster: SparkCluster, java: Path, tmp_path: Path) -> None:
    topic, results = cluster.create_topic(shards=2), cluster.create_topic()
    folder = tmp_path / "plant"
    set_up(folder, topic, results)

    cluster.publish(topic, [*measurements(topic, 0, 40), (f"{topic}/berlin/line1/press0/pressure", b"no number")])
    assert "bronze               41 rows" in run(folder, cluster)
    assert len(table(folder, "silver")) == 40

    cluster.publish(topic, measurements(topic, 40, 60))
    run(folder, cluster)
    assert len(table(folder, "bronze")) == 61
    silver = table(folder, "silver")
    assert sorted(silver["value"]) == [float(number) for number in range(60)]
    assert set(silver["machine"]) == {"press0", "press1"}
    assert table(folder, "machines")["count"].sum() == 60

    gold = table(folder, "gold")
    seconds = silver["timestamp"].dt.floor("1s")
    closed = silver[seconds < seconds.max()]
    expected = closed.groupby([closed["timestamp"].dt.floor("1s"), "machine"])["value"].agg(["count", "min", "max"])
    found = gold.set_index(["begin", "machine"])[["count", "min", "max"]].sort_index()
    assert found.to_numpy().tolist() == expected.sort_index().to_numpy().tolist()
    assert gold["count"].sum() >= 40

    told = published(cluster, results)
    assert sorted((one["min"], one["count"]) for one in told) == sorted(zip(gold["min"], gold["count"], strict=True))
