"""Reads that see everything acknowledged before them, without an entry in the log (thesis, 6.4).

```
 read --> commit known in this term? --no--> wait for the first entry of the term
              | yes                                (thesis 6.4, step 1)
              v
          lease valid? --yes--> answer now
              | no
              v
          wait for a round of heartbeats that began after the read and that a quorum answered
```
The lease: a replica that answered a round votes for no other leader for ``election_ms`` (``election.is_loyal``). So no
other leader can exist for ``lease_ms`` from the begin of a round that a quorum answered; ``lease_ms`` is shorter
because clocks differ (thesis 6.4.1). There is no lease while leadership is being handed over, after a replica was told
to campaign at once, across a clock that jumped, and in a quiet group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.raft.messages import Heartbeat
from flockmq.raft.state import LEADER, PendingRead, ReadAnswer, Round

if TYPE_CHECKING:
    from flockmq.raft.state import RaftState

READS_MAX: Final = 65_536
"""Reads that may wait at once; more are sent away."""


def read(state: RaftState, number: int, now: int) -> None:
    """Find out from which index on a read that arrived just now may be served."""
    state.dirty = True
    if state.role != LEADER or len(state.reads) + len(state.early_reads) >= READS_MAX:
        state.answers.append(ReadAnswer(number, -1))
        return
    state.work_at = state.clock.elapsed
    if state.commit < state.term_start:
        state.early_reads.append(number)
    elif has_lease(state, now):
        state.answers.append(ReadAnswer(number, state.commit))
    else:
        _wait(state, number)


def has_lease(state: RaftState, now: int) -> bool:
    """Whether no other leader can have been elected up to ``now``."""
    if not state.settings.lease or not state.lease_is_safe or state.transfer_to or state.quiet:
        return False
    if not state.rounds or state.rounds[0].number != state.round_confirmed:
        return False
    begin = state.rounds[0]
    clock = state.clock
    # Whatever says that more time has passed is believed: the clock now, or the ticks counted.
    lease_ms = state.settings.lease_ms
    if not clock.is_sane(now) or clock.jumps != begin.jumps:
        return False
    return now - begin.raw < lease_ms and (clock.ticks - begin.ticks) * clock.tick_ms < lease_ms


def begin_round(state: RaftState, quiet: bool = False, spared_since: int = -1) -> None:
    """A heartbeat to every member.

    Those that were sent an append at ``spared_since`` or later need none: they have heard of us, and the next append
    brings them this round. If none follows they get the next heartbeat.
    """
    state.round += 1
    state.round_is_due = False
    state.round_was_spared = False
    clock = state.clock
    # The last tick lies before the messages leave, so the round is never taken for younger than it is.
    state.rounds.append(Round(state.round, clock.raw, clock.ticks, clock.jumps))
    for node, progress in state.progress.items():
        if 0 <= spared_since <= progress.sent_at and not progress.lacks_commit(state.commit):
            state.round_was_spared = True
            continue
        message = Heartbeat(
            state.group, state.node, node, state.term, state.commit, state.log.last_index, state.round, quiet
        )
        progress.told_commit = state.commit
        state.send(message)
    _confirm(state)


def begin_due_round(state: RaftState) -> None:
    """Begin a round for reads that wait, but not before the one that is out was answered: they share the next."""
    if state.round_is_due and (state.round_confirmed == state.round or state.round_was_spared):
        begin_round(state)


def answered(state: RaftState, node: int, lease_round: int) -> None:
    """A member has heard a round."""
    progress = state.progress[node]
    progress.active = True
    if progress.heard_round < lease_round <= state.round:
        progress.heard_round = lease_round
        for begun in state.rounds:
            if begun.number == lease_round:
                progress.answered_tick = begun.ticks
        _confirm(state)


def note_commit(state: RaftState) -> None:
    """What is committed is known now: reads that came too early begin."""
    if state.early_reads and state.commit >= state.term_start:
        early = state.early_reads
        state.early_reads = []
        for number in early:
            _wait(state, number)


def _wait(state: RaftState, number: int) -> None:
    state.reads.append(PendingRead(number, state.commit, state.round + 1))
    state.round_is_due = True
    state.dirty = True


def _confirm(state: RaftState) -> None:
    """See which round a quorum has answered. The leader itself counts, if it is a voter."""
    heard = {node: progress.heard_round for node, progress in state.progress.items()}
    heard[state.node] = state.round
    agreed = state.configuration.agreed(heard)
    if agreed <= state.round_confirmed:
        return
    state.round_confirmed = agreed
    if state.round_is_due:
        state.dirty = True
    while state.rounds and state.rounds[0].number < agreed:
        state.rounds.pop(0)
    done = 0
    while done < len(state.reads) and state.reads[done].lease_round <= agreed:
        state.answers.append(ReadAnswer(state.reads[done].number, state.reads[done].index))
        done += 1
    if done:
        del state.reads[:done]
        state.dirty = True
