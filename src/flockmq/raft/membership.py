"""Changing the members of a group (Raft paper, section 6; thesis, chapter 4).

```
 change(voters, learners)
   same voters:   one CONFIG entry
   other voters:  CONFIG joint (old and new must agree) --committed--> CONFIG new, by the leader itself
```
One change at a time: a second one could make two majorities that share no voter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.log.batch import CONFIG, BatchView
from flockmq.raft.configuration import Configuration, decode_configuration
from flockmq.raft.progress import Progress
from flockmq.raft.state import LEADER, RaftState

if TYPE_CHECKING:
    from flockmq.raft.entry import Entry

VOTERS_MAX: Final = 31
LEARNERS_MAX: Final = 1_000


def note_entry(state: RaftState, entry: Entry) -> None:
    """An entry was appended: a configuration counts from now on, committed or not (paper, section 6)."""
    if entry.kind == CONFIG:
        state.configurations.append((entry.index, decode_configuration(BatchView(entry.data).body())))
        follow_members(state)


def note_truncation(state: RaftState, index: int) -> None:
    """Entries from ``index`` on are gone: fall back to the configuration before (paper, section 6)."""
    while state.configurations[-1][0] >= index and len(state.configurations) > 1:
        state.configurations.pop()


def note_commit(state: RaftState) -> None:
    """Forget configurations that can't come back."""
    while len(state.configurations) > 1 and state.configurations[1][0] <= state.commit:
        state.configurations.pop(0)


def committed_configuration(state: RaftState) -> Configuration:
    """The latest one that can't be undone."""
    found = state.configurations[0][1]
    for index, configuration in state.configurations:
        if index <= state.commit:
            found = configuration
    return found


def follow_members(state: RaftState) -> None:
    """A leader sends to all members, no more and no less."""
    if state.role != LEADER:
        return
    members = state.configuration.members()
    for node in members:
        if node != state.node and node not in state.progress:
            state.progress[node] = Progress(state.log.last_index + 1)
    for node in list(state.progress):
        if node not in members:
            del state.progress[node]


def refusal(state: RaftState, wanted: Configuration) -> str:
    """Why a leader can't begin this change now; empty when it can."""
    current = state.configuration
    if current.is_joint or state.configuration_index > state.commit:
        return "Another change of members is not finished; wait for it."
    if state.commit < state.term_start:
        # Thesis 4.1 and the later correction of single-server changes: an earlier leader's change could still surface.
        return "This leader was elected just now and does not yet know what is committed; try again in a moment."
    if wanted.is_joint:
        return "Name the voters that are wanted in the end; the way there is chosen here."
    if not wanted.voters:
        return "A group needs at least one voter."
    if len(wanted.voters) > VOTERS_MAX or len(wanted.learners) > LEARNERS_MAX:
        return f"A group has at most {VOTERS_MAX} voters and {LEARNERS_MAX} learners."
    for node in wanted.voters:
        if not current.is_voter(node) and not _has_caught_up(state, node):
            return f"Node {node} has no recent copy of the log; add it as a learner first and let it catch up."
    return ""


def joint(current: Configuration, wanted: Configuration) -> Configuration:
    """The entry a change begins with."""
    if wanted.voters == current.voters:
        return wanted
    return Configuration(wanted.voters, current.voters, wanted.learners)


def _has_caught_up(state: RaftState, node: int) -> bool:
    """Whether a learner is less than an election timeout behind, so that its vote does not stall the group.

    Thesis 4.2.1 asks for exactly this: a new server counts when its last round of catching up took no longer.
    """
    progress = state.progress.get(node)
    return progress is not None and progress.match > 0 and progress.match >= state.commit_at_check
