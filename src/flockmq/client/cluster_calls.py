"""The part of the admin client that is about the cluster: its nodes, routes, partitions, and where these should be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from flockmq.admin import cluster_model
from flockmq.admin import durable_model as model
from flockmq.admin import durable_tenants_model as tenants
from flockmq.admin.model import Page
from flockmq.client.calls import ApiCalls, v1
from flockmq.cluster.advice import Advice

MOVE_S_MAX: Final = 70.0


class ClusterCalls(ApiCalls):
    """See the module."""

    def cluster(self) -> cluster_model.Cluster:
        """The cluster as the node that answers sees it."""
        return self._get(v1("cluster"), cluster_model.Cluster)

    def join(self, address: str, *, discard_data: bool = False) -> cluster_model.JoinResult:
        """Make the node a member of another node's cluster; Refused says why not."""
        request = cluster_model.JoinRequest(address=address, discard_data=discard_data)
        return self._send("POST", v1("cluster", "join"), cluster_model.JoinResult, request, MOVE_S_MAX)

    def leave(self, *, discard_data: bool = False) -> cluster_model.JoinResult:
        """Let the node take leave of the others. Takes as long as they need to take over what it stores."""
        path = v1("cluster", "leave", discard_data=discard_data)
        return self._send("POST", path, cluster_model.JoinResult, wait_s=MOVE_S_MAX)

    def remove_node(self, node: str, *, accept_data_loss: bool = False) -> cluster_model.NodeRemoval:
        """Take a dead node out, by its name or id; asked again, it tells how far that is, and NotFound when done."""
        path = v1("cluster", "nodes", node, accept_data_loss=accept_data_loss)
        return self._send("DELETE", path, cluster_model.NodeRemoval)

    def routes(self) -> Iterator[cluster_model.Route]:
        """All topic filters of the cluster with their nodes."""
        return self._listing(v1("routes"), Page[cluster_model.Route])

    def explain(
        self, topic: str, *, publisher: str = "publisher", client_id: str | None = None
    ) -> cluster_model.Explanation:
        """Which clients would get a message to this topic, on which way; and whether this client's session would."""
        path = v1("explain", topic, publisher=publisher, client_id=client_id)
        return self._get(path, cluster_model.Explanation)

    def dump(self) -> dict[str, Any]:
        """Cluster state and segments, secrets left out."""
        return self._get(v1("dump"), dict[str, Any])

    # --- partitions -------------------------------------------------------------------------------------------------

    def partitions(
        self,
        *,
        namespace: str | None = None,
        topic: str | None = None,
        unhealthy: bool = False,
        with_hidden: bool = False,
    ) -> Iterator[model.Partition]:
        """Partitions of all topics, or of those that pass every filter given."""
        filters = {
            "namespace": namespace,
            "topic": topic,
            "unhealthy": unhealthy or None,
            "all": with_hidden or None,
        }
        return self._listing(v1("partitions"), Page[model.Partition], filters)

    def partition(self, group: int) -> model.Partition:
        """One partition by the number of its group."""
        return self._get(v1("partitions", group), model.Partition)

    def scrub(self, topic: str | None = None, *, namespace: str | None = None) -> model.Scrub:
        """Let all nodes read and verify their replicas now, of one topic or of all."""
        return self._send("POST", v1("cluster", "scrub", topic=topic, namespace=namespace), model.Scrub)

    def accept_loss(self, group: int, *, without_absent: bool = False) -> model.Partition:
        """Let a partition go on whose data is gone with the stores of most of its replicas."""
        path = v1("partitions", group, "accept-loss", without_absent=without_absent)
        return self._send("POST", path, model.Partition)

    def rebalance(self, moves_max: int = 10) -> tenants.Rebalance:
        """Begin so many moves of replicas and leaders to where they should be."""
        return self._send("POST", v1("cluster", "rebalance", moves_max=moves_max), tenants.Rebalance)

    def rebalance_progress(self) -> tenants.Rebalance:
        """How much is left to move."""
        return self._get(v1("cluster", "rebalance"), tenants.Rebalance)

    def apply_advice(self, advice: Advice, *, dry_run: bool = False) -> tenants.AdviceOutcome:
        """Put leaders and copies where an advice says; with ``dry_run`` only see what would come of it."""
        return self._send("POST", v1("cluster", "advice", dry_run=dry_run), tenants.AdviceOutcome, advice)
