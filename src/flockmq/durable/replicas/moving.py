"""Partitions on their way: the leader of each brings its voters to the target, then tells the cluster state.

```
 target differs from the voters, or leadership began here --> consider(group)
     MembershipChange.step ... SETTLED --> ReplicasAre(group, voters, index) --> state names them as replicas --> done
```
Only groups that need something are looked at. Besides, a few others a second, in turn, whether their voters are well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.cluster.commands import ReplicasAre
from flockmq.durable.state.membership import NOT_LED, SETTLED, MembershipChange

if TYPE_CHECKING:
    from flockmq.durable.state.meta import Meta
    from flockmq.raft.engine import RaftEngine
    from flockmq.tasks import Task

STEP_MS: Final = 200
STEPS_MAX: Final = 64
"""Groups that are looked at in a tick."""
TELL_AGAIN_MS: Final = 1_000
HEAL_LOOK_MS: Final = 1_000
HEAL_LOOKS: Final = 64
HEAL_AFTER_MS: Final = 5_000


class Mover:
    """See the module."""

    def __init__(self, meta: Meta, engine: RaftEngine) -> None:
        self.membership = MembershipChange(engine)
        self._meta = meta
        self._engine = engine
        self._active: dict[int, int] = {}
        """Group -> when to look at it next."""
        self._telling: set[int] = set()
        self._heal_at = 0
        self._heal_groups: list[int] = []

    @property
    def active(self) -> list[int]:
        """Groups that are led here and not where they should be."""
        return list(self._active)

    def consider(self, group: int, now: int) -> None:
        """Something about a group has changed: its record, its members or its leader."""
        if group and self._engine.is_leader(group) and self._is_needed(group):
            self._active.setdefault(group, now)

    def forget(self, group: int) -> None:
        """This node has no replica of the group any more."""
        self._active.pop(group, None)
        self.membership.forget(group)

    def _is_needed(self, group: int) -> bool:
        state = self._meta.state
        if group not in state.places:
            return False
        record = state.partition(group)
        configuration = self._engine.host.groups[group].state.configuration
        return (
            record.is_moving
            or record.heir != 0
            or configuration.is_joint
            or bool(configuration.learners)
            or set(configuration.voters) != set(record.target)
        )

    def tick(self, now: int) -> None:
        """Time passes."""
        if self._active:
            due = [group for group, at in self._active.items() if at <= now]
            for group in due[:STEPS_MAX]:
                self._step(group, now)
        if now >= self._heal_at:
            self._heal_at = now + HEAL_LOOK_MS
            self._look_for_sick(now)

    def _step(self, group: int, now: int) -> None:
        if group not in self._meta.state.places:
            self.forget(group)
            return
        record = self._meta.state.partition(group)
        target = (record.heir,) if record.heir else record.target
        done = self.membership.step(group, target, now, record.preferred)
        if done == NOT_LED:
            self._active.pop(group, None)  # the node that leads it now goes on
            return
        self._active.pop(group, None)
        self._active[group] = now + STEP_MS  # behind all others
        if done != SETTLED:
            return
        if not record.is_moving and not record.heir:
            self.forget(group)
        elif group not in self._telling:
            self._active[group] = now + TELL_AGAIN_MS
            self._meta.calls.tasks.start("tell where a partition is", self._tell(group, target))

    def _tell(self, group: int, target: tuple[int, ...]) -> Task[None]:
        """Tell the cluster state; if that does not succeed, the next step tells it again."""
        as_of = self._engine.host.groups[group].state.configuration_index
        self._telling.add(group)
        try:
            yield from self._meta.submit(ReplicasAre(group, target, as_of))
        finally:
            self._telling.discard(group)
        if group in self._active:
            self._active[group] = 0

    def _look_for_sick(self, now: int) -> None:
        if not self._heal_groups:
            self._heal_groups = [group for group in self._engine.replicas if group]
        for _ in range(min(HEAL_LOOKS, len(self._heal_groups))):
            group = self._heal_groups.pop()
            if self.membership.heal(group, now, HEAL_AFTER_MS):
                self._active.setdefault(group, now)
