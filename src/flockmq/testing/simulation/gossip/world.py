"""Members of a cluster from one seed: they find each other, faults go on, all is healed, and all agree again.

| rule | broken when |
| --- | --- |
| wrong death | a node is called dead that ran, reached all others and did not stand still for long |
| liveness | after the heal the nodes that run don't agree on one another in time |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.testing.simulation.gossip.cluster import GossipSimulation
from flockmq.testing.simulation.gossip.plan import SHORT_MS
from flockmq.testing.simulation.world import Violation, World

if TYPE_CHECKING:
    from flockmq.testing.simulation.gossip.plan import GossipPlan
    from flockmq.testing.simulation.plan import Fault

FORM_MS_MAX: Final = 30_000
HEAL_MS_MAX: Final = 60_000


class GossipWorld(World):
    """See the module."""

    def __init__(self, seed: int, plan: GossipPlan, trace: bool = False) -> None:
        super().__init__(seed, trace)
        self.plan = plan
        self.cluster = GossipSimulation(seed, loss=plan.loss / 1_000, queue=self.queue)

    def frames(self) -> int:
        """How many datagrams the network carried."""
        return self.cluster.datagrams

    def run(self) -> None:
        """Everything; Violation when a rule is broken."""
        self.cluster.start_many(self.plan.nodes)
        self.until("formation", self._not_agreed, FORM_MS_MAX)
        began = self.queue.now
        for fault in self.plan.faults:
            if fault.at_ms < self.plan.duration_ms:
                self.queue.at(began + fault.at_ms * 1_000, self._inject, fault)
        self.queue.run_until(began + self.plan.duration_ms * 1_000)
        self.trace.note("heal")
        self.cluster.heal()
        for node in self.cluster.nodes:
            if not node.running:
                self.cluster.restart(node.index)
        self.until("agreement after the heal", self._not_agreed, HEAL_MS_MAX)
        self.count("suspicions", self.cluster.suspicions)
        self._check_deaths()

    def _not_agreed(self) -> str:
        views = [node.swim.view & 0xFFFF_FFFF for node in self.cluster.running()]
        self.trace.note("views", *views)
        return "" if self.cluster.agree() else f"there are {len(set(views))} views"

    def _check_deaths(self) -> None:
        if self.cluster.false_deaths:
            at_ms, holder, other = self.cluster.false_deaths[0]
            text = f"node {holder + 1} held node {other + 1} dead at {at_ms} ms, and it was not"
            raise Violation("wrong death", f"{text}; {len(self.cluster.false_deaths)} in all")

    def _inject(self, fault: Fault) -> None:
        self.trace.note(str(fault))
        self.count(f"fault {fault.kind}")
        cluster = self.cluster
        if fault.kind == "join":
            cluster.heal()
        elif fault.kind == "split":
            cluster.excused.update(range(self.plan.nodes))
            cluster.partition(*([int(one) - 1 for one in part.split(",")] for part in fault.words[0].split("|")))
        elif fault.kind == "cut":
            one, _, other = fault.words[0].partition(">")
            cluster.excused |= {int(one) - 1, int(other) - 1}
            cluster.cuts.add((int(one) - 1, int(other) - 1))
        else:
            self._inject_in_node(fault, fault.number(0) - 1)

    def _inject_in_node(self, fault: Fault, index: int) -> None:
        cluster = self.cluster
        node = cluster.nodes[index]
        if fault.kind == "start":
            if not node.running:
                cluster.restart(index, new_id="new" in fault.words)
        elif not node.running:
            return
        elif fault.kind == "kill":
            cluster.kill(index, silent="silent" in fault.words)
        elif fault.kind == "leave":
            cluster.take_leave(index)
        elif fault.kind == "pause":
            if fault.number(1) > SHORT_MS:
                cluster.excused.add(index)
            cluster.pause(index, fault.number(1))
