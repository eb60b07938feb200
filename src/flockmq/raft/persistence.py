"""What must be durable before another node hears of it, and what follows once it is.

```
 take_ready() --> number n: hard state, truncation, entries --> stage() --> disk --> persisted(n)
                                                                                      |-- own log counts for the quorum
                                                                                      `-- promises up to n may leave
```
Several Readies may be on their way to the disk; they become durable in order. A leader's appends do not wait for its
own disk (thesis, 10.2.1), only its own count does. Votes, vote requests and acknowledgements are promises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.log.errors import SpoiledError
from flockmq.raft import reads
from flockmq.raft.election import on_vote_reply
from flockmq.raft.health import recover
from flockmq.raft.messages import AppendReply, VoteReply
from flockmq.raft.ready import Ready
from flockmq.raft.replication import commit_by_count, replicate
from flockmq.raft.state import LEADER, SOUND, HardState, InFlight, Promise

if TYPE_CHECKING:
    from flockmq.raft.entry import Entry
    from flockmq.raft.messages import Message
    from flockmq.raft.replicas import Replica
    from flockmq.raft.state import RaftState

COMMIT_STEP: Final = 64
"""The commit index need not be durable. It is noted only so often, then a restart has little left to learn."""


def take_ready(state: RaftState, may_write: bool) -> Ready:
    """All obligations since the last call. Without room on the disk: nothing to write, nor what waits for it."""
    state.dirty = False
    if state.role == LEADER:
        reads.begin_due_round(state)
        replicate(state)
    ready = Ready(state.commit)
    if may_write:
        _take_writes(state, ready)
    if state.acknowledge >= 0:
        _promise_acknowledgement(state)
    if has_writes(state):
        state.dirty = True  # promises wait for all of it
    else:
        _hold_promises(state)
    ready.committed = _take_committed(state)
    ready.messages = state.outbox
    state.outbox = []
    ready.reads = state.answers
    state.answers = []
    return ready


def has_writes(state: RaftState) -> bool:
    """Whether anything is to be written that was not given out."""
    log = state.log
    return state.hard_is_dirty or state.install is not None or log.truncated_from > 0 or log.handed < log.last_index


def _take_writes(state: RaftState, ready: Ready) -> None:
    if not has_writes(state):
        return
    log = state.log
    ready.install = state.install
    ready.restores = state.restores
    state.install = None
    state.restores = False
    ready.truncate_from = log.take_truncation()
    ready.entries = log.take_unwritten(state.settings.write_bytes_max)
    if state.hard_is_dirty:
        ready.hard_state = HardState(state.term, state.vote, state.health)
        state.hard_is_dirty = False
    state.number += 1
    ready.number = state.number
    state.in_flight.append(InFlight(ready.number, log.handed, state.term))
    if log.rewritten:
        log.rewritten = False
        state.barrier = ready.number


def stage(replica: Replica, ready: Ready) -> None:
    """Let the next group commit make durable what a replica asks for, all or nothing."""
    log = replica.log
    if ready.install is not None:
        content = replica.checkpoints.install(ready.install)
        if ready.restores:
            replica.desk.table = content.table
        log.reset(ready.install.index, ready.install.term, ready.install.next_offset)
    if ready.truncate_from:
        log.truncate_from(ready.truncate_from)
    if ready.entries:
        log.append_views([entry.take_view() for entry in ready.entries])
    hard = ready.hard_state
    if hard is None:
        if ready.commit - log.commit >= COMMIT_STEP:
            log.set_hard_state(log.term, log.vote, ready.commit)
        return
    log.set_hard_state(hard.term, hard.vote, ready.commit)
    if hard.health == SOUND:
        log.repaired()


def persisted(state: RaftState, number: int) -> None:
    """All Readies up to ``number`` are durable."""
    done = 0
    while done < len(state.in_flight) and state.in_flight[done].number <= number:
        done += 1
    if done == 0:
        return
    latest = state.in_flight[done - 1]
    del state.in_flight[:done]
    state.durable_term = max(state.durable_term, latest.term)
    # What this Ready wrote may be rewritten by one that is still on its way; then only that one tells what is durable.
    if number >= state.barrier and not state.log.rewritten:
        state.log.became_durable(latest.handed)
    state.log.trim()
    recover(state)
    _release_promises(state, number)
    if state.log.durable > state.commit:
        commit_by_count(state)
    if min(state.commit, state.log.durable) > state.applied:
        state.dirty = True


def _promise_acknowledgement(state: RaftState) -> None:
    """One answer for all appends of a turn, as far as they are given out to be written."""
    if not state.leader:
        state.acknowledge = -1  # the leader is not heard any more (``quiet.leader_is_lost``): there is no node to tell
        return
    if state.acknowledge > state.log.handed:
        state.dirty = True
        return
    state.promises.append(
        AppendReply(
            state.group,
            state.node,
            state.leader,
            state.term,
            True,
            state.acknowledge,
            0,
            0,
            state.lease_round_seen,
            state.health != SOUND,
        )
    )
    state.acknowledge = -1


def _hold_promises(state: RaftState) -> None:
    """Promises wait for everything that is on its way to the disk, even when this turn itself had nothing to write."""
    promises = state.promises
    state.promises = []
    if not state.in_flight:
        for message in promises:
            _say(state, message)
        return
    number = state.in_flight[-1].number
    for message in promises:
        state.waiting.append(Promise(number, message))


def _release_promises(state: RaftState, number: int) -> None:
    done = 0
    while done < len(state.waiting) and state.waiting[done].number <= number:
        _say(state, state.waiting[done].message)
        done += 1
        state.dirty = True
    del state.waiting[:done]


def _say(state: RaftState, message: Message) -> None:
    """Send it, if it still means something: a later term has made it stale."""
    if message.term != state.term:
        return
    if message.receiver != state.node:
        state.outbox.append(message)
    elif isinstance(message, VoteReply):
        on_vote_reply(state, message)


def _take_committed(state: RaftState) -> list[Entry]:
    """Entries to apply: decided, and durable here, so that no state is ever ahead of its own log."""
    high = min(state.commit, state.log.durable)
    state.log.stable.settle(high)
    if high <= state.applied:
        return []
    try:
        entries = state.log.read(state.applied + 1, high + 1, state.settings.apply_bytes_max)
    except SpoiledError:
        return []  # other replicas have it: it is applied once it is fetched and this group is woken
    state.applied += len(entries)
    if state.applied < high:
        state.dirty = True
    return entries
