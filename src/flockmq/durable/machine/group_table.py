"""Where the consumer groups of a partition stand: a table that GROUP batches change, the same on every replica.

```
                 floor            settled ranges above the floor
 ---- settled ----|--- ? ---[xxxxx]-- ? --[xx]---- ? --------------------- end of the log
                       failed: deliveries so far, not again before
                       dying:  no further delivery; their dead letter is on its way into another log
 DEAD --> run (target, sequence = index of the entry) --appended there once--> BURIED --> settled
```
A record that is in none of these is pending or held; which member holds it is known to the leader and to the member's
node, not here. Dead letters that one entry names for one target are one run. Runs survive a reset of their group.
"""

from __future__ import annotations

import struct
from typing import Final

from flockmq.durable.machine.group_bodies import (
    BURIED,
    DEAD,
    DROP,
    FAIL,
    NO_TARGET,
    OPEN,
    SETTLE,
    Death,
    Failed,
    GroupBody,
    GroupStatement,
    read_death,
)
from flockmq.durable.machine.ranges import RangeSet
from flockmq.peering.fields import U32, Reader

GROUPS_MAX: Final = 10_000
"""Groups of one partition; more are not opened."""
RANGES_MAX: Final = 65_536
"""Settled ranges above the floor of one group, and failed records. Beyond that a statement is not taken: the record is
delivered again."""
LETTERS_MAX: Final = 65_536
"""Dead letters of one partition that are on their way."""
_STATE: Final = struct.Struct("<QIQQQQII")
_RANGE: Final = struct.Struct("<QQ")
_FAILED: Final = struct.Struct("<QIQ")
_RUN: Final = struct.Struct("<QQI")
_OF: Final = struct.Struct("<QI")


class Letter:
    """A dead letter that is on its way."""

    def __init__(self, group: int, generation: int, death: Death) -> None:
        self.group = group
        self.generation = generation
        self.death = death


class GroupState:
    """One group in this partition."""

    def __init__(self, group: int, generation: int, floor: int) -> None:
        self.group = group
        self.generation = generation
        self.floor = floor
        """All before it are settled."""
        self.settled = RangeSet()
        """What is settled above the floor."""
        self.failed: dict[int, Failed] = {}
        self.dying: dict[int, tuple[int, int]] = {}
        """Offset -> (target, sequence) of the run that its dead letter is part of."""
        self.dead = 0
        """Dead letters so far, those that were dropped too; of all generations, as the next two."""
        self.dropped = 0
        self.redelivered = 0
        """Deliveries that failed."""

    def is_settled(self, offset: int) -> bool:
        """Whether nothing is left to do for a record."""
        return offset < self.floor or offset in self.settled

    def settle(self, low: int, high: int) -> None:
        """These records are done, dying ones excepted."""
        low = max(low, self.floor)
        if self.dying:
            for offset in sorted([one for one in self.dying if low <= one < high]):
                self._settle(low, offset)
                low = offset + 1
        self._settle(low, high)

    def _settle(self, low: int, high: int) -> None:
        if low >= high:
            return
        if low <= self.floor:
            self.floor = self.settled.take_head(max(high, self.floor))
        elif len(self.settled) < RANGES_MAX:
            self.settled.add(low, high)
        else:
            return
        if self.failed:
            gone = (
                range(low, high) if high - low < len(self.failed) else [one for one in self.failed if low <= one < high]
            )
            for offset in gone:
                self.failed.pop(offset, None)

    def fail(self, failed: Failed) -> None:
        """A delivery of a record failed."""
        known = self.failed.get(failed.offset)
        if self.is_settled(failed.offset) or failed.offset in self.dying:
            return
        if known is None and len(self.failed) >= RANGES_MAX:
            return
        if known is None or known.deliveries < failed.deliveries:
            self.failed[failed.offset] = failed
            self.redelivered += 1

    def encode(self) -> bytes:
        """For a checkpoint; ``dying`` follows from the runs."""
        ranges = self.settled.ranges()
        counts = (self.dead, self.dropped, self.redelivered, len(ranges), len(self.failed))
        parts = [_STATE.pack(self.group, self.generation, self.floor, *counts)]
        parts += [_RANGE.pack(low, high) for low, high in ranges]
        for offset in sorted(self.failed):
            one = self.failed[offset]
            parts.append(_FAILED.pack(offset, one.deliveries, one.ready_ms))
        return b"".join(parts)


