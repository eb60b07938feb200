"""Runs of messages that nodes forward to a leader: each is appended once, in order, and gets one outcome.

```
 node S, boot 4:  run 7 --> run 8 --> run 9 ...            in the log, on every replica:  S -> boot 4, last run 9,
                     |         |  (a leader dies)                                          offsets of the latest runs
                  leader A   leader B: knows S's last run from its own log
                               run 8 again    --> its first outcome, or waits with it
                               run 10, not 9  --> "I have up to 8"
                               run 9          --> appended
```
A run is a batch whose note says (sender, boot, sequence). The table of last runs is made of applied entries alone, so
it is the same on all replicas and part of their checkpoints; a leader adds what its log holds beyond them.

A run may carry the cluster-state index of the plan that put its records into this group. A leader that knows of a later
change of that plan does not take it (REPLAN), one that has not heard of the plan yet lets it wait.

What can be certain: COMMITTED always. REFUSED means that this attempt appended nothing, and that no entry of an earlier
term with this run can come up any more: a leader says so only when an entry of its own term is committed. A run is for
the leader of one term; what was sent to earlier ones and was not heard of since can't get into the log any more either,
however late it arrives. UNKNOWN is said when leadership ends while the run is in the log and not committed. TAKEN and
STORED are no outcomes, but said earlier where a group's publishers want to know no more than that. ``forwarder.py`` is
the other side.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flockmq.log.batch import DATA, kind_of, note_of
from flockmq.log.errors import SpoiledError
from flockmq.raft.messages import ForwardReply
from flockmq.raft.ready import NOT_ALLOWED, Proposal
from flockmq.raft.state import LEADER

if TYPE_CHECKING:
    from flockmq.raft.entry import Entry
    from flockmq.raft.messages import Forward, Message
    from flockmq.raft.node import RaftNode

COMMITTED: Final = 1
"""In the log for good; the value is the offset of its first record."""
REFUSED: Final = 2
"""Not taken."""
UNKNOWN: Final = 3
"""In a log, but this leader can't say any more what becomes of it."""
BEHIND: Final = 4
"""Not taken: runs before it are missing; the value is the last one here."""
ELSEWHERE: Final = 5
"""Not taken: another node leads, or in another term; the value says which, 0 when that is not known."""
LATER: Final = 6
"""Not taken for now: too much is under way, or (value 1) its plan is not known here yet."""
REPLAN: Final = 7
"""Not taken, as certainly as REFUSED: its plan is out of date; the value is the index that a plan must have."""
TAKEN: Final = 8
"""In the leader's log, in memory. The outcome is still to come."""
STORED: Final = 9
"""In the leader's log, on its disk. The outcome is still to come."""
FENCED: Final = 10
"""Not taken, as certainly as REFUSED: the record at position ``value`` must not be in the log; take it out."""

ADMITTED: Final = -1
"""What ``DeskRules.admits`` says of a run in which nothing is wrong,"""
ASK_LATER: Final = -2
"""and while it can't say."""

PLAN_AHEAD: Final = 1
"""Value of LATER: the leader's cluster state is older than the plan."""

RUNS_KEPT: Final = 256
"""Outcomes remembered per sender, and the most runs a sender may have under way."""
_NOTE: Final = struct.Struct("<8sQQQQ")
_TAG: Final = b"FLKRUN\0\2"
_SENDER: Final = struct.Struct("<QQI")
_OUTCOME: Final = struct.Struct("<QQ")


def run_note(sender: int, boot: int, sequence: int, plan: int = 0) -> bytes:
    """The note that makes a batch a run. ``plan`` 0: there is no plan that could be out of date."""
    return _NOTE.pack(_TAG, sender, boot, sequence, plan)


class RunId:
    """A run: its sender, the sender's start, and its number."""

    def __init__(self, sender: int, boot: int, sequence: int, plan: int = 0) -> None:
        self.sender = sender
        self.boot = boot
        self.sequence = sequence
        self.plan = plan


