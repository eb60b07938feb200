"""Groups without work fall silent, so that a thousand of them cost nothing.

```
 leader:   no work for a while, every reachable member holds the final commit index
             --> one last Heartbeat(quiet) --> silence, no lease, no quorum check
 follower: level with the leader --> no election timer
 wakes:    work, any message of the group, or the host: a node is not heard any more, was restarted, or is back
```
Silence is only safe because the host hears the leader's *node* (``host.py``: one beat per peer, not per group). A
follower that missed the last heartbeat still has its timer and asks for pre-votes, which wakes the leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.raft import reads
from flockmq.raft.roles import draw_campaign
from flockmq.raft.state import LEADER

if TYPE_CHECKING:
    from flockmq.raft.state import RaftState


def fall_silent(state: RaftState) -> bool:
    """Instead of a heartbeat: say that there is nothing left to say, if that is so."""
    if state.clock.elapsed - state.work_at < state.settings.quiet_after_ms or not _is_level(state):
        return False
    reads.begin_round(state, quiet=True)
    state.quiet = True
    # No follower answers this round: no lease, and the first read afterwards need not wait for it.
    state.rounds.clear()
    state.round_confirmed = state.round
    return True


def _is_level(state: RaftState) -> bool:
    """Whether all members that can be reached hold everything and know that it is committed."""
    last = state.log.last_index
    if state.commit != last or state.log.durable != last or state.applied != last:
        return False
    if state.transfer_to or state.reads or state.early_reads or state.configuration.is_joint:
        return False
    level = {state.node}
    for node, progress in state.progress.items():
        # Nothing of it may be on its way to us, that would wake us at once.
        if progress.match == last and progress.knows_commit == last and progress.heard_round == state.round:
            level.add(node)
        elif node not in state.unreachable:
            return False
    return state.configuration.has_quorum(level)


def wake(state: RaftState) -> None:
    """There is work, or a message: go on as usual."""
    if not state.quiet:
        return
    elapsed = state.clock.elapsed
    state.quiet = False
    state.work_at = elapsed
    state.dirty = True
    if state.role == LEADER:
        state.heartbeat_at = elapsed
        state.quorum_check_at = elapsed + state.settings.election_ms
        for progress in state.progress.values():
            progress.active = False
    else:
        state.campaign_at = elapsed + state.campaign_wait


def leader_is_lost(state: RaftState) -> None:
    """The host has not heard from the leader's node for an election timeout, or it was started anew.

    So its silence counts as if it had lasted here: vote for others, and campaign after a part of the usual wait.
    """
    if state.role == LEADER:
        return
    state.loyal_until = min(state.loyal_until, state.clock.elapsed)
    state.quiet = False
    state.leader = 0
    draw_campaign(state)
    state.campaign_at -= state.settings.election_ms
    state.dirty = True
