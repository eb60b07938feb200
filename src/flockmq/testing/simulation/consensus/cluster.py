"""The whole: nodes, network, clients, faults, and the rules that are checked while they run and afterwards.

```
 faults go on ............................ heal ... repair ... all level? --> final    rules
 (safety is checked at every step)                  (liveness: within HEAL_MS_MAX)
```
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flockmq.log.errors import DamageError
from flockmq.raft.ready import Proposal, Refusal
from flockmq.raft.settings import RaftSettings
from flockmq.raft.state import LEADER, SOUND
from flockmq.testing.simulation.consensus.clients import Reader, Writer
from flockmq.testing.simulation.consensus.faults import FaultInjector
from flockmq.testing.simulation.consensus.history import GroupHistory
from flockmq.testing.simulation.consensus.node import TICK_MS, SimulatedNode
from flockmq.testing.simulation.consensus.plan import ConsensusPlan
from flockmq.testing.simulation.consensus.process import Member
from flockmq.testing.simulation.network import CALM, Network
from flockmq.testing.simulation.world import Violation, World

WRITERS: Final = 2
HEAL_MS_MAX: Final = 60_000
LOOK_MS: Final = 250
LOOKS_BEHIND: Final = 4
ACKNOWLEDGED_AFTER_HEAL: Final = 5
CHECKS_MAX: Final = 10


class Cluster(World):
    """See the module."""

    def __init__(self, seed: int, plan: ConsensusPlan, trace: bool = False) -> None:
        super().__init__(seed, trace)
        self.plan = plan
        self.settings = RaftSettings(
            tick_ms=TICK_MS,
            heartbeat_ms=min(150, plan.election_ms // 3),
            election_ms=plan.election_ms,
            append_bytes_max=300 if plan.tiny else 4_096,
            window_bytes_max=300 if plan.tiny else 16_384,
            tail_bytes_max=8_192,
            snapshot_chunk_bytes=700 if plan.tiny else 8_192,
            lease=plan.lease,
            commit_news_at_once=seed % 2 == 1,  # both ways are in use: servers, and consensus alone
        )
        self.network = Network(self.queue, self.rng("network"), self._deliver)
        self.histories = [GroupHistory(group) for group in range(plan.groups)]
        self.nodes = {
            number: SimulatedNode(self, number, self.rng(f"node {number}")) for number in range(1, plan.nodes + 1)
        }
        self.coups: dict[int, list[Callable[[int], None]]] = {}
        """By group: what to do when it elects its next leader, the one after that, and so on."""
        self._writers: list[Writer] = []

    def frames(self) -> int:
        """How many frames the network carried."""
        return self.network.sent

    def run(self) -> None:
        """Everything; Violation when a rule is broken."""
        for node in self.nodes.values():
            node.start()
        for group in range(self.plan.groups):
            for number in range(WRITERS):
                name = b"w%d-%d" % (group, number)
                self._writers.append(Writer(self, name, group, self.rng(name.decode())))
            Reader(self, group, self.rng(f"reader {group}"))
        injector = FaultInjector(self)
        for fault in self.plan.faults:
            if fault.at_ms < self.plan.duration_ms:
                self.queue.at(fault.at_ms * 1_000, injector.inject, fault)
        self.queue.run_until(self.plan.duration_ms * 1_000)
        self.heal()
        self.settle()
        self.check_logs()

    def heal(self) -> None:
        """Nothing goes wrong from now on."""
        self.trace.note("heal")
        self.network.heal()
        self.network.conditions = CALM
        self.coups.clear()
        for node in self.nodes.values():
            node.heal()

    def settle(self) -> None:
        """Liveness: within a bound every group takes writes again and every member has all of them."""
        goals = [len(history.acknowledged) + ACKNOWLEDGED_AFTER_HEAL for history in self.histories]
        until = self.queue.now + HEAL_MS_MAX * 1_000
        missing = ["not looked yet"]
        # Writers go on, so followers are always a little behind: they must have what was acknowledged a while ago.
        levels = [[history.acknowledged_index for history in self.histories]] * LOOKS_BEHIND
        while any(missing):
            if self.queue.now >= until:
                text = "; ".join(filter(None, missing))
                raise Violation("liveness", f"{HEAL_MS_MAX} ms after all faults ended: {text}")
            self.queue.run_until(self.queue.now + LOOK_MS * 1_000)
            missing = [self._missing(group, goals[group], levels[0][group]) for group in range(self.plan.groups)]
            levels = [*levels[1:], [history.acknowledged_index for history in self.histories]]
        self.count("healed ms", (self.queue.now - self.plan.duration_ms * 1_000) // 1_000)

    def _missing(self, group: int, goal: int, level: int) -> str:
        """What a group still lacks; as an operator would, look after replicas that forgot their votes."""
        leader = self.member(self.leader_of(group), group)
        if leader is None:
            return f"group {group} has no leader"
        history = self.histories[group]
        if len(history.acknowledged) < goal:
            return f"group {group} acknowledges nothing"
        configuration = leader.raft.state.configuration
        for number in configuration.members():
            member = self.member(number, group)
            if member is None:
                return f"node {number} has no replica of group {group}"
            if member.raft.state.health != SOUND:
                self._demote(group, number)
                return f"the replica of group {group} on node {number} was not refilled"
            if member.machine.index < level:
                return f"node {number} applied {member.machine.index} of {level} in group {group}"
            if member.raft.state.log.durable < level:
                # A snapshot brings the state; the entries that it stands for may follow.
                return f"node {number} has {member.raft.state.log.durable} of {level} entries in group {group}"
        return ""

    def _demote(self, group: int, number: int) -> None:
        """Votes that were forgotten come back only to a replica that was no voter meanwhile."""
        leader = self.member(self.leader_of(group), group)
        if leader is None:
            return
        configuration = leader.raft.state.configuration
        if configuration.is_voter(number) and not configuration.is_joint:
            voters = tuple(voter for voter in configuration.voters if voter != number)
            self.ask_for_members(group, voters, (*configuration.learners, number))

    def check_logs(self) -> None:
        """All replicas hold the same bytes, and they are those that were applied and acknowledged.

        What lies in old segments is verified when a reader comes to it. If this is the first to meet damage there, its
        node does what it always does then: it writes that down, starts anew, and is refilled.
        """
        for _ in range(CHECKS_MAX):
            damaged = self._compare_logs()
            if not damaged:
                return
            self.count("damage met last", len(damaged))
            self.queue.run_until(self.queue.now + LOOK_MS * 1_000)
            for number, reason in damaged.items():
                self.nodes[number].give_up(reason, restart=True)
            self.settle()
        raise Violation("replicas are identical", f"damage is back after {CHECKS_MAX} repairs: {damaged}")

    def _compare_logs(self) -> dict[int, str]:
        """Nodes that hold damage, and what they say about it."""
        damaged: dict[int, str] = {}
        for history in self.histories:
            leader = self.member(self.leader_of(history.group), history.group)
            members = leader.raft.state.configuration.members() if leader is not None else []
            for number in members:
                member = self.member(number, history.group)
                if member is None:
                    continue
                try:
                    self._check_log(history, number, member)
                except DamageError as error:
                    if number not in self.plan.victims:
                        raise
                    damaged[number] = str(error)
        return damaged

    def _check_log(self, history: GroupHistory, number: int, member: Member) -> None:
        log = member.replica.log
        index = log.first_index()
        end = min(member.machine.index, history.last_index, log.last_index())
        while index <= end:
            batches = log.entries(index, end + 1, 1 << 20)
            for data in batches:
                if data != history.log[index]:
                    text = f"group {history.group}: node {number} holds other bytes than were applied at {index}"
                    raise Violation("replicas are identical", text)
                index += 1
            if not batches:
                text = f"group {history.group}: node {number} lacks entry {index}"
                raise Violation("replicas are identical", text)

    def _deliver(self, sender: int, receiver: int, frame: bytes) -> None:
        self.nodes[receiver].receive(sender, frame)

    def elected(self, group: int, number: int) -> None:
        """A group has a new leader, and no other node has heard of it yet."""
        self.count("elections")
        if self.coups.get(group):
            self.coups[group].pop(0)(number)

    def died(self, number: int) -> None:
        """A process ended."""
        for writer in self._writers:
            writer.node_died(number)

    def member(self, number: int, group: int) -> Member | None:
        """A group on a node, if both are there."""
        node = self.nodes.get(number)
        return None if node is None or node.process is None else node.process.members.get(group)

    def leader_of(self, group: int) -> int:
        """The node that leads a group, in the latest term if several believe so; 0 without one."""
        best = (0, 0)
        for number in self.nodes:
            member = self.member(number, group)
            if member is not None and member.raft.state.role == LEADER:
                best = max(best, (member.raft.state.term, number))
        return best[1]

    def ask_for_members(self, group: int, voters: tuple[int, ...], learners: tuple[int, ...]) -> None:
        """Ask the leader for other members."""
        node = self.nodes.get(self.leader_of(group))
        if node is not None and node.process is not None:
            node.do(node.life, node.process.change, group, voters, learners)

    def ask_to_hand_over(self, group: int, target: int) -> None:
        """Ask the leader to hand over."""
        node = self.nodes.get(self.leader_of(group))
        if node is not None and node.process is not None:
            node.do(node.life, node.process.transfer, group, target)

    def asked(self, what: str, result: Proposal | Refusal | None) -> None:
        """Count what became of a request."""
        if isinstance(result, Refusal):
            self.count(f"{what} refused")
            self.trace.say(result.reason)
        else:
            self.count(f"{what} begun")
