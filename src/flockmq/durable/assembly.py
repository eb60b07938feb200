"""A whole node, put together: a broker, what makes it one of many, and what makes topics durable.

```
 assemble(parts) --> Node    broker      clients, sessions, routing
                             cluster     membership, links, routes, takeovers     (around the broker)
                             durable     consensus, partitions, delivery          (around both; None without a store)
```
The server, the tests and the simulators call this function; only the edges differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.durable.node import DurableNode
from flockmq.node.broker import Broker
from flockmq.peering.node import ClusterNode
from flockmq.raft.host import RaftHost

if TYPE_CHECKING:
    from flockmq.durable.parts import Parts


class Node:
    """See the module."""

    def __init__(self, parts: Parts) -> None:
        me = parts.me
        store = parts.store
        edges = parts.edges
        self.broker = Broker(parts.settings, parts.gate, parts.rng, parts.now, parts.wall_ms, parts.version)
        has_data = store is not None and bool(store.groups)
        self.cluster = ClusterNode(
            self.broker, me, parts.gossip, parts.rules, parts.ballot, has_data, parts.rng, parts.now
        )
        self.cluster.ship = edges.ship
        self.durable: DurableNode | None = None
        if store is not None:
            host = RaftHost(me.node_id, me.boot, parts.raft, parts.rng, parts.now)
            self.durable = DurableNode(
                self.cluster, host, store, edges.stopped, edges.keep, parts.now, parts.wall_ms, parts.policy
            )
            self.durable.engine.kick = edges.kick
            self.durable.engine.wake = edges.wake


def assemble(parts: Parts) -> Node:
    """Make a node. It is at rest until its driver ticks it, turns it and opens its store's groups."""
    return Node(parts)
