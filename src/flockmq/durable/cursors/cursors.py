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

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import LATER, OK, REFUSED, TIMED_OUT, TIMEOUT_MS
from flockmq.durable.machine.control_bodies import COMMANDS_MAX, COMMIT, DELETE, NAME_BYTES_MAX, RESET, CursorCommand
from flockmq.durable.machine.machine import CURSORS_MAX
from flockmq.peering.fields import U32, U64, Reader, malformed, sized
from flockmq.peering.kinds import CURSOR_CALL, POSITIONS_CALL

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls, Replied
    from flockmq.durable.logs.local import LocalLogs
    from flockmq.durable.machine.control import Control
    from flockmq.durable.machine.machines import Machines

DONE: Final = 0
REFUSED_CURSOR: Final = 1
UNREACHABLE: Final = 2
NO_POSITION: Final = (1 << 62) - 1
NAMES_MAX: Final = 1_024


class Moved:
    """What became of a commit or reset: DONE at ``offset``, REFUSED_CURSOR or UNREACHABLE with the reason."""

    def __init__(self, code: int, offset: int, reason: str) -> None:
        self.code = code
        self.offset = offset
        self.reason = reason


class Position:
    """Where one cursor stands in one partition."""

    def __init__(self, group: int, name: bytes, offset: int) -> None:
        self.group = group
        self.name = name
        self.offset = offset
        """-1 when the cursor was never moved there."""


def lag_of(offset: int, first: int, end: int) -> int:
    """How many records of the partition [first, end) a cursor at ``offset`` has yet to read; -1: it was never moved."""
    return max(0, end - max(offset, first))


def lost_of(offset: int, first: int) -> int:
    """How many records retention removed before the cursor at ``offset`` read them."""
    return max(0, first - offset) if offset >= 0 else 0


MovedTo = Callable[[Moved], None]
Positions = Callable[[list[Position], list[int]], None]
"""Positions, and the groups whose leaders did not answer."""


class _Wish:
    """A cursor that is to be moved."""

    def __init__(self, name: bytes, what: int, offset: int, reply: MovedTo) -> None:
        self.name = name
        self.what = what
        self.offset = offset
        self.reply = reply


class Cursors:
    """See the module."""

    def __init__(self, calls: PartitionCalls, control: Control, machines: Machines, local: LocalLogs) -> None:
        self._calls = calls
        self._control = control
        self._machines = machines
        self._local = local
        self._wishes: dict[int, list[_Wish]] = {}
        calls.serve(CURSOR_CALL, self._on_move)
        calls.serve_each(POSITIONS_CALL, self._on_positions)

    # From any node.

    def commit(self, group: int, name: bytes, offset: int, reply: MovedTo, now: int) -> None:
        """A reader has everything before ``offset``."""
        self._wish(group, _Wish(name, COMMIT, offset, reply), now)

    def reset(self, group: int, name: bytes, offset: int, reply: MovedTo, now: int) -> None:
        """Let a cursor stand at an offset, or where the log begins or ends if that is nearer."""
        self._wish(group, _Wish(name, RESET, offset, reply), now)

    def delete(self, group: int, name: bytes, reply: MovedTo, now: int) -> None:
        """Forget where a cursor stands."""
        self._wish(group, _Wish(name, DELETE, 0, reply), now)

    def _wish(self, group: int, wish: _Wish, now: int) -> None:
        self._calls.now = now
        if not wish.name or len(wish.name) > NAME_BYTES_MAX or not 0 <= wish.offset < NO_POSITION:
            wish.reply(Moved(REFUSED_CURSOR, -1, "A cursor needs a name of at most 1,024 bytes and a valid position."))
            return
        wishes = self._wishes.get(group)
        if wishes is None:
            wishes = self._wishes[group] = []
            self._calls.engine.wake()
        wishes.append(wish)
        if len(wishes) >= COMMANDS_MAX:
            self._send(group, now)

    def flush(self, now: int) -> None:
        """A turn ends: ask the leaders."""
        for group in list(self._wishes):
            self._send(group, now)

    def _send(self, group: int, now: int) -> None:
        wishes = self._wishes.pop(group)
        told = [bytes((wish.what,)) + U64.pack(wish.offset) + sized(wish.name) for wish in wishes]
        body = U32.pack(len(wishes)) + b"".join(told)
        self._calls.ask(group, CURSOR_CALL, body, partial(_settle, wishes), now)

    def positions(
        self, groups: list[int], names: list[bytes], reply: Positions, now: int, timeout_ms: int = TIMEOUT_MS
    ) -> None:
        """Where cursors stand; without names: all that stand anywhere in these groups."""
        names = names[:NAMES_MAX]
        body = U32.pack(len(names)) + b"".join([sized(name) for name in names])
        self._calls.gather(groups, POSITIONS_CALL, body, partial(_gathered, reply), now, timeout_ms)

    # At the leader.

    def _on_move(self, group: int, reader: Reader, answer: Replied) -> None:
        machine = self._machines.by_group.get(group)
        if machine is None:
            answer(LATER, b"")
            return
        outcomes: list[tuple[int, int]] = []
        commands: list[CursorCommand] = []
        count = reader.count(COMMANDS_MAX, 11)
        for _ in range(count):
            what = reader.u8()
            wanted = reader.u64()
            name = reader.sized()
            if not name or len(name) > NAME_BYTES_MAX or what not in (COMMIT, RESET, DELETE):
                raise malformed("a cursor that can't be")
            offset = self._resolve(group, what, wanted)
            is_new = name not in machine.cursors and what != DELETE
            if offset < 0 or (is_new and len(machine.cursors) + len(commands) >= CURSORS_MAX):
                outcomes.append((REFUSED_CURSOR, 0))
                continue
            known = machine.cursors.get(name, -1)
            if what == COMMIT and offset <= known:
                outcomes.append((DONE, known))
                continue
            outcomes.append((DONE, offset))
            commands.append(CursorCommand(what, name, offset))
        body = b"".join([bytes((code,)) + U64.pack(offset) for code, offset in outcomes])
        if commands:
            self._control.move(group, commands, self._calls.now).then(partial(_moved, answer, body))
        else:
            answer(OK, body)

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


def _moved(answer: Replied, body: bytes, done: bool) -> None:
    answer(OK if done else LATER, body if done else b"")


def _settle(wishes: list[_Wish], code: int, body: bytes) -> None:
    if code != OK or len(body) != 9 * len(wishes):
        reason = "No leader of the partition could be reached in time; try again."
        if code == REFUSED:
            reason = body.decode(errors="replace")
        elif code != TIMED_OUT:
            reason = "The leader's answer made no sense; do all nodes run the same version?"
        for wish in wishes:
            wish.reply(Moved(UNREACHABLE, -1, reason))
        return
    reader = Reader(body)
    for wish in wishes:
        code = reader.u8()
        offset = reader.u64()
        if code == DONE:
            wish.reply(Moved(DONE, offset, ""))
        else:
            wish.reply(
                Moved(REFUSED_CURSOR, -1, f"The partition has no offset {wish.offset} yet, or too many cursors.")
            )


def _gathered(reply: Positions, found: dict[int, bytes], missing: list[int]) -> None:
    positions: list[Position] = []
    for group, body in found.items():
        reader = Reader(body)
        for _ in range(reader.count(CURSORS_MAX, 10)):
            name = reader.sized()
            offset = reader.u64()
            positions.append(Position(group, name, -1 if offset == NO_POSITION else offset))
    reply(positions, missing)
