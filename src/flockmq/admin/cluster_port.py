"""What the API asks the composition about the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flockmq.admin.cluster_model import Cluster, Explanation, JoinResult
    from flockmq.admin.durable_port import DurablePort
    from flockmq.admin.metrics import Number


@dataclass(frozen=True, slots=True)
class LiveNode:
    """A node that is taken for alive."""

    node_id: int
    name: str
    is_self: bool


class ClusterPort(Protocol):
    """A node's view of its cluster, and what an operator may do to it."""

    @property
    def durable(self) -> DurablePort | None:
        """Cluster state and durable topics; None when this node has none."""

    def id_text(self) -> str:
        """The id of the cluster, in hexadecimal; empty while this node belongs to none."""

    def status(self) -> Cluster:
        """The members and how they do."""

    def figures(self) -> dict[str, Number]:
        """Numbers for the metrics, by name: ``members_<state>`` and what ``metrics`` names."""

    async def explain(self, topic: bytes, publisher: str) -> Explanation:
        """The clients that would get a message to this topic; other nodes are asked about their clients."""

    def live_nodes(self) -> list[LiveNode]:
        """All nodes that are taken for alive, this one among them, by id."""

    def name_of(self, node_id: int) -> str:
        """What a node is called, or its id when that is not known."""

    async def list_at(self, node_id: int, question: bytes) -> bytes | None:
        """What another node answers to ``node_listings.ask_page``; None when it does not."""

    async def find_at(self, nodes: Sequence[int], question: bytes) -> list[bytes | None]:
        """The same for ``node_listings.ask_find``, of several nodes at once."""

    async def held_at(self, nodes: Sequence[int], question: bytes) -> list[bytes | None]:
        """The same for ``node_listings.ask_held``."""

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
