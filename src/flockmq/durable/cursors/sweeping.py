"""Takes the positions of cursors that are no more out of partitions, a few groups at a time.

```
 tick --> the next few groups that this node leads --> positions of names that cluster state does not have
              seen a round ago, too? --> DELETE into the log, at most COMMANDS_MAX at once
              new ----------------------> look again with the next round: this node may just not have heard of it yet
```
A cursor is deleted in cluster state, at once and for all; this is the tidying up behind it, and may be late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.machine.control_bodies import DELETE, CursorCommand

if TYPE_CHECKING:
    from flockmq.durable.machine.control import Control
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.state.layout import Layout
    from flockmq.raft.engine import RaftEngine

ROUND_MS: Final = 30_000
GROUPS_MAX: Final = 64
"""Groups that are looked at in one tick."""
DELETED_MAX: Final = 1_000
"""Positions that go from a group in one round."""


class CursorSweeper:
    """See the module."""

    def __init__(self, engine: RaftEngine, machines: Machines, layout: Layout, control: Control) -> None:
        self._engine = engine
        self._machines = machines
        self._layout = layout
        self._control = control
        self._line: list[int] = []
        self._round_at = 0
        self._unknown: dict[int, set[bytes]] = {}
        """Names without a cursor, by group, as the last round found them."""

    def tick(self, now: int) -> None:
        """Look at some groups."""
        if self._engine.stopped:
            return
        if not self._line and now >= self._round_at:
            self._round_at = now + ROUND_MS
            self._line = [group for group, machine in self._machines.by_group.items() if machine.cursors]
            self._unknown = {group: self._unknown.get(group, set()) for group in self._line}
        for _ in range(min(GROUPS_MAX, len(self._line))):
            self._look_at(self._line.pop(), now)

    def _look_at(self, group: int, now: int) -> None:
        before = self._unknown.pop(group, set())
        machine = self._machines.by_group.get(group)
        if machine is None or not self._engine.is_leader(group) or self._layout.topic_of(group) is None:
            return
        unknown = {name for name in machine.cursors if not self._layout.has_cursor(name)}
        gone = sorted(unknown & before)[:DELETED_MAX]
        if gone:
            commands = [CursorCommand(DELETE, name, 0) for name in gone]
            self._control.move(group, commands, now)  # if it is not done, the next round does it
        self._unknown[group] = unknown
