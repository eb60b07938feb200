"""``df.write.format("flockmq")``: rows become records and MQTT messages, all of them or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from flockmq.client.log_client import LogClient
from spark.nodes import SparkCluster
from spark.written import listening, payloads, written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def client(cluster: SparkCluster) -> Iterator[LogClient]:
    with cluster.client() as found:
        yield found


def write(cluster: SparkCluster, frame: DataFrame, **options: str) -> None:
    frame.write.format("flockmq").options(**cluster.options(), **options).mode("append").save()


def frame_of(spark: SparkSession, rows: int, tasks: int = 3) -> DataFrame:
    return spark.range(0, rows, 1, tasks).selectExpr("format_string('%06d', id) AS value", "id")


def numbers(count: int) -> list[bytes]:
    return [b"%06d" % one for one in range(count)]


def test_a_fixed_topic(cluster: SparkCluster, spark: SparkSession, client: LogClient) -> None:
    topic = cluster.create_topic()
    write(cluster, frame_of(spark, 25_000).select("value"), topic=f"{topic}/all", clientId="etl")
    found = written(client, topic)
    assert [one.payload for one in found] == numbers(25_000), "tasks in their order"
    assert {(one.name, one.client, one.flags) for one in found} == {(f"{topic}/all", "etl", 1)}


def test_topics_of_rows_in_several_durable_topics(
    cluster: SparkCluster, spark: SparkSession, client: LogClient
) -> None:
    first, second = cluster.create_topic(shards=4), cluster.create_topic(shards=2, key="customer")
    name = f"concat(if(id % 2 = 0, '{first}', '{second}'), '/', id % 11) AS mqtt_topic"
    headers = "array(struct('customer' AS key, CAST(id % 5 AS string) AS value)) AS headers"
    frame = frame_of(spark, 5_000).selectExpr("CAST(value AS binary) AS payload", name, headers)
    write(cluster, frame)
    assert payloads(client, first) == numbers(5_000)[::2]
    assert payloads(client, second) == numbers(5_000)[1::2]
    shards: dict[bytes | None, set[int]] = {}
    for one in written(client, second):
        shards.setdefault(one.key, set()).add(one.shard)
        assert one.key == b"%d" % (int(one.payload) % 5)
    assert all(len(found) == 1 for found in shards.values()), "a customer's rows are in one shard"


def test_subscribers_get_the_rows_with_their_properties(cluster: SparkCluster, spark: SparkSession) -> None:
    topic = cluster.create_topic(shards=2)
    headers = "array(struct('unit' AS key, 'C' AS value), struct('id' AS key, CAST(id AS string) AS value))"
    frame = frame_of(spark, 40).selectExpr(
        "value",
        f"concat('{topic}/', id % 4) AS topic",
        "CAST(id % 3 AS int) AS qos",
        "id = 7 AS retain",
        f"if(id % 2 = 0, {headers}, NULL) AS headers",
    )
    with listening(cluster.mqtt_ports[1], f"{topic}/#") as listener:
        write(cluster, frame)
        messages = listener.wait_for(40)
    assert sorted(one.payload for one in messages) == numbers(40)
    for one in messages:
        number = int(one.payload)
        assert one.topic == f"{topic}/{number % 4}"
        assert one.qos == min(number % 3, 1)
        user = getattr(one.properties, "UserProperty", [])
        assert user == ([("unit", "C"), ("id", str(number))] if number % 2 == 0 else [])
    with listening(cluster.mqtt_ports[2], f"{topic}/#") as late:
        (kept,) = late.wait_for(1)
        assert (kept.payload, kept.retain) == (b"000007", True)


def test_what_was_read_can_be_written(cluster: SparkCluster, spark: SparkSession, client: LogClient) -> None:
    first, second = cluster.create_topic(shards=3), cluster.create_topic(shards=2)
    cluster.publish(first, [(f"{first}/{number % 5}", b"%06d" % number) for number in range(500)])
    frame = spark.read.format("flockmq").options(**cluster.options()).option("subscribe", first).load()
    write(cluster, frame, topic=f"{second}/copy")
    assert payloads(client, second) == numbers(500)


def test_a_write_with_a_name_is_done_once(cluster: SparkCluster, spark: SparkSession, client: LogClient) -> None:
    topic = cluster.create_topic(shards=2)
    for batch in ("1", "1", "2", "1"):
        write(cluster, frame_of(spark, 10).select("value"), topic=f"{topic}/x", query="nightly", batch=batch)
    assert payloads(client, topic) == sorted(2 * numbers(10))


def test_nothing_is_written_when_a_task_fails(cluster: SparkCluster, spark: SparkSession) -> None:
    topic = cluster.create_topic(shards=2)
    value = "if(id = 2999, raise_error('no such reading'), value) AS value"
    with pytest.raises(Exception, match="no such reading"):
        write(cluster, frame_of(spark, 3_000).selectExpr(value), topic=f"{topic}/x")
    assert sum(cluster.end_offsets(topic)) == 0


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        (["value"], {"topic": "nobody/keeps/this"}, "flockmq topic create NAME --filter 'nobody/keeps/this'"),
        (["value"], {"topicc": "x"}, "The sink has no option 'topicc'; did you mean topic\\?"),
        (["value"], {}, "set option topic, or add a column mqtt_topic"),
        (["id AS key"], {"topic": "x"}, "The rows have no payload"),
        (["value", "id"], {"topic": "x"}, "does not know column 'id'"),
        (["id AS value"], {"topic": "x"}, "is of type binary or string, not bigint"),
    ],
)
def test_what_is_wrong_is_said(
    cluster: SparkCluster, spark: SparkSession, columns: list[str], options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(Exception, match=sentence):
        write(cluster, frame_of(spark, 3).selectExpr(*columns), **options)


def test_logs_are_not_overwritten(cluster: SparkCluster, spark: SparkSession) -> None:
    writer = frame_of(spark, 3).select("value").write.format("flockmq").options(**cluster.options())
    with pytest.raises(Exception, match=r"\.mode\('append'\)"):
        writer.option("topic", "x").mode("overwrite").save()


def test_a_cluster_that_is_away(spark: SparkSession) -> None:
    writer = frame_of(spark, 3).select("value").write.format("flockmq").mode("append")
    with pytest.raises(Exception, match=r"No broker answers at http://127\.0\.0\.1:9 "):
        writer.options(server="http://127.0.0.1:9", token="x", retries="0", topic="x").save()
