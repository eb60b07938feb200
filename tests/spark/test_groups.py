"""Dead letters of a consumer group are a table, and a DataFrame brings them back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from flockmq.admin.durable_groups_model import FetchRequest, GroupMessage, GroupRequest
from spark.nodes import SparkCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def drain(cluster: SparkCluster, group: str, count: int) -> list[GroupMessage]:
    found: list[GroupMessage] = []
    until = time.monotonic() + 20
    while len(found) < count and time.monotonic() < until:
        found += cluster.admin(1).fetch_records(group, FetchRequest(max=100, wait_ms=1_000)).messages
    return found


def test_dead_letters_are_read_with_their_reasons_and_redriven(cluster: SparkCluster, spark: SparkSession) -> None:
    topic = cluster.create_topic(shards=2)
    group = cluster.unique("group")
    cluster.admin().create_group(GroupRequest(name=group, bindings=[topic]))
    cluster.publish(topic, [(f"{topic}/{number % 3}", b"%d" % number) for number in range(9)])
    taken = drain(cluster, group, 9)
    assert len(taken) == 9
    poison = [one for one in taken if int(one.payload or "0") % 3 == 0]
    fine = [one for one in taken if one not in poison]
    cluster.admin().ack_records(group, [one.token or "" for one in fine])
    cluster.admin(2).nack_records(group, [one.token or "" for one in poison], dead=True, reason="It does not parse.")

    dead = spark.read.format("flockmq").options(**cluster.options()).option("subscribe", f"{group}.dead").load()
    until = time.monotonic() + 20
    while dead.count() < 3 and time.monotonic() < until:
        time.sleep(0.2)
    rows = dead.collect()
    assert sorted(bytes(row["payload"]) for row in rows) == [b"0", b"3", b"6"]
    for row in rows:
        headers = {one["key"]: one["value"] for one in row["headers"]}
        assert headers["flockmq-group"] == group
        assert headers["flockmq-topic"] == topic
        assert headers["flockmq-reason"] == "It does not parse."
        assert headers["flockmq-deliveries"] == "1"

    back = dead.selectExpr("payload", f"concat('{topic}/', CAST(payload AS string)) AS mqtt_topic")
    back.write.format("flockmq").options(**cluster.options()).mode("append").save()
    again = drain(cluster, group, 3)
    assert sorted(one.payload or "" for one in again) == ["0", "3", "6"]
    cluster.admin().ack_records(group, [one.token or "" for one in again])
    assert cluster.admin().drop_dead(group, every=True).done == 3
    assert cluster.admin().dead_letters(group).items == []
