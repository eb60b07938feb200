"""The copy of cluster state beside a store."""

from __future__ import annotations

from pathlib import Path

from flockmq.cluster.state import ClusterState
from flockmq.server.state_copy import is_outdated, load_state, outdate_state, save_state


def test_a_copy_is_outdated_until_the_next_one(tmp_path: Path) -> None:
    copy = ClusterState().encode()
    save_state(tmp_path, copy)
    assert not is_outdated(tmp_path)
    outdate_state(tmp_path)
    outdate_state(tmp_path)
    assert is_outdated(tmp_path)
    assert load_state(tmp_path) == (copy, "")
    save_state(tmp_path, copy)
    assert not is_outdated(tmp_path)
