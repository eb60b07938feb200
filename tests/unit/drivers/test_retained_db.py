from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from flockmq.drivers.retained_db import READ_ROWS, DamagedFile, RetainedDb, Row, set_aside


def rows(first: int, count: int, wire: bytes | None = b"w") -> list[Row]:
    return [Row(b"t/%d" % number, number + 1, -number, 0, 4, wire) for number in range(first, first + count)]


def all_of(db: RetainedDb) -> list[Row]:
    return sorted(row for batch in db.read() for row in batch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "retained.db"


@pytest.mark.parametrize("count", [0, 1, 3, 4, 255, 256, 300, 1_000])
def test_as_many_rows_as_there_are_go_in_and_out(path: Path, count: int) -> None:
    db = RetainedDb(path)
    written = rows(0, count)
    db.write(written, [])
    assert all_of(db) == sorted(written)
    db.write([], [row.topic for row in written[: count // 2]])
    assert all_of(db) == sorted(written[count // 2 :])
    db.close()


def test_it_is_its_users_alone_whatever_the_umask_is(path: Path) -> None:
    before = os.umask(0)
    try:
        db = RetainedDb(path)
        db.write(rows(0, 3), [])
        modes = {one.name: oct(one.stat().st_mode & 0o777) for one in path.parent.iterdir()}
        db.close()
    finally:
        os.umask(before)
    assert modes == {"retained.db": "0o600", "retained.db-wal": "0o600"}


def test_a_topic_has_one_row(path: Path) -> None:
    db = RetainedDb(path)
    db.write(rows(0, 3), [])
    db.write(rows(1, 1, None), [])
    assert [row.wire for row in all_of(db)] == [b"w", None, b"w"]
    db.close()


def test_rows_come_some_at_a_time(path: Path) -> None:
    db = RetainedDb(path)
    db.write(rows(0, READ_ROWS + 1), [])
    assert [len(batch) for batch in db.read()] == [READ_ROWS, 1]
    db.close()


def test_everything_is_replaced_or_nothing(path: Path) -> None:
    db = RetainedDb(path)
    db.write(rows(0, 5), [])
    db.write(rows(100, 2), [], clear=True, more=True)
    db.close()
    db = RetainedDb(path)
    assert all_of(db) == sorted(rows(0, 5))
    db.write(rows(100, 2), [], clear=True, more=True)
    db.write(rows(200, 1), [])
    db.close()
    db = RetainedDb(path)
    assert all_of(db) == sorted(rows(100, 2) + rows(200, 1))
    db.close()


def test_a_write_that_fails_changes_nothing(path: Path) -> None:
    db = RetainedDb(path)
    db.write(rows(0, 5), [])
    with pytest.raises(sqlite3.IntegrityError):
        db.write([*rows(5, 5), Row(b"x", None, 0, 0, 0, None)], [])  # type: ignore[arg-type]
    db.close()
    db = RetainedDb(path)
    assert all_of(db) == sorted(rows(0, 5))
    db.close()


def test_damage_is_told_from_other_errors(path: Path) -> None:
    path.write_bytes(b"no database " * 100)
    with pytest.raises(DamagedFile):
        RetainedDb(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(sqlite3.OperationalError):
        RetainedDb(path)


def test_what_is_set_aside_keeps_its_parts_together(path: Path) -> None:
    for number in (1, 2):
        for suffix in ("", "-wal"):
            Path(f"{path}{suffix}").write_text(f"{number}{suffix}")
        aside = set_aside(path)
        assert aside.name == f"retained.db.damaged-{number}"
        assert (aside.read_text(), Path(f"{aside}-wal").read_text()) == (f"{number}", f"{number}-wal")
        assert not path.exists()
