"""Bringing the members of a group that is led here to what is wanted, one safe step at a time.

```
 missing nodes --> learners --> caught up and sound --> voters = target, by joint consensus --> SETTLED
                                     |
              this node is not wanted: hand leadership to one that stays; there the rest is done
```
Each call of ``step`` does what can be done now and returns; the caller calls again. Nothing is begun while
another change is not committed, nor towards voters without a reachable majority. Voters that lost their vote
(``raft/health.py``) are made learners and then voters again, which heals them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.raft.ready import Refusal

if TYPE_CHECKING:
    from flockmq.raft.engine import RaftEngine
    from flockmq.raft.state import RaftState

NOT_LED: Final = 0
"""Another node leads, or none."""
WAITING: Final = 1
"""Something is under way."""
SETTLED: Final = 2
"""The committed voters are those that are wanted, and there are no others."""

NUDGE_MS: Final = 300
HEAL_AT_ONCE_MS: Final = 1_000
"""A move waits so long for a voter that says it lost something, which may be old news."""


class MembershipChange:
    """Steps for all groups that are led here."""

    def __init__(self, engine: RaftEngine) -> None:
        self._engine = engine
        self._node = engine.host.node_id
        self._nudge_at: dict[int, int] = {}
        self._sick: dict[int, dict[int, int]] = {}
        """Group -> voters that say they lost something -> since when."""

    def step(self, group: int, target: tuple[int, ...], now: int, preferred: int = 0) -> int:
        """Go on towards these voters."""
        node = self._engine.host.groups.get(group)
        if node is None or not self._engine.is_leader(group):
            self.forget(group)
            return NOT_LED
        state = node.state
        configuration = state.configuration
        if self._engine.replicas[group].log.gaps and len(configuration.voters) > 1:
            return WAITING  # those that are to go may be the only ones that have it whole
        if configuration.is_joint or state.configuration_index > state.commit or state.commit < state.term_start:
            return WAITING
        wanted = set(target)
        voters = set(configuration.voters)
        if voters == wanted and not configuration.learners:
            self._nudge_at.pop(group, None)
            return SETTLED
        if self._is_sick(state, wanted & voters):
            self.heal(group, now, HEAL_AT_ONCE_MS)  # they could not lead what others give up
            return WAITING
        learners = wanted - voters
        if not learners <= set(configuration.learners):
            self._change(group, voters, learners)
        elif all(self.is_ready(state, learner) for learner in learners):
            self._finish(group, state, wanted, preferred)
        elif now >= self._nudge_at.setdefault(group, now + NUDGE_MS):
            # A learner says whether it is sound only when it gets an entry. Saying the same members again is one.
            self._nudge_at[group] = now + NUDGE_MS
            self._change(group, voters, learners)
        return WAITING

    def is_ready(self, state: RaftState, learner: int) -> bool:
        """Whether it has a recent copy and would vote."""
        progress = state.progress.get(learner)
        return (
            progress is not None
            and 0 < progress.match >= state.commit_at_check
            and not progress.impaired
            and learner not in state.unreachable
        )

    def _is_sick(self, state: RaftState, voters: set[int]) -> bool:
        """Whether one of these voters says that it lost something; those that are to go need no care."""
        return any(node in state.progress and state.progress[node].impaired for node in voters)

    def _finish(self, group: int, state: RaftState, wanted: set[int], preferred: int) -> None:
        reachable = [node for node in wanted if node == self._node or node not in state.unreachable]
        if 2 * len(reachable) <= len(wanted):
            return  # they could not decide anything
        if self._node in wanted:
            self._change(group, wanted, set())
            return
        voters = set(state.configuration.voters)
        heirs = [node for node in reachable if node in voters and not state.progress[node].impaired]
        if not heirs:
            self._change(group, voters | wanted, set())  # then one of them can lead
            return
        heir = preferred if preferred in heirs else max(heirs, key=lambda node: state.progress[node].match)
        self._engine.host.transfer(group, heir)
        self._engine.wake()

    def heal(self, group: int, now: int, after_ms: int) -> bool:
        """Look at a group that is settled: True when a voter had to be made a learner, so that ``step`` is needed."""
        node = self._engine.host.groups.get(group)
        if node is None or not self._engine.is_leader(group):
            self._sick.pop(group, None)
            return False
        state = node.state
        sick = [peer for peer, progress in state.progress.items() if progress.impaired and progress.match > 0]
        if not sick:
            self._sick.pop(group, None)
            return False
        known = self._sick.get(group)
        if known is None or set(known) != set(sick):
            self._sick[group] = dict.fromkeys(sick, now)
            configuration = state.configuration
            self._change(group, set(configuration.voters), set(configuration.learners))  # asks them how they are
            return False
        voters = set(state.configuration.voters)
        for peer, since in known.items():
            if now - since >= after_ms and peer in voters and len(voters) > 1:
                del self._sick[group]
                return self._change(group, voters - {peer}, {peer, *state.configuration.learners})
        return False

    def forget(self, group: int) -> None:
        """It is led elsewhere, or gone."""
        self._nudge_at.pop(group, None)
        self._sick.pop(group, None)

    def _change(self, group: int, voters: set[int], learners: set[int]) -> bool:
        """Begin a change; a refusal is no harm, the next step sees what is the case then."""
        answer = self._engine.host.change(group, tuple(sorted(voters)), tuple(sorted(learners)))
        self._engine.wake()
        return not isinstance(answer, Refusal)
