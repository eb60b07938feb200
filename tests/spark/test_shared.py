"""The shared cluster and session themselves: what every other test here builds on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark.nodes import SparkCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def doubled(number: int) -> int:
    return 2 * number


def test_records_are_kept_while_a_node_is_away(cluster: SparkCluster) -> None:
    topic = cluster.create_topic(shards=2)
    cluster.publish(topic, [(f"{topic}/{number}", b"%d" % number) for number in range(50)])
    cluster.kill(0)
    cluster.publish(topic, [(f"{topic}/{number}", b"%d" % number) for number in range(50)])
    assert sum(cluster.end_offsets(topic)) == 100


def test_nodes_are_back_for_the_next_test(cluster: SparkCluster) -> None:
    cluster.nodes.wait(cluster.nodes.sees_all, "all nodes to see each other")


def test_functions_of_test_modules_run_on_workers(spark: SparkSession) -> None:
    from pyspark.sql.functions import col, udf

    rows = spark.range(3).select(udf(doubled, "long")(col("id")).alias("two")).collect()
    assert [row.two for row in rows] == [0, 2, 4]
