"""The log, from its leader to its followers and to the commit index (Raft paper, 5.3; figure 2, AppendEntries).

```
 leader:    append --> replicate --Append, Heartbeat--.         .--> on_append_reply, on_heartbeat_reply
                                                      v         |                  |
 follower:                              on_append, on_heartbeat-'           commit_by_count: a quorum holds it
 both:                                             `---------> commit_to <---------'
```
Acknowledgements of followers wait for their disks (``persistence.py``); what is too old to be sent as entries goes as a
snapshot (``snapshots.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.log.batch import CONFIG, NOOP, control_batch, stamp
from flockmq.log.errors import SpoiledError
from flockmq.raft import membership, reads, snapshots, transfer
from flockmq.raft.entry import Entry, entry_of
from flockmq.raft.errors import SafetyError
from flockmq.raft.health import met_leader, recover
from flockmq.raft.messages import Append, AppendReply, Heartbeat, HeartbeatReply
from flockmq.raft.progress import PROBE, SNAPSHOT, Progress
from flockmq.raft.roles import become_follower
from flockmq.raft.state import FOLLOWER, LEADER, SOUND

if TYPE_CHECKING:
    from flockmq.raft.messages import SnapshotReply
    from flockmq.raft.state import RaftState


# The leader: what each follower gets, and what its answers mean.


def append(state: RaftState, batch: bytes) -> Entry:
    """A leader puts a batch into its log; it never overwrites or deletes any (paper, 5.3: leader append-only)."""
    log = state.log
    index = log.last_index + 1
    data = stamp(batch, state.term, index, log.next_offset)
    entry = entry_of(data)
    log.append(entry)
    state.uncommitted.append((index, len(data)))
    state.uncommitted_bytes += len(data)
    membership.note_entry(state, entry)
    state.work_at = state.clock.elapsed
    state.dirty = True
    return entry


def begin_term(state: RaftState) -> None:
    """A new leader appends an entry of its own term: only with it can entries of earlier terms be known as committed
    (paper, 5.4.2 and 8).
    """
    state.term_start = state.log.last_index + 1
    append(state, control_batch(NOOP, b""))
    # That alone is no work: be quiet once all know of it.
    state.work_at = state.clock.elapsed - state.settings.quiet_after_ms


def replicate(state: RaftState) -> None:
    """Send every follower what it lacks, within its window. Called once a turn, so that proposals share appends."""
    for node, progress in state.progress.items():
        if node in state.congested:
            state.held_back = True
        elif progress.state == SNAPSHOT:
            snapshots.send_chunk(state, node, progress)
        else:
            _send_appends(state, node, progress)
            if _wants_news(state, progress):
                _tell_commit(state, node, progress)


def _wants_news(state: RaftState, progress: Progress) -> bool:
    """Whether a follower has to be told at once what is committed.

    While entries are still to be committed, another append follows and carries the commit index. When all are
    committed, no append may follow: a follower that is told while it still writes need not be told afterwards.
    """
    if not state.settings.commit_news_at_once:
        return False
    return progress.lacks_commit(state.commit) or progress.told_commit < state.commit == state.log.last_index


def _tell_commit(state: RaftState, node: int, progress: Progress) -> None:
    """Nothing is on its way that would tell a follower what is committed: its readers must not wait for a tick.

    No answer is asked for, it would cost as much again: the next round of heartbeats tells whether this arrived.
    """
    last_index = state.log.last_index
    news = Heartbeat(state.group, state.node, node, state.term, state.commit, last_index, state.round, False, True)
    state.outbox.append(news)
    progress.told_commit = state.commit


def _send_appends(state: RaftState, node: int, progress: Progress) -> None:
    log = state.log
    settings = state.settings
    while True:
        if progress.state == PROBE:
            if progress.sent:
                return
        elif progress.next > log.last_index or progress.sent_bytes >= settings.window_bytes_max:
            return
        first = progress.next
        prev_term = log.term_at(first - 1)
        if prev_term < 0 or first < log.first_index():
            snapshots.begin(state, node, progress)
            return
        is_old = first < log.tail_first
        try:
            entries = log.read(first, log.last_index + 1, settings.append_bytes_max) if first <= log.last_index else []
        except SpoiledError:
            return  # never sent: this follower waits until the entry is fetched from another replica
        size = 0
        for entry in entries:
            size += len(entry.data)
        state.outbox.append(
            Append(
                state.group,
                state.node,
                node,
                state.term,
                first - 1,
                prev_term,
                entries,
                state.commit,
                log.last_index,
                state.round,
            )
        )
        progress.told_commit = state.commit
        progress.note_sent(first - 1, first - 1 + len(entries), size, state.round)
        progress.sent_at = state.clock.elapsed
        if is_old:
            state.dirty = True
            return  # from the disk one piece a turn, others want theirs


def on_append_reply(state: RaftState, reply: AppendReply) -> None:
    """A follower holds more, or its log differs."""
    progress = state.progress.get(reply.sender)
    if state.role != LEADER or progress is None:
        return
    reads.answered(state, reply.sender, reply.lease_round)
    progress.impaired = reply.impaired
    if not reply.ok:
        _on_refusal(state, progress, reply)
        state.dirty = True
    elif reply.index <= state.log.last_index:
        on_durable(state, progress, reply.index)


def _on_refusal(state: RaftState, progress: Progress, reply: AppendReply) -> None:
    if progress.state == SNAPSHOT:
        return
    if reply.impaired:
        # It lost what it had acknowledged, so nothing is known of it. What is committed stays committed: the replica
        # does not vote before it has all of this log (``health.py``).
        progress.match = 0
    elif progress.state == PROBE:
        if not _is_out(progress, reply.index):
            return  # an answer to an earlier question
        if reply.index == progress.match:
            # It lacks what it acknowledged, and does not know that it lost something. Give it everything again.
            progress.match = 0
    elif reply.index < progress.match or (reply.index == progress.match and not _is_out(progress, reply.index)):
        return  # late
    # Both sides skip entries whose term rules out that they agree: one question per term (paper, end of 5.3).
    hint = min(reply.hint_index, reply.index)
    progress.probe(state.log.agreement(hint, reply.hint_term, 0) + 1)


def _is_out(progress: Progress, prev_index: int) -> bool:
    """Whether the oldest append that is out begins behind ``prev_index``."""
    return bool(progress.sent) and progress.sent[0].prev_index == prev_index


def on_heartbeat_reply(state: RaftState, reply: HeartbeatReply) -> None:
    """A follower lives; maybe an append or its answer was lost on the way."""
    progress = state.progress.get(reply.sender)
    if state.role != LEADER or progress is None:
        return
    reads.answered(state, reply.sender, reply.lease_round)
    progress.knows_commit = max(progress.knows_commit, reply.commit)
    # While probing no news is news as well: the logs agree there, and the answer that said so was lost.
    is_news = progress.match < reply.durable or (progress.state == PROBE and 0 < progress.match == reply.durable)
    if is_news and reply.durable <= state.log.last_index:
        on_durable(state, progress, reply.durable)
    if progress.state == SNAPSHOT:
        snapshots.resume(progress, reply.lease_round)
    elif progress.has_lost(reply.lease_round, reply.matched):
        progress.send_again(reply.matched)
    elif reply.matched < progress.match and not progress.sent:
        # It was started anew and does not know that its log is ours, so it can't commit. An append proves it.
        progress.probe(progress.match + 1)
    state.dirty = True


def on_snapshot_reply(state: RaftState, reply: SnapshotReply) -> None:
    """A follower has more of a snapshot, or all of it."""
    if state.role == LEADER and snapshots.on_reply(state, reply):
        progress = state.progress[reply.sender]
        on_durable(state, progress, reply.index)
        progress.replicate()


def on_durable(state: RaftState, progress: Progress, index: int) -> None:
    """All up to ``index`` is durable at a follower, and the same as here."""
    moved = progress.acknowledged(index)
    if progress.state == PROBE or (progress.state == SNAPSHOT and snapshots.is_needless(state, progress)):
        progress.replicate()
    if moved:
        if index > state.commit:
            commit_by_count(state)
        transfer.hand_over(state)
    if progress.next <= state.log.last_index:
        state.dirty = True  # there may be room to send more
    elif _wants_news(state, progress):
        state.dirty = True


def commit_by_count(state: RaftState) -> None:
    """A leader commits what a quorum holds durably, itself counted like any other (paper, 5.3)."""
    if state.role != LEADER:
        return
    durable = {node: progress.match for node, progress in state.progress.items()}
    durable[state.node] = state.log.durable
    agreed = state.configuration.agreed(durable)
    if agreed <= state.commit:
        return
    # Entries of earlier terms are never committed by counting (paper, 5.4.2, figure 8): a later leader could still
    # replace them. They are committed along with an entry of this term.
    if state.log.term_at(agreed) != state.term:
        return
    commit_to(state, agreed)


# A follower: entries that are new, and its acknowledgement.


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


# Both: what is decided, and what follows from it.


def commit_to(state: RaftState, index: int) -> None:
    """All up to ``index`` is decided."""
    if index <= state.commit:
        return
    if index > state.log.last_index:
        raise SafetyError(
            f"Group {state.group}: entry {index} is committed, but the log ends at {state.log.last_index}. "
            "This replica lost entries without noticing; it must be refilled."
        )
    state.commit = index
    if state.role == LEADER or state.log.durable > state.applied:
        state.dirty = True  # else nothing can be applied before it is written, which calls for a turn itself
    membership.note_commit(state)
    recover(state)
    if state.role == LEADER:
        _lead_on(state)


def _lead_on(state: RaftState) -> None:
    done = 0
    while done < len(state.uncommitted) and state.uncommitted[done][0] <= state.commit:
        state.uncommitted_bytes -= state.uncommitted[done][1]
        done += 1
    if done:
        del state.uncommitted[:done]
    reads.note_commit(state)
    if state.configuration_index > state.commit or state.commit < state.term_start:
        return
    if state.configuration.is_joint:
        # The joint configuration is committed: from here only the new voters are needed (paper, section 6).
        append(state, control_batch(CONFIG, state.configuration.settled().encode()))
    elif not state.configuration.is_voter(state.node):
        # A leader that is no longer a voter leads until the configuration without it is committed (paper, section 6),
        # and tells the others, so that the new voters know it when they elect a leader.
        reads.begin_round(state)
        become_follower(state, state.term, 0)
