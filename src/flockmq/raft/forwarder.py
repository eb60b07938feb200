"""Forwards a node's runs to the leader of a group, until each has exactly one outcome. See also ``senders.py``.

```
 note() --> build the batch --> submit(batch, token)
                                     |  in order, many under way
                                     v
               take_messages() --> leader --> on_reply()        no answer, another leader: again, from the oldest on
                                     |
                                     v
               take_outcomes(): COMMITTED offset | REFUSED, certainly not in the log | UNKNOWN, no node can say
                                | REPLAN, certainly not in the log: its records belong elsewhere
                                | TAKEN, STORED, FENCED: an outcome is still to come
```
A run is sent to the leader of a term, and only that one takes it. It counts as refused for certain when a leader said
so whose term is not earlier than that of any attempt without an answer (it says the same to other attempts), and later
than that of any leader that lost sight of the run. A run whose outcome was reported as unknown is still seen through:
later runs must not overtake it. What becomes of it is reported in the end. While the leader and its term are not
known, the oldest run goes to a node that may know them.

A run whose plan is out of date takes all later ones with it. None of them can be in a log without it, and none may get
there before its records have found their new place. A run with a record that must not be in the log (FENCED) keeps its
place, and waits there with all later ones until its publisher has taken the record out: ``replace``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.raft.messages import Forward
from flockmq.raft.outcome import Outcome
from flockmq.raft.senders import (
    BEHIND,
    COMMITTED,
    ELSEWHERE,
    FENCED,
    LATER,
    PLAN_AHEAD,
    REFUSED,
    REPLAN,
    RUNS_KEPT,
    STORED,
    TAKEN,
    UNKNOWN,
    run_note,
)

if TYPE_CHECKING:
    from flockmq.raft.messages import ForwardReply

FORWARD_BYTES_MAX: Final = 16_777_216
"""Most bytes of runs without an outcome; then ``has_room`` says no."""
HOPS_MAX: Final = 3
HOP_MS: Final = 100
"""Nodes that may redirect a run within ``HOP_MS``: without a leader, or while nodes disagree, runs would circle."""
NEVER_TAKEN: Final = 1
"""In the place of the offset of a refused run: no leader was there to take it, nor any later run."""
ITS_OWN: Final = (TAKEN, STORED, REFUSED, UNKNOWN, FENCED)
"""Outcomes that mean nothing for a run which is about to have other records."""
DOUBTS_MAX: Final = 2
"""How often a leader is asked again that says its log ends before a run that was committed."""
PLAN_RETRY_MS: Final = 100
"""When to ask a leader again that has not heard of a plan yet."""


class _Run:
    def __init__(self, sequence: int, batch: bytes, token: int, deadline: int) -> None:
        self.sequence = sequence
        self.batch = batch
        self.token = token
        self.deadline = deadline
        self.open: dict[int, int] = {}
        """Attempts without an answer, and their terms."""
        self.unknown_term = 0
        """Latest term of a leader that lost sight of the run."""
        self.told = False
        """Its outcome was reported, as UNKNOWN at least."""
        self.early = False
        """The publisher was told that a leader has the run."""
        self.is_promised = False
        """Some of its records were acknowledged before, in another run: it is never given up."""
        self.done = False
        """The run is in the log for good."""
        self.is_fenced = False
        """A record has to be taken out before the run is sent again."""
        self.made_at = 0
        """The latest attempt with other records than it has now: answers to that mean nothing any more."""

    def may_be_taken(self) -> bool:
        """Whether some leader may have it: all that were asked and did not take it said so."""
        return bool(self.open) or self.unknown_term > 0 or self.early or self.is_promised


class Forwarder:
    """Runs of this node for one group."""

    def __init__(self, group: int, node: int, boot: int, retry_ms: int = 1_000, give_up_ms: int = 10_000) -> None:
        self.group = group
        self.node = node
        self.boot = boot
        self.leader = 0
        self.term = 0
        """The term in which ``leader`` leads; 0: that node may not lead, but may know which one does."""
        self.runs: list[_Run] = []
        self.bytes = 0
        self._by_sequence: dict[int, _Run] = {}
        self._next = 1
        self._base = 0
        """The run before the oldest one here."""
        self._committed = 0
        """The latest run that is in the log for good."""
        self._doubts = 0
        """How many passes in a row a leader said that its log ends before that run."""
        self._is_heard = False
        """The present leader, or the node that may know it, has answered since it was chosen or asked again."""
        self._silences = 0
        """How many passes in a row got no answer at all."""
        self._sent = 0
        """How many of the runs here went to the present leader."""
        self._attempt = 0
        self._first_attempt = 1
        """Of this pass over the runs; answers to earlier ones start no other pass."""
        self._hops = 0
        self._hops_since = 0
        self._wait_until = 0
        self._retry_ms = retry_ms
        self._give_up_ms = give_up_ms
        self._elapsed = 0
        self._retry_at = 0
        self._outcomes: list[Outcome] = []
        self._is_refusing = False
        """Runs were refused, and the publishers behind them have not heard of it."""

    def has_room(self) -> bool:
        """Whether another run may be submitted."""
        return len(self.runs) < RUNS_KEPT and self.bytes < FORWARD_BYTES_MAX and not self._is_refusing

    def note(self, plan: int = 0) -> bytes:
        """What the next batch must carry as its note; ``plan`` as in ``run_note``."""
        return run_note(self.node, self.boot, self._next, plan)

    def submit(self, batch: bytes, token: int, is_promised: bool = False) -> None:
        """Forward a batch that was built with ``note()``. Its outcome will carry ``token``."""
        assert self.has_room(), "ask has_room() first"
        run = _Run(self._next, batch, token, self._elapsed + self._give_up_ms)
        run.is_promised = is_promised
        self.runs.append(run)
        self._by_sequence[run.sequence] = run
        self.bytes += len(batch)
        self._next += 1

    def set_leader(self, leader: int, term: int) -> None:
        """This node leads the group in a term. Term 0: it may know which node does; leader 0: no such node is known."""
        if term and term < self.term:
            return  # a node with a later term has answered
        if leader != self.leader or term != self.term:
            self.leader = leader
            self.term = term
            self._silences = 0
            self._start_pass()

    def is_unanswered(self) -> bool:
        """Whether the node that is taken for the leader says nothing: it may be there, and not know the group."""
        return self._silences > 0

    def set_time(self, elapsed: int) -> None:
        """Set the time: a forwarder that has nothing under way gets no ticks."""
        self._elapsed = elapsed

    def tick(self, elapsed: int) -> None:
        """Time passes: try again what got no answer, give up what is too old."""
        self._elapsed = elapsed
        for run in list(self.runs):
            if run.told or run.is_fenced or elapsed < run.deadline:
                continue  # the publisher of a fenced one hears of it right now
            if not run.may_be_taken():
                self._refuse_untaken(run)
                break
            run.told = True
            self._outcomes.append(Outcome(UNKNOWN, 0, False, token=run.token))
        has_asked = self._attempt >= self._first_attempt  # maybe for a run that was refused since, with no answer
        if (self._sent or has_asked) and elapsed >= self._retry_at:
            self._silences = 0 if self._is_heard else self._silences + 1
            self._start_pass()

    def _refuse_untaken(self, first: _Run) -> None:
        """There is no leader. No log has later runs without this one either: one that were taken later would overtake
        the runs that are refused here and come again.
        """
        self._is_refusing = True
        position = self.runs.index(first)
        for run in self._take_back(position):
            if run.is_promised:
                self._outcomes.append(Outcome(REPLAN, 0, True, run.batch, run.token))
            else:
                self._report(run, REFUSED, NEVER_TAKEN)

    def take_messages(self) -> list[Forward]:
        """Runs that the present leader has not been sent, in order."""
        messages: list[Forward] = []
        if not self.leader or self._elapsed < self._wait_until:
            return messages
        while self._sent < len(self.runs):
            run = self.runs[self._sent]
            if run.is_fenced or (not self.term and self._attempt >= self._first_attempt):
                break  # it will have other records; or one run is enough to ask which node leads
            previous = self.runs[self._sent - 1].sequence if self._sent else self._base
            self._sent += 1
            if run.done:
                continue
            self._attempt += 1
            messages.append(Forward(self.group, self.node, self.leader, self.term, previous, self._attempt, run.batch))
            self._retry_at = self._elapsed + self._retry_ms
            if self.term:
                run.open[self._attempt] = self.term
        return messages

    def take_outcomes(self) -> list[Outcome]:
        """Outcomes since the last call."""
        outcomes = self._outcomes
        self._outcomes = []
        self._is_refusing = False
        return outcomes

    def on_reply(self, reply: ForwardReply) -> None:
        """An attempt was answered."""
        if reply.boot != self.boot:
            return
        is_current = reply.attempt >= self._first_attempt
        if reply.sender == self.leader:
            self._is_heard = True
        run = self._by_sequence.get(reply.sequence)
        if run is not None and (reply.attempt <= run.made_at or (run.is_fenced and reply.outcome in ITS_OWN)):
            return
        if reply.outcome in (TAKEN, STORED):  # the attempt itself is still to be answered
            if run is not None and not (run.told or run.done or run.early):
                run.early = True
                self._outcomes.append(Outcome(reply.outcome, 0, False, token=run.token))
            return
        if run is not None:
            run.open.pop(reply.attempt, None)
        if reply.outcome == COMMITTED:
            if run is not None and not run.done:
                self._report(run, COMMITTED, reply.value)
                run.done = True
                self._committed = max(self._committed, run.sequence)
                self._doubts = 0
                self._retry_at = self._elapsed + self._retry_ms
                self._forget_done()
        elif reply.outcome == REFUSED:
            if run is not None and not run.done:
                self._on_refused(run, reply)
        elif reply.outcome == UNKNOWN:
            if run is not None:
                run.unknown_term = max(run.unknown_term, reply.term)
        elif reply.outcome == BEHIND and is_current:
            if self.runs and reply.value < self.runs[0].sequence:
                self._base = self._end_of_log(reply.value)
            self._start_pass()
        elif reply.outcome == ELSEWHERE and is_current and reply.sender == self.leader:
            self.leader = reply.value
            self.term = reply.term if reply.value else 0
            self._start_pass()
            self._count_hop()
        elif reply.outcome == REPLAN:
            if run is not None and not run.done and _is_certain(run, reply):
                self._replan(run, reply.value)
        elif reply.outcome == FENCED:
            if run is not None and not (run.done or run.is_fenced) and _is_certain(run, reply):
                run.is_fenced = True
                self._sent = min(self._sent, self.runs.index(run))
                self._outcomes.append(Outcome(FENCED, reply.value, False, run.batch, run.token))
        elif reply.outcome == LATER and reply.value == PLAN_AHEAD:
            self._retry_at = min(self._retry_at, self._elapsed + PLAN_RETRY_MS)

    def _end_of_log(self, last: int) -> int:
        """The run that the oldest one here follows on, when a leader says that its log ends with ``last``.

        Those before the oldest have their outcomes here; which of them are in the log, the log knows best. It may say
        so late, when one of them was on its way: so it is asked again. A leader that says the same then has lost runs
        that were committed: an operator accepted that loss, and it must not stop those that are still to come.
        """
        if last >= self._committed:
            self._doubts = 0
            return last
        self._doubts += 1
        if self._doubts <= DOUBTS_MAX:
            return self._committed
        self._doubts = 0
        self._committed = last
        return last

    def _count_hop(self) -> None:
        if self._elapsed >= self._hops_since + HOP_MS:
            self._hops_since = self._elapsed
            self._hops = 0
        self._hops += 1
        if self._hops >= HOPS_MAX:
            self._wait_until = self._hops_since + HOP_MS

    def _on_refused(self, run: _Run, reply: ForwardReply) -> None:
        if _is_certain(run, reply):
            self._report(run, REFUSED, 0)
            self._drop(run)

    def replace(self, token: int, batch: bytes) -> None:
        """These records take the place of a FENCED run, under its note. If there are none it is left out."""
        for run in self.runs:
            if run.token == token:
                break
        else:
            return
        if not batch:
            self._drop(run)
            return
        self.bytes += len(batch) - len(run.batch)
        run.batch = batch
        run.is_fenced = False
        run.made_at = self._attempt
        run.open = {}
        self._start_pass()

    def _replan(self, first: _Run, index: int) -> None:
        """Give back a run and all after it."""
        for run in self._take_back(self.runs.index(first)):
            if run.told and not (run.early or run.is_promised):  # its publishers have gone to resend it
                self._report(run, REFUSED, 0)
            else:
                self._outcomes.append(Outcome(REPLAN, index, True, run.batch, run.token))

    def _take_back(self, position: int) -> list[_Run]:
        """A run and all after it are here no more."""
        taken_back = self.runs[position:]
        del self.runs[position:]
        for run in taken_back:
            if run.is_fenced:  # its publisher has not heard of that, and need not
                fenced = [one for one in self._outcomes if one.token == run.token and one.kind == FENCED]
                self._outcomes.remove(fenced[0])
            del self._by_sequence[run.sequence]
            self.bytes -= len(run.batch)
        self._sent = min(self._sent, position)
        return taken_back

    def _start_pass(self) -> None:
        """Send all runs again, from the oldest on."""
        self._sent = 0
        self._is_heard = False
        self._first_attempt = self._attempt + 1

    def _report(self, run: _Run, kind: int, offset: int) -> None:
        """The last word about a run."""
        run.told = True
        self._outcomes.append(Outcome(kind, offset, True, token=run.token))

    def _drop(self, run: _Run) -> None:
        """Leave a run out: the next one follows on the one before."""
        position = self.runs.index(run)
        del self.runs[position]
        del self._by_sequence[run.sequence]
        self.bytes -= len(run.batch)
        if position < self._sent:
            self._start_pass()

    def _forget_done(self) -> None:
        while self.runs and self.runs[0].done:
            run = self.runs.pop(0)
            self._base = run.sequence
            del self._by_sequence[run.sequence]
            self.bytes -= len(run.batch)
            if self._sent:
                self._sent -= 1


def _is_certain(run: _Run, reply: ForwardReply) -> bool:
    """Whether a leader's word that it did not take a run means that the run is in no log, and never will be."""
    return reply.term > run.unknown_term and max(run.open.values(), default=0) <= reply.term
