"""Faults of whole stores: wiped, or rolled back to an older copy, while all that lies beside the store stays.

What was acknowledged is on a majority of a group's voters. So a store may be lost only while all other voters of its
groups are whole, and while those are enough to decide: otherwise data is lost by nature, and a person has to accept it.
A fault that would go further is left out, and counted.

That holds for partitions that are yet to be made, too. Placement trusts the store that cluster state knows of a node:

```
 grow (factor 1) is asked for, waits --> node 3 loses its store --> grow: founders (3,) --> new store of 3: founders ()
```
Cluster state can't tell whether the lost store began that partition and acknowledged records: only a person can.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from flockmq.cluster.state import ClusterState
from flockmq.log.work import MANIFESTS
from flockmq.raft.configuration import Configuration
from flockmq.raft.state import SOUND

if TYPE_CHECKING:
    from flockmq.testing.simulation.nodes.process import DurableMachine, DurableProcess
    from flockmq.testing.simulation.nodes.world import NodesWorld

VOTERS_MIN: Final = 3
COMMAND_MS_MAX: Final = 10_000
"""A change of cluster state that was asked for takes effect within that time, or not at all."""


class StoreFaults:
    """Which stores are lost and not yet refilled, and whether another one may be."""

    def __init__(self, cluster: NodesWorld) -> None:
        self._cluster = cluster
        self._lost: dict[int, None] = {}
        self._copies: dict[int, dict[str, bytes]] = {}
        """Number of a machine -> the copy of its store."""
        self._state = ClusterState()
        """The latest that any node ever knew."""
        self._deciders = Configuration(())
        """Members of group 0, as its leader last had them."""
        self._deciders_as_of = (0, 0)
        self._few_until = 0
        """Until then the topic may come down to too few replicas, whatever cluster state says now."""
        self._founding_until = 0
        """Until then partitions may be made that cluster state does not have yet."""

    def look_at(self, process: DurableProcess) -> None:
        """A turn of a node is over: remember what it knows, for times when no node runs."""
        state = process.durable.meta.state
        if state.index >= self._state.index:
            self._state = state
        if process.engine.is_leader(0):
            raft = process.engine.host.groups[0].state
            if (raft.term, raft.configuration_index) > self._deciders_as_of:
                self._deciders_as_of = (raft.term, raft.configuration_index)
                self._deciders = raft.configuration

    def copy(self, machine: DurableMachine) -> None:
        """Put a copy of a store away."""
        self._copies[machine.number] = machine.disk.copy()

    def wipe(self, machine: DurableMachine) -> None:
        """A store that is gone."""
        if self._may_lose(machine):
            self._lose(machine)
            machine.disk.wipe()

    def roll_back(self, machine: DurableMachine) -> None:
        """A copy in the place of the store."""
        files = self._copies.get(machine.number)
        if files and self._may_lose(machine):
            self._lose(machine)
            rng = random.Random(f"{machine.number} {self._cluster.now_ms()}")  # noqa: S311
            machine.disk.put_back(_with_damage(files, rng))

    def admit_copies(self, copies: int) -> bool:
        """Whether the topic may be asked to have so many replicas now: one of two can't decide alone. If it may, no
        store is lost until the change has taken effect."""
        if copies >= VOTERS_MIN:
            return True
        if self.unhealed():
            return False
        self._few_until = self._cluster.now_ms() + COMMAND_MS_MAX
        return True

    def admit_founding(self) -> bool:
        """Whether new partitions may be asked for now: a founder whose store is lost could not begin them. If they may
        be, no store is lost until they are made, unless they can do without one of their founders."""
        if self.unhealed():
            return False
        self._founding_until = self._cluster.now_ms() + COMMAND_MS_MAX
        return True

    def unhealed(self) -> str:
        """Which machine still lacks something it had; empty when all are whole."""
        for number in list(self._lost):
            if self._is_healed(self._cluster.machine(number)):
                del self._lost[number]
        return f"node {next(iter(self._lost))} is not refilled" if self._lost else ""

    def _lose(self, machine: DurableMachine) -> None:
        self._cluster.count("stores lost")
        self._lost[machine.number] = None
        machine.die(machine.rng, power=False)

    def _may_lose(self, machine: DurableMachine) -> bool:
        if self.unhealed() and list(self._lost) != [machine.number]:
            self._cluster.count("stores spared")
            return False
        number = machine.number
        groups = [self._deciders]
        for process in self._cluster.processes():
            groups += [node.state.configuration for node in process.engine.host.groups.values()]
        is_sure = self._deciders.voters and all(survives(one, number) for one in groups)
        is_sure = is_sure and self._cluster.now_ms() >= self._few_until and not self._may_found_few()
        for partition in self._state.partitions():
            if number in partition.members() and (partition.is_moving or len(partition.target) < VOTERS_MIN):
                is_sure = False
        if not is_sure:
            self._cluster.count("stores spared")
        return bool(is_sure)

    def _may_found_few(self) -> bool:
        """Whether partitions may come that can't do without one of their founders."""
        if self._cluster.now_ms() >= self._founding_until:
            return False
        is_few = any(topic.replication_factor < VOTERS_MIN for topic in self._state.topics.values())
        return is_few or len(self._state.alive_cores()) < VOTERS_MIN

    def _is_healed(self, machine: DurableMachine) -> bool:
        process = machine.process
        if process is None or not process.durable.is_ready():
            return False
        known = self._state.nodes.get(machine.number)
        if known is None or known.store != process.store.identity:
            return False  # a partition that is placed here now counts on the store that is gone
        for group in [0, *[one.group for one in self._state.partitions() if machine.number in one.members()]]:
            node = process.engine.host.groups.get(group)
            if node is None:
                if group or machine.number in self._deciders.members():
                    return False
            elif node.state.health != SOUND or not _is_voter(node.state.configuration, machine.number):
                return False
        return True


def _with_damage(files: dict[str, bytes], rng: random.Random) -> dict[str, bytes]:
    """The copy, at times with one manifest spoiled: a store that is damaged may be an older one all the same."""
    one, other = MANIFESTS
    if files.get(one) != files.get(other) or rng.random() < 0.7:
        return files
    return {**files, one: bytes(len(files[one]))}


def _is_voter(configuration: Configuration, node: int) -> bool:
    return node in configuration.voters and not configuration.is_joint


def survives(configuration: Configuration, node: int) -> bool:
    """Whether a group can do without what a node has."""
    if node not in configuration.members():
        return True
    return not configuration.is_joint and not configuration.learners and len(configuration.voters) >= VOTERS_MIN
