"""`replay` on a real cluster: what is played is what was there, in order, once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flockmq.errors import FlockError
from flockmq.spark.pipelines import archive, replay
from flockmq.spark.pipelines.parameters import make_values
from flockmq.spark.pipelines.run import Job, RunSettings
from spark.nodes import SparkCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flockmq.spark.pipelines.summary import Cell


def run_replay(
    cluster: SparkCluster, spark: SparkSession, checkpoint: str, given: dict[str, str], *, for_s: float | None = None
) -> dict[str, Cell]:
    settings = RunSettings(options=cluster.options(), checkpoint=checkpoint, for_s=for_s, quiet=True)
    job = Job("replay", spark, make_values(replay.PARAMETERS, given), settings)
    return dict(replay.run(job).rows)


def payloads(cluster: SparkCluster, spark: SparkSession, topic: str, prefix: str = "") -> dict[str, list[bytes]]:
    """By MQTT topic name, in the order of the log."""
    frame = spark.read.format("flockmq").options(**cluster.options()).option("subscribe", topic).load()
    found: dict[str, list[bytes]] = {}
    rows: list[Any] = sorted(frame.select("partition", "offset", "mqtt_topic", "payload").collect())
    for row in rows:
        found.setdefault(row.mqtt_topic.removeprefix(prefix), []).append(bytes(row.payload))
    return found


@pytest.fixture
def topic(cluster: SparkCluster) -> str:
    name = cluster.create_topic(shards=2)
    for begin in range(0, 300, 50):
        cluster.publish(name, [(f"{name}/{number % 7}", b"%d" % number) for number in range(begin, begin + 50)])
    return name


def target_of(cluster: SparkCluster, prefix: str) -> str:
    return cluster.create_topic(shards=3, filters=[f"{prefix}/#"])


def test_a_topic_is_played_again_under_another_name(
    cluster: SparkCluster, spark: SparkSession, topic: str, checkpoint: str
) -> None:
    prefix = cluster.unique("again")
    target = target_of(cluster, prefix)
    done = run_replay(cluster, spark, checkpoint, {"topic": topic, "to": prefix, "speed": "max"})
    assert done["records"] == 300
    assert done["complete"]
    assert payloads(cluster, spark, target, f"{prefix}/") == payloads(cluster, spark, topic)


def test_a_replay_that_was_stopped_and_killed_goes_on(
    cluster: SparkCluster,
    spark: SparkSession,
    topic: str,
    checkpoint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prefix = cluster.unique("again")
    target = target_of(cluster, prefix)
    monkeypatch.setattr(replay, "SLICE_RECORDS", 100)
    kept = replay.Plan.save

    def killed_after_a_slice(plan: replay.Plan, folder: Any) -> None:
        if plan.number == 2:
            raise KeyboardInterrupt  # slice 1 is published, and nobody wrote that down
        kept(plan, folder)

    given = {"topic": topic, "to": prefix, "speed": "max"}
    with monkeypatch.context() as context:
        context.setattr(replay.Plan, "save", killed_after_a_slice)
        with pytest.raises(KeyboardInterrupt):
            run_replay(cluster, spark, checkpoint, given)
    half = sum(cluster.end_offsets(target))
    assert 0 < half < 300
    stopped = run_replay(cluster, spark, checkpoint, given, for_s=0.0)
    assert not stopped["complete"]
    done = run_replay(cluster, spark, checkpoint, given)
    assert done["complete"]
    assert done["records"] == 300
    assert payloads(cluster, spark, target, f"{prefix}/") == payloads(cluster, spark, topic)


def test_an_archived_table_is_played_at_its_pace(
    cluster: SparkCluster, spark: SparkSession, topic: str, checkpoint: str, tmp_path: Path
) -> None:
    settings = RunSettings(options=cluster.options(), once=True, quiet=True)
    values = make_values(archive.PARAMETERS, {"topic": topic, "lake": str(tmp_path / "lake")})
    archive.run(Job("archive", spark, values, settings))
    prefix = cluster.unique("again")
    target = target_of(cluster, prefix)
    done = run_replay(cluster, spark, checkpoint, {"lake": str(tmp_path / "lake"), "to": prefix})
    assert done["records"] == 300
    # As long as it took then: only that is sure on a busy machine.
    assert done["seconds"] >= done["tape seconds"] - 0.1  # type: ignore[operator]
    assert payloads(cluster, spark, target, f"{prefix}/") == payloads(cluster, spark, topic)


def test_what_can_not_be_played_is_told(
    cluster: SparkCluster, spark: SparkSession, topic: str, checkpoint: str
) -> None:
    with pytest.raises(FlockError, match="one of them"):
        run_replay(cluster, spark, checkpoint, {})
    with pytest.raises(FlockError, match="--from can't be"):
        run_replay(cluster, spark, checkpoint, {"topic": topic, "from": "soon"})
    assert run_replay(cluster, spark, checkpoint, {"topic": topic, "until": "1d"})["records"] == 0
