"""Handing leadership over on purpose: for balance, before a restart, or to leave the group (thesis, 3.10).

```
 refuse proposals --> target has the whole log, durably --> TimeoutNow: it campaigns at once, the others may vote for it
        `-- not done within an election timeout: take proposals again, in a term of its own if the target was told
```
A target that was told to campaign may hear of it much later, and win while this leader still believes that it leads. So
a leader that gives up after that is elected anew: the old order is void in the new term.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.raft.messages import TimeoutNow
from flockmq.raft.state import LEADER

if TYPE_CHECKING:
    from flockmq.raft.state import RaftState


def refusal(state: RaftState, target: int) -> str:
    """Why leadership can't go to ``target``; empty when it can."""
    if state.role != LEADER:
        return "Only the leader can hand leadership over; ask it."
    if target == state.node:
        return "This node leads already."
    if not state.configuration.is_voter(target):
        return f"Node {target} is not a voter of this group; make it one first."
    if target in state.progress and state.progress[target].impaired:
        return f"Node {target} has lost a part of this group and can't lead before it is refilled; wait for that."
    if state.transfer_to:
        return f"Leadership is being handed over to node {state.transfer_to} already; wait for it."
    return ""


def begin(state: RaftState, target: int) -> None:
    """Start handing over; ``refusal`` was asked before."""
    state.transfer_to = target
    state.transfer_until = state.clock.elapsed + state.settings.election_ms
    state.work_at = state.clock.elapsed
    hand_over(state)
    state.dirty = True


def hand_over(state: RaftState) -> None:
    """Tell the target to campaign once it has everything."""
    if not state.transfer_to:
        return
    progress = state.progress.get(state.transfer_to)
    if progress is None or progress.match != state.log.last_index:
        return
    # Voters will not be loyal to us any more, whenever they hear of it; so there is no lease in this term from now on.
    state.lease_is_safe = False
    state.send(TimeoutNow(state.group, state.node, state.transfer_to, state.term))


def tick_transfer(state: RaftState) -> bool:
    """Give up when it takes too long: a group that takes no proposals is worse than one with the wrong leader. Returns
    whether this leader has to be elected anew."""
    if not state.transfer_to or state.clock.elapsed < state.transfer_until:
        return False
    state.transfer_to = 0
    state.dirty = True
    return not state.lease_is_safe
