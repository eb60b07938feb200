"""Changes of role, and what each one must forget (Raft paper, figures 2 and 4).

```
              silence              pre-votes               votes
 FOLLOWER ------------> PRE_CANDIDATE --------> CANDIDATE --------> LEADER
     ^  ^-----------------------'-------------------'                  |
     `------- higher term, a leader of this term, no quorum heard -----'
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.raft.membership import follow_members
from flockmq.raft.progress import Progress
from flockmq.raft.state import CANDIDATE, FOLLOWER, LEADER, PRE_CANDIDATE, ReadAnswer

if TYPE_CHECKING:
    from flockmq.raft.state import RaftState


def become_follower(state: RaftState, term: int, leader: int) -> None:
    """Follow ``leader``, 0 when it is not known yet."""
    if term > state.term:
        state.term = term
        state.vote = 0
        state.hard_is_dirty = True
        state.matched = 0
    _leave(state)
    state.role = FOLLOWER
    state.leader = leader
    draw_campaign(state)


def become_pre_candidate(state: RaftState) -> None:
    """Ask whether a campaign would succeed. Term and vote stay as they are (thesis 9.6)."""
    _leave(state)
    state.role = PRE_CANDIDATE
    state.leader = 0
    draw_campaign(state)
    if state.configuration.has_quorum(set(state.configuration.members()) - state.unreachable):
        # Others are there, but may have yet to notice that there is no leader. Asking them again disturbs no leader.
        state.campaign_at = state.clock.elapsed + state.campaign_wait // 3


def become_candidate(state: RaftState) -> None:
    """A new term, with the own vote for oneself (paper, 5.2)."""
    _leave(state)
    state.term += 1
    state.vote = state.node
    state.hard_is_dirty = True
    state.matched = 0
    state.role = CANDIDATE
    state.leader = 0
    draw_campaign(state)


def become_leader(state: RaftState) -> None:
    """A quorum has voted for us in this term."""
    _leave(state)
    state.role = LEADER
    state.leader = state.node
    elapsed = state.clock.elapsed
    state.heartbeat_at = elapsed
    state.quorum_check_at = elapsed + state.settings.election_ms
    state.commit_at_check = state.log.last_index + 1
    state.work_at = elapsed
    follow_members(state)


def draw_campaign(state: RaftState) -> None:
    """When to campaign if nothing is heard: at random, so that votes seldom split (paper, 5.2).

    In a group with a preferred leader the replicas take turns besides: when thousands of groups lose their leaders at
    once, votes that split would cost most of them another timeout, and leaders would have to be moved afterwards.
    """
    election_ms = state.settings.election_ms
    if state.preferred:
        wait = election_ms + _rank(state) * election_ms // 2 + int(state.rng.random() * election_ms) // 4
    else:
        wait = election_ms + int(state.rng.random() * election_ms) + state.priority * election_ms // 4
    state.campaign_wait = wait
    state.campaign_at = state.clock.elapsed + wait


def _rank(state: RaftState) -> int:
    """How many others should campaign before this replica: the preferred one; then, group by group, another of those
    that can be reached, so that the groups of a node that is lost spread over all others.
    """
    if state.preferred == state.node:
        return 0
    there = [node for node in state.configuration.members() if node not in state.unreachable]
    there.sort()
    before = 0 if state.preferred in state.unreachable else 1
    if state.node in there:
        before += (there.index(state.node) + state.group) % len(there)
    return before


def _leave(state: RaftState) -> None:
    """Forget what belongs to the role that ends."""
    state.votes.clear()
    state.quiet = False
    state.acknowledge = -1
    state.lease_round_seen = 0
    if state.role == LEADER:
        # Readers that wait hear at once that they must ask elsewhere.
        for number in state.early_reads:
            state.answers.append(ReadAnswer(number, -1))
        for read in state.reads:
            state.answers.append(ReadAnswer(read.number, -1))
    no_progress: dict[int, Progress] = {}
    state.progress = no_progress
    state.early_reads = []
    state.reads = []
    state.round = 0
    state.round_confirmed = 0
    state.rounds = []
    state.round_was_spared = False
    state.round_is_due = False
    state.uncommitted = []
    state.uncommitted_bytes = 0
    state.transfer_to = 0
    state.lease_is_safe = True
    state.dirty = True
