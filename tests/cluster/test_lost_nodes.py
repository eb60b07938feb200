"""Real nodes that are lost for good, come back with another disk, or find a part of their folder damaged."""

from __future__ import annotations

import shutil
from pathlib import Path

from cluster.clients import command
from flockmq.admin.durable_model import PublishRecords, RecordToPublish
from flockmq.server.state_copy import STATE_FILE
from flockmq.testing.nodes import NodeCluster, NodeProcess


def in_state(node: NodeProcess) -> list[tuple[str, str]]:
    return sorted((one["name"], one["state"]) for one in node.admin().dump()["nodes"])


def test_a_dead_node_is_taken_out_after_autoclean_and_rejoins_as_new(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 3, ["--set=cluster.autoclean_ms=2000"]) as cluster:
        one, two, three = cluster.nodes
        cluster.wait_settled()
        cluster.create_topic("plant", replication_factor=3)
        three.kill()
        left = [(one.name, "ALIVE"), (two.name, "ALIVE")]
        cluster.wait(lambda: in_state(one) == left, "n3 to be taken out")
        [partition] = one.admin().topic_partitions("plant")
        assert sorted(copy.node for copy in partition.replicas) == [one.name, two.name]
        assert three.name not in command(one, "cluster", "status"), "who was taken out is nobody's member"
        three.start()
        three.wait_ready()
        cluster.wait(cluster.sees_all, "n3 to be back")
        cluster.wait_settled()
        assert in_state(one) == [*left, (three.name, "ALIVE")]
        [partition] = one.admin().topic_partitions("plant")
        assert len(partition.replicas) == 3


def test_a_node_with_a_new_disk_takes_the_place_of_its_former_self(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 3) as cluster:
        one, two, three = cluster.nodes
        cluster.wait_settled()
        cluster.create_topic("plant", replication_factor=3)
        three.kill()
        shutil.rmtree(three.folder / "data")
        three.start()
        three.wait_ready()
        alive = [(node.name, "ALIVE") for node in (one, two, three)]
        cluster.wait(lambda: in_state(one) == alive, "the former id to be forgotten")
        cluster.wait_settled()
        for node in cluster.nodes:
            assert [member.state for member in node.admin().cluster().members] == ["alive"] * 3
            told = command(node, "doctor")
            assert "Two core nodes" not in told
            assert "Two nodes decide" not in told


def test_a_damaged_copy_of_the_cluster_state_is_set_aside(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 3) as cluster:
        one, two, _ = cluster.nodes
        cluster.wait_settled()
        cluster.create_topic("plant", replication_factor=3)
        for node in (one, two):
            node.stop()
            copy = node.folder / "data" / STATE_FILE
            copy.write_bytes(b"\xff garbage" * 40)
            node.start()
            node.wait_ready()
            cluster.wait(cluster.sees_all, f"{node.name} to be back")
            assert [topic.name for topic in node.admin().topics()] == ["plant"]
            assert (node.folder / "data" / f"{STATE_FILE}-damaged-1").exists()
            assert "cluster_state_set_aside" in node.log_file.read_text("utf-8")
            command(node, "doctor")


def test_a_lone_node_with_a_damaged_copy_takes_its_state_from_its_log(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 1) as cluster:
        (one,) = cluster.nodes
        cluster.create_topic("plant")
        one.kill()
        copy = one.folder / "data" / STATE_FILE
        data = bytearray(copy.read_bytes())
        data[len(data) // 2] ^= 1
        copy.write_bytes(data)
        one.start()
        one.wait_ready()
        assert [topic.name for topic in one.admin().topics()] == ["plant"]
        assert "cluster_state_set_aside" in one.log_file.read_text("utf-8")


def test_a_dead_node_is_removed_by_an_operator(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 4) as cluster:
        one, two, three, four = cluster.nodes
        cluster.wait_settled()
        cluster.create_topic("plant", replication_factor=3, shards=4)
        refused = command(one, "node", "remove", four.name, "--yes", code=1)
        assert "cluster leave" in refused
        four.kill()
        alive = [(node.name, "ALIVE") for node in (one, two, three)]
        cluster.wait(lambda: in_state(one) == [*alive, (four.name, "DEAD")], "n4 to be dead")
        told = command(one, "node", "remove", four.name, "--yes")
        assert "no part of the cluster any more" in told
        assert in_state(two) == alive
        assert four.name not in command(two, "cluster", "status")
        for partition in one.admin().topic_partitions("plant"):
            assert len(partition.replicas) == 3
        assert "no node" in command(one, "node", "remove", four.name, "--yes", code=1)
        four.start()
        four.wait_ready()
        cluster.wait(cluster.sees_all, "n4 to be back, as a new node")
        cluster.wait(lambda: in_state(one) == [*alive, (four.name, "ALIVE")], "n4 to be counted in")


def test_the_last_copy_of_a_partition_is_given_up_only_when_that_is_accepted(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 3) as cluster:
        one, _, three = cluster.nodes
        cluster.wait_settled()
        cluster.create_topic("plant", replication_factor=1, shards=3)
        held = [part for part in one.admin().topic_partitions("plant") if part.replicas[0].node == three.name]
        assert len(held) == 1
        records = PublishRecords(
            records=[RecordToPublish(topic=f"plant/{number}", payload="x") for number in range(40)]
        )
        one.admin().publish_records("plant", records)
        ends = [part.end_offset or 0 for part in one.admin().topic_partitions("plant")]
        three.kill()
        cluster.wait(lambda: (three.name, "DEAD") in in_state(one), "n3 to be dead")
        refused = command(one, "node", "remove", three.name, "--yes", code=1)
        assert f"plant/{held[0].shard}" in refused
        command(one, "node", "remove", three.name, "--yes", "--accept-data-loss")
        cluster.wait(
            lambda: all(part.leader for part in one.admin().topic_partitions("plant")), "leaders of all partitions"
        )
        one.admin().publish_records("plant", records)
        expected = [end if shard == held[0].shard else 2 * end for shard, end in enumerate(ends)]
        assert [part.end_offset for part in one.admin().topic_partitions("plant")] == expected
