from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flockmq.server.standing import LEADER_GRACE_S, ROOM_BYTES_MIN, Lately, room_problem


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


def test_a_leader_that_was_there_a_moment_ago_counts() -> None:
    """Elections are short: probes do not see them. What lasts is told."""
    now = 100.0
    lately = Lately(LEADER_GRACE_S, lambda: now)
    assert not lately.was(False), "never seen"
    assert lately.was(True)
    now += LEADER_GRACE_S - 0.1
    assert lately.was(False)
    now += 0.2
    assert not lately.was(False)
    assert lately.was(True)
