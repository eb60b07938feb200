"""`archive` on a real cluster: what is in the table is what is in the topics, record by record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flockmq.errors import FlockError
from flockmq.spark.pipelines import archive
from flockmq.spark.pipelines.folders import open_folder
from flockmq.spark.pipelines.lake import BATCH, open_table
from flockmq.spark.pipelines.lake_parquet import LISTS, latest_list, list_files
from flockmq.spark.pipelines.parameters import make_values
from flockmq.spark.pipelines.run import Job, RunSettings
from spark.nodes import SparkCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flockmq.spark.pipelines.summary import Summary

Row = tuple[Any, ...]
COLUMNS = ("topic", "partition", "offset", "timestamp", "mqtt_topic", "client_id", "payload", "qos", "retain")


def records_of(topic: str, begin: int, end: int) -> list[tuple[str, bytes]]:
    return [(f"{topic}/{number % 7}", b"%d" % number) for number in range(begin, end)]


def run_archive(cluster: SparkCluster, spark: SparkSession, out: Path, **given: str) -> Summary:
    settings = RunSettings(options=cluster.options(), once=True, quiet=True)
    values = make_values(archive.PARAMETERS, {"lake": str(out), **given})
    return archive.run(Job("archive", spark, values, settings))


def in_topics(cluster: SparkCluster, spark: SparkSession, topics: str) -> list[Row]:
    frame = spark.read.format("flockmq").options(**cluster.options()).option("subscribe", topics).load()
    return sorted(tuple(row) for row in frame.select(*COLUMNS).collect())


def in_table(spark: SparkSession, kind: str, out: Path) -> list[Row]:
    frame = open_table(kind, str(out)).read(spark)
    assert frame.filter("date <> to_date(timestamp)").count() == 0
    return sorted(tuple(row) for row in frame.select(*COLUMNS).collect())


@pytest.fixture
def topics(cluster: SparkCluster) -> str:
    first, second = cluster.create_topic(shards=2), cluster.create_topic()
    cluster.publish(first, records_of(first, 0, 300), client_id="press")
    cluster.publish(second, records_of(second, 0, 50))
    return f"{first},{second}"


def test_the_table_is_what_the_topics_are(
    cluster: SparkCluster, spark: SparkSession, topics: str, tmp_path: Path
) -> None:
    out = tmp_path / "lake"
    first, _, _second = topics.partition(",")
    summary = run_archive(cluster, spark, out, topic=topics)
    assert dict(summary.rows)["records"] == 350
    assert in_table(spark, "parquet", out) == in_topics(cluster, spark, topics)

    # A second run goes on where the first one ended, and merging changes files, not rows.
    cluster.publish(first, records_of(first, 300, 400))
    assert dict(run_archive(cluster, spark, out, topic=topics).rows)["records"] == 100
    merged = dict(run_archive(cluster, spark, out, compact="only", keep="0ms").rows)
    assert merged["files after"] == 2
    assert in_table(spark, "parquet", out) == in_topics(cluster, spark, topics)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_so_it_is_in_other_formats(
    cluster: SparkCluster, spark: SparkSession, topics: str, tmp_path: Path, kind: str
) -> None:
    run_archive(cluster, spark, tmp_path, topic=topics, format=kind, filter="+/3,+/5")
    expected = [row for row in in_topics(cluster, spark, topics) if row[4][-2:] in {"/3", "/5"}]
    assert in_table(spark, kind, tmp_path) == expected


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_batch_that_comes_again_is_in_once(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    table = open_table(kind, str(tmp_path))
    rows = spark.sql("SELECT DATE'2026-03-01' AS date, 'a/b 007' AS topic, 0 AS partition, id AS offset FROM range(10)")
    assert table.append(rows, "query-1", 0)
    assert not table.append(rows, "query-1", 0)
    assert table.append(rows.withColumn("offset", rows["offset"] + 10), "query-1", 1)
    table.compact(spark, target=10**6, keep_ms=0)
    assert not table.append(rows, "query-1", 0)
    assert not table.append(rows, "query-1", 1)
    found = table.read(spark)
    assert sorted(row["offset"] for row in found.collect()) == list(range(20))
    assert {row.topic for row in found.collect()} == {"a/b 007"}
    with pytest.raises(FlockError, match="another checkpoint"):
        table.append(rows, "query-2", 0)


def test_plain_spark_reads_whole_batches_and_survives_a_merge(spark: SparkSession, tmp_path: Path) -> None:
    table = open_table("parquet", str(tmp_path))
    rows = spark.sql("SELECT DATE'2026-03-01' AS date, '007' AS topic, 0 AS partition, id AS offset FROM range(10)")
    table.append(rows, "query-1", 0)
    table.append(rows.withColumn("offset", rows["offset"] + 10), "query-1", 1)
    before = spark.read.parquet(str(tmp_path))  # its list of files is made now
    done = table.compact(spark, target=10**6, keep_ms=3_600_000)
    assert (done.files_after, done.removed) == (1, 0)
    assert before.count() == 20
    assert spark.read.parquet(str(tmp_path)).count() == 20
    assert (tmp_path / "date=2026-03-01" / "topic=007").is_dir()
    assert table.compact(spark, target=10**6, keep_ms=0).removed >= 2
    assert spark.read.parquet(str(tmp_path)).count() == 20


@pytest.mark.parametrize("crash", ["before the commit", "while others commit"])
def test_what_an_attempt_left_behind_is_not_read(spark: SparkSession, tmp_path: Path, crash: str) -> None:
    table = open_table("parquet", str(tmp_path))
    rows = spark.sql("SELECT DATE'2026-03-01' AS date, 'a' AS topic, 0 AS partition, id AS offset FROM range(10)")
    table.append(rows, "query-1", 0)
    table.append(rows.withColumn("offset", rows["offset"] + 10), "query-1", 1)
    place = open_folder(str(tmp_path))
    if crash == "before the commit":
        place.remove(f"{LISTS}/1.compact")
    else:  # the number that batch 1 meant to take is a merge of batch 0
        place.move(f"{LISTS}/0.compact", f"{LISTS}/1.compact")
    assert spark.read.parquet(str(tmp_path)).count() == 10
    assert table.append(rows.withColumn("offset", rows["offset"] + 10).limit(9).coalesce(1), "query-1", 1)
    assert spark.read.parquet(str(tmp_path)).count() == 19
    on_disk = {entry.path for entry in place.files("") if entry.path.startswith("date=") and "/." not in entry.path}
    assert on_disk == {entry.path for entry in list_files(place)}
    assert place.read(BATCH) is not None


def test_the_same_behind_a_url(spark: SparkSession, tmp_path: Path) -> None:
    from flockmq.spark.pipelines.folders import HadoopFolder

    place = HadoopFolder(f"file://{tmp_path}/a b", spark)
    assert place.read("x/one") is None
    assert place.create("x/one", "1")
    assert not place.create("x/one", "2")
    place.replace("x/two", "22")
    place.replace("x/two", "33")
    place.move("x/two", "y/date=1/two")
    assert place.read("x/one") == "1"
    assert place.read("y/date=1/two") == "33"
    names = [entry.path for entry in place.files("") if not entry.path.endswith(".crc")]
    assert names == ["x/one", "y/date=1/two"]
    assert place.url("y/date=1/two").endswith("a%20b/y/date=1/two")
    place.remove("y")
    assert place.files("y") == []
    assert latest_list(place) == -1
