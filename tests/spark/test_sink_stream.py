"""``df.writeStream.format("flockmq")``: each row once, however often the query ends in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flockmq.client.log_client import LogClient
from spark.nodes import SparkCluster
from spark.written import listening, payloads, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@pytest.fixture
def client(cluster: SparkCluster) -> Iterator[LogClient]:
    with cluster.client() as found:
        yield found


class Copy:
    """A query that copies a topic to another one, a few records a batch."""

    def __init__(self, cluster: SparkCluster, spark: SparkSession, checkpoint: str) -> None:
        self.cluster, self.spark, self.checkpoint = cluster, spark, checkpoint
        self.source = cluster.create_topic(shards=3)
        self.target = cluster.create_topic(shards=4)
        self._published = 0

    def publish(self, count: int) -> None:
        numbers = range(self._published, self._published + count)
        self.cluster.publish(self.source, [(f"{self.source}/{one % 7}", b"%06d" % one) for one in numbers])
        self._published += count

    def writer(self) -> DataStreamWriter:
        reader = self.spark.readStream.format("flockmq").options(**self.cluster.options())
        reader = reader.options(subscribe=self.source, startingOffsets="earliest", maxOffsetsPerTrigger="100")
        name = f"replace(mqtt_topic, '{self.source}/', '{self.target}/') AS mqtt_topic"
        rows = reader.load().selectExpr("payload", name, "array(struct('from' AS key, topic AS value)) AS headers")
        writer = rows.writeStream.format("flockmq").options(**self.cluster.options())
        return writer.option("checkpointLocation", self.checkpoint)

    def run(self) -> StreamingQuery:
        """All that there is."""
        query = self.writer().trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def forget_last_commit(self) -> None:
        """As if the driver had died behind the sink's commit and before its own."""
        commits = Path(self.checkpoint) / "commits"
        last = max(int(one.name) for one in commits.iterdir() if one.name.isdecimal())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)

    def expected(self) -> list[bytes]:
        return [b"%06d" % one for one in range(self._published)]


@pytest.fixture
def copy(cluster: SparkCluster, spark: SparkSession, checkpoint: str) -> Copy:
    return Copy(cluster, spark, checkpoint)


def test_batch_after_batch(copy: Copy, client: LogClient) -> None:
    copy.publish(350)
    query = copy.run()
    assert len([one for one in query.recentProgress if one.numInputRows]) >= 3
    found = written(client, copy.target)
    assert sorted(one.payload for one in found) == copy.expected()
    assert {one.client for one in found} == {"spark"}
    assert all(one.user == [(b"from", copy.source.encode())] for one in found)
    assert set(client.last_batches(copy.target, query.id).values()) - {-1}, "the query's own id, as Spark has it"


def test_a_batch_that_runs_again_writes_nothing_twice(copy: Copy, client: LogClient) -> None:
    copy.publish(150)
    first = copy.run()
    copy.forget_last_commit()
    copy.publish(30)
    again = copy.run()
    assert again.id == first.id
    assert sum(one.numInputRows for one in again.recentProgress) > 30, "the last batch ran again"
    assert payloads(client, copy.target) == copy.expected()


def test_subscribers_hear_of_each_row_once_while_a_node_dies(
    copy: Copy, cluster: SparkCluster, client: LogClient
) -> None:
    with listening(cluster.mqtt_ports[1], f"{copy.target}/#") as listener:
        query = copy.writer().trigger(processingTime="0 seconds").start()
        try:
            copy.publish(150)
            listener.wait_for(150)
            cluster.kill(0)
            copy.publish(150)
            listener.wait_for(300)
        finally:
            query.stop()
        assert sorted(one.payload for one in listener.messages) == copy.expected()
    assert payloads(client, copy.target) == copy.expected()


def test_what_is_wrong_ends_the_query_with_a_sentence(
    cluster: SparkCluster, spark: SparkSession, checkpoint: str
) -> None:
    rows = spark.readStream.format("rate").load().selectExpr("CAST(value AS string) AS value")
    writer = rows.writeStream.format("flockmq").options(**cluster.options()).option("checkpointLocation", checkpoint)
    with pytest.raises(Exception, match="The sink has no option 'tpoic'; did you mean topic"):
        writer.option("tpoic", "x").start().processAllAvailable()
