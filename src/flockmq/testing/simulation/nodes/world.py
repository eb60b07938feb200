"""Whole nodes in one process, from one seed: brokers, membership, cluster state, durable topics, disks, clients.

```
 start --> one cluster, a durable topic --> publishers, subscribers --> faults go on ... heal ... all settled?
                                             (answers are checked as they come)  --> logs, states, deliveries: ``Rules``
```
Virtual time: two runs of a seed are the same run. See ``plan.py`` for what can go wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.cluster.commands import CreateTopic
from flockmq.cluster.model import CAPTURE_TOPIC, DEFAULT_NAMESPACE, QUORUM, SESSIONS_TOPIC
from flockmq.cluster.tables import key_of
from flockmq.testing.cluster_harness import NodeMachine, VirtualCluster
from flockmq.testing.simulation.links import DELAY_US_MAX
from flockmq.testing.simulation.nodes.archive import Archive
from flockmq.testing.simulation.nodes.clients import TOPIC, Client, Publisher, Subscriber
from flockmq.testing.simulation.nodes.damage import scrub
from flockmq.testing.simulation.nodes.faults import NodeFaults
from flockmq.testing.simulation.nodes.groups import MEMBERS, MemberRules, MembersFounder, SharingMember
from flockmq.testing.simulation.nodes.ledger import Ledger
from flockmq.testing.simulation.nodes.process import TICK_MS, DurableProcess
from flockmq.testing.simulation.nodes.readers import LogReader
from flockmq.testing.simulation.nodes.rules import Rules
from flockmq.testing.simulation.nodes.session_machines import SessionMachineRules
from flockmq.testing.simulation.nodes.session_positions import PositionRules
from flockmq.testing.simulation.nodes.session_rules import SessionRules, under_way_us
from flockmq.testing.simulation.nodes.sessions import (
    LIVE_PUBLISHERS,
    LIVE_SUBSCRIBERS,
    PERSISTENT_SUBSCRIBERS,
    FickleSubscriber,
    LivePublisher,
    LiveSubscriber,
    PersistentSubscriber,
)
from flockmq.testing.simulation.nodes.settling import Settling
from flockmq.testing.simulation.nodes.stores import StoreFaults
from flockmq.testing.simulation.nodes.will_rules import WillRules
from flockmq.testing.simulation.nodes.wills import WILL_CLIENTS, WillClient, WillWatcher
from flockmq.testing.simulation.world import Violation

if TYPE_CHECKING:
    from flockmq.cluster.commands import Result
    from flockmq.cluster.model import TopicRecord
    from flockmq.testing.simulation.nodes.plan import NodesPlan

FORM_MS_MAX: Final = 60_000
PUBLISHERS: Final = (0, 1, 1, 2, 2)
SUBSCRIBERS: Final = ((0, False), (1, False), (2, False), (1, True))
"""QoS, and whether they want all from the beginning."""


class NodesWorld(VirtualCluster[DurableProcess]):
    """See the module."""

    TICK_MS = TICK_MS

    def __init__(self, seed: int, plan: NodesPlan, trace: bool = False) -> None:
        super().__init__(plan.nodes, seed, trace=trace)
        self.plan = plan
        for machine in self.machines:
            machine.segment_bytes = plan.segment
        self.rules = Rules(self, plan.shards, is_early=plan.ack != QUORUM)
        self.live = Ledger(self, kind="live ")
        """Of names that belong to no durable topic."""
        self.sessions = SessionRules(self, [self.rules, self.live], under_way_us(plan))
        self.wills = WillRules(self)
        self.group_rules = MemberRules(self)
        self.positions = PositionRules(self)
        self.session_machines = SessionMachineRules(self, [self.wills, self.positions])
        self.archive = Archive(self, [self.session_machines])
        self.stores = StoreFaults(self)
        self.clients: list[Client] = []
        self.groups: list[int] = []
        """Of all shards that any node knows of, in their order."""
        self.ends: list[int] = []
        """For each shard the offset behind all that any node ever knew to be committed: after a restart they have to
        find out again."""
        self.was_dark = False
        """At some moment no node lived: what only memories had is gone (disks of retained messages are not simulated).
        """
        self._created: Result | None = None
        self._hidden: dict[str, list[int]] = {}
        """Hidden topic -> groups of its shards."""

    def make(self, machine: NodeMachine[DurableProcess]) -> DurableProcess:
        """A whole node."""
        return DurableProcess(machine)

    def died(self, number: int) -> None:
        """A process ended."""
        super().died(number)
        self.rules.died(number)
        self.was_dark = self.was_dark or not self.processes()
        for client in self.clients:
            if client.node == number:
                client.lost()

    # The run.

    def run(self) -> None:
        """Everything; Violation when a rule is broken."""
        self.form()
        began = self.queue.now
        self._begin_clients()
        faults = NodeFaults(self)
        for fault in self.plan.faults:
            if fault.at_ms < self.plan.duration_ms:
                self.queue.at(began + fault.at_ms * 1_000, faults.inject, fault)
        self.queue.run_until(began + self.plan.duration_ms * 1_000)
        self.heal()
        settling = Settling(self)
        goals = {"acknowledged": 10 * len(PUBLISHERS)}
        if self.plan.sessions:
            goals["live acknowledged"] = 10 * len(LIVE_PUBLISHERS)
        settling.settle(goals)
        settling.check()

    def _begin_clients(self) -> None:
        for number, (qos, replay) in enumerate(SUBSCRIBERS):
            self.clients.append(Subscriber(self, f"s{number}", qos, self.rng(f"subscriber {number}"), replay=replay))
        for number, qos in enumerate(PUBLISHERS):
            self.clients.append(Publisher(self, f"p{number}", qos, self.rng(f"publisher {number}"), self.rules))
        for number in range(self.plan.readers):
            LogReader(self, self.rng(f"reader {number}"))
        if self.plan.sessions:
            self._begin_sessions()
        if self.plan.groups:
            MembersFounder(self, self.rng("founder of the group"))
            for number in range(MEMBERS):
                SharingMember(self, f"m{number}", self.rng(f"member {number}"))
        if self.plan.wills:
            self.clients.append(WillWatcher(self, "ww", self.rng("watcher of wills")))
            for number in range(WILL_CLIENTS):
                self.clients.append(WillClient(self, f"w{number}", self.rng(f"will {number}")))

    def _begin_sessions(self) -> None:
        kind = FickleSubscriber if self.plan.sessions > 1 else PersistentSubscriber
        for number, qos in enumerate(PERSISTENT_SUBSCRIBERS):
            self.clients.append(kind(self, f"q{number}", qos, self.rng(f"persistent {number}")))
        for number, qos in enumerate(LIVE_SUBSCRIBERS if self.plan.sessions > 1 else ()):
            self.clients.append(LiveSubscriber(self, f"a{number}", qos, self.rng(f"live subscriber {number}")))
        for number, qos in enumerate(LIVE_PUBLISHERS):
            self.clients.append(LivePublisher(self, f"l{number}", qos, self.rng(f"live {number}")))

    def form(self) -> None:
        """Nodes find each other, and make the topic."""
        for machine in self.machines:
            machine.start()
        self.until("formation", self.not_one, FORM_MS_MAX)
        machine = self.machine(self.rng("topic").randrange(self.plan.nodes) + 1)
        machine.do(machine.life, self._create, machine.number)
        self.until("the topic", self._not_made, FORM_MS_MAX)
        self.until("its leaders", self.not_led, FORM_MS_MAX)

    def not_one(self) -> str:
        """What keeps all machines from being one cluster, in the cluster state of each node as well."""
        if len(self.processes()) < len(self.machines):
            return "not all run"
        missing = super().not_one()
        for process in self.processes():
            known = process.durable.meta.state.nodes
            if not missing and len(known) != len(self.machines):
                return f"node {process.number} has {len(known)} nodes in its cluster state"
        return missing

    def _create(self, number: int) -> None:
        plan = self.plan
        # All is kept: clocks that are set to another day must not take what rules are checked against.
        command = CreateTopic(TOPIC, shards=plan.shards, replication_factor=plan.copies, ack=plan.ack, retention_ms=0)
        self[number].durable.meta.submit(command).then(self._topic_made)

    def _topic_made(self, result: Result) -> None:
        if not result.ok:
            raise Violation("liveness", f"the topic can't be made: {result.error}")
        self._created = result

    def _not_made(self) -> str:
        return "" if self._created is not None and all(self.topic(one) for one in self.processes()) else "is not made"

    def topic(self, process: DurableProcess) -> TopicRecord | None:
        """The topic as a node knows it."""
        return process.durable.meta.state.topics.get(key_of(DEFAULT_NAMESPACE, TOPIC))

    def leader_of(self, shard: int) -> int:
        """Number of the node that leads a shard in the latest term; 0 without one."""
        return self.leader_among(self.groups, shard)

    def leader_among(self, groups: list[int], shard: int) -> int:
        """The same for the shards of any topic."""
        best = (0, 0)
        for process in self.processes():
            if shard < len(groups) and process.engine.is_leader(groups[shard]):
                term = process.engine.host.groups[groups[shard]].state.term
                best = max(best, (term, process.number))
        return best[1]

    def session_groups(self) -> list[int]:
        """The shards of ``$sessions``, once any node knows them."""
        return self._hidden_groups(SESSIONS_TOPIC)

    def capture_groups(self) -> list[int]:
        """The shards of ``$capture``, once any node knows them."""
        return self._hidden_groups(CAPTURE_TOPIC)

    def _hidden_groups(self, name: str) -> list[int]:
        if not self._hidden.get(name):
            for process in self.processes():
                topic = process.durable.meta.state.topics.get(key_of(DEFAULT_NAMESPACE, name))
                if topic is not None:
                    self._hidden[name] = [partition.group for partition in topic.partitions]
        return self._hidden.get(name, [])

    def not_led(self) -> str:
        """Which shard has no leader; empty when all have one."""
        for shard in range(max(self.plan.shards, len(self.groups))):
            if not self.leader_of(shard):
                return f"shard {shard} has no leader"
        return ""

    def turned(self, number: int) -> None:
        """A turn of a node is over: see how far its logs are."""
        process = self[number]
        self.stores.look_at(process)
        for event in process.harness.broker.node.events.take():
            self.positions.happened(event.kind, event.fields)
        self.archive.look_at(process)
        self.session_machines.look_at(process)
        self.positions.look_at(process)
        topic = self.topic(process)
        if topic is not None and len(topic.partitions) > len(self.groups):
            self.groups = [one.group for one in sorted(topic.partitions, key=lambda one: one.shard)]
            self.ends += [0] * (len(self.groups) - len(self.ends))
        for group, error in process.engine.host.broken.items():
            raise Violation("safety", f"node {number} stopped group {group}: {error}")
        for shard, group in enumerate(self.groups):
            self.ends[shard] = max(self.ends[shard], process.engine.committed_offset(group))

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
