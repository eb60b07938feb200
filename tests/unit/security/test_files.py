from __future__ import annotations

import stat
from pathlib import Path

import pytest

from flockmq.errors import ConfigError
from flockmq.security.files import locked_folder, read_bytes, read_text, replace_file


def test_a_file_is_replaced_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")
    path.chmod(0o666)
    before = path.stat().st_ino
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_ino != before, "a reader of the old file must not see half of the new one"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["f"]


def test_what_can_not_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    (folder / "inside").touch()
    with pytest.raises(ConfigError, match="can't be written"):
        replace_file(folder, b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["f"]
    with pytest.raises(ConfigError, match="can't be written"):
        replace_file(tmp_path / "missing" / "f", b"new")


def test_what_can_not_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"The thing {tmp_path}/x can't be read"):
        read_bytes(tmp_path / "x", "thing")
    with pytest.raises(ConfigError, match="can't be read"):
        read_text(tmp_path, "thing")
    with pytest.raises(ConfigError, match="can't be opened"), locked_folder(tmp_path / "x"):
        pass
