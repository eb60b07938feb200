"""Whole nodes in one process, from one seed: brokers, membership, cluster state, durable topics, disks, clients.

```
 start --> one cluster, a durable topic --> publishers, subscribers --> faults go on ... heal ... all settled?
                                             (answers are checked as they come)  --> logs, states, deliveries: ``Rules``
```
Virtual time: two runs of a seed are the same run. See ``durable_plan`` for what can go wrong.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from flockmq.cluster.commands import AlterTopic, CreateTopic, DeleteTopic, Rebalance
from flockmq.cluster.model import DEFAULT_NAMESPACE, QUORUM
from flockmq.cluster.tables import key_of
from flockmq.gossip.settings import profile
from flockmq.node.settings import BrokerSettings
from flockmq.testing.durable_clients import TOPIC, Client, Publisher, Subscriber
from flockmq.testing.durable_damage import flip, scrub, unmended
from flockmq.testing.durable_machine import Machine, Process
from flockmq.testing.durable_network import DELAY_US_MAX, DurableNetwork
from flockmq.testing.durable_readers import LogReader
from flockmq.testing.durable_rules import Rules, read_log, read_retained
from flockmq.testing.durable_stores import StoreFaults
from flockmq.testing.harness import START_MS
from flockmq.testing.simulation.events import EventQueue
from flockmq.testing.simulation.history import Violation
from flockmq.testing.simulation.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.cluster.commands import Command, Result
    from flockmq.cluster.model import TopicRecord
    from flockmq.testing.durable_plan import Fault, Plan

FORM_MS_MAX: Final = 60_000
HEAL_MS_MAX: Final = 90_000
LOOK_MS: Final = 100
CALM_MS: Final = 1_000
PUBLISHERS: Final = (0, 1, 1, 2, 2)
SUBSCRIBERS: Final = ((0, False), (1, False), (2, False), (1, True))
"""QoS, and whether they want all from the beginning."""


class DurableHarness:
    """See the module."""

    def __init__(self, seed: int, plan: Plan, trace: bool = False) -> None:
        self.seed = seed
        self.plan = plan
        self.queue = EventQueue()
        self.trace = Trace(self.queue, trace)
        self.figures: dict[str, int] = {}
        self.settings = BrokerSettings(sys_interval_ms=0)
        self.gossip = profile("local")
        self.rules = Rules(self, plan.shards, is_early=plan.ack != QUORUM)
        self.machines: list[Machine] = []
        self.stores = StoreFaults(self)
        self.network = DurableNetwork(self, self._rng("network"))
        self.machines += [Machine(self, number, self._rng(f"node {number}")) for number in range(1, plan.nodes + 1)]
        self.clients: list[Client] = []
        self._boots = 0
        self._created: Result | None = None
        self.groups: list[int] = []
        """Of all shards that anybody knows of, in their order."""
        self._ends: list[int] = []
        self._was_dark = False
        """At some moment no node lived: what only memories had is gone (disks of retained messages are not simulated).
        """

    def _rng(self, name: str) -> random.Random:
        return random.Random(f"{self.seed} {name}")  # noqa: S311

    # What parts of it ask for.

    def now_ms(self) -> int:
        """Time as all nodes see it."""
        return START_MS + self.queue.now // 1_000

    def count(self, name: str, by: int = 1) -> None:
        """Count something for the figures of the run."""
        self.figures[name] = self.figures.get(name, 0) + by

    def machine(self, number: int) -> Machine:
        """By number, from 1 on."""
        return self.machines[number - 1]

    def next_boot(self) -> int:
        """Boots of all nodes together count up, as times of starts do."""
        self._boots += 1
        return self._boots

    def died(self, number: int) -> None:
        """A process ended."""
        self.network.died(number)
        self.rules.died(number)
        self._was_dark = self._was_dark or not self.processes()
        for client in self.clients:
            if client.node == number:
                client.lost()

    def stopped(self, number: int, reason: str) -> None:
        """A node takes part in consensus no more: here that is always a bug."""
        process = self.machine(number).process
        told = process.engine.events[-1:] if process is not None else []
        raise Violation("no exception", f"node {number} stopped: {reason}; {told}")

    def processes(self) -> list[Process]:
        """Those that run."""
        return [machine.process for machine in self.machines if machine.process is not None]

    # The run.

    def run(self) -> None:
        """Everything; Violation when a rule is broken."""
        self.form()
        began = self.queue.now
        for number, (qos, replay) in enumerate(SUBSCRIBERS):
            self.clients.append(Subscriber(self, f"s{number}", qos, self._rng(f"subscriber {number}"), replay=replay))
        for number, qos in enumerate(PUBLISHERS):
            self.clients.append(Publisher(self, f"p{number}", qos, self._rng(f"publisher {number}")))
        for number in range(self.plan.readers):
            LogReader(self, self._rng(f"reader {number}"))
        for fault in self.plan.faults:
            if fault.at_ms < self.plan.duration_ms:
                self.queue.at(began + fault.at_ms * 1_000, self._inject, fault)
        self.queue.run_until(began + self.plan.duration_ms * 1_000)
        self.heal()
        self.settle()
        self.check()

    def until(self, what: str, condition: Callable[[], str], ms_max: int) -> None:
        """Let time pass until nothing is missing; Violation of liveness when something still is."""
        end = self.queue.now + ms_max * 1_000
        while missing := condition():
            if self.queue.now >= end:
                raise Violation("liveness", f"{what}: after {ms_max} ms {missing}")
            self.queue.run_until(self.queue.now + LOOK_MS * 1_000)

    def form(self) -> None:
        """Nodes find each other, and make the topic."""
        for machine in self.machines:
            machine.start()
        self.until("formation", self._not_one, FORM_MS_MAX)
        machine = self.machine(self._rng("topic").randrange(self.plan.nodes) + 1)
        machine.do(machine.life, self._create, machine)
        self.until("the topic", self._not_made, FORM_MS_MAX)
        self.until("its leaders", self._not_led, FORM_MS_MAX)

    def _not_one(self) -> str:
        everybody = {machine.number for machine in self.machines}
        if not self.network.are_linked(everybody):
            return "not all are linked"
        for process in self.processes():
            if not process.sees(everybody):
                return f"node {process.machine.number} does not see all others"
            known = process.durable.meta.state
            if len(known.nodes) != len(everybody):
                return f"node {process.machine.number} has {len(known.nodes)} nodes in its cluster state"
        return ""

    def _create(self, machine: Machine) -> None:
        process = machine.process
        assert process is not None
        plan = self.plan
        command = CreateTopic(TOPIC, shards=plan.shards, replication_factor=plan.copies, ack=plan.ack)
        process.durable.meta.submit(command, self._topic_made, self.now_ms())

    def _topic_made(self, result: Result) -> None:
        if not result.ok:
            raise Violation("liveness", f"the topic can't be made: {result.error}")
        self._created = result

    def _not_made(self) -> str:
        return "" if self._created is not None and all(self.topic(one) for one in self.processes()) else "is not made"

    def topic(self, process: Process) -> TopicRecord | None:
        """The topic as a node knows it."""
        return process.durable.meta.state.topics.get(key_of(DEFAULT_NAMESPACE, TOPIC))

    def leader_of(self, shard: int) -> int:
        """Number of the node that leads a shard in the latest term; 0 for nobody."""
        groups = self.groups
        best = (0, 0)
        for process in self.processes():
            if shard < len(groups) and process.engine.is_leader(groups[shard]):
                term = process.engine.host.groups[groups[shard]].state.term
                best = max(best, (term, process.machine.number))
        return best[1]

    def committed_ends(self) -> list[int]:
        """For each shard the offset behind all that any node ever knew to be committed: after a restart they have to
        find out again.
        """
        return list(self._ends)

    def look_at(self, process: Process) -> None:
        """A turn of a node is over: see how far its logs are."""
        self.stores.look_at(process)
        topic = self.topic(process)
        if topic is not None and len(topic.partitions) > len(self.groups):
            self.groups = [one.group for one in sorted(topic.partitions, key=lambda one: one.shard)]
            self._ends += [0] * (len(self.groups) - len(self._ends))
        for group, error in process.engine.host.broken.items():
            raise Violation("safety", f"node {process.machine.number} stopped group {group}: {error}")
        for shard, group in enumerate(self.groups):
            self._ends[shard] = max(self._ends[shard], process.engine.committed_offset(group))

    def _not_led(self) -> str:
        for shard in range(max(self.plan.shards, len(self.groups))):
            if not self.leader_of(shard):
                return f"shard {shard} has no leader"
        return ""

    # Faults.

    def _inject(self, fault: Fault) -> None:
        self.trace.note(str(fault))
        self.count(f"fault {fault.kind}")
        rng = random.Random(f"{self.seed} {fault}")  # noqa: S311
        words = fault.words
        if fault.kind in ("kill", "crash"):
            self._named(words[0]).die(rng, power=fault.kind == "crash")
        elif fault.kind == "blackout":
            for machine in self.machines:
                machine.die(rng, power=True)
        elif fault.kind == "start":
            for machine in self.machines if words[0] == "all" else [self._named(words[0])]:
                machine.start()
        elif fault.kind in ("wipe", "copy", "rollback"):
            self._inject_in_store(fault.kind, self._named(words[0]))
        elif fault.kind == "flip":
            place = flip(self._named(words[0]), rng)
            self.trace.note(place)
            self.count("bits turned over", bool(place))
        elif fault.kind == "pause":
            self._named(words[0]).pause(int(words[1]))
        elif fault.kind == "split":
            self.network.split([{int(number) for number in part.split(",")} for part in words[0].split("|")])
        elif fault.kind == "join":
            self.network.split([])
        elif fault.kind == "slow":
            process = self._named(words[0]).process
            if process is not None:
                process.worker.slow_us = int(words[1]) * 1_000
        elif fault.kind == "delay":
            self.network.delay_us = int(words[0]) * 1_000
        elif fault.kind in ("make", "grow") and self.stores.unhealed():
            self.count("partitions not made")  # a founder whose store is lost could not begin them
        elif fault.kind == "make":
            self._submit(self._named(words[0]), CreateTopic(words[1], shards=2))
        elif fault.kind == "drop":
            self._submit(self._named(words[0]), DeleteTopic(words[1]))
        elif fault.kind == "rebalance":
            self._submit(self._named(words[0]), Rebalance())
        elif fault.kind == "grow":
            self._submit(self._named(words[0]), AlterTopic(TOPIC, shards=self.plan.shards + 1))
        elif fault.kind == "copies" and self.stores.admit_copies(int(words[1])):
            self._submit(self._named(words[0]), AlterTopic(TOPIC, replication_factor=int(words[1])))
        elif fault.kind == "roam":
            number = self._named(words[0]).number
            for client in self.clients:
                if client.node == number and client.connected:
                    client.lost()

    def _inject_in_store(self, kind: str, machine: Machine) -> None:
        if kind == "copy":
            self.stores.copy(machine)
        elif kind == "wipe":
            self.stores.wipe(machine)
        else:
            self.stores.roll_back(machine)

    def _submit(self, machine: Machine, command: Command) -> None:
        process = machine.process
        if process is not None:
            machine.do(machine.life, process.durable.meta.submit, command, self._answered, self.now_ms())

    def _answered(self, result: Result) -> None:
        self.count("commands done" if result.ok else f"commands {result.code}")

    def _named(self, word: str) -> Machine:
        if word.startswith("L"):
            return self.machine(self.leader_of(int(word[1:])) or 1)
        return self.machine(int(word))

    # The end.

    def heal(self) -> None:
        """Nothing goes wrong from now on."""
        self.trace.note("heal")
        self.network.split([])
        self.network.delay_us = DELAY_US_MAX
        for machine in self.machines:
            machine.resume(machine.life)
            machine.start()
            if machine.process is not None:
                machine.process.worker.slow_us = 0
        scrub(self.processes())

    def settle(self) -> None:
        """Liveness: everybody is served again, then all that was begun ends, then all are level."""
        began = self.queue.now
        goal = self.figures.get("acknowledged", 0) + 10 * len(PUBLISHERS)
        self.until("service after the heal", lambda: self._not_serving(goal), HEAL_MS_MAX)
        self.count("served again ms", (self.queue.now - began) // 1_000)
        for client in self.clients:
            client.quiet = True
        self.until("answers to all that was sent", self._not_answered, HEAL_MS_MAX)
        self.until("nodes that are level", self._not_level, HEAL_MS_MAX)
        self.until("deliveries", self._not_delivered, HEAL_MS_MAX)
        # Whatever is still on its way to subscribers, or to a log, arrives.
        self.queue.run_until(self.queue.now + CALM_MS * 1_000)
        self.until("nodes that are level", self._not_level, HEAL_MS_MAX)
        if not self._was_dark:
            self.until("retained messages", self._not_retained, HEAL_MS_MAX)

    def _not_retained(self) -> str:
        state = self.processes()[0].durable.meta.state
        replicas = {one.group: one.replicas[0] for one in state.partitions()}
        by_shard: list[dict[bytes, bytes]] = []
        for group in self.groups:
            holder = self.machine(replicas[group]).process
            assert holder is not None
            by_shard.append(read_retained(holder.engine.replicas[group].log))
        wanted: dict[bytes, bytes] = {}
        for topic in {topic for names in by_shard for topic in names}:
            for shard in self.rules.shards_of(topic):  # what a key has in its new one is later
                if shard < len(by_shard) and topic in by_shard[shard]:
                    wanted[topic] = by_shard[shard][topic]
        for process in self.processes():
            for topic, payload in wanted.items():
                message = process.harness.broker.retained.get(topic, self.now_ms())
                found = None if message is None else message.run.payload(0)
                if found != payload:
                    return f"node {process.machine.number} has {found!r} of {topic!r}, the log {payload!r}"
        return ""

    def _not_serving(self, goal: int) -> str:
        missing = self._not_one() or self._not_led()
        if missing:
            return missing
        for client in self.clients:
            if not client.connected:
                return f"{client.name} is not connected"
        acknowledged = self.figures.get("acknowledged", 0)
        return "" if acknowledged >= goal else f"only {acknowledged} of {goal} messages are acknowledged"

    def _not_answered(self) -> str:
        for client in self.clients:
            if client.is_waiting():
                return f"{client.name} waits at node {client.node}"
        return ""

    def _not_delivered(self) -> str:
        for process in self.processes():
            streams = process.durable.delivery.streams.by_group
            for group, end in zip(self.groups, self._ends, strict=True):
                if group in streams and streams[group].next < end:
                    return f"node {process.machine.number} delivered {streams[group].next} of {end} of group {group}"
        return ""

    def _not_level(self) -> str:
        """What replicas, and states, lack."""
        missing = self.stores.unhealed() or unmended(self.processes())
        if missing:
            return missing
        states = {process.durable.meta.state.index for process in self.processes()}
        if len(states) != 1:
            return f"cluster states are at {sorted(states)}"
        partitions = self.processes()[0].durable.meta.state.partitions()
        for process_ in self.processes():
            number = process_.machine.number
            wanted = {one.group for one in partitions if number in one.replicas} | {0}
            if not process_.engine.replicas.keys() - {0} <= wanted:
                return f"node {number} still has replicas {sorted(process_.engine.replicas.keys() - wanted)}"
        for partition in partitions:
            if partition.is_moving:
                return f"group {partition.group} moves from {partition.replicas} to {partition.target}"
            ends = set()
            for number in partition.replicas:
                process = self.machine(number).process
                replica = None if process is None else process.engine.replicas.get(partition.group)
                if replica is None:
                    return f"node {number} has no replica of group {partition.group}"
                state = replica.node.state
                ends.add((replica.log.last_index(), state.commit, state.applied))
            if len(ends) != 1 or any(len(set(end)) != 1 for end in ends):
                return f"group {partition.group} stands at {sorted(ends)}"
        return ""

    def check(self) -> None:
        """All rules that need the end."""
        self.count("batches mended", sum(one.durable.scrubbing.mending.repaired for one in self.processes()))
        first, *others = self.processes()
        wanted = first.durable.meta.state.encode()
        for process in others:
            if process.durable.meta.state.encode() != wanted:
                text = (
                    f"nodes {first.machine.number} and {process.machine.number} have different ones at the same index"
                )
                raise Violation("cluster state", text)
        logs = {}
        for partition in first.durable.meta.state.partitions():
            copies = {}
            for number in partition.replicas:
                process_ = self.machine(number).process
                assert process_ is not None
                copies[number] = read_log(process_.engine.replicas[partition.group].log)
            _check_copies(partition.group, {number: entries for number, (entries, _) in copies.items()})
            logs[partition.group] = max((records for _, records in copies.values()), key=len)
        by_shard = [logs[group] for group in self.groups]
        self.rules.check_logs(by_shard)
        self.rules.check_deliveries(by_shard)


def _check_copies(group: int, copies: dict[int, dict[int, bytes]]) -> None:
    (first, wanted), *others = copies.items()
    for number, entries in others:
        for index in wanted.keys() & entries.keys():
            if wanted[index] != entries[index]:
                raise Violation("replicas", f"group {group}: nodes {first} and {number} differ at entry {index}")
