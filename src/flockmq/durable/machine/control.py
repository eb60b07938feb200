"""Statements on their way into the logs of partitions that this node leads: those of one turn share a control batch.

```
 move(group, cursor commands) --.
 mark(group, statements)      --+--> flush(): one batch per group and kind --> proposed
 settle(group, statements)    --'
 put(group, kind, body)  --> proposed at once                                     |
          a promise of True:  applied, with the very term that it was proposed in <'
                    of False: not taken, replaced by another leader, or too late
```
Each statement may be made twice, so "not known" and "not done" need not be told apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.machine.control_bodies import (
    BODY_BYTES_MAX,
    COMMANDS_MAX,
    CursorCommand,
    Statement,
    cursor_body,
    marker_body,
)
from flockmq.durable.machine.group_bodies import group_body
from flockmq.log.batch import CURSOR, GROUP, MARKER
from flockmq.raft.ready import Proposal
from flockmq.tasks import Promise, promised

if TYPE_CHECKING:
    from flockmq.durable.machine.fences import Fences
    from flockmq.durable.machine.group_bodies import GroupStatement
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.state.wall import WallClock
    from flockmq.raft.engine import RaftEngine
    from flockmq.raft.entry import Entry

GIVE_UP_MS: Final = 5_000
WAITING_MAX: Final = 100_000
"""Statements that wait; more are refused."""


class _Open:
    """What this turn brought for a group."""

    def __init__(self) -> None:
        self.commands: list[CursorCommand] = []
        self.commands_told: list[Promise[bool]] = []
        self.statements: list[Statement] = []
        self.statements_told: list[Promise[bool]] = []
        self.groups: list[GroupStatement] = []
        self.groups_told: list[Promise[bool]] = []
        self.bytes = 0


class _Proposed:
    """A control batch in the log."""

    def __init__(self, index: int, term: int, told: list[Promise[bool]], due_at: int) -> None:
        self.index = index
        self.term = term
        self.told = told
        self.due_at = due_at


class Control:
    """See the module."""

    def __init__(
        self,
        engine: RaftEngine,
        machines: Machines,
        fences: Fences,
        wall: WallClock,
    ) -> None:
        self._engine = engine
        self._machines = machines
        self._fences = fences
        self.wall = wall
        self._open: dict[int, _Open] = {}
        self._proposed: dict[int, list[_Proposed]] = {}
        self._waiting = 0
        self.now = 0
        """The time of the latest call."""

    def move(self, group: int, commands: list[CursorCommand], now: int) -> Promise[bool]:
        """Move cursors, if this node leads."""
        opened = self._room(group, sum([len(command.name) + 11 for command in commands]), now)
        if opened is None or len(commands) > COMMANDS_MAX:
            return promised(False)
        if len(opened.commands) + len(commands) > COMMANDS_MAX:
            self._propose(group, opened)
        opened.commands += commands
        told: Promise[bool] = Promise()
        opened.commands_told.append(told)
        self._waiting += 1
        return told

    def mark(self, group: int, statements: list[Statement], now: int) -> Promise[bool]:
        """State something about the packet ids of clients, if this node leads."""
        opened = self._room(group, sum([statement.size() for statement in statements]), now)
        if opened is None:
            return promised(False)
        for statement in statements:
            self._fences.note(group, statement)
        opened.statements += statements
        told: Promise[bool] = Promise()
        opened.statements_told.append(told)
        self._waiting += 1
        return told

    def settle(self, group: int, statements: list[GroupStatement], now: int) -> Promise[bool]:
        """State something about the consumer groups of a partition, if this node leads."""
        opened = self._room(group, sum([statement.size() for statement in statements]), now)
        if opened is None:
            return promised(False)
        opened.groups += statements
        told: Promise[bool] = Promise()
        opened.groups_told.append(told)
        self._waiting += 1
        return told

    def put(self, group: int, kind: int, body: bytes, now: int) -> Promise[bool]:
        """Put a control batch of its own into the log at once, if this node leads."""
        self.now = now
        if self._waiting >= WAITING_MAX or not self._engine.is_leader(group):
            return promised(False)
        told: Promise[bool] = Promise()
        self._waiting += 1
        self._put(group, kind, body, [told])
        return told

    def _room(self, group: int, size: int, now: int) -> _Open | None:
        self.now = now
        if self._waiting >= WAITING_MAX or not self._engine.is_leader(group):
            return None
        opened = self._open.get(group)
        if opened is None:
            opened = self._open[group] = _Open()
            self._engine.wake()
        elif opened.bytes + size > BODY_BYTES_MAX:
            self._propose(group, opened)
        opened.bytes += size
        return opened

    def flush(self, now: int) -> None:
        """A turn ends: put what it brought into the logs."""
        self.now = now
        while self._open:
            opened = self._open
            self._open = {}
            for group, one in opened.items():
                self._propose(group, one)

    def _propose(self, group: int, opened: _Open) -> None:
        wall_ms = self.wall.at(self.now)
        commands = opened.commands_told
        statements = opened.statements_told
        if commands:
            body = cursor_body(wall_ms, opened.commands)
            opened.commands = []
            opened.commands_told = []
            self._put(group, CURSOR, body, commands)
        if statements:
            body = marker_body(wall_ms, opened.statements)
            opened.statements = []
            opened.statements_told = []
            self._put(group, MARKER, body, statements)
        if opened.groups_told:
            groups_told = opened.groups_told
            body = group_body(wall_ms, opened.groups)
            opened.groups = []
            opened.groups_told = []
            self._put(group, GROUP, body, groups_told)
        opened.bytes = 0

    def _put(self, group: int, kind: int, body: bytes, told: list[Promise[bool]]) -> None:
        wall_ms = self.wall.at(self.now)
        proposal = self._engine.propose_control(group, kind, body, wall_ms)
        if not isinstance(proposal, Proposal):
            self._tell(told, False)
            return
        due_at = self.now + GIVE_UP_MS
        self._proposed.setdefault(group, []).append(_Proposed(proposal.index, proposal.term, told, due_at))

    def _tell(self, told: list[Promise[bool]], done: bool) -> None:
        self._waiting -= len(told)
        for one in told:
            one.set(done)

    # Listener

    def applied(self, group: int, entries: list[Entry]) -> None:
        """See whether what was proposed is among these."""
        self._fences.applied(group)
        proposed = self._proposed.get(group)
        if proposed is None:
            return
        terms = {entry.index: entry.term for entry in entries}
        applied = self._machines.by_group[group].applied
        done: list[_Proposed] = []
        while proposed and proposed[0].index <= applied:
            done.append(proposed.pop(0))
        if not proposed:
            del self._proposed[group]
        for one in done:
            self._tell(one.told, terms.get(one.index, 0) == one.term)

    def closed(self, group: int) -> None:
        """Nothing more comes of it."""
        self._fences.closed(group)
        for one in self._proposed.pop(group, []):
            self._tell(one.told, False)
        opened = self._open.pop(group, None)
        if opened is not None:
            self._tell(opened.commands_told + opened.statements_told + opened.groups_told, False)

    def tick(self, now: int) -> None:
        """Give up on what took too long."""
        self.now = now
        if not self._proposed:
            return
        for group in list(self._proposed):
            proposed = self._proposed[group]
            late = [one for one in proposed if one.due_at <= now]
            if not late:
                continue
            left = [one for one in proposed if one.due_at > now]
            if left:
                self._proposed[group] = left
            else:
                del self._proposed[group]
            for one in late:
                self._tell(one.told, False)
