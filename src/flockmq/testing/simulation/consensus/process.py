"""One life of a node: a real store, a real host of replicas, and around them what a driver does.

```
 tick, frame, client --> RaftHost --> turn(): writes --> staged --> StorageWorker --> persisted --> turn()
                                        |-- frames --> Network
                                        `-- applies --> Machine, History; reads and outcomes --> clients
```
Everything that the rules are about passes through here, and is told to the group's history at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flockmq.log.batch import BatchBuilder
from flockmq.log.errors import DamageError
from flockmq.log.group import GroupLog
from flockmq.log.recovery import open_store
from flockmq.log.settings import StoreSettings
from flockmq.raft.configuration import Configuration
from flockmq.raft.errors import SafetyError
from flockmq.raft.forwarder import Forwarder
from flockmq.raft.host import RaftHost
from flockmq.raft.node import RaftNode
from flockmq.raft.persistence import stage
from flockmq.raft.replicas import Replica, bootstrap, open_replica
from flockmq.raft.state import LEADER
from flockmq.raft.turn import GroupReady
from flockmq.testing.simulation.consensus.chain import Machine, machine_from
from flockmq.testing.simulation.consensus.history import GroupHistory
from flockmq.testing.simulation.storage import StorageWorker
from flockmq.testing.simulation.world import Violation

if TYPE_CHECKING:
    from flockmq.testing.simulation.consensus.node import SimulatedNode

STORE: Final = StoreSettings(
    journal_bytes=65_536,
    commit_bytes=16_384,
    segment_bytes=8_192,
    index_bytes=1_024,
    cache_bytes=4_096,
    verify_bytes=65_536,
)
GIVE_UP_MS: Final = 5_000
TURN_US: Final = 50

Told = Callable[[int, int], None]
"""Outcome of a run and its offset; or index of a read, -1 when it was sent away, and index of the machine."""


class Member:
    """One group as it runs here."""

    def __init__(self, replica: Replica, forwarder: Forwarder, history: GroupHistory) -> None:
        self.replica = replica
        self.forwarder = forwarder
        self.history = history
        self.machine: Machine = machine_from(replica.state)
        self.led_in = 0
        self.runs: dict[int, Told] = {}
        self.run_number = 0
        self.reads: dict[int, Told] = {}
        self.read_number = 0
        self.reads_waiting: list[tuple[int, Told]] = []
        self.is_saving = False

    @property
    def raft(self) -> RaftNode:
        """The replica itself."""
        return self.replica.node


class Process:
    """Made when a node starts, gone when it dies."""

    def __init__(self, node: SimulatedNode, rng: random.Random) -> None:
        self.node = node
        self.life = node.life
        self.members: dict[int, Member] = {}
        self._cluster = node.cluster
        self._trace = node.cluster.trace
        self._plan = node.cluster.plan
        self.store = open_store(node.disk, STORE, rng)
        self.host = RaftHost(node.number, node.life, node.cluster.settings, rng, node.clock.now_ms())
        self.worker = StorageWorker(node.cluster.queue, rng, node.disk, self.store, self._committed, self._failed)
        self._staged_turn = 0
        self._written_turn = 0
        self._turn_is_due = False
        self._votes: list[tuple[GroupHistory, int, int]] = []
        """Votes that are not durable yet."""
        self._votes_written: list[tuple[GroupHistory, int, int]] = []
        if node.life == 1:
            self._bootstrap()
        for group in sorted(self.store.groups):
            self._open(self.store.groups[group], is_new=False)

    def _bootstrap(self) -> None:
        """The groups begin: this happens once, before anything goes wrong."""
        if self.node.number not in self._plan.voters:
            return
        for group in range(self._plan.groups):
            bootstrap(self.store.create(group), Configuration(self._plan.voters))
        commit = self.store.take_commit()
        assert commit is not None
        commit.perform(self.node.disk)
        self.store.committed(commit)

    def _open(self, log: GroupLog, is_new: bool) -> None:
        preferred = log.group % self._plan.nodes + 1 if self._plan.prefer else 0
        try:
            replica = open_replica(self.host, log, preferred, is_new)
        except DamageError:
            log.reset(0, 0, 0)
            replica = open_replica(self.host, log, preferred, is_new)
        forwarder = Forwarder(log.group, self.node.number, self.life, give_up_ms=GIVE_UP_MS)
        self.host.add_forwarder(forwarder)
        member = Member(replica, forwarder, self._cluster.histories[log.group])
        member.history.restored(self.node.number, member.machine.index, member.machine.chain)
        self.members[log.group] = member

    def die(self, rng: random.Random) -> None:
        """The process ends, perhaps in the middle of a write."""
        self.worker.die(rng)

    # What comes in.

    def tick(self, now: int) -> None:
        """Time passes."""
        self.host.tick(now)
        for group in self.host.take_unknown():
            self._open(self.store.create(group), is_new=True)
        self.turn()

    def receive(self, frame: bytes) -> None:
        """A frame arrived."""
        self.host.receive(frame)
        self.turn()

    def submit(self, group: int, builder: BatchBuilder, told: Told) -> bool:
        """Forward a run to the leader; False when that is not possible here now."""
        member = self.members.get(group)
        if member is None or not member.forwarder.has_room():
            return False
        member.run_number += 1
        member.runs[member.run_number] = told
        member.forwarder.set_time(self.host.clock.elapsed)
        member.forwarder.submit(builder.build(note=member.forwarder.note()), member.run_number)
        self.host.submitted(group)
        self.turn()
        return True

    def read(self, group: int, told: Told) -> None:
        """Ask for a read that sees everything acknowledged so far."""
        member = self.members.get(group)
        if member is None:
            told(-1, -1)
            return
        member.read_number += 1
        member.reads[member.read_number] = told
        self.host.read(group, member.read_number, self.node.clock.now_ms())
        self.turn()

    def change(self, group: int, voters: tuple[int, ...], learners: tuple[int, ...]) -> None:
        """Ask for other members."""
        result = self.host.change(group, voters, learners)
        self._cluster.asked("members", result)
        self.turn()

    def transfer(self, group: int, target: int) -> None:
        """Ask to hand over."""
        self._cluster.asked("move", self.host.transfer(group, target))
        self.turn()

    def compact(self, group: int) -> None:
        """Begin a checkpoint; entries before it are forgotten once it is saved."""
        member = self.members.get(group)
        if member is not None and group not in self.host.broken:
            table = self.host.desks[group].table
            if member.replica.checkpoints.save(member.raft, table, member.machine.encode()):
                member.is_saving = True
                self._cluster.count("checkpoints")
        self.turn()

    # What comes out.

    def turn(self) -> None:
        """Do what the host asks for, once; what is left then is done a moment later."""
        if not self.node.runs(self):
            return
        turn = self.host.take_turn(self.store.has_room())
        for write in turn.writes:
            self._stage(write)
        if turn.number:
            self._staged_turn = turn.number
        number = self.node.number
        for receiver, frame in turn.frames:
            self._cluster.network.send(number, receiver, frame)
        for apply in turn.applies:
            self._apply(apply)
        for member in self.members.values():
            self._tell_outcomes(member)
            if member.is_saving and member.replica.checkpoints.use_saved():
                member.is_saving = False
                self._forget_entries(member)
        self._write()
        if self.host.broken:
            self._stop_broken()
            return
        if turn.frames:
            self.node.spring("sent")
        if not self._turn_is_due and self.host.has_work():
            self._turn_is_due = True
            self._cluster.queue.after(TURN_US, self.node.do, self.life, self._turn_again)

    def _turn_again(self) -> None:
        self._turn_is_due = False
        self.turn()

    def _stage(self, write: GroupReady) -> None:
        member = self.members[write.group]
        ready = write.ready
        state = member.raft.state
        if ready.entries:
            before = state.log.term_at(ready.entries[0].index - 1)
            member.history.appended(self.node.number, before, ready.entries)
        stage(member.replica, ready)
        if ready.hard_state is not None:
            hard = ready.hard_state
            self._trace.note("state", self.node.number, write.group, hard.term, hard.vote)
            if hard.vote:
                self._votes.append((member.history, hard.term, hard.vote))
                if hard.vote != self.node.number:
                    self.node.spring("vote")
        if state.role == LEADER and member.led_in != state.term:
            member.led_in = state.term
            self._leads(write.group, member)

    def _leads(self, group: int, member: Member) -> None:
        state = member.raft.state
        self._trace.note("leads", self.node.number, group, state.term)
        self._cluster.elected(group, self.node.number)
        committed = member.history.completeness_index(state.term)
        term = state.log.term_at(committed)
        member.history.leads(self.node.number, self.life, state.term, state.log.last_index, term)
        self.node.spring("lead")

    def _apply(self, apply: GroupReady) -> None:
        member = self.members[apply.group]
        number = self.node.number
        machine = member.machine
        history = member.history
        if apply.ready.restores:
            content = member.replica.checkpoints.content()
            assert content is not None
            machine = machine_from(content.state)
            history.installed(number, member.machine.index, machine.index)
            history.restored(number, machine.index, machine.chain)
            member.machine = machine
            self._trace.note("installed", number, apply.group, machine.index)
            self._cluster.count("snapshots installed")
        term = member.raft.state.term
        for entry in apply.ready.committed:
            history.applied(number, term, machine.index + 1, entry)
            machine.apply(entry.data)
        if apply.ready.committed:
            self._trace.note("applied", number, apply.group, machine.index, machine.chain)
            self.node.spring("applied")
        for read in apply.ready.reads:
            told = member.reads.pop(read.number)
            if read.index < 0:
                told(-1, -1)
            else:
                member.reads_waiting.append((read.index, told))
        if member.reads_waiting:
            self._answer_reads(member)

    def _answer_reads(self, member: Member) -> None:
        waiting = member.reads_waiting
        member.reads_waiting = []
        for index, told in waiting:
            if index <= member.machine.index:
                told(index, member.machine.index)
            else:
                member.reads_waiting.append((index, told))

    def _tell_outcomes(self, member: Member) -> None:
        for outcome in member.forwarder.take_outcomes():
            told = member.runs.pop(outcome.token, None)  # after "unknown" no caller waits
            if told is not None:
                told(outcome.kind, outcome.offset)

    def _forget_entries(self, member: Member) -> None:
        checkpoint = member.replica.checkpoints.latest()
        if checkpoint is not None:
            member.replica.log.compact_to(checkpoint.index)

    def _write(self) -> None:
        if not self.worker.is_writing:
            commit = self.store.take_commit()
            if commit is not None:
                self._written_turn = self._staged_turn
                self._votes_written = self._votes
                self._votes = []
                self.worker.begin(commit)
                self.node.spring("write")
        self.worker.look_for_chores()

    def _committed(self) -> None:
        self.node.do(self.life, self._persisted)

    def _persisted(self) -> None:
        self.worker.settle()
        for history, term, vote in self._votes_written:
            history.voted(self.node.number, term, vote)
        self._votes_written = []
        self.host.persisted(self._written_turn)
        self.turn()
        self.node.spring("written")

    def _failed(self, error: OSError) -> None:
        self.node.do(self.life, self.node.give_up, f"disk: {error}")

    def _stop_broken(self) -> None:
        """A group can't go on. A lost promise ends the run; damage was met, and the node starts anew to be refilled."""
        for error in self.host.broken.values():
            if isinstance(error, SafetyError):
                raise Violation("safety error", str(error))
        self.node.give_up(str(next(iter(self.host.broken.values()))), restart=True)
