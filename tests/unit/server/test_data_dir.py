from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from flockmq.errors import FlockError
from flockmq.server.data_dir import open_data_dir


def test_the_node_id_is_made_once(tmp_path: Path) -> None:
    first = open_data_dir(tmp_path / "deep" / "node")
    first.close()
    second = open_data_dir(tmp_path / "deep" / "node")
    other = open_data_dir(tmp_path / "other")
    assert first.node_id == second.node_id != other.node_id
    assert 0 < first.node_id < 2**64
    second.close()
    other.close()


def test_a_folder_belongs_to_one_broker(tmp_path: Path) -> None:
    first = open_data_dir(tmp_path)
    with pytest.raises(FlockError, match=rf"is in use by process {os.getpid()}; .* its own --data-dir"):
        open_data_dir(tmp_path)
    first.close()
    open_data_dir(tmp_path).close()


def test_others_may_not_look_inside(tmp_path: Path) -> None:
    data_dir = open_data_dir(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    data_dir.close()


def test_ports_are_told_while_the_broker_runs(tmp_path: Path) -> None:
    (tmp_path / "ports.json").write_text("left behind by a killed broker")
    data_dir = open_data_dir(tmp_path)
    assert not data_dir.ports_file.exists()
    data_dir.write_ports({"pid": 1})
    assert json.loads(data_dir.ports_file.read_text()) == {"pid": 1}
    data_dir.close()
    assert not data_dir.ports_file.exists()


@pytest.mark.parametrize("text", ["", "xyz", "0123", "g123456789abcdef"])
def test_a_damaged_id_is_not_replaced_in_silence(tmp_path: Path, text: str) -> None:
    (tmp_path / "node_id").write_text(text)
    with pytest.raises(FlockError, match="does not hold a node id"):
        open_data_dir(tmp_path)
    (tmp_path / "node_id").unlink()
    open_data_dir(tmp_path).close()  # the lock was given back


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(FlockError, match="can't be used: File exists"):
        open_data_dir(tmp_path / "x")
