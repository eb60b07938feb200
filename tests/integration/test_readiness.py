"""What /health/ready says of real nodes: while they wait, without a majority, with another cookie."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from flockmq.testing.nodes import HOST, NodeCluster, NodeProcess
from flockmq.testing.ports import free_ports


def probe(node: NodeProcess, query: str = "") -> tuple[int, dict[str, Any]]:
    """Status and body; 0 while nothing answers."""
    try:
        with urlopen(f"http://{HOST}:{node.api_port}/health/ready{query}", timeout=5) as answer:
            return answer.status, json.loads(answer.read())
    except HTTPError as error:
        return error.code, json.loads(error.read())
    except (URLError, OSError):
        return 0, {}


def reason(node: NodeProcess) -> str:
    """Why a node is not in its cluster."""
    return str(probe(node)[1].get("cluster", {}).get("reason", ""))


def test_without_a_majority_a_node_is_not_ready(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 3) as cluster:
        cluster.wait_settled()
        first, *others = cluster.nodes
        cluster.wait(lambda: probe(first)[0] == 200, "a node that is ready")
        status, found = probe(first, "?require=clients,cluster,durable,sessions")
        assert (status, found["status"]) == (200, "ready")
        for node in others:
            node.kill()
        cluster.wait(lambda: probe(first)[0] == 503, "a node that is not ready any more")
        status, found = probe(first)
        assert found["status"] == "not_ready"
        assert (found["clients"]["ok"], found["cluster"]["ok"], found["durable"]["ok"]) == (True, False, False)
        assert "No majority" in found["error"]["message"]
        assert probe(first, "?require=clients")[0] == 200, "QoS 0 still goes"
        for node in others:
            node.start()
        cluster.wait(lambda: probe(first)[0] == 200, "a node that is ready again")


def test_a_node_that_is_refused_answers_and_says_why(tmp_path: Path) -> None:
    """The API is there while the node waits, and names who refuses it."""
    with NodeCluster(tmp_path / "right", 1) as cluster:
        mqtt, api, port = free_ports(3)
        options = [f"--host={HOST}", f"--join={HOST}:{cluster.nodes[0].port}", "--set=cluster.profile=local"]
        stranger = NodeProcess(
            tmp_path / "wrong", f"n2@{HOST}", (mqtt, api, port), options, {"FLOCKMQ_COOKIE": secrets.token_hex(32)}
        )
        stranger.start()
        try:
            cluster.wait(lambda: "takes no clients yet" in str(probe(stranger)[1]), "an answer before it serves")
            cluster.wait(lambda: "refuses" in reason(stranger), "who refuses it")
            status, found = probe(stranger)
            assert status == 503
            assert "cookie" in found["cluster"]["reason"]
            assert str(cluster.nodes[0].port) in found["cluster"]["reason"]
            assert not found["durable"]["ok"]
        finally:
            stranger.close()
