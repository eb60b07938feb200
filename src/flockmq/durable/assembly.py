"""A whole node, put together: a broker, what makes it one of many, and what makes topics durable.

```
 assemble(parts) --> Node    broker      clients, sessions, routing
                             cluster     membership, links, routes                (around the broker)
                             durable     consensus, partitions, delivery, takeovers (around both; None without a store)
```
The server, the tests and the simulators call this function; only the edges differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.durable.node import DurableNode
from flockmq.durable.order import components_of, tick_of, turn_of
from flockmq.node.broker import Broker
from flockmq.peering.forming import Formation
from flockmq.peering.node import Base, ClusterNode

if TYPE_CHECKING:
    from flockmq.durable.parts import Parts


class Node:
    """See the module. Also the ``BrokerPorts`` of its broker."""

    def __init__(self, parts: Parts) -> None:
        me = parts.me
        store = parts.store
        now = parts.now
        self.broker = Broker(parts.settings, parts.gate, parts.rng, now, parts.wall_ms, parts.version, me.node_id, self)
        base = Base(self.broker, me, parts.gossip, parts.edges.ship, parts.rng, now)
        self.durable: DurableNode | None = None
        if store is not None:
            self.durable = DurableNode(base, store, parts.raft, parts.edges, parts.policy, now, parts.wall_ms)
        durable = self.durable
        upper = durable.upper if durable is not None else None
        self.sessions = durable.session_room.keeper if durable is not None else None
        self.ownership = durable.session_room.owner if durable is not None else None
        self.routes = base.routes
        has_data = store is not None and bool(store.groups)
        formation = Formation(me.node_id, me.cluster_id, has_data, parts.ballot, parts.rules, base.exchange, now)
        components = components_of(base, durable)
        turn = turn_of(base, formation, components)
        tick = tick_of(base, formation, components)
        self.cluster = ClusterNode(base, formation, components, turn, tick, upper)
        self.appending = durable.appending if durable is not None else None
        self.replay = durable.delivery.replay if durable is not None else None
        self.groups = durable.group_room.sessions if durable is not None else None


def assemble(parts: Parts) -> Node:
    """Make a node. It is at rest until its driver ticks it, turns it and opens its store's groups."""
    return Node(parts)
