"""The content of control batches of a partition: positions of cursors, and statements about QoS 2 packet ids.

```
 CURSOR  format, wall time | count | (what, name, offset)...              COMMIT, RESET or DELETE
 MARKER  format, wall time | (tag, length, content)...                    one section per kind of statement
           RELEASE  (client, epoch, ids)...     the client has released these ids
           ADOPT    (client, epoch, since)...   an owner: older epochs count no more; ids from ``since`` on stay
           FORGET   (client, epoch, since)...   no owner: ids of epochs before ``since`` are void; without ids the
                                                client is not known any more
```
Little-endian. All that one turn of the leader brings is in one batch. Sections with a tag that a node does not know are
left alone, so that later kinds of statements have room.
"""

from __future__ import annotations

import struct
from typing import Final

from flockmq.errors import RemoteProtocolError
from flockmq.peering.fields import U16, U32, U64, Reader, malformed, sized

FORMAT: Final = 1
COMMIT: Final = 1
RESET: Final = 2
DELETE: Final = 3

RELEASE: Final = 1
ADOPT: Final = 2
FORGET: Final = 3

NAME_BYTES_MAX: Final = 1_024
COMMANDS_MAX: Final = 4_096
"""Statements in one control batch."""
BODY_BYTES_MAX: Final = 256 * 1_024
"""About how large the body of a control batch may become before another one is begun."""
_HEAD: Final = struct.Struct("<Bq")
_CURSOR: Final = struct.Struct("<BQ")


class CursorCommand:
    """A cursor moves (COMMIT: forwards only, RESET: anywhere) or goes (DELETE)."""

    def __init__(self, what: int, name: bytes, offset: int) -> None:
        self.what = what
        self.name = name
        self.offset = offset


class Statement:
    """One statement about the QoS 2 packet ids of a client: ``what`` is RELEASE, ADOPT or FORGET."""

    def __init__(self, what: int, client: bytes, epoch: int, ids: list[int], since: int = 0) -> None:
        self.what = what
        self.client = client
        self.epoch = epoch
        self.ids = ids
        self.since = since
        """The first epoch of the session: ids of older epochs are void."""

    def size(self) -> int:
        """About how many bytes it takes."""
        return 28 + len(self.client) + 2 * len(self.ids)


class CursorBody:
    """A CURSOR batch, read."""

    def __init__(self, wall_ms: int, commands: list[CursorCommand]) -> None:
        self.wall_ms = wall_ms
        self.commands = commands


class MarkerBody:
    """A MARKER batch, read."""

    def __init__(self, wall_ms: int, statements: list[Statement]) -> None:
        self.wall_ms = wall_ms
        self.statements = statements


def encode_commands(commands: list[CursorCommand]) -> bytes:
    """Cursor commands, for a control batch or for a leader."""
    parts = [U32.pack(len(commands))]
    for command in commands:
        parts.append(_CURSOR.pack(command.what, command.offset))
        parts.append(sized(command.name))
    return b"".join(parts)


def read_commands(reader: Reader) -> list[CursorCommand]:
    """Read ``encode_commands``; RemoteProtocolError when it is not that."""
    commands: list[CursorCommand] = []
    for _ in range(reader.count(COMMANDS_MAX, 11)):
        what = reader.u8()
        offset = reader.number()
        name = reader.sized()
        if not name or len(name) > NAME_BYTES_MAX:
            raise malformed("a cursor without a name, or with one that is too long")
        commands.append(CursorCommand(what, name, offset))
    return commands


def encode_statements(statements: list[Statement]) -> bytes:
    """Statements of one kind or of several, for a leader."""
    parts = [U32.pack(len(statements))]
    for statement in statements:
        parts.append(bytes((statement.what,)))
        parts.append(_encode_statement(statement))
    return b"".join(parts)


def read_statements(reader: Reader) -> list[Statement]:
    """Read ``encode_statements``."""
    statements: list[Statement] = []
    for _ in range(reader.count(COMMANDS_MAX, 21)):
        what = reader.u8()
        statements.append(_read_statement(reader, what))
    return statements


def _encode_statement(statement: Statement) -> bytes:
    head = sized(statement.client) + U64.pack(statement.epoch)
    ids = struct.pack(f"<{len(statement.ids)}H", *statement.ids)
    return head + U64.pack(statement.since) + U16.pack(len(statement.ids)) + ids


def _read_statement(reader: Reader, what: int) -> Statement:
    client = reader.sized()
    epoch = reader.number()
    since = reader.number()
    count = reader.u16()
    at = reader.skip(2 * count)
    ids: tuple[int, ...] = struct.unpack_from(f"<{count}H", reader.data, at)
    return Statement(what, client, epoch, list(ids), since)


def cursor_body(wall_ms: int, commands: list[CursorCommand]) -> bytes:
    """The body of a CURSOR batch."""
    return _HEAD.pack(FORMAT, wall_ms) + encode_commands(commands)


def marker_body(wall_ms: int, statements: list[Statement]) -> bytes:
    """The body of a MARKER batch."""
    parts = [_HEAD.pack(FORMAT, wall_ms)]
    for tag in (FORGET, ADOPT, RELEASE):
        chosen = [_encode_statement(statement) for statement in statements if statement.what == tag]
        if chosen:
            content = b"".join(chosen)
            parts.append(bytes((tag,)) + U32.pack(len(content)) + content)
    return b"".join(parts)


def read_cursor_body(body: bytes) -> CursorBody | None:
    """Read ``cursor_body``; None when this version can't."""
    reader = Reader(body)
    try:
        wall_ms = _read_head(reader)
        return CursorBody(wall_ms, read_commands(reader)) if wall_ms >= 0 else None
    except RemoteProtocolError:
        return None


def read_marker_body(body: bytes) -> MarkerBody | None:
    """Read ``marker_body``; None when this version can't. Unknown sections are skipped."""
    reader = Reader(body)
    statements: list[Statement] = []
    try:
        wall_ms = _read_head(reader)
        if wall_ms < 0:
            return None
        while reader.pos < reader.end:
            tag = reader.u8()
            section = Reader(reader.large(len(body)))
            if tag not in (RELEASE, ADOPT, FORGET):
                continue
            while section.pos < section.end:
                statements.append(_read_statement(section, tag))
    except RemoteProtocolError:
        return None
    return MarkerBody(wall_ms, statements)


def _read_head(reader: Reader) -> int:
    at = reader.skip(_HEAD.size)
    version, wall_ms = _HEAD.unpack_from(reader.data, at)
    return max(wall_ms, 0) if version == FORMAT else -1
