"""What the API asks the composition about the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from flockmq.admin.cluster_model import Cluster, Explanation, JoinResult
    from flockmq.admin.durable_port import DurablePort
    from flockmq.admin.metrics import Number


class ClusterPort(Protocol):
    """A node's view of its cluster, and what an operator may do to it."""

    @property
    def durable(self) -> DurablePort | None:
        """Cluster state and durable topics; None when this node has none."""

    def status(self) -> Cluster:
        """The members and how they do."""

    def figures(self) -> dict[str, Number]:
        """Numbers for the metrics, by name: ``members_<state>`` and what ``metrics`` names."""

    async def explain(self, topic: bytes, publisher: str) -> Explanation:
        """Who would get a message to this topic; other nodes are asked about their clients."""

    async def kick(self, client_id: str) -> bool:
        """Disconnect a client of another node; False when no node that answers has it."""

    async def end_session(self, client_id: str) -> bool:
        """Forget a session of another node; False when no node that answers has it."""

    async def ban_hits(self, kind: str, value: str) -> int:
        """How many connections a ban has ended, on all nodes that answer."""

    async def join(self, address: str, discard_data: bool) -> JoinResult:
        """Become a member of another cluster; FlockError says why not."""

    async def leave(self, discard_data: bool) -> JoinResult:
        """Take leave of the others; afterwards this node is alone, in a cluster of its own. FlockError says why not."""
