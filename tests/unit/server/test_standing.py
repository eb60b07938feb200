from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flockmq.server.standing import ROOM_BYTES_MIN, room_problem


class Room(NamedTuple):
    """What ``statvfs`` tells."""

    f_bavail: int
    f_frsize: int = 1_024


def test_a_full_disk_is_told_before_a_write_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert room_problem(tmp_path) == ""

    def full(_folder: Any) -> Room:
        return Room(ROOM_BYTES_MIN // 1_024 - 1)

    monkeypatch.setattr(os, "statvfs", full)
    assert "is full" in room_problem(tmp_path)
