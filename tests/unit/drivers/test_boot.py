from __future__ import annotations

from pathlib import Path

import pytest

from flockmq.drivers.boot import FILE, next_boot


def test_each_start_has_a_larger_number(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    assert next_boot(folder, 1_000) == 1_000
    assert next_boot(folder, 1_000) == 1_001
    assert next_boot(folder, 5_000) == 5_000


def test_a_clock_that_was_set_back_changes_nothing(tmp_path: Path) -> None:
    assert next_boot(tmp_path, 9_000) == 9_000
    assert next_boot(tmp_path, 10) == 9_001


@pytest.mark.parametrize("content", ["", "nonsense", "12 34"])
def test_a_file_that_can_not_be_read_leaves_the_clock(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    assert next_boot(tmp_path, 7_000) == 7_000
