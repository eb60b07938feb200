"""A name belongs to one node that is alive. A second one with the same name is refused, and ends.

```
 at the nodes of the cluster   a caller has the name of another node that is alive and linked --> refused, an event
 at the second node            refused, or cluster state has another node alive by this name --> wait: it may be dead
                               still so after ``patience_s`` --> the node ends with a sentence
```
A node with a new disk comes back with its name and a new id. Its former self is dead, which the others know once their
links to it are gone or gossip says so: the newcomer waits that long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.cluster.model import ALIVE
from flockmq.wire.hello import NAME

if TYPE_CHECKING:
    from flockmq.gossip.settings import GossipSettings
    from flockmq.server.cluster import ClusterService
    from flockmq.wire.hello import HelloError, PeerInfo

REFUSAL_S: Final = 6.0
"""A refusal counts so long: contacts are called every two seconds."""
TELL_S: Final = 30.0
TOLD_MAX: Final = 1_000


def patience_s(gossip: GossipSettings) -> float:
    """How long a node that died may be held alive by others."""
    longest_ms = gossip.suspicion_min_ms(10) * gossip.suspicion_max_mult + 4 * gossip.probe_interval_ms
    return longest_ms / 1_000


class NodeNames:
    """See the module."""

    def __init__(self, service: ClusterService, name: str, patience_s: float) -> None:
        self._service = service
        self._name = name
        self._patience_s = patience_s
        self._since = -1.0
        self._refusal = ""
        self._refused_at = -REFUSAL_S
        self._told: dict[int, float] = {}

    @property
    def is_doubtful(self) -> bool:
        """Whether another node seems to have this node's name."""
        return self._since >= 0.0

    def objection(self, caller: PeerInfo, now_s: float) -> str:
        """Why a caller is refused for its name; empty when it is not."""
        holder = self._holder(caller)
        if not holder:
            return ""
        text = _why(caller.name, holder)
        if now_s - self._told.get(caller.node_id, -TELL_S) >= TELL_S:
            if len(self._told) >= TOLD_MAX:
                self._told.clear()
            self._told[caller.node_id] = now_s
            self._service.log.event(
                "warning", "node_refused", name=caller.name, node_id=f"{caller.node_id:016x}", message=text
            )
        return text

    def refused(self, error: HelloError, now_s: float) -> None:
        """A node that was called does not want this one. Of two nodes without a cluster the larger id gives way."""
        peer = error.peer
        if error.kind == NAME and peer is not None and (peer.cluster_id or peer.node_id < self._service.node.node_id):
            self._refusal = str(error)
            self._refused_at = now_s

    def look(self, now_s: float) -> str:
        """See whether the name is this node's; the sentence to end with when another node keeps it."""
        conflict = self._conflict(now_s)
        if not conflict:
            self._since = -1.0
            return ""
        if self._since < 0.0:
            self._since = now_s
            self._service.log.event(
                "warning",
                "name_taken",
                message=f"{conflict} This node waits {self._patience_s:g} s for the other one to be gone.",
            )
        return conflict if now_s - self._since >= self._patience_s else ""

    def _holder(self, caller: PeerInfo) -> int:
        """Which other node has the name of a caller, and lives for sure: this one, or one with a link."""
        service = self._service
        nodes = service.durable.node.meta.state.nodes
        known = nodes.get(caller.node_id)
        if known is not None and known.state == ALIVE and known.name == caller.name:
            return 0  # the cluster counts the caller in by this name
        if caller.name == self._name:
            return service.node.node_id
        for member in service.node.swim.alive():
            if member.name == caller.name and member.node_id != caller.node_id:
                return member.node_id if service.links.info(member.node_id) is not None else 0
        return 0

    def _conflict(self, now_s: float) -> str:
        service = self._service
        if not service.node.cluster_id:
            return self._refusal if now_s - self._refused_at < REFUSAL_S else ""
        if not service.durable.node.meta.is_current:
            return ""
        nodes = service.durable.node.meta.state.nodes
        me = nodes.get(service.node.node_id)
        if me is not None and me.state == ALIVE:
            return ""
        for other in nodes.values():
            if other.name == self._name and other.id != service.node.node_id and other.state == ALIVE:
                member = service.node.member_of(other.id)
                return _why(self._name, other.id) if member is not None and member.is_live else ""
        return ""


def _why(name: str, holder: int) -> str:
    return (
        f"Another node that is alive is called {name}, with the id {holder:016x}; give each node its own name with "
        "--name, or stop the other one."
    )
