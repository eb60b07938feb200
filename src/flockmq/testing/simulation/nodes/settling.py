"""What must hold once all faults are over: nodes serve, answer, are level and deliver; then all rules are checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.testing.simulation.nodes.damage import unmended
from flockmq.testing.simulation.nodes.rules import read_log, read_retained
from flockmq.testing.simulation.world import Violation

if TYPE_CHECKING:
    from flockmq.testing.simulation.nodes.world import NodesWorld

HEAL_MS_MAX: Final = 90_000
CALM_MS: Final = 1_000


class Settling:
    """Liveness first, then the rules that need the end."""

    def __init__(self, cluster: NodesWorld) -> None:
        self._cluster = cluster

    def settle(self, messages: dict[str, int]) -> None:
        """Liveness: all clients are served again, then all that was begun ends, then all are level. ``messages``: how
        many more of each figure make a service."""
        began = self._cluster.queue.now
        goals = {figure: self._cluster.figures.get(figure, 0) + more for figure, more in messages.items()}
        self._cluster.until("service after the heal", lambda: self._not_serving(goals), HEAL_MS_MAX)
        self._cluster.count("served again ms", (self._cluster.queue.now - began) // 1_000)
        for client in self._cluster.clients:
            client.quiet = True
        self._cluster.until("answers to all that was sent", self._not_answered, HEAL_MS_MAX)
        self._cluster.until("nodes that are level", self._not_level, HEAL_MS_MAX)
        self._cluster.until("deliveries", self._not_delivered, HEAL_MS_MAX)
        self._cluster.until("sessions", self._cluster.sessions.missing, HEAL_MS_MAX, rule="session keeps")
        self._cluster.until("groups", self._cluster.group_rules.missing, HEAL_MS_MAX, rule="group complete")
        self._cluster.until("wills", self._cluster.wills.waiting, HEAL_MS_MAX, rule="will kept")
        # Messages that are still on their way to subscribers, or to a log, arrive.
        self._cluster.queue.run_until(self._cluster.queue.now + CALM_MS * 1_000)
        self._cluster.until("nodes that are level", self._not_level, HEAL_MS_MAX)
        has_jumps = any(fault.kind == "jump" for fault in self._cluster.plan.faults)
        if not self._cluster.was_dark and not has_jumps:  # which message of a name is the last is told by its date
            self._cluster.until("retained messages", self._not_retained, HEAL_MS_MAX)

    def _not_retained(self) -> str:
        state = self._cluster.processes()[0].durable.meta.state
        replicas = {one.group: one.replicas[0] for one in state.partitions()}
        by_shard: list[dict[bytes, bytes]] = []
        for group in self._cluster.groups:
            holder = self._cluster.machine(replicas[group]).process
            assert holder is not None
            by_shard.append(read_retained(holder.engine.replicas[group].log))
        wanted: dict[bytes, bytes] = {}
        for topic in {topic for names in by_shard for topic in names}:
            for shard in self._cluster.rules.shards_of(topic):  # what a key has in its new one is later
                if shard < len(by_shard) and topic in by_shard[shard]:
                    wanted[topic] = by_shard[shard][topic]
        for process in self._cluster.processes():
            for topic, payload in wanted.items():
                message = process.harness.broker.retained.get(topic, self._cluster.now_ms())
                found = None if message is None else message.run.payload(0)
                if found != payload:
                    return f"node {process.number} has {found!r} of {topic!r}, the log {payload!r}"
        return ""

    def _not_serving(self, goals: dict[str, int]) -> str:
        missing = self._cluster.not_one() or self._cluster.not_led()
        if missing:
            return missing
        for client in self._cluster.clients:
            if not client.connected and not client.is_away():
                return f"{client.name} is not connected"
        for figure, goal in goals.items():
            done = self._cluster.figures.get(figure, 0)
            if done < goal:
                return f"only {done} of {goal} messages are {figure}"
        return ""

    def _not_answered(self) -> str:
        for client in self._cluster.clients:
            if client.is_waiting():
                return f"{client.name} waits at node {client.node}"
        return ""

    def _not_delivered(self) -> str:
        for process in self._cluster.processes():
            streams = process.durable.delivery.streams.by_group
            for group, end in zip(self._cluster.groups, self._cluster.ends, strict=True):
                if group in streams and streams[group].next < end:
                    return f"node {process.number} delivered {streams[group].next} of {end} of group {group}"
        return ""

    def _not_level(self) -> str:
        """What replicas, and states, lack."""
        missing = self._cluster.stores.unhealed() or unmended(self._cluster.processes())
        if missing:
            return missing
        states = {process.durable.meta.state.index for process in self._cluster.processes()}
        if len(states) != 1:
            return f"cluster states are at {sorted(states)}"
        partitions = self._cluster.processes()[0].durable.meta.state.partitions()
        for process_ in self._cluster.processes():
            number = process_.number
            wanted = {one.group for one in partitions if number in one.replicas} | {0}
            if not process_.engine.replicas.keys() - {0} <= wanted:
                return f"node {number} still has replicas {sorted(process_.engine.replicas.keys() - wanted)}"
        for partition in partitions:
            if partition.is_moving:
                return f"group {partition.group} moves from {partition.replicas} to {partition.target}"
            ends = set()
            for number in partition.replicas:
                process = self._cluster.machine(number).process
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
        self._cluster.count(
            "batches mended", sum(one.durable.scrubbing.mending.repaired for one in self._cluster.processes())
        )
        first, *others = self._cluster.processes()
        wanted = first.durable.meta.state.encode()
        for process in others:
            if process.durable.meta.state.encode() != wanted:
                text = f"nodes {first.number} and {process.number} have different ones at the same index"
                raise Violation("cluster state", text)
        logs = {}
        for partition in first.durable.meta.state.partitions():
            copies = {}
            for number in partition.replicas:
                process_ = self._cluster.machine(number).process
                assert process_ is not None
                copies[number] = read_log(process_.engine.replicas[partition.group].log)
            _check_copies(partition.group, {number: entries for number, (entries, _) in copies.items()})
            logs[partition.group] = max((records for _, records in copies.values()), key=len)
        by_shard = [logs[group] for group in self._cluster.groups]
        self._cluster.rules.check_logs(by_shard)
        self._cluster.rules.check_deliveries(by_shard)
        self._cluster.sessions.check()
        self._cluster.archive.check([self._cluster.rules, self._cluster.live])
        self._cluster.wills.check()
        self._cluster.group_rules.check()
        self._cluster.session_machines.check()


def _check_copies(group: int, copies: dict[int, dict[int, bytes]]) -> None:
    (first, wanted), *others = copies.items()
    for number, entries in others:
        for index in wanted.keys() & entries.keys():
            if wanted[index] != entries[index]:
                raise Violation("replicas", f"group {group}: nodes {first} and {number} differ at entry {index}")
