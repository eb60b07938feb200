"""Runs the commands of a transcript against a group, and says what changed.

```
 # comment                       cut 1 2 / isolate 3 / heal        slow 2 / sync 2       (its disk)
 group 3                         crash 1 / start 1                 lose 3 keep=1         (starts damaged)
 elect 1                         propose leader hello              snapshot 1 keep=2
 run 500 / tick 100 / turn       read 1                            add 4
 show / logs / flying            change 1 1,2,4 5                  transfer 1 3
```
``turn`` lets every node act and everything that flies arrive, and prints what flew. ``run`` lets time pass and prints
only what came of it. ``elect`` and ``campaign`` skip the wait, and with it the loyalty that leases rest on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from flockmq.log.batch import CONFIG, NOOP, BatchView
from flockmq.raft.configuration import Configuration, decode_configuration
from flockmq.raft.entry import Entry
from flockmq.raft.messages import (
    Append,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    Message,
    SnapshotChunk,
    SnapshotReply,
    VoteReply,
    VoteRequest,
)
from flockmq.raft.progress import PROGRESS_NAMES
from flockmq.raft.reads import has_lease
from flockmq.raft.ready import Proposal
from flockmq.raft.state import DAMAGED, HEALTH_NAMES, LEADER, ROLE_NAMES, HardState
from raft_cluster import SETTINGS, Cluster, Replica, batch


def describe(message: Message) -> str:
    """One line for people."""
    return f"{message.sender} -> {message.receiver}  {_what(message)}"


def _what(message: Message) -> str:
    if isinstance(message, VoteRequest):
        kind = "PreVote" if message.pre else "Vote"
        forced = ", the leader wants it" if message.transfer else ""
        return f"{kind}? term {message.term}, log ends at {message.last_index}/{message.last_term}{forced}"
    if isinstance(message, VoteReply):
        return f"{'PreVote' if message.pre else 'Vote'} {'yes' if message.granted else 'no'}, term {message.term}"
    if isinstance(message, Append):
        entries = " ".join(entry_text(entry) for entry in message.entries) or "nothing"
        where = f"behind {message.prev_index}/{message.prev_term}"
        return f"Append term {message.term}, {where}: {entries}, commit {message.commit}"
    if isinstance(message, AppendReply):
        if message.ok:
            return f"Append ok up to {message.index}"
        hint = f"maybe behind {message.hint_index}/{message.hint_term}"
        return f"Append refused behind {message.index}, {hint}, term {message.term}"
    if isinstance(message, Heartbeat):
        quiet = ", quiet" if message.quiet else ""
        return f"Heartbeat {message.lease_round} term {message.term}, commit {message.commit}{quiet}"
    if isinstance(message, HeartbeatReply):
        text = f"Heard {message.lease_round}, matched {message.matched}, durable {message.durable}"
        return f"{text}, commit {message.commit}"
    if isinstance(message, SnapshotChunk):
        end = message.position + len(message.data)
        text = f"Snapshot of {message.meta.applied}, log behind {message.meta.index}"
        return f"{text}: bytes {message.position} to {end} of {message.meta.size}"
    if isinstance(message, SnapshotReply):
        return f"Snapshot {'is durable' if message.is_durable else f'here up to byte {message.position}'}"
    return type(message).__name__


def entry_text(entry: Entry) -> str:
    """Index, term and content."""
    view = BatchView(entry.data)
    if entry.kind == NOOP:
        content = "begin"
    elif entry.kind == CONFIG:
        content = configuration_text(decode_configuration(view.body()))
    else:
        content = "+".join(record.payload.decode() for record in view.records())
    return f"{entry.index}/{entry.term}={content}"


def configuration_text(configuration: Configuration) -> str:
    """For example ``{1,2,4}<{1,2,3}+5``."""
    text = "{" + ",".join(map(str, configuration.voters)) + "}"
    if configuration.outgoing:
        text += "<{" + ",".join(map(str, configuration.outgoing)) + "}"
    if configuration.learners:
        text += "+" + ",".join(map(str, configuration.learners))
    return text


class Script:
    """A group and what was last said about each node."""

    def __init__(self) -> None:
        self.cluster = Cluster(1)
        self.last: dict[int, dict[str, str]] = {}
        self.applied: dict[int, int] = {}
        self.reads: dict[int, int] = {}
        self.lines: list[str] = []

    def run(self, line: str) -> list[str]:
        """One command; what it printed and what changed."""
        self.lines = []
        name, *arguments = line.split()
        command: Callable[..., None] = getattr(self, f"do_{name}")
        command(*arguments)
        self._changes()
        return self.lines

    def replica(self, node: str) -> Replica:
        return self.cluster.leaders()[-1] if node == "leader" else self.cluster[int(node)]

    # Commands.

    def do_group(self, size: str, *options: str) -> None:
        settings = replace(SETTINGS, snapshot_chunk_bytes=16)
        for option in options:
            name, value = option.split("=")
            if name == "append_bytes_max":
                settings = replace(settings, append_bytes_max=int(value))
            elif name == "tail_bytes_max":
                settings = replace(settings, tail_bytes_max=int(value))
            else:
                raise ValueError(f"no such option: {name}")
        self.cluster = Cluster(int(size), settings=settings)
        self.last = {}
        self.applied = {}
        self.reads = {}
        self._changes()
        self.lines = []

    def do_elect(self, node: str) -> None:
        self.cluster.elect(int(node))

    def do_campaign(self, node: str) -> None:
        """It has heard no leader for long enough, and so have the others."""
        for replica in self.cluster.replicas.values():
            replica.state.loyal_until = 0
            replica.state.campaign_at = replica.clock.elapsed + 60_000
        self.replica(node).state.campaign_at = 0
        self.replica(node).node.on_tick()

    def do_run(self, ms: str) -> None:
        self.cluster.run(int(ms))

    def do_tick(self, ms: str) -> None:
        self.cluster.tick(int(ms))

    def do_turn(self, count: str = "1") -> None:
        for _ in range(int(count)):
            for replica in self.cluster.replicas.values():
                while replica.take():
                    pass
            self.do_flying()
            arriving, self.cluster.flying = self.cluster.flying, []
            for message in arriving:
                self.cluster.arrive(message)

    def do_flying(self) -> None:
        for message in self.cluster.flying:
            lost = (message.sender, message.receiver) in self.cluster.cuts
            self.lines.append(f"  {describe(message)}{'  (lost)' if lost else ''}")

    def do_propose(self, node: str, *payloads: str) -> None:
        for payload in payloads:
            outcome = self.replica(node).node.propose(batch(payload.encode()))
            if not isinstance(outcome, Proposal):
                self.lines.append(f"{node}: refused: {outcome.reason}")

    def do_read(self, node: str) -> None:
        replica = self.replica(node)
        self.reads[replica.id] = self.reads.get(replica.id, 0) + 1
        replica.node.read(self.reads[replica.id], self.cluster.now)
        replica.take()

    def do_change(self, node: str, voters: str, learners: str = "") -> None:
        outcome = self.replica(node).node.change(_ids(voters), _ids(learners))
        if not isinstance(outcome, Proposal):
            self.lines.append(f"{node}: refused: {outcome.reason}")

    def do_transfer(self, node: str, target: str) -> None:
        refusal = self.replica(node).node.transfer(int(target))
        if refusal is not None:
            self.lines.append(f"{node}: refused: {refusal.reason}")

    def do_add(self, node: str) -> None:
        self.cluster.add(int(node))

    def do_cut(self, sender: str, receiver: str) -> None:
        self.cluster.cut(int(sender), int(receiver))

    def do_isolate(self, *nodes: str) -> None:
        self.cluster.isolate(*map(int, nodes))

    def do_heal(self) -> None:
        self.cluster.heal()

    def do_crash(self, node: str) -> None:
        self.replica(node).crash()

    def do_start(self, node: str) -> None:
        self.replica(node).start()
        self.applied[int(node)] = len(self.replica(node).applied)

    def do_slow(self, node: str) -> None:
        self.replica(node).slow_disk = True

    def do_sync(self, node: str) -> None:
        self.replica(node).sync()

    def do_fast(self, node: str) -> None:
        self.replica(node).sync()
        self.replica(node).slow_disk = False

    def do_lose(self, node: str, keep: str) -> None:
        replica = self.replica(node)
        replica.crash()
        del replica.log.items[int(keep.removeprefix("keep=")) :]
        replica.hard = HardState(replica.hard.term, replica.hard.vote, DAMAGED)
        self.do_start(node)

    def do_snapshot(self, node: str, keep: str = "keep=0") -> None:
        self.replica(node).snapshot(int(keep.removeprefix("keep=")))

    def do_leader_is_lost(self, *nodes: str) -> None:
        for node in nodes:
            self.replica(node).node.leader_is_lost()

    def do_show(self) -> None:
        for replica in self.cluster.replicas.values():
            state = replica.state
            if not replica.running:
                self.lines.append(f"{replica.id}: down")
                continue
            text = f"{replica.id}: {ROLE_NAMES[state.role]}, term {state.term}"
            text += f", log {state.log.first_index()}..{state.log.last_index}"
            text += f", durable {state.log.durable}, commit {state.commit}, {configuration_text(state.configuration)}"
            if state.role == LEADER:
                text += f", lease {'yes' if has_lease(state, self.cluster.now) else 'no'}"
            self.lines.append(text)
            for node, progress in state.progress.items():
                self.lines.append(
                    f"     {node}: {PROGRESS_NAMES[progress.state]}, match {progress.match}, next {progress.next}"
                )

    def do_logs(self) -> None:
        for replica in self.cluster.replicas.values():
            log = replica.state.log
            entries = (
                log.read(log.first_index(), log.last_index + 1, 1 << 20) if log.last_index >= log.first_index() else []
            )
            self.lines.append(f"{replica.id}: " + " ".join(entry_text(entry) for entry in entries))

    # What changed.

    def _changes(self) -> None:
        for replica in self.cluster.replicas.values():
            self._changes_of(replica)

    def _changes_of(self, replica: Replica) -> None:
        state = replica.state
        role = f"{ROLE_NAMES[state.role]} in term {state.term}" if replica.running else "down"
        if replica.running and state.leader and state.role != LEADER:
            role += f", follows {state.leader}"
        now = {"role": role, "health": HEALTH_NAMES[state.health], "quiet": "quiet" if state.quiet else "awake"}
        now["commit"] = f"commit {state.commit}"
        before = self.last.get(replica.id, {"health": "sound", "quiet": "awake", "commit": "commit 0"})
        changed = [value for name, value in now.items() if before.get(name) != value]
        self.last[replica.id] = now
        done = min(self.applied.get(replica.id, 0), len(replica.applied))
        fresh = [entry_text(entry) for entry in replica.applied[done:] if entry.kind != NOOP]
        self.applied[replica.id] = len(replica.applied)
        if fresh:
            changed.append("applied " + " ".join(fresh))
        changed += [
            f"read {answer.number} " + ("sent away" if answer.index < 0 else f"may see {answer.index}")
            for answer in replica.reads
        ]
        replica.reads.clear()
        if changed:
            self.lines.append(f"{replica.id}: " + "; ".join(changed))


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)
