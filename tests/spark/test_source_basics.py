"""Reading durable topics as tables."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit

from flockmq.admin.model import MessageProperties, UserProperty
from spark.nodes import SparkCluster

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def read(spark: SparkSession, cluster: SparkCluster, schema: str = "", **options: Any) -> DataFrame:
    reader = spark.read.format("flockmq").options(**{**cluster.options(), **options})
    return (reader.schema(schema) if schema else reader).load()


def test_a_table_has_every_record_once_with_all_of_its_columns(cluster: SparkCluster, spark: SparkSession) -> None:
    topic = cluster.create_topic(shards=4)
    placed = cluster.publish(topic, [(f"{topic}/{n % 7}", b"%d" % n) for n in range(1000)], client_id="me")
    before = datetime.now(UTC).timestamp()
    with cluster.client() as client:
        pair = UserProperty(name="unit", value="C")
        properties = MessageProperties(user_properties=[pair])
        [last] = client.publish(topic, [(f"{topic}/last", b"\x00\xff", properties)])
    after = datetime.now(UTC).timestamp()
    rows = read(spark, cluster, subscribe=topic).collect()
    found = {(row.partition, row.offset): row for row in rows}
    assert len(found) == len(rows) == 1001
    for n, place in enumerate(placed):
        row = found[(place.shard, place.offset)]
        assert (row.topic, row.mqtt_topic, bytes(row.payload)) == (topic, f"{topic}/{n % 7}", b"%d" % n)
        assert (row.client_id, row.key, row.retain, row.headers) == ("me", None, False, None)
    assert last is not None
    row = found[(last.shard, last.offset)]
    assert [(pair.key, pair.value) for pair in row.headers] == [("unit", "C")]
    assert bytes(row.payload) == b"\x00\xff"
    assert int(before * 1000) / 1000 <= row.timestamp.replace(tzinfo=UTC).timestamp() <= after


def test_ranges_filters_templates_and_projection(cluster: SparkCluster, spark: SparkSession) -> None:
    topic = cluster.create_topic(shards=2)
    other = cluster.create_topic(shards=1)
    sites = ["lyon", "oslo"]
    lines = 40  # so many names that no shard gets nothing, whatever the topic is called
    placed = cluster.publish(topic, [(f"{topic}/{sites[n % 2]}/{n % lines}/t", b"%d" % n) for n in range(400)])
    cluster.publish(other, [(f"{other}/x", b"-1")])
    ends = cluster.end_offsets(topic)
    numbers = {(place.shard, place.offset): n for n, place in enumerate(placed)}

    bounds = {"startingOffsets": {topic: {"0": 3, "1": -2}}, "endingOffsets": {topic: {"0": -1, "1": 7}}}
    options = {name: json.dumps(value) for name, value in bounds.items()}
    rows = read(spark, cluster, "offset bigint, partition int", subscribe=topic, **options).collect()
    assert sorted((row.partition, row.offset) for row in rows) == [
        *((0, offset) for offset in range(3, ends[0])),
        *((1, offset) for offset in range(7)),
    ]

    template = topic + "/{site}/{line:int}/+"
    frame = read(
        spark, cluster, subscribe=f"{topic},{other}", topicFilter=f"{topic}/oslo/#,{other}/x", columns=template
    )
    rows = frame.select("topic", "site", "line", "payload").collect()
    expected = [(topic, "oslo", n % lines, b"%d" % n) for n in range(400) if n % 2] + [(other, None, None, b"-1")]
    assert sorted((row.topic, row.site or "", row.line or 0, bytes(row.payload)) for row in rows) == sorted(
        (name, site or "", line or 0, payload) for name, site, line, payload in expected
    )

    assigned = read(spark, cluster, "payload binary, partition int", assign=json.dumps({topic: [1]}))
    assert sorted(int(row.payload) for row in assigned.collect()) == sorted(
        n for (shard, _), n in numbers.items() if shard == 1
    )


def test_moments_and_patterns(cluster: SparkCluster, spark: SparkSession) -> None:
    prefix = cluster.unique("pattern")
    topics = [cluster.create_topic(f"{prefix}{letter}") for letter in "abx"]
    for topic in topics:
        cluster.publish(topic, [(f"{topic}/1", b"old")])
    schema = "topic string, timestamp timestamp, payload binary"
    found = read(spark, cluster, schema, subscribePattern=f"{prefix}[ab]").collect()
    assert sorted(row.topic for row in found) == topics[:2]
    moment = 1 + max(int(row.timestamp.replace(tzinfo=UTC).timestamp() * 1000) for row in found)
    cluster.nodes.wait(lambda: datetime.now(UTC).timestamp() * 1000 > moment, "a later moment")
    cluster.publish(topics[0], [(f"{topics[0]}/1", b"new")])
    late = read(spark, cluster, schema, subscribe=topics[0], startingTimestamp=moment).collect()
    assert [bytes(row.payload) for row in late] == [b"new"]
    early = read(spark, cluster, schema, subscribe=topics[0], endingTimestamp=moment).collect()
    assert [bytes(row.payload) for row in early] == [b"old"]
    times = json.dumps({topics[1]: {"0": moment}})
    with pytest.raises(PySparkException, match="has no record of"):
        read(spark, cluster, schema, subscribe=topics[1], startingOffsetsByTimestamp=times).collect()
    nothing = read(
        spark,
        cluster,
        schema,
        subscribe=topics[1],
        startingOffsetsByTimestamp=times,
        startingOffsetsByTimestampStrategy="latest",
    )
    assert nothing.collect() == []


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_predicates_give_the_same_rows_pushed_down_or_not(
    cluster: SparkCluster, spark: SparkSession, pushed: str
) -> None:
    topic = cluster.create_topic(shards=3)
    placed = cluster.publish(topic, [(f"{topic}/{n % 5}", b"%d" % n) for n in range(300)])
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, pushed)
    try:
        frame = read(spark, cluster, subscribe=topic)
        few = frame.where((col("offset") >= 10) & (col("offset") < 20) & (col("partition") == 1)).collect()
        named = frame.where(col("mqtt_topic") == f"{topic}/3").select("payload").collect()
        small = read(spark, cluster, subscribe=topic, maxRecordsPerPartition=10)
        tasks = small.where((col("offset") < 10) & (col("partition") == 1)).rdd.getNumPartitions()
        later = frame.where(col("timestamp") < lit("2020-01-01").cast("timestamp")).collect()
    finally:
        spark.conf.set(PUSHDOWN, before or "false")
    wanted = [n for n, place in enumerate(placed) if place.shard == 1 and 10 <= place.offset < 20]
    assert sorted(int(row.payload) for row in few) == wanted
    assert sorted(int(row.payload) for row in named) == list(range(3, 300, 5))
    assert later == []
    assert tasks == 1 if pushed == "true" else tasks >= 30


def test_what_is_wrong_is_said_in_one_sentence(cluster: SparkCluster, spark: SparkSession) -> None:
    topic = cluster.create_topic()
    cluster.publish(topic, [(f"{topic}/1", b"1")])
    beyond = json.dumps({topic: {"0": 5}})
    for options, sentence in (
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "missing"}, "missing"),
        ({"startingOffsets": beyond}, "ends at offset 1"),
        ({"server": "http://127.0.0.1:9", "retries": "0"}, "is it running"),
    ):
        with pytest.raises(PySparkException, match=sentence) as caught:
            read(spark, cluster, **{"subscribe": topic, **options}).collect()
        assert "Traceback" not in str(caught.value).split("JVM stacktrace")[0]
    assert read(spark, cluster, subscribe=topic, startingOffsets=beyond, failOnDataLoss="false").collect() == []
