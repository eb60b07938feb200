"""What GROUP batches of a partition say: how far its consumer groups are, and what became of single records.

```
 GROUP  format, wall time | (tag, length, content)...      in the order in which they are applied
   OPEN    group, generation, floor           the group begins, or begins anew after a reset
   SETTLE  group, generation, ranges          acknowledged, or not selected
   FAIL    group, generation, records         a delivery failed: how many there were, not again before (log time)
   DEAD    group, generation, target, records no further delivery: they become dead letters in the partition ``target``
   BURIED  target, sequence                   the dead letters of an earlier DEAD are in their log
   DROP    group                              the group is deleted
```
Little-endian. A statement of a generation that is not the group's present one changes nothing.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from flockmq.errors import RemoteProtocolError
from flockmq.peering.fields import U32, U64, Reader, large, sized

if TYPE_CHECKING:
    from flockmq.durable.machine.ranges import Range

FORMAT: Final = 1
OPEN: Final = 1
SETTLE: Final = 2
FAIL: Final = 3
DEAD: Final = 4
BURIED: Final = 5
DROP: Final = 6

NO_TARGET: Final = 0
"""Instead of a partition: no topic takes the dead letters, they are dropped."""
RECORDS_MAX: Final = 65_536
"""Ranges or records in one statement."""
REASON_BYTES_MAX: Final = 1_024
MEMBER_BYTES_MAX: Final = 1_024
_HEAD: Final = struct.Struct("<Bq")
_OF: Final = struct.Struct("<QI")
_RANGE: Final = struct.Struct("<QQ")
_FAILED: Final = struct.Struct("<QIQ")
_LETTER: Final = struct.Struct("<QI")


class Failed:
    """A record whose deliveries failed."""

    def __init__(self, offset: int, deliveries: int, ready_ms: int) -> None:
        self.offset = offset
        self.deliveries = deliveries
        """How many there were."""
        self.ready_ms = ready_ms
        """Log time from which on the record may be delivered again."""


class Death:
    """A record that becomes a dead letter."""

    def __init__(self, offset: int, deliveries: int, reason: bytes, member: bytes) -> None:
        self.offset = offset
        self.deliveries = deliveries
        self.reason = reason
        self.member = member
        """Which member had the record last."""

    def encode(self) -> bytes:
        """For statements and checkpoints."""
        return _LETTER.pack(self.offset, self.deliveries) + sized(self.reason) + sized(self.member)


def read_death(reader: Reader) -> Death:
    """Read ``Death.encode``."""
    offset, deliveries = _LETTER.unpack_from(reader.data, reader.skip(_LETTER.size))
    return Death(offset, deliveries, reader.sized(), reader.sized())


class GroupStatement:
    """One statement; which fields count depends on ``what``."""

    def __init__(self, what: int, group: int = 0, generation: int = 0) -> None:
        self.what = what
        self.group = group
        self.generation = generation
        self.floor = 0
        """OPEN."""
        self.ranges: list[Range] = []
        """SETTLE."""
        self.failed: list[Failed] = []
        """FAIL."""
        self.target = NO_TARGET
        """DEAD, BURIED."""
        self.deaths: list[Death] = []
        """DEAD."""
        self.sequence = 0
        """BURIED."""

    def size(self) -> int:
        """About how many bytes the statement takes."""
        deaths = sum([len(death.reason) + len(death.member) + 16 for death in self.deaths])
        return 40 + 16 * len(self.ranges) + 20 * len(self.failed) + deaths

    def encode(self) -> bytes:
        """The content behind tag and length."""
        head = _OF.pack(self.group, self.generation)
        if self.what == OPEN:
            return head + U64.pack(self.floor)
        if self.what == SETTLE:
            flat = [offset for one in self.ranges for offset in one]
            return head + U32.pack(len(self.ranges)) + struct.pack(f"<{len(flat)}Q", *flat)
        if self.what == FAIL:
            parts = [_FAILED.pack(one.offset, one.deliveries, one.ready_ms) for one in self.failed]
            return head + U32.pack(len(parts)) + b"".join(parts)
        if self.what == DEAD:
            parts = [death.encode() for death in self.deaths]
            return head + U64.pack(self.target) + U32.pack(len(parts)) + b"".join(parts)
        if self.what == BURIED:
            return _RANGE.pack(self.target, self.sequence)
        return head


def opening(group: int, generation: int, floor: int) -> GroupStatement:
    """The group begins at ``floor``."""
    statement = GroupStatement(OPEN, group, generation)
    statement.floor = floor
    return statement


def settling(group: int, generation: int, ranges: list[Range]) -> GroupStatement:
    """These records are done."""
    statement = GroupStatement(SETTLE, group, generation)
    statement.ranges = ranges
    return statement


def failing(group: int, generation: int, failed: list[Failed]) -> GroupStatement:
    """Deliveries of these records failed."""
    statement = GroupStatement(FAIL, group, generation)
    statement.failed = failed
    return statement


def dying(group: int, generation: int, target: int, deaths: list[Death]) -> GroupStatement:
    """These records are not delivered again."""
    statement = GroupStatement(DEAD, group, generation)
    statement.target = target
    statement.deaths = deaths
    return statement


def burying(target: int, sequence: int) -> GroupStatement:
    """The dead letters of a run are in their log."""
    statement = GroupStatement(BURIED)
    statement.target = target
    statement.sequence = sequence
    return statement


def dropping(group: int) -> GroupStatement:
    """The group is no more."""
    return GroupStatement(DROP, group)


class GroupBody:
    """A GROUP batch, read."""

    def __init__(self, wall_ms: int, statements: list[GroupStatement]) -> None:
        self.wall_ms = wall_ms
        self.statements = statements


def group_body(wall_ms: int, statements: list[GroupStatement]) -> bytes:
    """The body of a GROUP batch."""
    parts = [_HEAD.pack(FORMAT, wall_ms)]
    for statement in statements:
        parts.append(bytes((statement.what,)))
        parts.append(large(statement.encode()))
    return b"".join(parts)


def read_group_body(body: bytes) -> GroupBody | None:
    """Read ``group_body``; None when this version can't. Unknown statements are skipped."""
    reader = Reader(body)
    statements: list[GroupStatement] = []
    try:
        version, wall_ms = _HEAD.unpack_from(body, reader.skip(_HEAD.size))
        if version != FORMAT:
            return None
        while reader.pos < reader.end:
            what = reader.u8()
            content = Reader(reader.large(len(body)))
            if OPEN <= what <= DROP:
                statements.append(_read_statement(what, content))
    except RemoteProtocolError:
        return None
    return GroupBody(max(wall_ms, 0), statements)


def _read_statement(what: int, reader: Reader) -> GroupStatement:
    if what == BURIED:
        target, sequence = _RANGE.unpack_from(reader.data, reader.skip(_RANGE.size))
        return burying(target, sequence)
    group, generation = _OF.unpack_from(reader.data, reader.skip(_OF.size))
    statement = GroupStatement(what, group, generation)
    if what == OPEN:
        statement.floor = reader.number()
    elif what == SETTLE:
        count = reader.count(RECORDS_MAX, _RANGE.size)
        flat: tuple[int, ...] = struct.unpack_from(f"<{2 * count}Q", reader.data, reader.skip(16 * count))
        statement.ranges = [(flat[at], flat[at + 1]) for at in range(0, 2 * count, 2)]
    elif what == FAIL:
        for _ in range(reader.count(RECORDS_MAX, _FAILED.size)):
            offset, deliveries, ready_ms = _FAILED.unpack_from(reader.data, reader.skip(_FAILED.size))
            statement.failed.append(Failed(offset, deliveries, ready_ms))
    elif what == DEAD:
        statement.target = reader.number()
        for _ in range(reader.count(RECORDS_MAX, 16)):
            statement.deaths.append(read_death(reader))
    return statement
