"""Replicas that lost something they had promised to keep, and when they may decide again.

```
 DAMAGED     entries are gone, the vote is known  -- refilled ------------------------------> SOUND
 FORGOTTEN   the vote may be gone as well         -- refilled, and not a voter by then -----> SOUND
```
Such a replica takes in entries and acknowledges them, but neither votes nor campaigns: a candidate that lacks what this
replica once acknowledged must not win with its help (Raft paper, 5.4: votes and acknowledgements meet in one node).

*Refilled* means: all that the leader had in its log when they first met in its term. Its commit index would not do, an
acknowledgement of the former life may still be on its way to the leader and count then. Nor would what the leader said
before it heard from this life: frames come late, and entries may have been acknowledged after that one was sent.

A vote that was forgotten can't be won back: a candidate may hold it, in a term that no other node has heard of. Only a
change of members makes that candidate harmless, because the entry that takes the vote away is committed by a majority
without this replica, and every node of that majority refuses a candidate that lacks the entry. So a forgotten replica
decides again once it was a learner (where new replicas start anyway) and became a voter anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.raft.membership import committed_configuration
from flockmq.raft.state import FORGOTTEN, SOUND

if TYPE_CHECKING:
    from flockmq.raft.state import RaftState


def met_leader(state: RaftState, last_index: int) -> None:
    """The leader of this term was heard, its log ends there."""
    if state.health != SOUND and state.is_answer and state.refill_term != state.term:
        state.refill_term = state.term
        state.refill_to = last_index


def recover(state: RaftState) -> None:
    """Decide again, if everything that may have been lost is back."""
    if state.health == SOUND or state.refill_term != state.term:
        return
    if state.matched < state.refill_to or state.log.durable < state.refill_to:
        return
    if state.health == FORGOTTEN and (
        state.commit < state.refill_to or committed_configuration(state).is_voter(state.node)
    ):
        return
    state.health = SOUND
    state.hard_is_dirty = True
    state.dirty = True
