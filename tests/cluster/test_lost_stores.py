"""Real nodes whose store is lost while all that lies beside it stays: nothing that was acknowledged goes with it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.clients import Clients, command
from flockmq.errors import ApiError, FlockError
from flockmq.server.state_copy import peek_state
from flockmq.testing.nodes import NodeCluster, NodeProcess

PAYLOADS = [b"%d" % number for number in range(60)]


async def publish(node: NodeProcess, clients: Clients, topic: str) -> None:
    client = await clients.connect(node, f"publisher at {node.name}")
    for payload in PAYLOADS:
        await client.publish(topic, payload, qos=1)


def start(*nodes: NodeProcess) -> None:
    for node in nodes:
        node.start()
    for node in nodes:
        node.wait_ready()


def end_offset(cluster: NodeCluster, node: NodeProcess, topic: str) -> int:
    """Where the log ends, once it is led."""

    def is_led() -> bool:
        try:
            return node.admin().topic_partitions(topic)[0].leader is not None
        except ApiError:
            return False

    cluster.wait(is_led, f"a leader of {topic}")
    return node.admin().records(topic, 0, offset=0).end_offset


def wipe(node: NodeProcess) -> None:
    node.kill()
    shutil.rmtree(node.folder / "data" / "store")


def accept_loss(node: NodeProcess) -> None:
    words = [sys.executable, "-m", "flockmq", "log", "accept-loss", str(node.folder / "data")]
    subprocess.run(words, check=True)


def keeps_state(node: NodeProcess, topic: str) -> bool:
    """Whether the copy of the cluster state beside the store knows a topic; it may be a second behind."""
    state = peek_state(node.folder / "data")
    return state is not None and any(one.name == topic for one in state.topics.values())


async def test_three_nodes_and_a_store_that_was_moved_away(tmp_path: Path, clients: Clients) -> None:
    """What the message about damaged manifests advises."""
    with NodeCluster(tmp_path, 3) as cluster:
        one, two, three = cluster.nodes
        cluster.wait_settled()
        cluster.create_topic("safe", replication_factor=3)
        three.stop()
        await publish(one, clients, "safe/x")
        one.kill()
        two.kill()
        (two.folder / "data" / "store").rename(two.folder / "data" / "moved")
        two.start()
        three.start()
        cluster.wait(lambda: "store_lost" in two.log_file.read_text("utf-8"), "two to say that its store is gone")
        start(one)
        cluster.wait(cluster.sees_all, "all to be back")
        assert end_offset(cluster, three, "safe") == len(PAYLOADS)
        two.wait_ready()
        await publish(two, clients, "safe/x")
        assert end_offset(cluster, three, "safe") == 2 * len(PAYLOADS)
        cluster.wait_settled()
        assert "is broken" not in "".join(node.log_file.read_text("utf-8") for node in cluster.nodes)


async def test_five_nodes_and_a_replica_without_its_store(tmp_path: Path, clients: Clients) -> None:
    """Also: a node without a replica is served as soon as the partition is, whatever it knew of leaders before."""
    with NodeCluster(tmp_path, 5) as cluster:
        cluster.wait_settled()
        cluster.create_topic("safe", replication_factor=3)
        [partition] = cluster.nodes[0].admin().topic_partitions("safe")
        by_name = {node.name: node for node in cluster.nodes}
        assert partition.leader is not None
        leader = by_name[partition.leader]
        kept, away = [by_name[copy.node] for copy in partition.replicas if copy.node != leader.name]
        outside = next(node for node in cluster.nodes if node.name not in [copy.node for copy in partition.replicas])
        await publish(outside, clients, "safe/x")
        away.stop()
        await publish(leader, clients, "safe/x")
        leader.kill()
        wipe(kept)
        start(away, kept)
        start(leader)
        cluster.wait(cluster.sees_all, "all to be back")
        assert end_offset(cluster, outside, "safe") == 2 * len(PAYLOADS)
        await publish(outside, clients, "safe/x")
        assert end_offset(cluster, leader, "safe") == 3 * len(PAYLOADS)


async def test_an_older_copy_of_a_store_is_set_aside(tmp_path: Path, clients: Clients) -> None:
    with NodeCluster(tmp_path, 3) as cluster:
        one, two, three = cluster.nodes
        cluster.wait_settled()
        cluster.create_topic("safe", replication_factor=3)
        data = two.folder / "data"
        two.stop()
        shutil.copytree(data / "store", data / "backup")
        start(two)
        cluster.wait(cluster.sees_all, "two to be back")
        three.stop()
        await publish(one, clients, "safe/x")
        one.kill()
        two.kill()
        shutil.rmtree(data / "store")
        (data / "backup").rename(data / "store")
        two.start()
        three.start()
        cluster.wait(lambda: "older copy" in two.log_file.read_text("utf-8"), "two to notice")
        start(one)
        assert end_offset(cluster, one, "safe") == len(PAYLOADS)
        assert list(data.glob("store-aside-*"))


async def test_a_node_alone_says_that_its_data_is_gone_and_waits_for_its_operator(
    tmp_path: Path, clients: Clients
) -> None:
    with NodeCluster(tmp_path, 1) as cluster:
        (one,) = cluster.nodes
        cluster.create_topic("safe")
        await publish(one, clients, "safe/x")
        cluster.wait(lambda: keeps_state(one, "safe"), "the copy of the cluster state")
        wipe(one)
        for _ in range(2):
            one.start()
            with pytest.raises(FlockError, match="no other node has them"):
                one.wait_ready()
        one.log_file.unlink()
        accept_loss(one)
        start(one)
        assert end_offset(cluster, one, "safe") == 0
        await publish(one, clients, "safe/x")
        assert end_offset(cluster, one, "safe") == len(PAYLOADS)
        one.stop()
        start(one)
        assert end_offset(cluster, one, "safe") == len(PAYLOADS)


async def test_a_node_alone_goes_on_with_an_older_store_and_all_its_topics(tmp_path: Path, clients: Clients) -> None:
    with NodeCluster(tmp_path, 1) as cluster:
        (one,) = cluster.nodes
        data = one.folder / "data"
        cluster.create_topic("safe")
        await publish(one, clients, "safe/x")
        one.stop()
        shutil.copytree(data / "store", data / "backup")
        start(one)
        cluster.create_topic("later")
        await publish(one, clients, "later/x")
        cluster.wait(lambda: keeps_state(one, "later"), "the copy of the cluster state")
        wipe(one)
        (data / "backup").rename(data / "store")
        one.start()
        with pytest.raises(FlockError, match="older copy"):
            one.wait_ready()
        one.log_file.unlink()
        accept_loss(one)
        start(one)
        assert end_offset(cluster, one, "safe") == len(PAYLOADS)
        assert end_offset(cluster, one, "later") == 0
        cluster.create_topic("new")
        for topic in ("later", "new"):
            await publish(one, clients, f"{topic}/x")
            assert end_offset(cluster, one, topic) == len(PAYLOADS)


async def test_the_only_copy_of_a_partition_says_that_it_is_gone_and_waits_for_an_operator(
    tmp_path: Path, clients: Clients
) -> None:
    with NodeCluster(tmp_path, 3) as cluster:
        cluster.wait_settled()
        cluster.create_topic("single", replication_factor=1)
        [partition] = cluster.nodes[0].admin().topic_partitions("single")
        holder = next(node for node in cluster.nodes if node.name == partition.leader)
        other = next(node for node in cluster.nodes if node is not holder)
        await publish(other, clients, "single/x")
        wipe(holder)
        start(holder)

        def says_so() -> bool:
            [found] = other.admin().topic_partitions("single")
            return not found.healthy and "Data is gone" in found.problem

        cluster.wait(says_so, "the partition to say that its data is gone")
        cluster.wait(lambda: "partition_lost" in holder.log_file.read_text("utf-8"), "an event in the log")
        assert "data is gone" in command(other, "doctor", code=1)
        command(other, "partition", "accept-loss", str(partition.group), "--yes")
        assert end_offset(cluster, other, "single") == 0
        await publish(other, clients, "single/x")
        assert end_offset(cluster, other, "single") == len(PAYLOADS)
        assert "Nothing is lost" in command(other, "partition", "accept-loss", str(partition.group), "--yes", code=1)
