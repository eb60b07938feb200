"""Retention races a query that stands still: what it needs is held, then bounded, and what went is told.

```
 query with a cursor --> stopped at N --> topic grows beyond its retention: held, read to the last record
                                     `--> beyond the bound of what is held: gone; the query says from where to where,
                                          or, with failOnDataLoss=false, goes on behind the gap
```
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

from flockmq.client.log_client import LogClient
from spark.nodes import SparkCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEGMENT_BYTES: Final = 65_536
KEPT_BYTES: Final = 3 * SEGMENT_BYTES
HELD_TIMES: Final = 4
"""A cursor holds so many times what a topic keeps."""
RECORD_BYTES: Final = 4_000
RECORDS_AT_ONCE: Final = 10
OPTIONS: Final = (f"--set=store.segment_bytes={SEGMENT_BYTES}", "--set=store.cache_bytes=65536")
WAIT_S: Final = 120.0


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Nodes with small segments: retention removes whole ones."""
    with SparkCluster(tmp_path_factory.mktemp("small"), OPTIONS) as nodes:
        yield nodes


@pytest.fixture
def client(small: SparkCluster) -> Iterator[LogClient]:
    with small.client() as found:
        yield found


class Reader:
    """A query that reads what is there, as often as it is run, and the offsets that it got."""

    def __init__(self, spark: SparkSession, cluster: SparkCluster, topic: str, checkpoint: str) -> None:
        self._spark, self._cluster, self._topic, self._checkpoint = spark, cluster, topic, checkpoint
        self.offsets: list[int] = []

    def run(self, **options: str) -> None:
        """From where it stopped to the end."""
        reader = self._spark.readStream.format("flockmq").options(**self._cluster.options())
        reader = reader.options(subscribe=self._topic, startingOffsets="earliest", cursor="reader", **options)
        writer = reader.load().select("offset").writeStream.foreachBatch(self._take)
        query = writer.option("checkpointLocation", self._checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()

    def _take(self, rows: DataFrame, _batch: Any) -> None:
        self.offsets += sorted(row.offset for row in rows.collect())


def fill(cluster: SparkCluster, topic: str, size: int) -> None:
    """Not all at once: what comes together is one batch, and so in one segment, which goes as a whole or not at all."""
    left = size // RECORD_BYTES
    while left:
        some = min(left, RECORDS_AT_ONCE)
        cluster.publish(topic, [(f"{topic}/device", bytes(RECORD_BYTES))] * some)
        left -= some


def test_held_then_bounded_then_reported(
    small: SparkCluster, spark: SparkSession, client: LogClient, checkpoint: str
) -> None:
    held = small.create_topic("held", retention_bytes=KEPT_BYTES)
    free = small.create_topic("free", retention_bytes=KEPT_BYTES)
    reader = Reader(spark, small, held, checkpoint)

    def first(topic: str) -> int:
        return client.heads(topic).heads[0].first_offset

    # It has read something, and its cursor is in the cluster.
    fill(small, held, 40_000)
    reader.run()
    done = len(reader.offsets)
    assert reader.offsets == list(range(10))
    assert client.cursor("reader").topic == held

    # Held: a topic beside it, of the same size and with the same retention, forgets.
    for topic in (held, free):
        fill(small, topic, 2 * KEPT_BYTES)
    small.nodes.wait(lambda: first(free) > 0, "retention of the other topic", WAIT_S)
    assert first(held) <= done
    reader.run()
    end = small.end_offsets(held)[0]
    assert reader.offsets == list(range(end)), "nothing is missing, though it is more than the topic keeps"

    # Bounded: nobody may fill the disks by being away.
    fill(small, held, 2 * HELD_TIMES * KEPT_BYTES)
    small.nodes.wait(lambda: first(held) > end, "retention beyond what a cursor may hold", WAIT_S)

    # Reported: from where to where, and what to do.
    with pytest.raises(Exception, match="failOnDataLoss=false") as problem:
        reader.run()
    told = re.search(r"([\d,]+) to ([\d,]+)", str(problem.value))
    assert told is not None, problem.value
    low, high = (int(one.replace(",", "")) for one in told.groups())
    assert low == end == len(reader.offsets), "not one record was read"
    assert f"are gone, {high - low + 1:,} in all" in str(problem.value)

    # And gone on with, if that is wanted: all that is left, once.
    reader.run(failOnDataLoss="false")
    came = reader.offsets[end:]
    assert came == list(range(came[0], small.end_offsets(held)[0]))
    assert came[0] >= high + 1, "retention may have gone on meanwhile"
