"""Following durable topics as streams."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.nodes import SparkCluster

SCHEMA = "topic string, partition int, offset bigint, payload binary"


class Follower:
    """A query that can be started again and again, and all that it has got so far."""

    def __init__(self, spark: SparkSession, cluster: SparkCluster, folder: Path, **options: Any) -> None:
        self.options = {**cluster.options(), "startingOffsets": "earliest", **options}
        self.checkpoint = folder / "checkpoint"
        self.got: list[int] = []
        self.sizes: list[int] = []
        self.tasks: list[int] = []
        self.query: StreamingQuery | None = None
        self._spark = spark
        self._wait = cluster.nodes.wait

    def start(self, *, available: bool = False, **options: Any) -> StreamingQuery:
        reader = self._spark.readStream.format("flockmq").schema(SCHEMA).options(**{**self.options, **options})
        writer = reader.load().writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        self.query = (writer.trigger(availableNow=True) if available else writer).start()
        return self.query

    def _take(self, frame: DataFrame, _batch: int) -> None:
        self.tasks.append(frame.rdd.getNumPartitions())
        rows = frame.select("payload").collect()
        self.sizes.append(len(rows))
        self.got += [int(row.payload) for row in rows]

    def run_all(self) -> None:
        assert self.start(available=True).awaitTermination(120)

    def wait_for(self, expected: list[int], what: str) -> None:
        """Until it has got just these."""

        def has_all() -> bool:
            assert self.query is not None
            assert self.query.exception() is None, self.query.exception()
            return len(self.got) >= len(expected)

        self._wait(has_all, what, 60)
        assert sorted(self.got) == expected


def publisher(cluster: SparkCluster, topic: str) -> Callable[[int, int], None]:
    def publish(low: int, high: int) -> None:
        cluster.publish(topic, [(f"{topic}/{n % 7}", b"%d" % n) for n in range(low, high)])

    return publish


def test_limits_checkpoints_and_cursors(cluster: SparkCluster, spark: SparkSession, tmp_path: Path) -> None:
    topic = cluster.create_topic(shards=8)
    publish = publisher(cluster, topic)
    publish(0, 500)
    cursor = f"{topic}-query"
    follower = Follower(spark, cluster, tmp_path, subscribe=topic, maxOffsetsPerTrigger=200, cursor=cursor)
    follower.run_all()
    assert sorted(follower.got) == list(range(500))
    assert max(follower.sizes) <= 200
    assert set(follower.tasks) == {1}, "a few records in eight shards are one task"
    publish(500, 600)
    follower.run_all()
    assert sorted(follower.got) == list(range(600))
    ends = cluster.end_offsets(topic)
    with cluster.client() as client:
        found = client.cursor(cursor)
    assert found.hold
    assert [position.offset for position in found.positions] == ends
    last = max((follower.checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    written = last.read_text().splitlines()[-1]
    assert written == json.dumps({topic: {str(shard): end for shard, end in enumerate(ends)}})


def test_a_query_goes_on_while_nodes_and_topics_come_and_go(
    cluster: SparkCluster, spark: SparkSession, tmp_path: Path
) -> None:
    prefix = cluster.unique("grow")
    first = cluster.create_topic(f"{prefix}-a", shards=2)
    publisher(cluster, first)(0, 100)
    follower = Follower(spark, cluster, tmp_path, subscribePattern=f"{prefix}-.*")
    query = follower.start()
    follower.wait_for(list(range(100)), "the first hundred")
    cluster.kill(0)
    publisher(cluster, first)(100, 200)
    follower.wait_for(list(range(200)), "what was published without a node")
    cluster.start(0)
    second = cluster.create_topic(f"{prefix}-b")
    publisher(cluster, second)(200, 250)
    follower.wait_for(list(range(250)), "a topic that was not there")
    cluster.admin().delete_topic(second)
    with pytest.raises(StreamingQueryException, match="was deleted; start the query with a new") as caught:
        query.awaitTermination(60)
    assert "Traceback" not in str(caught.value)
