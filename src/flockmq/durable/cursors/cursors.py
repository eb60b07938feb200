"""Named positions in partitions, moved and asked for from any node.

```
 commit(group, name, offset) --.                                       at the leader
 reset(group, name, offset)  --+--> flush(): one question per group --> checks
 delete(group, name)         --'                                    --> one control batch per turn --> applied: answer
 positions(groups, names) --> leaders --> per group: the cursors that stand there
```
What a cursor is (its topic, whether it holds retention) is cluster state; where it stands is state of the partitions.
A commit never goes back; a reset goes anywhere between the oldest record and the end. ``Logs.locate`` finds the offset
of "earliest", "latest" or a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from flockmq.durable.calls import LATER, OK, REFUSED, TIMED_OUT, Reply
from flockmq.durable.machine.control_bodies import COMMANDS_MAX, COMMIT, DELETE, NAME_BYTES_MAX, RESET, CursorCommand
from flockmq.durable.machine.machine import CURSORS_MAX
from flockmq.peering.fields import U32, U64, Reader, malformed, sized
from flockmq.peering.kinds import CURSOR_CALL, POSITIONS_CALL
from flockmq.tasks import Promise

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.logs.local import LocalLogs
    from flockmq.durable.machine.control import Control
    from flockmq.durable.machine.machines import Machines
    from flockmq.tasks import Running, Task

DONE: Final = 0
REFUSED_CURSOR: Final = 1
UNREACHABLE: Final = 2
NO_POSITION: Final = (1 << 62) - 1
NAMES_MAX: Final = 1_024


class Moved(NamedTuple):
    """The outcome of a commit or reset: DONE at ``offset``, REFUSED_CURSOR or UNREACHABLE with the reason."""

    code: int
    offset: int
    reason: str


class Position(NamedTuple):
    """Where one cursor stands in one partition."""

    group: int
    name: bytes
    offset: int
    """-1 when the cursor was never moved there."""


def lag_of(offset: int, first: int, end: int) -> int:
    """Records of [first, end) that a cursor has not read. ``offset`` -1 (never moved): all of them."""
    return max(0, end - max(offset, first))


def lost_of(offset: int, first: int) -> int:
    """How many records retention removed before the cursor at ``offset`` read them."""
    return max(0, first - offset) if offset >= 0 else 0


class Positions(NamedTuple):
    """Where cursors stand."""

    found: list[Position]
    missing: list[int]
    """Partitions whose leader did not answer."""


class _Move:
    """A cursor that is to be moved."""

    def __init__(self, name: bytes, what: int, offset: int) -> None:
        self.name = name
        self.what = what
        self.offset = offset
        self.moved: Promise[Moved] = Promise()

    def encode(self) -> bytes:
        """The command for the leader."""
        return bytes((self.what,)) + U64.pack(self.offset) + sized(self.name)


class Cursors:
    """See the module."""

    def __init__(self, calls: PartitionCalls, control: Control, machines: Machines, local: LocalLogs) -> None:
        self._calls = calls
        self._control = control
        self._machines = machines
        self._local = local
        self._moves: dict[int, list[_Move]] = {}
        calls.serve_leader(CURSOR_CALL, self._on_move)
        calls.serve_each(POSITIONS_CALL, self._on_positions)

    # From any node.

    def commit(self, group: int, name: bytes, offset: int) -> Promise[Moved]:
        """A reader has everything before ``offset``."""
        return self._move(group, _Move(name, COMMIT, offset))

    def reset(self, group: int, name: bytes, offset: int) -> Promise[Moved]:
        """Let a cursor stand at an offset, or where the log begins or ends if that is nearer."""
        return self._move(group, _Move(name, RESET, offset))

    def delete(self, group: int, name: bytes) -> Promise[Moved]:
        """Forget where a cursor stands."""
        return self._move(group, _Move(name, DELETE, 0))

    def _move(self, group: int, move: _Move) -> Promise[Moved]:
        if not move.name or len(move.name) > NAME_BYTES_MAX or not 0 <= move.offset < NO_POSITION:
            reason = "A cursor needs a name of at most 1,024 bytes and a valid position."
            move.moved.set(Moved(REFUSED_CURSOR, -1, reason))
            return move.moved
        moves = self._moves.get(group)
        if moves is None:
            moves = self._moves[group] = []
            self._calls.engine.wake()
        moves.append(move)
        if len(moves) >= COMMANDS_MAX:
            self._send(group)
        return move.moved

    def flush(self, now: int) -> None:
        """A turn ends: ask the leaders."""
        self._calls.now = now
        for group in list(self._moves):
            self._send(group)

    def _send(self, group: int) -> None:
        self._calls.tasks.start("cursors", self._ask(group, self._moves.pop(group)))

    def _ask(self, group: int, moves: list[_Move]) -> Task[None]:
        body = U32.pack(len(moves)) + b"".join([move.encode() for move in moves])
        code, answer = yield from self._calls.ask_leader(group, CURSOR_CALL, body)
        if code != OK or len(answer) != 9 * len(moves):
            reason = "No leader of the partition could be reached in time; try again."
            if code == REFUSED:
                reason = answer.decode(errors="replace")
            elif code != TIMED_OUT:
                reason = "The leader's answer made no sense; do all nodes run the same version?"
            for move in moves:
                move.moved.set(Moved(UNREACHABLE, -1, reason))
            return
        reader = Reader(answer)
        for move in moves:
            outcome = reader.u8()
            offset = reader.u64()
            if outcome == DONE:
                move.moved.set(Moved(DONE, offset, ""))
            else:
                reason = f"The partition has no offset {move.offset} yet, or too many cursors."
                move.moved.set(Moved(REFUSED_CURSOR, -1, reason))

    def positions(self, groups: list[int], names: list[bytes]) -> Running[Positions]:
        """Where cursors stand; without names: all that stand anywhere in these partitions."""
        return self._calls.tasks.start("positions", self._ask_positions(groups, names[:NAMES_MAX]))

    def _ask_positions(self, groups: list[int], names: list[bytes]) -> Task[Positions]:
        body = U32.pack(len(names)) + b"".join([sized(name) for name in names])
        answers, missing = yield from self._calls.ask_leaders(groups, POSITIONS_CALL, body)
        found: list[Position] = []
        for group, answer in answers.items():
            reader = Reader(answer)
            for _ in range(reader.count(CURSORS_MAX, 10)):
                name = reader.sized()
                offset = reader.u64()
                found.append(Position(group, name, -1 if offset == NO_POSITION else offset))
        return Positions(found, missing)

    # At the leader.

    def _on_move(self, group: int, reader: Reader) -> Task[Reply]:
        machine = self._machines.by_group.get(group)
        if machine is None:
            return Reply(LATER)
        outcomes: list[tuple[int, int]] = []
        commands: list[CursorCommand] = []
        for _ in range(reader.count(COMMANDS_MAX, 11)):
            what = reader.u8()
            wanted = reader.u64()
            name = reader.sized()
            if not name or len(name) > NAME_BYTES_MAX or what not in (COMMIT, RESET, DELETE):
                raise malformed("a cursor that can't be")
            offset = self._resolve(group, what, wanted)
            known = machine.cursors.get(name, -1)
            is_new = known < 0 and what != DELETE
            if offset < 0 or (is_new and len(machine.cursors) + len(commands) >= CURSORS_MAX):
                outcomes.append((REFUSED_CURSOR, 0))
            elif what == COMMIT and offset <= known:
                outcomes.append((DONE, known))
            else:
                outcomes.append((DONE, offset))
                commands.append(CursorCommand(what, name, offset))
        if commands and not (yield from self._control.move(group, commands, self._calls.now)):
            return Reply(LATER)
        return Reply(OK, b"".join([bytes((code,)) + U64.pack(offset) for code, offset in outcomes]))

    def _resolve(self, group: int, what: int, offset: int) -> int:
        """Where a cursor shall stand; -1: it can't stand there."""
        if what == DELETE:
            return 0
        if what == COMMIT:
            # A reader at another replica may be ahead of what is applied here; what it read is in this log already.
            node = self._calls.engine.host.groups.get(group)
            return offset if node is not None and offset <= node.state.log.next_offset else -1
        end = self._local.committed_end(group)
        return -1 if end < 0 else min(max(offset, self._local.first(group)), end)

    def _on_positions(self, group: int, reader: Reader) -> bytes | None:
        machine = self._machines.by_group.get(group)
        if machine is None:
            return None
        cursors = machine.cursors
        names = [reader.sized() for _ in range(reader.count(NAMES_MAX, 2))] or sorted(cursors)
        found = [sized(name) + U64.pack(cursors.get(name, NO_POSITION)) for name in names]
        return U32.pack(len(names)) + b"".join(found)
