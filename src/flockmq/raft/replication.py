"""The leader's side of replication (Raft paper, 5.3): what each follower gets, and what a quorum of answers means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.log.errors import SpoiledError
from flockmq.raft import reads, snapshots, transfer
from flockmq.raft.commits import commit_to
from flockmq.raft.messages import Append, Heartbeat
from flockmq.raft.progress import PROBE, SNAPSHOT, Progress
from flockmq.raft.state import LEADER

if TYPE_CHECKING:
    from flockmq.raft.messages import AppendReply, HeartbeatReply, SnapshotReply
    from flockmq.raft.state import RaftState


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