class GroupTable:
    """See the module."""

    def __init__(self) -> None:
        self.groups: dict[int, GroupState] = {}
        self.runs: dict[tuple[int, int], list[Letter]] = {}
        """(target, sequence) -> dead letters that are not known to be in their log."""
        self.letters = 0
        """How many are in all runs."""

    def is_empty(self) -> bool:
        """Whether a checkpoint needs nothing of this."""
        return not self.groups and not self.runs

    def state(self, group: int, generation: int) -> GroupState | None:
        """A group, if this is its present generation."""
        known = self.groups.get(group)
        return known if known is not None and known.generation == generation else None

    def held_offset(self, group: int) -> int:
        """The first offset that a group still needs; 0 while the group has not begun here."""
        known = self.groups.get(group)
        return 0 if known is None else known.floor

    def letters_from(self) -> int:
        """The first offset that a dead letter on its way still needs; -1: there is none."""
        offsets = [letter.death.offset for run in self.runs.values() for letter in run]
        return min(offsets) if offsets else -1

    def apply(self, body: GroupBody, index: int) -> None:
        """Statements are committed, in the entry with this index."""
        for statement in body.statements:
            what = statement.what
            if what == OPEN:
                self._open(statement)
            elif what == BURIED:
                self._bury(statement)
            elif what == DROP:
                self.groups.pop(statement.group, None)
            else:
                state = self.state(statement.group, statement.generation)
                if state is not None:
                    self._change(state, statement, index)

    def _open(self, statement: GroupStatement) -> None:
        known = self.groups.get(statement.group)
        if known is None:
            if len(self.groups) < GROUPS_MAX:
                self.groups[statement.group] = GroupState(statement.group, statement.generation, statement.floor)
        elif statement.generation > known.generation:
            fresh = GroupState(statement.group, statement.generation, statement.floor)
            fresh.dead = known.dead
            fresh.dropped = known.dropped
            fresh.redelivered = known.redelivered
            self.groups[statement.group] = fresh

    def _change(self, state: GroupState, statement: GroupStatement, index: int) -> None:
        if statement.what == SETTLE:
            for low, high in statement.ranges:
                state.settle(low, high)
        elif statement.what == FAIL:
            for one in statement.failed:
                state.fail(one)
        elif statement.what == DEAD:
            for death in statement.deaths:
                self._die(state, death, statement.target, index)

    def _die(self, state: GroupState, death: Death, target: int, index: int) -> None:
        offset = death.offset
        if state.is_settled(offset):
            return
        before = state.dying.get(offset)
        if before is not None and before[0] == target:
            return
        if before is not None:  # its topic is gone: another one takes the letter, or none
            self._leave_run(state.group, offset, before)
            del state.dying[offset]
        elif target != NO_TARGET and self.letters >= LETTERS_MAX:
            return
        else:
            state.dead += 1
        state.failed.pop(offset, None)
        if target == NO_TARGET:
            state.dropped += 1
            state.settle(offset, offset + 1)
            return
        state.dying[offset] = (target, index)
        self.runs.setdefault((target, index), []).append(Letter(state.group, state.generation, death))
        self.letters += 1

    def _leave_run(self, group: int, offset: int, key: tuple[int, int]) -> None:
        run = [letter for letter in self.runs[key] if letter.group != group or letter.death.offset != offset]
        self.letters -= len(self.runs[key]) - len(run)
        if run:
            self.runs[key] = run
        else:
            del self.runs[key]

    def _bury(self, statement: GroupStatement) -> None:
        key = (statement.target, statement.sequence)
        run = self.runs.pop(key, [])
        self.letters -= len(run)
        for letter in run:
            state = self.state(letter.group, letter.generation)
            offset = letter.death.offset
            if state is not None and state.dying.get(offset) == key:
                del state.dying[offset]
                state.settle(offset, offset + 1)

    # Checkpoints.

    def encode(self) -> bytes:
        """For a checkpoint: the same bytes on every replica."""
        parts = [U32.pack(len(self.groups))]
        parts += [self.groups[group].encode() for group in sorted(self.groups)]
        parts.append(U32.pack(len(self.runs)))
        for target, sequence in sorted(self.runs):
            run = self.runs[target, sequence]
            parts.append(_RUN.pack(target, sequence, len(run)))
            for letter in run:
                parts.append(_OF.pack(letter.group, letter.generation) + letter.death.encode())
        return b"".join(parts)


def decode_groups(data: bytes) -> GroupTable:
    """Read ``GroupTable.encode``; RemoteProtocolError when it is not that."""
    table = GroupTable()
    reader = Reader(data)
    for _ in range(reader.count(GROUPS_MAX, _STATE.size)):
        state = _read_state(reader)
        table.groups[state.group] = state
    for _ in range(reader.count(LETTERS_MAX, _RUN.size)):
        target, sequence, count = _RUN.unpack_from(reader.data, reader.skip(_RUN.size))
        run = table.runs[target, sequence] = []
        for _ in range(count):
            group, generation = _OF.unpack_from(reader.data, reader.skip(_OF.size))
            letter = Letter(group, generation, read_death(reader))
            run.append(letter)
            owner = table.state(group, generation)
            if owner is not None:
                owner.dying[letter.death.offset] = (target, sequence)
        table.letters += count
    reader.finish()
    return table


def _read_state(reader: Reader) -> GroupState:
    group, generation, floor, dead, dropped, redelivered, ranges, failed = _STATE.unpack_from(
        reader.data, reader.skip(_STATE.size)
    )
    state = GroupState(group, generation, floor)
    state.dead = dead
    state.dropped = dropped
    state.redelivered = redelivered
    flat: tuple[int, ...] = struct.unpack_from(f"<{2 * ranges}Q", reader.data, reader.skip(16 * ranges))
    for at in range(0, 2 * ranges, 2):
        state.settled.add(flat[at], flat[at + 1])
    for _ in range(failed):
        offset, deliveries, ready_ms = _FAILED.unpack_from(reader.data, reader.skip(_FAILED.size))
        state.failed[offset] = Failed(offset, deliveries, ready_ms)
    return state
