"""All parts of this room, put together; the package's docstring lists what each decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.durable.sessions.claims import SessionClaims, Uncertain
from flockmq.durable.sessions.finding import SessionFinder
from flockmq.durable.sessions.firing import WillFiring
from flockmq.durable.sessions.hidden import HiddenTopics
from flockmq.durable.sessions.keeping import SessionKeeper
from flockmq.durable.sessions.leases import Leases
from flockmq.durable.sessions.marking import Marking
from flockmq.durable.sessions.membership import Membership
from flockmq.durable.sessions.owning import SessionOwner
from flockmq.durable.sessions.positions import Positions
from flockmq.durable.sessions.pruning import Pruning
from flockmq.durable.sessions.quotas import SessionQuotas
from flockmq.durable.sessions.reclaiming import Reclaiming
from flockmq.durable.sessions.reloading import Reloading
from flockmq.durable.sessions.repeating import Repeating
from flockmq.durable.sessions.sending import Sending
from flockmq.durable.sessions.serving import SessionShards
from flockmq.durable.sessions.yielding import Yielding

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
    """Sessions of one node, as far as the log has them."""

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
        members = Membership(meta)
        quotas = SessionQuotas(calls, machines, self.log, meta)
        self.shards = SessionShards(calls, control, machines, self.log, meta, base.swim, quotas, members)
        self.pruning = Pruning(calls, meta, machines, self.log, self.shards)
        self.firing = WillFiring(node, calls, machines, self.log, self.shards, appending)
        self.finder = SessionFinder(calls, machines, self.log)
        self.leases = Leases(base.node_id, calls, meta, self.log, node.table)
        self.repeating = Repeating(calls, self.log)
        self.uncertain = Uncertain()
        positions = Positions(delivery)
        hidden = HiddenTopics(base.node_id, meta, barrier)
        self.claims = SessionClaims(
            node, boot, base.rng, calls, meta, hidden, self.log, self.repeating, self.uncertain, members
        )
        self.reclaiming = Reclaiming(node, boot, base.rng, calls, self.log, self.claims, self.uncertain, members)
        self.sending = Sending(node, calls, self.log, delivery, positions)
        self.marking = Marking(
            node, boot, calls, self.log, positions, self.reclaiming, self.leases, self.uncertain, self.sending
        )
        self.keeper = SessionKeeper(
            node,
            delivery,
            positions,
            self.claims,
            self.repeating,
            self.uncertain,
            releases,
            self.sending,
            self.reclaiming,
            self.pruning,
        )
        self.yielding = Yielding(node, calls, delivery.replay, self.uncertain)
        self.reloading = Reloading(node, calls, delivery.logs)
        self.owner = SessionOwner(base.broker, calls, self.keeper, self.reloading, releases, self.uncertain)
