"""What is decided: the commit index, and what follows from its advance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.log.batch import CONFIG, control_batch
from flockmq.raft import membership, reads
from flockmq.raft.errors import SafetyError
from flockmq.raft.health import recover
from flockmq.raft.roles import append, become_follower
from flockmq.raft.state import LEADER

if TYPE_CHECKING:
    from flockmq.raft.state import RaftState


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
