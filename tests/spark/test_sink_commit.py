"""What the driver does with what tasks have staged, without Spark around it: on a real cluster, and said twice."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from flockmq.client.log_client import LogClient
from flockmq.errors import FlockError
from flockmq.spark.sink import FlockStreamWriter, Staged
from spark.nodes import SparkCluster
from spark.written import payloads, written

ROWS = StructType([StructField("mqtt_topic", StringType()), StructField("value", StringType())])


@pytest.fixture
def client(cluster: SparkCluster) -> Iterator[LogClient]:
    with cluster.client() as found:
        yield found


def rows(topic: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
    numbers = range(start, end)
    arrays = [pa.array([f"{topic}/{one % 7}" for one in numbers]), pa.array([f"{one:06}" for one in numbers])]
    yield pa.RecordBatch.from_arrays(arrays, names=["mqtt_topic", "value"])


def writer(cluster: SparkCluster, **options: str) -> FlockStreamWriter:
    return FlockStreamWriter({**cluster.options(), **options}, ROWS, False)


def stage(cluster: SparkCluster, topic: str, batch: int, task: int, start: int, end: int) -> Staged:
    """As a task does it."""
    return writer(cluster)._sink.stage(f"query-{topic}", batch, task, rows(topic, start, end))


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%06d" % one for one in range(start, end)]


def test_nothing_is_seen_before_the_commit_and_all_of_it_once_after_two(
    cluster: SparkCluster, client: LogClient
) -> None:
    topic = cluster.create_topic(shards=4)
    messages = [stage(cluster, topic, 0, task, 100 * task, 100 * task + 100) for task in range(3)]
    assert sum(cluster.end_offsets(topic)) == 0
    writer(cluster).commit([*messages], 0)
    assert payloads(client, topic) == numbers(0, 300)
    writer(cluster).commit([*messages], 0)
    assert payloads(client, topic) == numbers(0, 300)
    found = written(client, topic)
    for name in {one.name for one in found}:
        own = [one.payload for one in found if one.name == name]
        assert own == sorted(own), "tasks are committed in their order"


def test_a_batch_that_is_written_again_is_written_once(cluster: SparkCluster, client: LogClient) -> None:
    topic = cluster.create_topic(shards=2)
    writer(cluster).commit([stage(cluster, topic, 4, 0, 0, 50)], 4)
    writer(cluster).commit([stage(cluster, topic, 4, 0, 0, 50)], 4)
    writer(cluster).commit([stage(cluster, topic, 3, 0, 0, 50)], 3)
    assert payloads(client, topic) == numbers(0, 50)
    writer(cluster).commit([stage(cluster, topic, 5, 0, 50, 60)], 5)
    assert payloads(client, topic) == numbers(0, 60)


def test_of_two_attempts_only_the_one_counts_that_the_driver_names(cluster: SparkCluster, client: LogClient) -> None:
    topic = cluster.create_topic(shards=2)
    stage(cluster, topic, 0, 0, 0, 50)
    stage(cluster, topic, 0, 1, 50, 100)
    chosen = [stage(cluster, topic, 0, 0, 0, 50), None, stage(cluster, topic, 0, 1, 50, 100)]
    writer(cluster).commit([*chosen], 0)
    assert payloads(client, topic) == numbers(0, 100)


def test_what_was_dropped_can_not_be_committed_and_is_written_again(cluster: SparkCluster, client: LogClient) -> None:
    topic = cluster.create_topic(shards=2)
    messages = [stage(cluster, topic, 0, 0, 0, 50)]
    writer(cluster).abort([*messages, None], 0)
    with pytest.raises(FlockError, match="start the query again"):
        writer(cluster).commit([*messages], 0)
    assert sum(cluster.end_offsets(topic)) == 0
    writer(cluster).commit([stage(cluster, topic, 0, 0, 0, 50)], 0)
    assert payloads(client, topic) == numbers(0, 50)


def test_many_chunks_keep_their_order(cluster: SparkCluster, client: LogClient) -> None:
    topic = cluster.create_topic()
    filler = "x" * 1_000
    texts = [f"{one:06}{filler}" for one in range(6_000)]
    batches = [
        pa.RecordBatch.from_arrays(
            [pa.array([f"{topic}/a"] * 2_000), pa.array(texts[start : start + 2_000])], names=["mqtt_topic", "value"]
        )
        for start in range(0, 6_000, 2_000)
    ]
    staged = writer(cluster)._sink.stage("many", 0, 0, iter(batches))
    assert staged.shards[0].part.chunks > 4
    writer(cluster).commit([staged], 0)
    assert [one.payload.decode() for one in written(client, topic)] == texts


def test_a_row_of_several_megabytes(cluster: SparkCluster, client: LogClient) -> None:
    topic = cluster.create_topic()
    arrays = [pa.array([f"{topic}/a"] * 2), pa.array(["x" * 3_900_000, "y"])]
    batch = pa.RecordBatch.from_arrays(arrays, names=["mqtt_topic", "value"])
    writer(cluster).commit([writer(cluster)._sink.stage("large", 0, 0, iter([batch]))], 0)
    assert [len(one.payload) for one in written(client, topic)] == [3_900_000, 1]


def test_a_node_dies_between_stage_and_commit(cluster: SparkCluster, client: LogClient) -> None:
    topic = cluster.create_topic(shards=3)
    messages = [stage(cluster, topic, 0, task, 100 * task, 100 * task + 100) for task in range(2)]
    cluster.kill(0)
    writer(cluster).commit([*messages], 0)
    writer(cluster).commit([stage(cluster, topic, 1, 0, 200, 250)], 1)
    assert payloads(client, topic) == numbers(0, 250)


def test_a_namespace_of_its_own(cluster: SparkCluster) -> None:
    cluster.admin().create_namespace("acme")
    topic = cluster.create_topic("acmeplant", namespace="acme", shards=2)
    sink = writer(cluster, namespace="acme")
    sink.commit([sink._sink.stage("query", 0, 0, rows(topic, 0, 20))], 0)
    with cluster.client(namespace="acme") as client:
        found = written(client, topic)
        assert {one.name for one in found} == {f"$ns/acme/{topic}/{one}" for one in range(7)}
        assert {one.client for one in found} == {"$ns/acme/spark"}
        assert payloads(client, topic) == numbers(0, 20)


def test_nobody_is_there() -> None:
    lonely = FlockStreamWriter({"server": "http://127.0.0.1:9", "token": "x", "retries": "0"}, ROWS, False)
    with pytest.raises(FlockError, match=r"No broker answers at http://127\.0\.0\.1:9 .*is it running\?"):
        lonely._sink.stage("query", 0, 0, rows("plant", 0, 1))


def test_a_wrong_token(cluster: SparkCluster) -> None:
    stranger = FlockStreamWriter({"server": cluster.server, "token": "wrong", "retries": "0"}, ROWS, False)
    with pytest.raises(FlockError, match="token"):
        stranger._sink.stage("query", 0, 0, rows("plant", 0, 1))
