"""The file that says which cluster a node belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest

from flockmq.errors import FlockError
from flockmq.server.cluster_id import FILE, load_cluster_id, save_cluster_id


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    assert load_cluster_id(tmp_path) == 0
    save_cluster_id(tmp_path, 0xABC)
    assert load_cluster_id(tmp_path) == 0xABC
    save_cluster_id(tmp_path, 0xDEF)
    assert load_cluster_id(tmp_path) == 0xDEF
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", ["", "abc\n", "g" * 16, "0" * 16, "1" * 17])
def test_anything_else_stops_the_start(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(FlockError, match="does not hold the id of a cluster"):
        load_cluster_id(tmp_path)
