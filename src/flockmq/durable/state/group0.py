"""Group 0, the group that decides about the cluster state, as this node has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.raft.state import LEADER

if TYPE_CHECKING:
    from flockmq.raft.engine import RaftEngine
    from flockmq.raft.state import RaftState

GROUP: Final = 0


def has_replica(engine: RaftEngine) -> bool:
    """Whether this node has a replica of group 0 that works. If it has stopped, others are asked instead."""
    return GROUP in engine.replicas and GROUP not in engine.host.broken and not engine.stopped


def hears_leader(engine: RaftEngine) -> bool:
    """Whether a leader brings what is decided: it is heard, and has brought something to a replica that is new."""
    if not has_replica(engine):
        return False
    state = engine.host.groups[GROUP].state
    return state.applied > 0 and not is_lonely(state)


def is_lonely(state: RaftState) -> bool:
    """Whether no leader was heard for an election timeout. A quiet group has one: the host watches over its node."""
    return state.role != LEADER and not state.quiet and state.clock.elapsed >= state.loyal_until
