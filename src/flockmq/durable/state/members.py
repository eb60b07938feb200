"""The leader of group 0 keeps the cluster state true to the nodes there are, and the nodes to what the state wants.

```
 every second, on the leader of group 0 alone:
   gossip + state --> cluster/policy.py --> NodeSeen, NodeStateChanged, ReplaceNode, ForgetNode
                                        --> group 0's members: learner first, voter when it has caught up and is sound
   state --> cluster/placement.py ------> SetTarget: so many partitions under way at once, others when those are there
```
Nothing is decided while commands of the last decision are open: no decision rests on a state that is about to change.
Everything here goes through the log of group 0: without a quorum nothing happens, and no node is removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.cluster import model
from flockmq.cluster.placement import next_moves
from flockmq.cluster.policy import PolicySettings, SeenMember, decide
from flockmq.durable.state.group0 import GROUP
from flockmq.durable.state.membership import MembershipChange
from flockmq.tasks import all_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flockmq.cluster.commands import Command
    from flockmq.cluster.policy import Decision
    from flockmq.durable.state.meta import Meta
    from flockmq.gossip.member import Member
    from flockmq.raft.engine import RaftEngine
    from flockmq.tasks import Task

DECIDE_MS: Final = 1_000
MOVES_MS: Final = 200
HEAL_AFTER_MS: Final = 5_000
AUTOCLEAN_SETTING: Final = "autoclean_ms"
"""Setting of the cluster: after so long a dead node is taken for lost; 0: never."""
MOVES_SETTING: Final = "moves_at_once"
MOVES_AT_ONCE: Final = 4
WARN_AFTER_MS: Final = 20_000
"""A cluster that is just being started passes two nodes as well, and that is no reason to warn."""


def seen_member(member: Member, api: str = "", zone: str = "", is_leaving: bool = False, store: int = 0) -> SeenMember:
    """A member of gossip as policy sees it. A node that stopped in good order may return: it is dead, not gone."""
    is_leaving = is_leaving and member.is_live
    state = model.LEFT if is_leaving else model.ALIVE if member.is_live else model.DEAD
    return SeenMember(
        member.node_id,
        member.name,
        member.host,
        member.port,
        state,
        member.role,
        api,
        zone,
        member.version,
        is_leaving,
        store,
    )


class Members:
    """See the module. ``seen`` lists all nodes that gossip knows, this one among them."""

    def __init__(
        self,
        meta: Meta,
        engine: RaftEngine,
        seen: Callable[[], list[SeenMember]],
        settings: PolicySettings | None = None,
        moves_at_once: int = MOVES_AT_ONCE,
    ) -> None:
        self.warning = ""
        """What an operator should know; empty for nothing, and on all nodes but the leader."""
        self.refused = ""
        """Why the latest command that was refused was; for the log."""
        self._meta = meta
        self._engine = engine
        self._seen = seen
        self._settings = settings or PolicySettings()
        self._moves_at_once = moves_at_once
        self._membership = MembershipChange(engine)
        self._leading_since = -1
        self._decide_at = 0
        self._moves_at = 0
        self._is_busy = False
        """Commands of the last decision have no result yet."""
        self._warn_at = 0
        """When the log is told the warning; 0: there is none, or it was told."""
        self._gone: tuple[int, ...] = ()
        self._planned: tuple[int, int, tuple[int, ...], int] = (-1, -1, (), -1)
        """What the plan that found nothing to move was made from."""

    def tick(self, now: int) -> None:
        """Time passes; called about every 100 ms."""
        if not self._leads():
            self._leading_since = -1
            self._warn("", now)
            return
        if self._leading_since < 0:
            self._leading_since = now
            self._planned = (-1, -1, (), -1)
        if self._warn_at and now >= self._warn_at:
            self._warn_at = 0
            self._engine.events.append(("two_voters", {"message": self.warning}))
        if now >= self._decide_at and not self._is_busy:
            self._decide_at = now + DECIDE_MS
            self._decide(now)
        elif now >= self._moves_at and not self._is_busy:
            self._moves_at = now + MOVES_MS
            self._move()

    def _leads(self) -> bool:
        """Whether this node leads group 0 and has applied all that earlier leaders decided."""
        meta = self._meta
        if not meta.is_leader or not meta.is_current or not meta.state.cluster_id:
            return False
        state = self._engine.host.groups[GROUP].state
        return state.term_start <= state.applied

    def _decide(self, now: int) -> None:
        state = self._engine.host.groups[GROUP].state
        decision = decide(
            self._engine.host.node_id,
            self._seen(),
            self._meta.state,
            state.configuration,
            self._caught_up(),
            self._meta.wall.at(now),
            now - self._leading_since,
            self._policy(),
        )
        self._warn(decision.warning, now)
        self._gone = decision.gone
        self._change_group(decision, now)
        self._begin(decision.commands)

    def _warn(self, warning: str, now: int) -> None:
        """The log hears of a warning that lasts, once."""
        if warning != self.warning:
            self.warning = warning
            self._warn_at = now + WARN_AFTER_MS if warning else 0

    def _policy(self) -> PolicySettings:
        """The node's own settings, unless the cluster has some."""
        own = self._settings
        value = self._meta.state.settings.get(AUTOCLEAN_SETTING)
        if not isinstance(value, int) or isinstance(value, bool):
            return own
        return PolicySettings(value, own.seat_kept_ms, own.unseen_ms, autoclean=value > 0)

    def _caught_up(self) -> frozenset[int]:
        """Learners of group 0 that could vote."""
        state = self._engine.host.groups[GROUP].state
        return frozenset([node for node in state.configuration.learners if self._membership.is_ready(state, node)])

    def _change_group(self, decision: Decision, now: int) -> None:
        """The next step for the members of group 0."""
        state = self._engine.host.groups[GROUP].state
        if state.configuration.is_joint or state.configuration_index > state.commit:
            return
        wanted = decision.configuration
        if wanted is None and state.configuration.learners:
            wanted = state.configuration  # an entry lets learners say whether they are sound
        if wanted is not None:
            self._engine.host.change(GROUP, wanted.voters, wanted.learners)
            self._engine.wake()
        else:
            self._membership.heal(GROUP, now, HEAL_AFTER_MS)

    def _move(self) -> None:
        """Let partitions move, a few at a time."""
        state = self._meta.state
        setting = state.settings.get(MOVES_SETTING)
        at_once = setting if isinstance(setting, int) and setting > 0 else self._moves_at_once
        planned = (state.versions.topics, state.versions.nodes, self._gone, at_once)
        if planned == self._planned:
            return
        moves = next_moves(state, self._gone, at_once)
        if not moves:
            self._planned = planned
        self._begin(moves)

    def _begin(self, commands: Sequence[Command]) -> None:
        if commands:
            self._meta.calls.tasks.start("carry out a decision about nodes", self._carry_out(commands))

    def _carry_out(self, commands: Sequence[Command]) -> Task[None]:
        """Submit the commands of one decision, and wait for the results of all."""
        self._is_busy = True
        try:
            results = yield from all_of([self._meta.submit(command) for command in commands])
        finally:
            self._is_busy = False
        for result in results:
            if not result.ok:
                self.refused = result.error