def run_of(batch: bytes) -> RunId | None:
    """Which run a batch is; None when it is none."""
    if kind_of(batch) != DATA:
        return None
    note = note_of(batch)
    if len(note) != _NOTE.size or note[:8] != _TAG:
        return None
    fields: tuple[int, ...] = _NOTE.unpack(note)[1:]
    return RunId(fields[0], fields[1], fields[2], fields[3])


class Sender:
    """What is known of one node that forwards runs."""

    def __init__(self, boot: int) -> None:
        self.boot = boot
        self.last = 0
        self.sequences: list[int] = []
        self.offsets: list[int] = []
        """The latest runs and their first offsets, in order."""

    def add(self, sequence: int, offset: int) -> None:
        """The next run of this boot."""
        self.last = sequence
        self.sequences.append(sequence)
        self.offsets.append(offset)
        if len(self.sequences) > 2 * RUNS_KEPT:
            del self.sequences[:RUNS_KEPT]
            del self.offsets[:RUNS_KEPT]

    def offset_of(self, sequence: int) -> int:
        """First offset of a run, -1 when it is not among the latest."""
        if sequence in self.sequences:
            return self.offsets[self.sequences.index(sequence)]
        return -1


class SenderTable:
    """Replicated: what all applied entries say about senders."""

    def __init__(self) -> None:
        self.senders: dict[int, Sender] = {}

    def apply(self, entry: Entry) -> None:
        """An entry is committed."""
        if entry.kind == DATA:
            run = run_of(entry.data)
            if run is not None:
                self.note(run, entry.base_offset)

    def note(self, run: RunId, offset: int) -> None:
        """A run has its place."""
        sender = self.senders.get(run.sender)
        if sender is None or sender.boot != run.boot:
            sender = Sender(run.boot)
            self.senders[run.sender] = sender
        sender.add(run.sequence, offset)

    def encode(self) -> bytes:
        """For a checkpoint."""
        parts: list[bytes] = [struct.pack("<I", len(self.senders))]
        for node in sorted(self.senders):
            sender = self.senders[node]
            kept = len(sender.sequences)
            parts.append(_SENDER.pack(node, sender.boot, kept))
            parts += [_OUTCOME.pack(sender.sequences[at], sender.offsets[at]) for at in range(kept)]
        return b"".join(parts)


def decode_table(data: bytes) -> SenderTable:
    """Read ``SenderTable.encode``; ValueError when it is not that."""
    table = SenderTable()
    try:
        count: int = struct.unpack_from("<I", data)[0]
        position = 4
        for _ in range(count):
            node, boot, kept = _SENDER.unpack_from(data, position)
            position += _SENDER.size
            sender = Sender(boot)
            table.senders[node] = sender
            for _ in range(kept):
                sequence, offset = _OUTCOME.unpack_from(data, position)
                position += _OUTCOME.size
                sender.add(sequence, offset)
    except struct.error as error:
        raise ValueError("A table of senders is cut off") from error
    if position != len(data):
        raise ValueError("A table of senders has the wrong length")
    return table


class DeskRules:
    """What a node knows about the plans behind the groups that it may lead; one for all its desks."""

    def __init__(self, admits: Callable[[int, bytes], int] | None = None) -> None:
        self.known = 0
        """Index of the cluster state here: plans beyond it are not known yet."""
        self.least: dict[int, int] = {}
        """Group -> index of the last change of its plan."""
        self.early: dict[int, int] = {}
        """Group -> TAKEN or STORED, where its publishers wait for no more than that."""
        self.admits = admits
        """(group, batch) -> ADMITTED, ASK_LATER, or the position of a record that must not be appended. The
        owner of the records decides: this desk does not read them.
        """


class _Waiter:
    """An attempt that is answered when its run is committed."""

    def __init__(self, run: RunId, node: int, attempt: int, index: int) -> None:
        self.run = run
        self.node = node
        self.attempt = attempt
        self.index = index


