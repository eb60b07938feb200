"""Does to whole nodes what a plan says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.cluster.commands import AlterTopic, CreateTopic, DeleteTopic, Rebalance
from flockmq.testing.simulation.nodes.clients import TOPIC
from flockmq.testing.simulation.nodes.compacting import compact
from flockmq.testing.simulation.nodes.damage import flip

if TYPE_CHECKING:
    from flockmq.cluster.commands import Command, Result
    from flockmq.testing.cluster_harness import NodeMachine
    from flockmq.testing.simulation.nodes.process import DurableProcess
    from flockmq.testing.simulation.nodes.world import NodesWorld
    from flockmq.testing.simulation.plan import Fault


class NodeFaults:
    """Looks up ``_do_KIND`` for each fault. A fault names its node first, if it names one: ``2``, or ``L0`` for the
    leader of shard 0, ``S0`` and ``C0`` for those of ``$sessions`` and ``$capture``."""

    def __init__(self, cluster: NodesWorld) -> None:
        self._cluster = cluster

    def inject(self, fault: Fault) -> None:
        """Let it happen now."""
        self._cluster.trace.note(str(fault))
        self._cluster.count(f"fault {fault.kind}")
        getattr(self, f"_do_{fault.kind}")(fault)

    def _machine(self, fault: Fault) -> NodeMachine[DurableProcess]:
        word = fault.words[0]
        if word[0] in "LSC":
            cluster = self._cluster
            groups = {"L": cluster.groups, "S": cluster.session_groups(), "C": cluster.capture_groups()}[word[0]]
            return cluster.machine(cluster.leader_among(groups, int(word[1:])) or 1)
        return self._cluster.machine(int(word))

    # Processes and disks.

    def _do_kill(self, fault: Fault) -> None:
        self._machine(fault).die(self._cluster.rng(fault), power=False)

    def _do_crash(self, fault: Fault) -> None:
        self._machine(fault).die(self._cluster.rng(fault), power=True)

    def _do_blackout(self, fault: Fault) -> None:
        rng = self._cluster.rng(fault)
        for machine in self._cluster.machines:
            machine.die(rng, power=True)

    def _do_start(self, fault: Fault) -> None:
        for machine in self._cluster.machines if fault.words[0] == "all" else [self._machine(fault)]:
            machine.start()

    def _do_pause(self, fault: Fault) -> None:
        self._machine(fault).pause(fault.number(1))

    def _do_slow(self, fault: Fault) -> None:
        process = self._machine(fault).process
        if process is not None:
            process.worker.slow_us = fault.number(1) * 1_000

    def _do_flip(self, fault: Fault) -> None:
        place = flip(self._machine(fault), self._cluster.rng(fault))
        self._cluster.trace.note(place)
        self._cluster.count("bits turned over", bool(place))

    def _do_wipe(self, fault: Fault) -> None:
        self._cluster.stores.wipe(self._machine(fault))

    def _do_copy(self, fault: Fault) -> None:
        self._cluster.stores.copy(self._machine(fault))

    def _do_rollback(self, fault: Fault) -> None:
        self._cluster.stores.roll_back(self._machine(fault))

    def _do_jump(self, fault: Fault) -> None:
        self._machine(fault).wall_error_ms += fault.number(1)

    # Sessions.

    def _do_hand(self, fault: Fault) -> None:
        machine = self._machine(fault)
        if machine.process is not None:
            machine.do(machine.life, self._hand_over, machine.process)

    def _hand_over(self, process: DurableProcess) -> None:
        self._cluster.count("groups handed over", process.engine.hand_over())

    def _do_compact(self, fault: Fault) -> None:
        machine = self._machine(fault)
        if machine.process is not None:
            machine.do(machine.life, compact, machine.process, self._cluster.session_groups())

    def _do_sweep(self, fault: Fault) -> None:
        machine = self._machine(fault)
        if machine.process is not None:
            for group in self._cluster.capture_groups():
                machine.do(
                    machine.life, machine.process.durable.retention_sweeper.look_at, group, self._cluster.now_ms()
                )

    def _do_hold(self, fault: Fault) -> None:
        machine = self._machine(fault)
        if machine.process is not None:
            machine.do(machine.life, machine.process.durable.capture_holds.hurry)

    # The network and clients.

    def _do_split(self, fault: Fault) -> None:
        self._cluster.network.split([{int(number) for number in part.split(",")} for part in fault.words[0].split("|")])

    def _do_isolate(self, fault: Fault) -> None:
        number = self._machine(fault).number
        others = {machine.number for machine in self._cluster.machines} - {number}
        self._cluster.network.split([{number}, others])

    def _do_join(self, fault: Fault) -> None:  # noqa: ARG002
        self._cluster.network.split([])

    def _do_delay(self, fault: Fault) -> None:
        self._cluster.network.delay_us = fault.number(0) * 1_000

    def _do_roam(self, fault: Fault) -> None:
        number = self._machine(fault).number
        for client in self._cluster.clients:
            if client.node == number and client.connected:
                client.lost()

    # Cluster state.

    def _do_make(self, fault: Fault) -> None:
        self._found(fault, CreateTopic(fault.words[1], shards=2))

    def _do_grow(self, fault: Fault) -> None:
        self._found(fault, AlterTopic(TOPIC, shards=self._cluster.plan.shards + 1))

    def _do_drop(self, fault: Fault) -> None:
        self._submit(fault, DeleteTopic(fault.words[1]))

    def _do_rebalance(self, fault: Fault) -> None:
        self._submit(fault, Rebalance())

    def _do_copies(self, fault: Fault) -> None:
        if self._cluster.stores.admit_copies(fault.number(1)):
            self._submit(fault, AlterTopic(TOPIC, replication_factor=fault.number(1)))

    def _found(self, fault: Fault, command: Command) -> None:
        if self._cluster.stores.admit_founding():
            self._submit(fault, command)
        else:
            self._cluster.count("partitions not made")

    def _submit(self, fault: Fault, command: Command) -> None:
        machine = self._machine(fault)
        if machine.process is not None:
            submit = machine.process.durable.meta.submit
            machine.do(machine.life, lambda: submit(command).then(self._answered))

    def _answered(self, result: Result) -> None:
        self._cluster.count("commands done" if result.ok else f"commands {result.code}")
