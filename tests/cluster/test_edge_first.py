"""An edge node is started first: it waits, and the first core node that joins it founds the cluster."""

from __future__ import annotations

import secrets
from pathlib import Path

from cluster.clients import command
from flockmq.testing.nodes import HOST, NodeCluster, NodeProcess


def make(folder: Path, number: int, cluster: NodeCluster, *options: str) -> NodeProcess:
    """Another node of a cluster, with the ports of one that was not started."""
    like = cluster.nodes[number]
    ports = (like.mqtt_port, like.api_port, like.port)
    arguments = [f"--host={HOST}", "--set=cluster.profile=local", *options]
    return NodeProcess(folder / like.name, like.name, ports, arguments, {"FLOCKMQ_COOKIE": cluster.cookie})


def test_core_nodes_that_join_an_edge_node_found_one_cluster(tmp_path: Path) -> None:
    cluster = NodeCluster(tmp_path / secrets.token_hex(4), 3)
    edge = make(tmp_path, 0, cluster, "--role=edge")
    cores = [make(tmp_path, number, cluster, f"--join={HOST}:{edge.port}") for number in (1, 2)]
    cluster.nodes = [edge, *cores]
    try:
        edge.start()
        edge.wait_ready()
        waits = edge.admin().cluster()
        assert (waits.state, waits.id) == ("waiting", None)
        assert "An edge node founds no cluster" in waits.reason
        assert "An edge node founds no cluster" in command(edge, "cluster", "status")
        assert "An edge node founds no cluster" in command(edge, "doctor", code=1)
        assert "An edge node founds no cluster" in edge.log_file.read_text("utf-8")
        for core in cores:
            core.start()
        for core in cores:
            core.wait_ready()
        cluster.wait(cluster.sees_all, "all nodes to see each other")
        cluster.wait_settled()
        assert len({node.admin().cluster().id for node in cluster.nodes}) == 1
        cluster.create_topic("plant", replication_factor=2)
        decisions = edge.admin().cluster().decisions
        assert decisions is not None
        assert sorted(decisions.voters) == [core.name for core in cores]
        refused = command(edge, "cluster", "leave", "--yes", code=1)
        assert "can't be a cluster by itself" in refused
    finally:
        cluster.close()