class SenderDesk:
    """Where runs arrive at a replica."""

    def __init__(self, node: RaftNode, table: SenderTable, rules: DeskRules | None = None) -> None:
        self.node = node
        self.table = table
        self.rules = rules if rules is not None else DeskRules()
        self.term = 0
        """The term in which we lead; 0 when we do not."""
        self._ahead: dict[int, Sender] = {}
        """Runs in our log that are not applied yet; the offset of each is known, its outcome is not."""
        self._indexes: dict[tuple[int, int, int], int] = {}
        """(sender, boot, sequence) of these -> index."""
        self._waiters: dict[int, list[_Waiter]] = {}
        self._unstored: list[_Waiter] = []
        """Senders that want to hear when their run is on the disk here, in order."""

    def is_up_to_date(self) -> bool:
        """Whether leadership is what it was when ``follow_role`` looked last."""
        state = self.node.state
        return self.term == (state.term if state.role == LEADER else 0)

    def follow_role(self) -> list[Message]:
        """See whether leadership began or ended; answers for the senders that waited in vain."""
        state = self.node.state
        term = state.term if state.role == LEADER else 0
        if term == self.term:
            return []
        answers: list[Message] = []
        for index in sorted(self._waiters):
            answers += [self._tell(waiter, UNKNOWN, 0) for waiter in self._waiters[index]]
        self._waiters = {}
        self._unstored = []
        self._ahead = {}
        self._indexes = {}
        self.term = term
        if term:
            try:
                self._look_ahead()
            except SpoiledError:
                # Without all runs of its log it must not take any; the host tries again.
                self.term = 0
                self._ahead = {}
                self._indexes = {}
                raise
        return answers

    def _look_ahead(self) -> None:
        """A new leader's log may hold runs that are not applied: they count, whatever becomes of them."""
        state = self.node.state
        index = state.applied + 1
        while index <= state.log.last_index:
            for entry in state.log.read(index, state.log.last_index + 1, state.settings.apply_bytes_max):
                run = run_of(entry.data)
                if run is not None:
                    self._note_ahead(run, entry.index, entry.base_offset)
                index = entry.index + 1

    def _note_ahead(self, run: RunId, index: int, offset: int) -> None:
        sender = self._ahead.get(run.sender)
        if sender is None or sender.boot != run.boot:
            sender = Sender(run.boot)
            self._ahead[run.sender] = sender
        sender.add(run.sequence, offset)
        self._indexes[(run.sender, run.boot, run.sequence)] = index

    def accept(self, forward: Forward) -> Message | None:
        """A run arrived: append it, or say why not. None: it is answered later, or deserves no answer."""
        run = run_of(forward.batch)
        if run is None:
            return None
        node = forward.sender
        attempt = forward.attempt
        if not self.term:
            return self._answer(run, node, attempt, ELSEWHERE, self.node.state.leader, self.node.state.term)
        if forward.term != self.term:
            return self._answer(run, node, attempt, ELSEWHERE, self.node.state.node, self.term)
        sender = self._ahead.get(run.sender)
        if sender is None:
            sender = self.table.senders.get(run.sender)
        last = 0
        if sender is not None:
            if run.boot < sender.boot:
                return None  # of a process that is gone: it waits for no answer
            if run.boot == sender.boot:
                last = sender.last
        if run.sequence <= last:
            return self._repeat(run, forward)
        if forward.previous != last:
            return self._answer(run, node, attempt, BEHIND, last, self.term)
        # Before an entry of this term is committed a run of an earlier leader could still come up.
        may_be_certain = self.node.state.commit >= self.node.state.term_start
        if run.plan:
            least = self.rules.least.get(self.node.state.group, 0)
            if run.plan < least:
                if may_be_certain:
                    return self._answer(run, node, attempt, REPLAN, least, self.term)
                return self._answer(run, node, attempt, LATER, 0, self.term)
            if run.plan > self.rules.known:
                return self._answer(run, node, attempt, LATER, PLAN_AHEAD, self.term)
        if self.rules.admits is not None:
            verdict = self.rules.admits(self.node.state.group, forward.batch)
            if verdict >= 0 and may_be_certain:
                return self._answer(run, node, attempt, FENCED, verdict, self.term)
            if verdict != ADMITTED:
                return self._answer(run, node, attempt, LATER, 0, self.term)
        proposal = self.node.propose(forward.batch)
        if not isinstance(proposal, Proposal):
            is_certain = proposal.code == NOT_ALLOWED and may_be_certain
            return self._answer(run, node, attempt, REFUSED if is_certain else LATER, 0, self.term)
        self._note_ahead(run, proposal.index, proposal.base_offset)
        return self._wait(_Waiter(run, node, attempt, proposal.index))

    def last_of(self, sender: int) -> int:
        """The last run of a sender that is no node, committed or not."""
        known = self._ahead.get(sender) or self.table.senders.get(sender)
        return 0 if known is None else known.last

    def has_committed(self, sender: int, sequence: int) -> bool:
        """Whether a run of a sender that is no node is in the log for good."""
        known = self.table.senders.get(sender)
        return known is not None and known.last >= sequence

    def _wait(self, waiter: _Waiter) -> Message | None:
        """Answer when the run is committed; the early answer, if there is one."""
        self._waiters.setdefault(waiter.index, []).append(waiter)
        early = self.rules.early.get(self.node.state.group, 0)
        if early == TAKEN:
            return self._tell(waiter, TAKEN, 0)
        if early == STORED:
            if waiter.index <= self.node.state.log.durable:
                return self._tell(waiter, STORED, 0)
            self._unstored.append(waiter)
        return None

    def stored(self) -> list[Message]:
        """More of the log is durable here: answer the senders that wait for no more than that."""
        waiting = self._unstored
        if not waiting:
            return []
        durable = self.node.state.log.durable
        self._unstored = [waiter for waiter in waiting if waiter.index > durable]
        return [self._tell(waiter, STORED, 0) for waiter in waiting if waiter.index <= durable]

    def _repeat(self, run: RunId, forward: Forward) -> Message | None:
        """A run that the log has, or that its sender left out for good."""
        index = self._indexes.get((run.sender, run.boot, run.sequence), 0)
        if index:
            return self._wait(_Waiter(run, forward.sender, forward.attempt, index))
        known = self.table.senders.get(run.sender)
        offset = known.offset_of(run.sequence) if known is not None and known.boot == run.boot else -1
        if offset < 0:
            return None  # left out; the sender has its answer already
        return self._answer(run, forward.sender, forward.attempt, COMMITTED, offset, self.term)

    def applied(self, entries: list[Entry]) -> list[Message]:
        """Entries are committed: note them, and answer their senders."""
        answers: list[Message] = []
        for entry in entries:
            if entry.kind != DATA:
                continue
            run = run_of(entry.data)
            if run is None:
                continue
            self.table.note(run, entry.base_offset)
            if self.term:
                self._indexes.pop((run.sender, run.boot, run.sequence), None)
                ahead = self._ahead.get(run.sender)
                if ahead is not None and ahead.boot == run.boot and ahead.last == run.sequence:
                    del self._ahead[run.sender]
            waiters = self._waiters.pop(entry.index, [])
            answers += [self._tell(waiter, COMMITTED, entry.base_offset) for waiter in waiters]
        return answers

    def _tell(self, waiter: _Waiter, outcome: int, value: int) -> Message:
        return self._answer(waiter.run, waiter.node, waiter.attempt, outcome, value, self.term)

    def _answer(self, run: RunId, node: int, attempt: int, outcome: int, value: int, term: int) -> Message:
        state = self.node.state
        return ForwardReply(state.group, state.node, node, term, run.boot, run.sequence, attempt, outcome, value)
