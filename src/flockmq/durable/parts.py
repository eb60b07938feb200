"""What a node is made of that differs between a server, a test and a simulator: settings, store and edges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from flockmq.peering.formation import Ballot
from flockmq.raft.settings import RaftSettings

if TYPE_CHECKING:
    import random

    from flockmq.cluster.policy import PolicySettings
    from flockmq.cluster.state import ClusterState
    from flockmq.gossip.member import Member
    from flockmq.gossip.settings import GossipSettings
    from flockmq.log.store import Store
    from flockmq.node.ports import Gate
    from flockmq.node.settings import BrokerSettings
    from flockmq.peering.formation import Rules


class Edges(Protocol):
    """The process around a node: its disk, its links and its loop. The node calls none of these while it is made."""

    def kick(self) -> None:
        """The store may have something to write."""

    def wake(self) -> None:
        """The node has work: give it a turn soon."""

    def ship(self, peer: int, pieces: list[bytes]) -> None:
        """Send a frame to a linked node before the turn ends."""

    def keep(self, state: bytes) -> None:
        """Save this copy of the cluster state; the next start reads it."""

    def outdate(self) -> None:
        """Note that the copy lacks a change that other nodes rely on, until the next ``keep``."""

    def changed(self, state: ClusterState) -> None:
        """The cluster state has changed."""

    def stopped(self, reason: str) -> None:
        """Consensus takes no part any more, for this reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that ``assemble`` needs."""

    me: Member
    """This node as the others see it; ``cluster_id`` is 0 while the node belongs to no cluster."""
    settings: BrokerSettings
    gate: Gate
    gossip: GossipSettings
    rules: Rules
    """How a node without a cluster finds or founds one."""
    rng: random.Random
    now: int
    wall_ms: int
    edges: Edges
    store: Store | None
    """The recovered store; None: a node without durable topics."""
    ballot: Ballot = field(default_factory=Ballot)
    """What this node promised other founders before its last stop."""
    raft: RaftSettings = field(default_factory=RaftSettings)
    policy: PolicySettings | None = None
    """How the leader of cluster state treats lost nodes; None: by default."""
    version: str = ""
    """The software's version, for clients that ask."""
