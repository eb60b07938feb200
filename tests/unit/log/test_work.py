"""In which order things reach the disk: that order is what a power loss at any point relies on."""

from __future__ import annotations

import random

from flockmq.log.settings import StoreSettings
from flockmq.log.work import PIECE_BYTES, Checkpoint
from flockmq.testing.simulation.disk import SimulatedDisk
from log_cases import commit, fill, opened, settle


class TellingDisk(SimulatedDisk):
    """Tells what was done to it."""

    def __init__(self) -> None:
        super().__init__(random.Random(1))
        self.told: list[str] = []

    def write(self, path: str, position: int, data: bytes) -> None:
        self.told.append(f"write {path}")
        super().write(path, position, data)

    def write_through(self, path: str, position: int, data: bytes) -> None:
        self.told.append(f"write through {path}")
        super().write_through(path, position, data)

    def sync(self, path: str) -> None:
        self.told.append(f"sync {path}")
        super().sync(path)

    def sync_folder(self, folder: str) -> None:
        self.told.append(f"sync folder {folder or '.'}")
        super().sync_folder(folder)

    def rename(self, old: str, new: str) -> None:
        self.told.append(f"rename {old} {new}")
        super().rename(old, new)

    def remove(self, path: str) -> None:
        if self.size(path) >= 0:
            self.told.append(f"remove {path}")
        super().remove(path)


def test_a_commit_is_one_durable_write() -> None:
    disk = TellingDisk()
    store = opened(disk)
    fill(store.create(1), 3)
    disk.told.clear()
    commit(store, disk)
    assert disk.told == ["write through journal-00000001"]


def test_a_checkpoint_writes_segments_then_the_manifest_and_only_then_removes() -> None:
    disk = TellingDisk()
    store = opened(disk)
    log = store.create(1)
    fill(log, 10)
    settle(store, disk, checkpoint=True)
    fill(log, 10)
    log.compact_to(7)
    commit(store, disk)
    chore = store.take_chore()
    assert isinstance(chore, Checkpoint)
    disk.told.clear()
    chore.perform(disk)
    folder = "groups/0000000000000001"
    assert disk.told == [
        f"write {folder}/00000000000000000014-2.log",
        f"write {folder}/00000000000000000014-2.index",
        f"sync {folder}/00000000000000000014-2.log",
        f"write {folder}/00000000000000000028-3.log",
        f"write {folder}/00000000000000000028-3.index",
        f"sync {folder}/00000000000000000028-3.log",
        f"sync folder {folder}",
        "write manifest-a.new",
        "sync manifest-a.new",
        "rename manifest-a.new manifest-a",
        "sync folder .",
        "write manifest-b.new",
        "sync manifest-b.new",
        "rename manifest-b.new manifest-b",
        "sync folder .",
        f"remove {folder}/00000000000000000000-1.log",
        f"remove {folder}/00000000000000000000-1.index",
    ]


def test_much_is_written_in_pieces_each_synced_before_the_next() -> None:
    disk = TellingDisk()
    store = opened(disk, StoreSettings())
    log = store.create(1)
    batch_bytes = PIECE_BYTES // 4
    stored = fill(log, 10, size=batch_bytes)
    settle(store, disk)
    disk.told.clear()
    settle(store, disk, checkpoint=True)
    path = log.path(log.segments[0].file_name())
    assert [one for one in disk.told if one.endswith(path)] == [f"write {path}", f"sync {path}"] * 3
    assert disk.read(path, 0, 20 * batch_bytes) == b"".join(stored)


def test_a_snapshot_is_durable_with_its_name() -> None:
    disk = TellingDisk()
    store = opened(disk)
    settle(store, disk)
    log = store.create(1)
    log.save_snapshot(b"state", 4, 1, 8)
    disk.told.clear()
    chore = store.take_chore()
    assert chore is not None
    chore.perform(disk)
    name = "groups/0000000000000001/00000000000000000004-1.snapshot"
    assert disk.told == [f"write {name}", f"sync {name}", "sync folder groups/0000000000000001"]


def test_a_cut_segment_is_cut_in_its_file_too() -> None:
    disk = TellingDisk()
    store = opened(disk)
    log = store.create(1)
    fill(log, 6)
    settle(store, disk, checkpoint=True)
    path = log.path(log.segments[0].file_name())
    before = disk.size(path)
    log.truncate_from(4)
    settle(store, disk, checkpoint=True)
    assert disk.size(path) == log.segments[0].length == before // 2
