"""Leadership that should go elsewhere: whether it may now, and to which replica.

```
 placement prefers another node  --> can_go_to: it has everything, and nothing else is being changed --> transfer
 this replica can't go on        --> successor: of those that answer, the one with most --> told to campaign at once
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.raft.state import LEADER

if TYPE_CHECKING:
    from flockmq.raft.state import RaftState


def can_go_to(state: RaftState, wanted: int) -> bool:
    """Whether this node leads, and another one could do so from now on without a gap."""
    if state.role != LEADER:
        return False
    progress = state.progress.get(wanted)
    if progress is None or state.transfer_to or progress.match != state.log.last_index:
        return False
    return state.commit >= state.term_start and not state.configuration.is_joint


def successor(state: RaftState, unreachable: set[int]) -> int:
    """The voter that lacks least of what this leader has; 0: no voter answers."""
    best = 0
    for member, progress in state.progress.items():
        is_there = member not in unreachable and state.configuration.is_voter(member)
        if is_there and (not best or progress.match > state.progress[best].match):
            best = member
    return best
