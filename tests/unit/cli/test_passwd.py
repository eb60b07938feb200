from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from flockmq.cli.main import run
from flockmq.security.passwords import load_users


def type_in(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_add_change_and_delete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "passwords"
    outcomes = []
    for user in ("ann", "ann", "ben"):
        type_in(monkeypatch, "correct horse\n")
        assert run(["passwd", str(file), user, "--json"]) == 0
        outcomes.append(json.loads(capsys.readouterr().out)["outcome"])
    assert outcomes == ["added", "changed", "added"]
    assert file.stat().st_mode & 0o777 == 0o600
    assert "correct horse" not in file.read_text()
    assert run(["passwd", str(file), "ben", "--delete"]) == 0
    assert capsys.readouterr().out == f"User 'ben' was deleted in {file}.\n"
    users = load_users(file)
    ann = users.get("ann")
    assert ann is not None
    assert ann.scram is not None
    assert users.get("ben") is None


def test_without_scram(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(monkeypatch, "correct horse\n")
    assert run(["passwd", str(tmp_path / "p"), "ann", "--no-scram"]) == 0
    user = load_users(tmp_path / "p").get("ann")
    assert user is not None
    assert user.scram is None
