"""One replica of one group: time, messages and proposals in, obligations out. No IO, no clock, no randomness.

```
   tick   step   propose   read   change   transfer            persisted(n)
     |      |       |        |       |         |                    |
   .-v------v-------v--------v-------v---------v--------------------v--.
   |                 RaftNode: RaftState and the rules beside it       |
   `---------------------------------|--------------------------------'
                                     v
        take_ready(): write this, then tell me; send that; apply these
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.log.batch import CONFIG, NOOP, control_batch, kind_of
from flockmq.raft import installing, membership, persistence, quiet, reads, replication, transfer
from flockmq.raft.clock import TickClock
from flockmq.raft.configuration import Configuration
from flockmq.raft.election import (
    campaign,
    is_loyal,
    may_campaign,
    on_timeout_now,
    on_vote_reply,
    on_vote_request,
    tick_election,
)
from flockmq.raft.messages import (
    Append,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    Message,
    SnapshotChunk,
    SnapshotReply,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from flockmq.raft.ready import BUSY, NOT_ALLOWED, NOT_LEADER, Proposal, Ready, Refusal
from flockmq.raft.replication import append, on_append, on_heartbeat
from flockmq.raft.roles import become_follower, draw_campaign
from flockmq.raft.state import LEADER, SOUND, RaftState, Reach, Stored

if TYPE_CHECKING:
    import random

    from flockmq.raft.ports import SnapshotSink, SnapshotSource
    from flockmq.raft.settings import RaftSettings

HANDING_OVER: Final = "Leadership is being handed over; ask the new leader in a moment."


class RaftNode:
    """See the module. The log may end before the checkpoint, when the replica was cut off while it was refilled."""

    def __init__(
        self,
        group: int,
        node: int,
        settings: RaftSettings,
        clock: TickClock,
        rng: random.Random,
        stored: Stored,
        priority: int = 0,
        source: SnapshotSource | None = None,
        sink: SnapshotSink | None = None,
        reach: Reach | None = None,
    ) -> None:
        """``reach`` is the host's; None for a replica without one."""
        self.state = RaftState(group, node, settings, clock, rng, stored, priority, source, sink, reach or Reach())
        membership.note_commit(self.state)
        draw_campaign(self.state)
        if self.state.configuration.voters == (node,) and not self.state.configuration.is_joint:
            self.state.campaign_at = clock.elapsed  # there is no other voter to wait for

    def tick(self, now: int) -> None:
        """Time passes; for a replica with a clock of its own. Call it every ``tick_ms``."""
        self.state.clock.tick(now)
        self.on_tick()

    def on_tick(self) -> None:
        """Time has passed on the clock that this replica shares with others."""
        state = self.state
        if state.role != LEADER:
            tick_election(state)
        elif not state.quiet:
            self._tick_leader(state)

    def _tick_leader(self, state: RaftState) -> None:
        elapsed = state.clock.elapsed
        if elapsed >= state.quorum_check_at and not self._has_quorum(state):
            # Check-quorum (thesis 6.2): a leader cut off from the others makes way, and stops letting clients wait.
            become_follower(state, state.term, 0)
            return
        if transfer.tick_transfer(state) and may_campaign(state):
            campaign(state, transfer=True)
            return
        if elapsed >= state.heartbeat_at or self._commit_is_news(state):
            # Groups beat at the same moments, so that their heartbeats to a node share a frame.
            gap = state.settings.heartbeat_ms
            state.heartbeat_at = (elapsed // gap + 1) * gap
            if not quiet.fall_silent(state):
                reads.begin_round(state, spared_since=elapsed - gap + state.settings.tick_ms)

    def _has_quorum(self, state: RaftState) -> bool:
        heard = {state.node}
        for node, progress in state.progress.items():
            if progress.active:
                heard.add(node)
            progress.active = False
        state.quorum_check_at = state.clock.elapsed + state.settings.election_ms
        state.commit_at_check = state.commit
        return state.configuration.has_quorum(heard)

    def _commit_is_news(self, state: RaftState) -> bool:
        return True in [progress.lacks_commit(state.commit) for progress in state.progress.values()]

    def step(self, message: Message) -> None:
        """A message of this group has arrived."""
        state = self.state
        if message.term != state.term or not _is_mostly_idle(message):
            state.dirty = True
        if message.sender in state.progress:
            quiet.wake(state)
        if message.term > state.term:
            if not self._follow_term(state, message):
                return
        elif message.term < state.term:
            self._answer_stale(state, message)
            return
        if isinstance(message, Append):
            on_append(state, message)
        elif isinstance(message, AppendReply):
            replication.on_append_reply(state, message)
        elif isinstance(message, Heartbeat):
            on_heartbeat(state, message)
        elif isinstance(message, HeartbeatReply):
            replication.on_heartbeat_reply(state, message)
        elif isinstance(message, VoteRequest):
            on_vote_request(state, message)
        elif isinstance(message, VoteReply):
            on_vote_reply(state, message)
        elif isinstance(message, SnapshotChunk):
            installing.on_chunk(state, message)
        elif isinstance(message, SnapshotReply):
            replication.on_snapshot_reply(state, message)
        elif isinstance(message, TimeoutNow):
            on_timeout_now(state, message)

    def _follow_term(self, state: RaftState, message: Message) -> bool:
        """A later term makes every replica a follower (paper, 5.1); False when the message is to be ignored."""
        if isinstance(message, VoteRequest):
            if is_loyal(state, message):
                return False
            if message.pre:
                return True  # only a question (thesis 9.6)
            become_follower(state, message.term, 0)
        elif isinstance(message, VoteReply) and message.pre and message.granted:
            pass  # it names the term that was asked about
        elif isinstance(message, (Append, Heartbeat, SnapshotChunk)):
            become_follower(state, message.term, message.sender)
        else:
            become_follower(state, message.term, 0)
        return True

    def _answer_stale(self, state: RaftState, message: Message) -> None:
        """The sender lives in an earlier term: tell it ours, so that it follows (paper, 5.1)."""
        if isinstance(message, VoteRequest):
            state.send(VoteReply(state.group, state.node, message.sender, state.term, message.pre, False))
        elif isinstance(message, (Append, Heartbeat, SnapshotChunk)):
            reply = AppendReply(state.group, state.node, message.sender, state.term, False, 0, 0, 0, 0, False)
            state.send(reply)

    def propose(self, batch: bytes) -> Proposal | Refusal:
        """Put a batch into the log, if this replica leads. Appends leave with the next ``take_ready``."""
        state = self.state
        if state.role != LEADER:
            return Refusal(NOT_LEADER, "This replica does not lead the group; ask its leader.", state.leader)
        if state.transfer_to:
            return Refusal(BUSY, HANDING_OVER, state.transfer_to)
        if state.uncommitted_bytes >= state.settings.uncommitted_bytes_max:
            return Refusal(BUSY, "Too much waits for a majority of replicas; try again later.", state.node)
        if len(batch) > state.settings.entry_bytes_max:
            reason = f"A batch may have {state.settings.entry_bytes_max:,} bytes; build smaller ones."
            return Refusal(NOT_ALLOWED, reason, state.node)
        if kind_of(batch) in (NOOP, CONFIG):
            raise ValueError("Leaders make these entries themselves; propose data, markers or cursors")
        quiet.wake(state)
        entry = append(state, batch)
        return Proposal(entry.index, entry.term, entry.base_offset)

    def read(self, number: int, now: int) -> None:
        """Ask from which index on a read may be served; ``Ready.reads`` answers under the same number."""
        quiet.wake(self.state)
        reads.read(self.state, number, now)

    def change(self, voters: tuple[int, ...], learners: tuple[int, ...] = ()) -> Proposal | Refusal:
        """Change the members of the group."""
        state = self.state
        if state.role != LEADER:
            return Refusal(NOT_LEADER, "Only the leader can change the members of a group; ask it.", state.leader)
        if state.transfer_to:
            return Refusal(BUSY, HANDING_OVER, state.transfer_to)
        wanted = Configuration(voters, (), learners)
        reason = membership.refusal(state, wanted)
        if reason:
            return Refusal(NOT_ALLOWED, reason, state.node)
        quiet.wake(state)
        configuration = membership.joint(state.configuration, wanted)
        entry = append(state, control_batch(CONFIG, configuration.encode()))
        return Proposal(entry.index, entry.term, entry.base_offset)

    def transfer(self, target: int) -> Refusal | None:
        """Hand leadership over to ``target``; None when that has begun."""
        state = self.state
        reason = transfer.refusal(state, target)
        if reason:
            return Refusal(NOT_ALLOWED, reason, state.leader)
        quiet.wake(state)
        transfer.begin(state, target)
        return None

    def go_alone(self, term: int) -> None:
        """Decide alone from now on, with what is here: an operator accepts that what others had is lost. ``term``: no
        leader was ever elected in a later one.

        This breaks what consensus promises, and nothing less helps: most voters lost their votes (``health.py``), so no
        leader can be elected, and without a leader members can't change.
        """
        state = self.state
        become_follower(state, max(state.term, term) + 1, 0)
        append(state, control_batch(CONFIG, Configuration((state.node,)).encode()))
        state.health = SOUND
        state.hard_is_dirty = True
        state.loyal_until = state.campaign_at = state.clock.elapsed
        state.dirty = True

    def draw_campaign(self) -> None:
        """The preferred leader has changed: draw a new time to campaign, unless this replica is the only one."""
        if self.state.configuration.voters != (self.state.node,) and self.state.role != LEADER:
            draw_campaign(self.state)

    def begin(self) -> None:
        """The group was made just now, by this node: it never had a leader to be loyal to."""
        state = self.state
        state.loyal_until = state.clock.elapsed
        if state.campaign_wait >= state.settings.election_ms:
            at = state.clock.elapsed + state.campaign_wait - state.settings.election_ms
            state.campaign_at = min(state.campaign_at, at)  # alone it does not wait at all

    def wake(self) -> None:
        """End the silence of a quiet group."""
        quiet.wake(self.state)

    def leader_is_lost(self) -> None:
        """The leader's node was not heard for an election timeout, or was started anew."""
        quiet.leader_is_lost(self.state)

    def has_ready(self) -> bool:
        """Whether ``take_ready`` may have something."""
        return self.state.dirty

    def take_ready(self, may_write: bool = True) -> Ready:
        """All obligations since the last call; see ``Ready``. Writes stay here while the disk has no room for more."""
        return persistence.take_ready(self.state, may_write)

    def persisted(self, number: int) -> None:
        """All Readies up to ``number`` are durable."""
        persistence.persisted(self.state, number)


def _is_mostly_idle(message: Message) -> bool:
    """Whether a message of this kind seldom changes anything that has to be said or done; if it does, that is noted."""
    return isinstance(message, AppendReply) or (isinstance(message, Heartbeat) and message.is_news)
