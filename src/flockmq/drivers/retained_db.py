"""The file that retained messages survive a restart in: one SQLite table, one row a topic name.

```
 retained(topic, stamp, node, expires, version, wire)     wire is NULL where the topic's message was deleted
```
Nothing in here knows the event loop: all calls come from one thread, one after the other. Many rows go into one
statement, because each statement gives the interpreter lock away and has to get it back from a loop that is busy.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")

FORMAT: Final = 1
APPLICATION_ID: Final = 0x464C4B52
"""Tells our files from other databases: "FLKR"."""
DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
BROKEN: Final = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What SQLite raises about a file; the second where its own message quotes damaged text."""
READ_ROWS: Final = 2_000
_COLUMNS: Final = ("topic", "stamp", "node", "expires", "version", "wire")
_GROUPS: Final = (256, 32, 4, 1)
"""Rows that go into one statement."""
# Nothing but question marks is put together here.
_PUT: Final = {size: f"INSERT OR REPLACE INTO retained VALUES {','.join(['(?,?,?,?,?,?)'] * size)}" for size in _GROUPS}  # noqa: S608
_DELETE: Final = {size: f"DELETE FROM retained WHERE topic IN ({', '.join('?' * size)})" for size in _GROUPS}  # noqa: S608


class Row(NamedTuple):
    """A topic's message or, without ``wire``, its deletion; ``expires`` in ms since 1970, 0 for never."""

    topic: bytes
    stamp: int
    origin: int
    """Node id, as SQLite's signed integer."""
    expires: int
    version: int
    wire: bytes | None


class DamagedFile(Exception):  # noqa: N818  (a finding about a file, not about us)
    """The file is there and is not, or no longer, ours; the text says how one can tell."""


class RetainedDb:
    """An open file; sqlite3.Error or DamagedFile when it can't be used."""

    def __init__(self, path: Path) -> None:
        with suppress(OSError):  # SQLite says what is wrong, and gives its other files the mode of this one
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1.0)
        # A damaged row may claim to hold text that is none: it is a wrong row then, not a file that can't be read.
        self._db.text_factory = _text
        try:
            self._prepare()
        except BROKEN as error:
            self.close()
            raise _finding(error) from error
        except DamagedFile:
            self.close()
            raise

    def _prepare(self) -> None:
        run = self._db.execute
        run("PRAGMA locking_mode = EXCLUSIVE")  # before WAL: no shared memory file that could not be extended
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        ours, found = run("PRAGMA application_id").fetchone()[0], run("PRAGMA user_version").fetchone()[0]
        if run("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            if ours != APPLICATION_ID:
                raise DamagedFile("it is a database of something else")
            if found != FORMAT:
                raise DamagedFile(f"it has format {found}, and this version of FlockMQ knows format {FORMAT}")
            if [row[1] for row in run("PRAGMA table_info(retained)")] != list(_COLUMNS):
                raise DamagedFile("its table is missing, or another one")
            return
        run("BEGIN")
        run(f"PRAGMA application_id = {APPLICATION_ID}")
        run(f"PRAGMA user_version = {FORMAT}")
        run(
            "CREATE TABLE retained (topic BLOB PRIMARY KEY, stamp INTEGER NOT NULL, node INTEGER NOT NULL, "
            "expires INTEGER NOT NULL, version INTEGER NOT NULL, wire BLOB) WITHOUT ROWID"
        )
        run("COMMIT")

    def read(self) -> Iterator[list[Row]]:
        """All rows, some at a time."""
        try:
            cursor = self._db.execute("SELECT topic, stamp, node, expires, version, wire FROM retained")
            while rows := cursor.fetchmany(READ_ROWS):
                yield [Row(*row) for row in rows]
        except BROKEN as error:
            raise _finding(error) from error

    def write(self, puts: Sequence[Row], deletes: Sequence[bytes], clear: bool = False, more: bool = False) -> None:
        """Write a batch, durable when this returns; all of it or, after an error, nothing.

        With ``clear`` all that was there goes first, with ``more`` the next batch belongs to this one.
        """
        db = self._db
        try:
            if not db.in_transaction:
                db.execute("BEGIN IMMEDIATE")
            if clear:
                db.execute("DELETE FROM retained")
            for group in _grouped(puts):
                db.execute(_PUT[len(group)], [value for row in group for value in row])
            for names in _grouped(deletes):
                db.execute(_DELETE[len(names)], names)
            if not more:
                db.execute("COMMIT")
        except BROKEN as error:
            raise _finding(error) from error

    def close(self) -> None:
        """Let go of the file; what was not committed is undone."""
        self._db.close()


def set_aside(path: Path) -> Path:
    """Give a damaged file, and what belongs to it, another name that says so."""
    number = 1
    while (target := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    path.rename(target)
    for suffix in ("-wal", "-shm"):
        beside = Path(f"{path}{suffix}")
        if beside.exists():
            beside.rename(f"{target}{suffix}")
    return target


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _finding(error: Exception) -> Exception:
    """The error, or what it says about the file."""
    if isinstance(error, UnicodeDecodeError):
        return DamagedFile("its text is not UTF-8")
    code = getattr(error, "sqlite_errorcode", None)  # errors of the module itself have none
    if code is not None and (code & 0xFF in DAMAGED or "unsupported file format" in str(error)):
        return DamagedFile(str(error))
    return error


def _grouped(items: Sequence[T]) -> Iterator[Sequence[T]]:
    at = 0
    for size in _GROUPS:
        while at + size <= len(items):
            yield items[at : at + size]
            at += size
