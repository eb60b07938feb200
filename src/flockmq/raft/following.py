"""The follower's side of replication (Raft paper, 5.3; figure 2, AppendEntries)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.raft import membership
from flockmq.raft.commits import commit_to
from flockmq.raft.errors import SafetyError
from flockmq.raft.health import met_leader
from flockmq.raft.messages import AppendReply, HeartbeatReply
from flockmq.raft.roles import become_follower
from flockmq.raft.state import FOLLOWER, LEADER, SOUND

if TYPE_CHECKING:
    from flockmq.raft.entry import Entry
    from flockmq.raft.messages import Append, Heartbeat
    from flockmq.raft.state import RaftState


def hear_leader(state: RaftState, leader: int, last_index: int, lease_round: int) -> None:
    """The sender leads in this term. Its message resets the election timer (paper, 5.2)."""
    if state.role == LEADER or state.leader not in (0, leader):
        raise SafetyError(
            f"Group {state.group}: nodes {state.leader} and {leader} both lead in term {state.term}. "
            "Election safety is broken; stop this group and look at both logs."
        )
    if state.role != FOLLOWER or state.leader == 0:
        # A candidate that hears of a leader of its term has lost (paper, 5.2).
        become_follower(state, state.term, leader)
        state.dirty = True
    state.quiet = False
    state.loyal_until = state.clock.elapsed + state.settings.election_ms
    state.campaign_at = state.clock.elapsed + state.campaign_wait
    state.lease_round_seen = max(state.lease_round_seen, lease_round)
    met_leader(state, last_index)


def on_append(state: RaftState, message: Append) -> None:
    """Take in entries, if the logs agree where they begin."""
    hear_leader(state, message.sender, message.last_index, message.lease_round)
    prev_index = message.prev_index
    entries = message.entries
    if prev_index < state.commit:
        # What is committed is the same in every leader's log (paper, 5.4: leader completeness), so begin behind it.
        known = min(state.commit - prev_index, len(entries))
        if known:
            _must_agree(state, entries[known - 1])
        entries = entries[known:]
        prev_index = state.commit
    elif state.log.term_at(prev_index) != message.prev_term:
        _refuse(state, message)
        return
    _take_in(state, entries)
    acknowledge(state, prev_index + len(entries))
    # No further than this append proves our log to be the leader's (paper, figure 2, AppendEntries 5).
    commit_to(state, min(message.commit, state.matched))


def on_heartbeat(state: RaftState, message: Heartbeat) -> None:
    """The leader lives. A heartbeat says nothing about our log, so commit no further than what is known to match."""
    hear_leader(state, message.sender, message.last_index, message.lease_round)
    commit_to(state, min(message.commit, state.matched))
    if message.quiet and _is_level(state, message):
        # The leader will say no more until there is work; the host watches over its node (``quiet.py``).
        state.quiet = True
        state.dirty = True
        return
    if message.is_news:
        return
    if state.health != SOUND and state.matched == message.last_index:
        # Only an acknowledgement says that a replica is impaired. If the last one was lost, none would follow.
        acknowledge(state, state.matched)
    # A term that a crash would undo is no ground to call anything durable.
    durable = min(state.matched, state.log.durable) if state.durable_term == state.term else 0
    state.send(
        HeartbeatReply(
            state.group,
            state.node,
            message.sender,
            state.term,
            message.lease_round,
            state.matched,
            durable,
            state.commit,
        )
    )


def _is_level(state: RaftState, message: Heartbeat) -> bool:
    """Whether nothing at all is missing here."""
    last = message.last_index
    return (
        state.health == SOUND
        and message.commit == last
        and state.commit == last
        and state.matched == last
        and state.log.last_index == last
        and state.log.durable == last
    )


def _take_in(state: RaftState, entries: list[Entry]) -> None:
    """Append what is new. An entry that conflicts removes itself and all behind it (paper, figure 2)."""
    log = state.log
    for entry in entries:
        if entry.index <= log.last_index:
            if log.term_at(entry.index) == entry.term:
                continue
            assert entry.index > state.commit, "what is committed was left out before"
            log.truncate_from(entry.index)
            membership.note_truncation(state, entry.index)
        log.append(entry)
        membership.note_entry(state, entry)


def _must_agree(state: RaftState, entry: Entry) -> None:
    """An entry that is committed here can't differ in the log of a leader (paper, figure 3: leader completeness)."""
    here = state.log.term_at(entry.index)
    if here not in (entry.term, -1):
        raise SafetyError(
            f"Group {state.group}: entry {entry.index} is committed with term {here}, and the leader has it with term "
            f"{entry.term}. State machine safety is broken; stop this group and look at both logs."
        )


def acknowledge(state: RaftState, index: int) -> None:
    """All up to ``index`` is the leader's log; tell it when that is durable. One answer a turn says it all."""
    state.matched = max(state.matched, index)
    state.acknowledge = max(state.acknowledge, index)
    state.dirty = True


def _refuse(state: RaftState, message: Append) -> None:
    """The logs do not agree; say where they may, so that the leader needs one question per term, not per entry.

    Raft paper, end of 5.3; halving as in ``RaftLog.agreement``.
    """
    hint = state.log.agreement(message.prev_index, message.prev_term, state.commit)
    state.send(
        AppendReply(
            state.group,
            state.node,
            message.sender,
            state.term,
            False,
            message.prev_index,
            hint,
            max(state.log.term_at(hint), 0),
            message.lease_round,
            state.health != SOUND,
        )
    )
