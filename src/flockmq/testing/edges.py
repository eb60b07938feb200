"""The edges of an assembled node that has no store: nothing is written, and no turn is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flockmq.cluster.state import ClusterState


class StorelessEdges:
    """A subclass says how frames leave (``ship``)."""

    def kick(self) -> None:
        """The store may have something to write."""

    def wake(self) -> None:
        """The node has work: it gets a turn soon."""

    def keep(self, state: bytes) -> None:
        """Save this copy of the cluster state."""

    def outdate(self) -> None:
        """The copy lacks a change."""

    def changed(self, state: ClusterState) -> None:
        """The cluster state has changed."""

    def stopped(self, reason: str) -> None:
        """Consensus takes no part any more."""
