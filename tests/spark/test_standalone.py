"""`archive` on a real Spark cluster: a standalone master and two workers, all on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark.nodes import SparkCluster
from spark.standalone import Standalone, quick_options

if TYPE_CHECKING:
    import pyarrow as pa

RUN_S_MAX = 300
SMALL = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.ui.enabled": "false",
}


@pytest.mark.timeout(RUN_S_MAX + 100)
def test_archive_runs_on_a_master_with_two_workers(cluster: SparkCluster, tmp_path: Path, java: Path) -> None:
    topic = cluster.create_topic(shards=4)
    records = [(f"{topic}/{number % 13}", b"%d" % number) for number in range(400)]
    cluster.publish(topic, records)
    out = tmp_path / "lake"
    with Standalone(tmp_path, java) as spark_cluster:
        command = [sys.executable, "-m", "flockmq", "pipeline", "run", "archive", "--topic", topic, "--lake", str(out)]
        options = ["--server", cluster.server, "--token", cluster.token, "--once", "--json"]
        quick = {f"spark.{part}.extraJavaOptions": quick_options(java) for part in ("driver", "executor")}
        settings = [word for key, value in {**SMALL, **quick}.items() for word in ("--conf", f"{key}={value}")]
        done = subprocess.run(
            [*command, *options, "--master", spark_cluster.url, *settings],
            capture_output=True,
            text=True,
            env=spark_cluster.environment,
            timeout=RUN_S_MAX,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["records"] == len(records)
        assert [len(spark_cluster.executors(number)) for number in (0, 1)] == [1, 1]
    assert sorted(table_of(out)) == sorted(records)


def table_of(out: Path) -> list[tuple[str, bytes]]:
    """What the files say, without Spark."""
    import pyarrow.parquet as pq

    tables: list[pa.Table] = [pq.ParquetFile(path).read(["mqtt_topic", "payload"]) for path in out.glob("date=*/*/*")]
    return [(row["mqtt_topic"], row["payload"]) for table in tables for row in table.to_pylist()]
