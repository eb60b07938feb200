"""Does to a cluster what a plan says.

```
 inject(fault) --> MachineFaults: processes, clocks, disks | NetworkFaults: cuts, elections | MembershipFaults
```
A node is named by its number, as ``L0`` (the leader of group 0 at that moment) or as ``X`` (the node that an ``L``
named last; ``Y`` before that): the faults that find most hit a leader, and then hit it again.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from flockmq.testing.simulation.network import CALM, Conditions

if TYPE_CHECKING:
    from flockmq.testing.simulation.consensus.cluster import Cluster
    from flockmq.testing.simulation.consensus.node import SimulatedNode
    from flockmq.testing.simulation.plan import Fault


class Names:
    """Which node a word of a fault means."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._last_leaders = [1, 1]

    def number(self, word: str) -> int:
        """The number of the node."""
        if word.startswith("L"):
            leader = self._cluster.leader_of(int(word[1:])) or self._last_leaders[0]
            self.note_leader(leader)
            return leader
        return self._last_leaders["XY".index(word)] if word in "XY" else int(word)

    def note_leader(self, leader: int) -> None:
        """A fault hits this leader: ``X`` from now on."""
        if leader != self._last_leaders[0]:
            self._last_leaders = [leader, self._last_leaders[0]]

    def node(self, fault: Fault, position: int = 0) -> SimulatedNode:
        """The node that a word of a fault names."""
        return self._cluster.nodes[self.number(fault.words[position])]


class Faults:
    """Faults of one sort: ``do_KIND`` for each kind."""

    def __init__(self, cluster: Cluster, names: Names) -> None:
        self._cluster = cluster
        self._names = names

    def _rng(self, fault: Fault) -> random.Random:
        """Chance within a fault depends on nothing but the seed and the fault."""
        return self._cluster.rng(fault)


class MachineFaults(Faults):
    """Processes, clocks and disks."""

    def do_crash(self, fault: Fault) -> None:
        """Power loss."""
        self._names.node(fault).die(self._rng(fault), power=True)

    def do_kill(self, fault: Fault) -> None:
        """The process only."""
        self._names.node(fault).die(self._rng(fault), power=False)

    def do_trap(self, fault: Fault) -> None:
        """Power loss at the next such moment."""
        self._names.node(fault).trap = fault.words[1]

    def do_start(self, fault: Fault) -> None:
        """Start it if it is down."""
        self._names.node(fault).start()

    def do_pause(self, fault: Fault) -> None:
        """Stand still."""
        self._names.node(fault).pause(fault.number(1))

    def do_jump(self, fault: Fault) -> None:
        """Set its clock. A clock that is set back while the process can't look is beyond what a lease can bear."""
        node = self._names.node(fault)
        if not (node.paused and self._cluster.plan.lease):
            node.clock.jump(fault.number(1))

    def do_fail(self, fault: Fault) -> None:
        """A write or sync to come will fail."""
        self._names.node(fault).disk.fail_after(fault.number(1))

    def do_full(self, fault: Fault) -> None:
        """No room on the disk."""
        self._names.node(fault).disk.full = True

    def do_slow(self, fault: Fault) -> None:
        """A slow disk."""
        process = self._names.node(fault).process
        if process is not None:
            process.worker.slow_us = fault.number(1) * 1_000

    def do_flip(self, fault: Fault) -> None:
        """Bits turn over while the machine is down."""
        node = self._names.node(fault)
        rng = self._rng(fault)
        node.die(rng, power=True)
        for _ in range(fault.number(1)):
            self._cluster.trace.say(f"flipped {node.disk.flip(rng, fault.words[-1] == 'tail')}")

    def do_wipe(self, fault: Fault) -> None:
        """A new disk."""
        node = self._names.node(fault)
        node.die(self._rng(fault), power=True)
        node.disk.wipe()

    def do_compact(self, fault: Fault) -> None:
        """Snapshot, and forget what is before it."""
        node = self._names.node(fault)
        if node.process is not None:
            node.do(node.life, node.process.compact, fault.number(1))


