"""Three real nodes for Spark to read from, and what the cases need of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.durable import flockmq
from flockmq.client.log_client import LogClient
from flockmq.security import credentials
from flockmq.testing.nodes import HOST, NodeCluster


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes that run."""

    nodes: NodeCluster
    urls: tuple[str, ...]
    token: str

    def options(self) -> dict[str, str]:
        """Options of source and sink."""
        return {"server": ",".join(self.urls), "token": self.token}

    def client(self) -> LogClient:
        """Whoever takes it closes it."""
        return LogClient(self.urls, self.token)

    @property
    def mqtt_port(self) -> int:
        """Of the first node."""
        return self.nodes.nodes[0].mqtt_port

    def make_topic(self, name: str, shards: int) -> None:
        """A durable topic with three replicas, and leaders for all shards."""
        self.nodes.create_topic(name, shards=shards, replication_factor=flockmq.REPLICAS)


@contextmanager
def running(folder: str | None) -> Iterator[Cluster]:
    """Three nodes whose data is gone afterwards."""
    with flockmq.running(folder) as nodes:
        first = nodes.nodes[0]
        urls = tuple(f"http://{HOST}:{node.api_port}" for node in nodes.nodes)
        # The founder's token opens all nodes once they have the cluster's settings.
        token = credentials.load(urls[0], {"FLOCKMQ_CREDENTIALS": str(first.folder / "credentials.toml")}) or ""
        found = Cluster(nodes, urls, token)
        nodes.wait(lambda: _is_settled(found), "all nodes to be in cluster state")
        yield found


def _is_settled(cluster: Cluster) -> bool:
    dumped = cluster.nodes.nodes[0].admin().dump()
    return sum(1 for node in dumped["nodes"] if node["state"] == "ALIVE" and node["api"]) == len(cluster.urls)
