"""A node opens the store that it had, and no other one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flockmq.cluster.commands import Command, CreateTopic, NodeSeen, encode_envelope
from flockmq.cluster.state import ClusterState
from flockmq.errors import FlockError
from flockmq.log.settings import StoreSettings
from flockmq.server.cluster_id import FILE, save_cluster_id
from flockmq.server.state_copy import STATE_FILE
from flockmq.server.store_opening import LostStoreError, OpenedStore, accept_loss, open_checked, used_acceptance

SMALL = StoreSettings(journal_bytes=262_144, commit_bytes=65_536, segment_bytes=32_768, index_bytes=2_048)
ME, OTHER = 1, 2


def used(folder: Path, records: int = 1) -> OpenedStore:
    """Open it, write something, close it."""
    opened = open_checked(folder, ME, SMALL)
    for _ in range(records):
        opened.store.create(max(opened.store.groups, default=0) + 1)
        commit = opened.store.take_commit()
        assert commit is not None
        commit.perform(opened.disk)
        opened.store.committed(commit)
        opened.witness.committed(commit.sequence)
    opened.witness.close()
    opened.disk.close()
    return opened


def closed(opened: OpenedStore) -> OpenedStore:
    opened.witness.close()
    opened.disk.close()
    return opened


def keep_state(folder: Path, *nodes: int, topics: int = 1) -> None:
    state = ClusterState()
    commands: list[Command] = [NodeSeen(node, f"n{node}@h", "h", 1) for node in nodes]
    commands += [CreateTopic(f"t{number}") for number in range(topics)]
    for command in commands:
        assert state.apply(encode_envelope(1, 1, state.index, 0, command)).ok
    (folder / STATE_FILE).write_bytes(state.encode())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_cluster_id(tmp_path, 77)
    return tmp_path


def test_the_same_store_is_opened_again(folder: Path) -> None:
    first = used(folder)
    again = used(folder)
    assert again.store.identity == first.store.identity
    assert not again.lost


def test_a_node_of_many_goes_on_with_an_empty_store(folder: Path) -> None:
    first = used(folder)
    keep_state(folder, ME, OTHER)
    shutil.rmtree(folder / "store")
    again = used(folder)
    assert again.store.identity != first.store.identity
    assert "is gone" in again.lost
    assert not again.is_accepted
    assert not used(folder).lost, "it is said once"


def test_an_older_copy_is_set_aside(folder: Path) -> None:
    first = used(folder, 3)
    keep_state(folder, ME, OTHER)
    shutil.copytree(folder / "store", folder / "backup")
    used(folder, 3)
    shutil.rmtree(folder / "store")
    (folder / "backup").rename(folder / "store")
    again = used(folder)
    assert again.store.identity != first.store.identity
    assert "older copy" in again.lost
    [aside] = folder.glob("store-aside-*")
    assert str(aside) in again.lost
    assert (aside / "manifest-a").exists()


def roll_back(folder: Path) -> None:
    """Use a store, then put an older copy of it in its place."""
    used(folder, 3)
    shutil.copytree(folder / "store", folder / "backup")
    used(folder, 3)
    shutil.rmtree(folder / "store")
    (folder / "backup").rename(folder / "store")


def test_a_copy_from_before_a_start_is_older_though_the_node_ended_at_once(folder: Path) -> None:
    used(folder, 3)
    keep_state(folder, ME, OTHER)
    shutil.copytree(folder / "store", folder / "backup")
    opened = open_checked(folder, ME, SMALL)
    opened.disk.close()  # and no last word of the witness: a crash
    shutil.rmtree(folder / "store")
    (folder / "backup").rename(folder / "store")
    assert "older copy" in used(folder).lost


def test_an_older_copy_with_a_damaged_manifest_is_an_older_copy(folder: Path) -> None:
    keep_state(folder, ME, OTHER)
    roll_back(folder)
    (folder / "store" / "manifest-a").write_bytes(b"garbage")
    assert "older copy" in used(folder).lost


def test_an_older_copy_is_set_aside_though_the_cluster_id_is_gone(folder: Path) -> None:
    keep_state(folder, ME, OTHER)
    roll_back(folder)
    (folder / FILE).unlink()
    assert "older copy" in used(folder).lost


def test_the_store_of_another_life_is_set_aside(folder: Path) -> None:
    used(folder)
    keep_state(folder, ME, OTHER)
    (folder / "store").rename(folder / "kept")
    used(folder)
    shutil.rmtree(folder / "store")
    (folder / "kept").rename(folder / "store")
    assert "another store" in used(folder).lost


def test_a_node_alone_stays_down_until_its_operator_accepts_the_loss(folder: Path) -> None:
    used(folder)
    keep_state(folder, ME)
    (folder / "store").rename(folder / "kept")
    for _ in range(2):
        with pytest.raises(FlockError, match=r"is gone.*flockmq log accept-loss"):
            open_checked(folder, ME, SMALL)
    accept_loss(folder)
    opened = closed(open_checked(folder, ME, SMALL))
    assert opened.is_accepted
    used_acceptance(folder)
    assert not used(folder).lost


def test_a_node_alone_goes_on_with_an_older_copy_once_that_is_accepted(folder: Path) -> None:
    keep_state(folder, ME)
    accept_loss(folder)
    roll_back(folder)
    used_acceptance(folder)
    with pytest.raises(FlockError, match="older copy"):
        open_checked(folder, ME, SMALL)
    accept_loss(folder)
    opened = closed(open_checked(folder, ME, SMALL))
    assert len(opened.store.groups) == 3
    assert opened.is_accepted, "its cluster state may be older than the copy of it"


@pytest.mark.parametrize("has_witness", [False, True])
def test_an_acceptance_counts_until_a_start_is_through(folder: Path, has_witness: bool) -> None:
    used(folder)
    keep_state(folder, ME)
    shutil.rmtree(folder / "store")
    accept_loss(folder)
    before = (folder / "store.witness").read_bytes()
    assert closed(open_checked(folder, ME, SMALL)).is_accepted
    if not has_witness:
        (folder / "store.witness").write_bytes(before)  # it ended before it had written that
    assert closed(open_checked(folder, ME, SMALL)).is_accepted
    used_acceptance(folder)
    assert not closed(open_checked(folder, ME, SMALL)).is_accepted


def test_a_node_alone_finds_the_store_that_was_put_back(folder: Path) -> None:
    first = used(folder)
    keep_state(folder, ME)
    (folder / "store").rename(folder / "kept")
    with pytest.raises(FlockError):
        open_checked(folder, ME, SMALL)
    shutil.rmtree(folder / "store")
    (folder / "kept").rename(folder / "store")
    assert used(folder).store.identity == first.store.identity


def test_a_node_alone_may_have_had_topics_that_its_copy_does_not_know(folder: Path) -> None:
    used(folder)
    keep_state(folder, ME, topics=0)
    shutil.rmtree(folder / "store")
    with pytest.raises(LostStoreError):
        open_checked(folder, ME, SMALL)


def test_a_copy_from_just_before_the_last_commit_is_older(folder: Path) -> None:
    used(folder)
    keep_state(folder, ME, OTHER)
    opened = open_checked(folder, ME, SMALL)
    copy = folder / "copy"
    shutil.copytree(folder / "store", copy)
    opened.store.create(2)
    commit = opened.store.take_commit()
    assert commit is not None
    commit.perform(opened.disk)
    opened.witness.committed(commit.sequence)
    opened.disk.close()  # and no last word: a kill
    shutil.rmtree(folder / "store")
    copy.rename(folder / "store")
    assert "older copy" in used(folder).lost


def test_a_witness_that_cannot_be_written_does_not_stop_the_node(folder: Path) -> None:
    opened = open_checked(folder, ME, SMALL)
    opened.witness.close()
    opened.witness.committed(7)
    opened.disk.close()


def test_a_lost_witness_is_no_lost_store(folder: Path) -> None:
    first = used(folder)
    (folder / "store.witness").write_bytes(b"garbage")
    assert used(folder).store.identity == first.store.identity


def test_without_a_witness_the_copy_of_the_state_tells_that_there_was_a_store(folder: Path) -> None:
    keep_state(folder, ME, OTHER)
    assert "is gone" in used(folder).lost
