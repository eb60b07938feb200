"""All parts of this room, put together: see the package for what they decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.durable.sessions.claims import SessionClaims, Uncertain
from flockmq.durable.sessions.finding import SessionFinder
from flockmq.durable.sessions.firing import WillFiring
from flockmq.durable.sessions.keeping import SessionKeeper
from flockmq.durable.sessions.leases import Leases
from flockmq.durable.sessions.marking import Marking
from flockmq.durable.sessions.positions import Positions
from flockmq.durable.sessions.repeating import Repeating
from flockmq.durable.sessions.serving import SessionShards

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.deliver.delivery import Delivery
    from flockmq.durable.machine.control import Control
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.publish.appending import Appending
    from flockmq.durable.qos2.releases import Releases
    from flockmq.durable.sessions.submitting import SessionLog
    from flockmq.durable.state.barrier import AppliedBarrier
    from flockmq.durable.state.meta import Meta
    from flockmq.peering.node import Base


class SessionRoom:
    """Persistent sessions of one node."""

    def __init__(
        self,
        base: Base,
        calls: PartitionCalls,
        meta: Meta,
        barrier: AppliedBarrier,
        control: Control,
        machines: Machines,
        delivery: Delivery,
        appending: Appending,
        log: SessionLog,
        releases: Releases,
    ) -> None:
        node = base.broker.node
        boot = base.boot
        self.log = log
        self.shards = SessionShards(calls, control, machines, self.log, meta, base.swim)
        self.firing = WillFiring(node, calls, machines, self.log, self.shards, appending)
        self.finder = SessionFinder(calls, machines, self.log)
        self.leases = Leases(base.node_id, calls, self.log, node.table)
        self.repeating = Repeating(calls, self.log)
        self.uncertain = Uncertain()
        positions = Positions(delivery)
        self.claims = SessionClaims(
            node, boot, base.rng, calls, meta, barrier, self.log, self.repeating, self.uncertain
        )
        self.marking = Marking(node, boot, calls, self.log, positions, self.claims, self.uncertain)
        self.keeper = SessionKeeper(
            node, calls, self.log, delivery, positions, self.claims, self.repeating, self.uncertain, releases
        )