class NetworkFaults(Faults):
    """Cuts, and elections that end in one."""

    def __init__(self, cluster: Cluster, names: Names) -> None:
        super().__init__(cluster, names)
        self._holders: list[int] = []

    def do_cut(self, fault: Fault) -> None:
        """Cut links in one direction each."""
        hold = fault.words[-1] == "hold"
        for word in fault.words[:-1] if hold else fault.words:
            sender, _, receiver = word.partition(">")
            self._cluster.network.cut(int(sender), int(receiver), hold)

    def do_isolate(self, fault: Fault) -> None:
        """Cut off a node, but for the friends it is left."""
        lone = self._names.node(fault).number
        others = [number for number in self._cluster.nodes if number != lone]
        friends = self._rng(fault).sample(others, fault.number(1)) if len(fault.words) > 1 else []
        self._split([lone], [number for number in others if number not in friends])

    def do_narrow(self, fault: Fault) -> None:
        """Make one follower decide what is committed."""
        leader = self._cluster.member(self._names.number(f"L{fault.number(0)}"), fault.number(0))
        if leader is None:
            return
        voters = leader.raft.state.configuration.voters
        lead, needed = leader.raft.state.node, self._names.number(fault.words[1])
        others = [voter for voter in voters if voter not in (lead, needed)]
        enough = max(len(voters) // 2 - 1, 0)
        self._holders = [lead, *self._rng(fault).sample(others, min(enough, len(others)))]
        self._split([*self._holders, needed], [voter for voter in others if voter not in self._holders])

    def do_flank(self, fault: Fault) -> None:
        """Make that follower elect with those that were left out."""
        self._cluster.network.heal()
        holders = [number for number in self._holders if number != self._names.number(fault.words[1])]
        self._split(holders, [number for number in self._cluster.nodes if number not in holders])

    def do_takeover(self, fault: Fault) -> None:
        """Ask for two changes at once, while the old voters can't be asked."""
        group = fault.number(0)
        leader = self._cluster.member(self._names.number(f"L{group}"), group)
        if leader is None:
            return
        lead = leader.raft.state.node
        old = [voter for voter in leader.raft.state.configuration.voters if voter != lead]
        new = [number for number in self._cluster.nodes if number not in old]
        if len(new) <= 2 * len(self._cluster.plan.victims):
            return  # lying disks could be a majority
        self._split(new, old)
        self._cluster.ask_for_members(group, tuple(new), ())
        self._cluster.ask_for_members(group, tuple(new), ())

    def do_coup(self, fault: Fault) -> None:
        """Wait for the next election."""
        self._cluster.coups.setdefault(fault.number(0), []).append(self._coup)

    def _coup(self, leader: int) -> None:
        self._split([leader], [number for number in self._cluster.nodes if number != leader])
        for number, node in self._cluster.nodes.items():
            if number != leader:
                self._cluster.queue.after(0, node.die, node.rng, True)
                self._cluster.queue.after(50_000, node.start)

    def do_ambush(self, fault: Fault) -> None:
        """Wait for the next election."""
        friends = fault.number(1)
        trap = fault.words[2] if len(fault.words) > 2 else ""
        rng = self._rng(fault)

        def ambush(leader: int) -> None:
            others = [number for number in self._cluster.nodes if number != leader]
            rng.shuffle(others)
            others.sort(key=lambda number: self._cluster.nodes[number].process is None)
            self._split([leader], others[friends:])
            self._cluster.nodes[leader].trap = trap
            self._names.note_leader(leader)

        self._cluster.coups.setdefault(fault.number(0), []).append(ambush)

    def do_join(self, fault: Fault) -> None:  # noqa: ARG002
        """Heal all links."""
        self._cluster.network.heal()

    def do_network(self, fault: Fault) -> None:
        """Make the network better or worse."""
        loss, duplicate, reorder, late, delay = (fault.number(position) for position in range(5))
        self._cluster.network.conditions = Conditions(
            delay_us_max=max(delay * 1_000, CALM.delay_us_max),
            loss=loss / 1_000,
            duplicate=duplicate / 1_000,
            reorder=reorder / 1_000,
            late=late / 1_000,
        )

    def _split(self, some: list[int], others: list[int]) -> None:
        for one in some:
            for other in others:
                self._cluster.network.cut(one, other, hold=False)
                self._cluster.network.cut(other, one, hold=False)


class MembershipFaults(Faults):
    """Changes that the leader of a group is asked for."""

    def do_members(self, fault: Fault) -> None:
        """Ask the leader for other members."""
        group = fault.number(0)
        if fault.words[1] != "here":
            self._cluster.ask_for_members(group, fault.numbers(1), fault.numbers(2))
            return
        leader = self._cluster.member(self._names.number(f"L{group}"), group)
        if leader is not None:
            voters = leader.raft.state.configuration.voters
            rest = tuple(number for number in self._cluster.nodes if number not in voters)
            self._cluster.ask_for_members(group, voters, rest)

    def do_move(self, fault: Fault) -> None:
        """Ask the leader to hand over."""
        self._cluster.ask_to_hand_over(fault.number(0), self._names.node(fault, 1).number)


class FaultInjector:
    """Looks up ``do_KIND`` for each fault."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        names = Names(cluster)
        self._sorts = (MachineFaults(cluster, names), NetworkFaults(cluster, names), MembershipFaults(cluster, names))

    def inject(self, fault: Fault) -> None:
        """Let it happen now."""
        self._cluster.trace.note(str(fault))
        self._cluster.count(f"fault {fault.kind}")
        method = f"do_{fault.kind}"
        next(getattr(sort, method) for sort in self._sorts if hasattr(sort, method))(fault)
