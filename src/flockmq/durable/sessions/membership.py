"""Whether other nodes may have clients: then every client id is claimed in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.cluster.model import LEFT

if TYPE_CHECKING:
    from flockmq.durable.state.meta import Meta


class Membership:
    """The members of this node's cluster, as the cluster state has them."""

    def __init__(self, meta: Meta) -> None:
        self._meta = meta

    def is_alone(self) -> bool:
        """Whether the cluster has one member, so that this node's memory knows all connected clients.

        A node that is held dead may live, and have clients.
        """
        nodes = self._meta.state.nodes
        return len(nodes) <= 1 or sum(1 for node in nodes.values() if node.state != LEFT) <= 1
