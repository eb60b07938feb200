from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flockmq.cli.main import run
from flockmq.drivers.journal import open_disk
from log_cases import SMALL, commit, fill, settle


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with a log of two groups; the last three entries are in the journal only."""
    store, disk = open_disk(tmp_path / "store", SMALL)
    store.create(0)
    log = store.create(7)
    fill(log, 20)
    log.set_hard_state(3, 2, 20)
    settle(store, disk, checkpoint=True)
    fill(log, 3)
    commit(store, disk)
    disk.close()
    return tmp_path


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert run(["log", *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_inspect_shows_groups(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "inspect", str(folder))
    assert (found["torn"], found["notes"], found["records_since_checkpoint"]) == (False, [], 1)
    assert [one["group"] for one in found["groups"]] == [0, 7]
    seven = found["groups"][1]
    assert (seven["first_index"], seven["last_index"], seven["next_offset"], seven["term"]) == (1, 23, 46, 3)
    assert run(["log", "inspect", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].split()[:5] == ["7", "1", "23", "0", "46"]


def test_the_folder_of_the_log_itself_does_as_well(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert as_json(capsys, "inspect", str(folder / "store")) == as_json(capsys, "inspect", str(folder))


def test_inspect_shows_segments(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = as_json(capsys, "inspect", str(folder), "--group", "7")["segments"]
    assert [row["first_index"] for row in rows] == [1, 8, 15, 22]
    assert [row["bytes_in_file"] for row in rows][-1] == 0
    assert run(["log", "inspect", str(folder), "--group", "7"]) == 0
    assert "00000000000000000014-2.log" in capsys.readouterr().out
    assert run(["log", "inspect", str(folder), "--group", "0"]) == 0
    assert capsys.readouterr().out == "Group 0 has no entries.\n"


def test_inspect_shows_records(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = as_json(capsys, "inspect", str(folder), "--group", "7", "--offset", "37", "--limit", "6")
    assert [row["offset"] for row in rows] == [37, 38, 39, 40, 41, 42]
    assert [row["payload"] for row in rows][1::2] == ["20", "21", "22"]
    assert (rows[0]["topic"], rows[0]["client"], rows[0]["qos"], rows[0]["retain"]) == ("t", "c", 1, False)
    assert as_json(capsys, "inspect", str(folder), "--group", "7", "--offset", "46") == []
    assert run(["log", "inspect", str(folder), "--group", "7", "--offset", "44"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:4] == ["44", "24,000", "t", "c"]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--group", "9"], 1, "There is no group 9"),
        (["--offset", "9"], 2, "--offset needs --group"),
        (["--group", "7", "--offset", "-1"], 1, "Offset -1 of partition group 7 is gone"),
    ],
)
def test_inspect_says_what_is_wrong(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, text: str
) -> None:
    assert run(["log", "inspect", str(folder), *arguments]) == code
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_folder_without_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert run(["log", command, str(tmp_path / "nowhere")]) == 1
    assert "There is no log in" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


def test_verify_finds_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "verify", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("2 groups, 23 batches, ")
    found = as_json(capsys, "verify", str(folder))
    assert (found["sound"], found["problems"]) == (True, [])


def test_verify_finds_damage_in_an_old_segment(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = next((folder / "store/groups/0000000000000007").glob("00000000000000000000-*.log"))
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    found = as_json(capsys, "verify", str(folder), code=1)
    assert found["sound"] is False
    assert "entry 4" in found["problems"][0]
    assert found["groups"][1]["damage"]["first"] == 4
    assert run(["log", "verify", str(folder)]) == 1
    assert "refilled" in capsys.readouterr().err


def test_verify_tells_of_a_torn_write(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "store/journal-00000001"
    data = path.read_bytes()
    end = len(data.rstrip(b"\0"))
    path.write_bytes(data[: end - 60].ljust(len(data), b"\0"))
    assert run(["log", "verify", str(folder)]) == 0
    assert "did not finish" in capsys.readouterr().out
    assert as_json(capsys, "inspect", str(folder))["groups"][1]["last_index"] == 20


def test_nothing_is_changed_by_looking(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    as_json(capsys, "verify", str(folder))
    as_json(capsys, "inspect", str(folder))
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
