"""Moves that a crash left half done."""

from __future__ import annotations

from pathlib import Path

import pytest

from flockmq.errors import FlockError
from flockmq.server.cluster_id import load_cluster_id, note_founded, save_cluster_id, was_founded
from flockmq.server.data_dir import MOVE_FILE
from flockmq.server.known_peers import KnownPeers
from flockmq.server.move_note import Acquaintance, MoveNote, carry_out, finish_move, write_note
from flockmq.server.state_copy import outdate_state

OLD, NEW = 7, 9


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a node that has stored something."""
    (tmp_path / "store" / "groups").mkdir(parents=True)
    (tmp_path / "cluster-state").write_bytes(b"state")
    outdate_state(tmp_path)
    save_cluster_id(tmp_path, OLD)
    return tmp_path


def test_a_node_that_leaves_founds_its_own_cluster_when_it_is_back(folder: Path) -> None:
    write_note(folder, MoveNote(OLD, NEW, keep=False))
    assert finish_move(folder) is not None
    assert (load_cluster_id(folder), was_founded(folder, 1)) == (NEW, True)
    assert sorted(path.name for path in folder.iterdir()) == ["cluster_id", "founded"]
    assert finish_move(folder) is None, "once"


def test_a_node_that_joins_knows_whom_to_ask(folder: Path) -> None:
    note_founded(folder)
    write_note(folder, MoveNote(OLD, NEW, True, Acquaintance(5, "n5@host", "10.0.0.5", 16_000)))
    assert finish_move(folder) is not None
    assert (load_cluster_id(folder), was_founded(folder, 1)) == (NEW, False)
    [peer] = KnownPeers(folder).load()
    assert (peer.node_id, peer.name, str(peer.contact)) == (5, "n5@host", "10.0.0.5:16000")


def test_what_nobody_took_over_is_kept_also_when_it_is_done_twice(folder: Path) -> None:
    note = MoveNote(OLD, NEW, keep=True)
    kept = carry_out(folder, note)
    assert kept == folder / "store-0000000000000007-1"
    assert (kept / "cluster-state").read_bytes() == b"state"
    assert carry_out(folder, note) is None
    assert (kept / "groups").is_dir()


def test_a_note_that_can_not_be_read_is_told(folder: Path) -> None:
    (folder / MOVE_FILE).write_bytes(b"{")
    with pytest.raises(FlockError, match=r"move\.json"):
        finish_move(folder)
    assert (folder / "store").is_dir()
