"""The other nodes that hold replicas of a partition, and which of them can be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flockmq.durable.logs.local import LocalLogs, Placement


class ReplicaPeers:
    """See the module; told of links and deaths by the component of channel FEEDS."""

    def __init__(self, node_id: int, local: LocalLogs, placement: Placement) -> None:
        self.node_id = node_id
        self._local = local
        self._placement = placement
        self._up: dict[int, None] = {}
        self._dead: set[int] = set()

    def up(self, peer: int) -> None:
        """There is a link to a peer."""
        self._up[peer] = None
        self._dead.discard(peer)

    def down(self, peer: int) -> None:
        """There is none."""
        self._up.pop(peer, None)

    def died(self, peer: int) -> None:
        """A peer is dead: no reader waits for what it may have."""
        self._up.pop(peer, None)
        self._dead.add(peer)

    def holds(self, peer: int, group: int) -> bool:
        """Whether a node holds a replica."""
        return peer in self._placement.replicas_of(group)

    def all_of(self, group: int) -> tuple[int, ...]:
        """All nodes that hold a replica, this one too."""
        return self._placement.replicas_of(group)

    def linked(self, group: int) -> list[int]:
        """Those that can be asked now, the leader first."""
        leader = self._local.leader_of(group)
        peers = [peer for peer in self._placement.replicas_of(group) if peer in self._up and peer != self.node_id]
        return sorted(peers, key=lambda peer: (peer != leader, peer))

    def living(self, group: int) -> list[int]:
        """Those that can be asked now, and behind them those that live and can't be reached from here."""
        peers = self.linked(group)
        for peer in self._placement.replicas_of(group):
            if peer != self.node_id and peer not in self._dead and peer not in peers:
                peers.append(peer)
        return peers

    def leader_or_any(self, group: int, attempt: int) -> int:
        """The node that seems to lead; every third attempt, and when none is known, one replica after the other."""
        leader = self._local.leader_of(group)
        if self._local.is_leader(group) or (leader and leader != self.node_id and attempt % 3 < 2):
            return leader
        others = [peer for peer in self._placement.replicas_of(group) if peer != self.node_id]
        return others[attempt % len(others)] if others else 0
