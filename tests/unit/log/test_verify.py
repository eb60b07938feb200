from __future__ import annotations

import pytest

from flockmq.log.group import GroupLog
from flockmq.log.recovery import EVERYTHING, load_store
from flockmq.log.settings import StoreSettings
from flockmq.testing.simulation.disk import SimulatedDisk
from log_cases import everything, fill, new_disk, opened, settle

LARGE = StoreSettings(journal_bytes=1 << 22, commit_bytes=1 << 21, segment_bytes=1 << 21, index_bytes=4096)


class ReadCounter(SimulatedDisk):
    """Counts what is read of segments."""

    def __init__(self, other: SimulatedDisk) -> None:
        self.__dict__ = other.__dict__
        self.read_bytes = 0

    def read(self, path: str, position: int, length: int) -> bytes:
        data = super().read(path, position, length)
        if path.endswith(".log"):
            self.read_bytes += len(data)
        return data


def large_log() -> tuple[SimulatedDisk, GroupLog, list[bytes]]:
    disk = new_disk()
    store = opened(disk, LARGE)
    log = store.create(1)
    stored = fill(log, 400, size=4000)
    settle(store, disk, checkpoint=True)
    return disk, log, stored


def test_only_the_newest_part_is_read_at_start() -> None:
    disk, log, stored = large_log()
    counting = ReadCounter(disk)
    loaded = load_store(counting, LARGE, 1 << 20)
    assert loaded is not None
    assert counting.read_bytes < 1.2 * (1 << 20) < 0.8 * log.size()
    found = loaded.store.groups[1]
    assert found.segments[-1].rows == log.segments[-1].rows, "the index is as complete as if all had been read"
    assert everything(found) == stored
    fill(found, 10)
    assert found.read(2 * 405, 410, 1) == found.entries(406, 407, 1)


@pytest.mark.parametrize("spoil", ["remove", "damage"])
def test_without_an_index_all_of_the_newest_segment_is_read(spoil: str) -> None:
    disk, log, _ = large_log()
    path = log.path(log.segments[-1].index_name())
    if spoil == "remove":
        disk.remove(path)
    else:
        disk.write(path, 40, b"\xff\xff\xff")
    loaded = load_store(disk, LARGE, 1 << 20)
    assert loaded is not None
    assert loaded.store.groups[1].segments[-1].rows == log.segments[-1].rows
    assert loaded.store.notes == []


def test_damage_in_an_older_part_is_found_by_verifying_everything() -> None:
    disk, log, stored = large_log()
    disk.write(log.path(log.segments[0].file_name()), 10_000, b"\xff\xfe")
    quick = load_store(disk, LARGE, 1 << 20)
    assert quick is not None
    assert quick.store.groups[1].damage is None
    full = load_store(disk, LARGE, EVERYTHING)
    assert full is not None
    damage = full.store.groups[1].damage
    assert damage is not None
    assert damage.first == 1 + 10_000 // len(stored[0])
    assert "damaged" in full.store.notes[0]


def test_damage_that_was_noted_is_looked_for_and_cut_off() -> None:
    disk, log, _ = large_log()
    disk.write(log.path(log.segments[0].file_name()), 10_000, b"\xff\xfe")
    store = opened(disk, LARGE)
    store.groups[1].note_damage(3, "a read met it")
    settle(store, disk)
    found = opened(disk, LARGE).groups[1]
    assert found.last_index() == 2
    assert found.damage is not None
    assert (found.damage.first, found.damage.last) == (3, 400)


def test_damage_that_was_noted_and_is_readable_again_is_not_cut_off() -> None:
    disk, log, stored = large_log()
    store = opened(disk, LARGE)
    store.groups[1].note_damage(3, "the disk had a bad moment")
    settle(store, disk)
    found = opened(disk, LARGE).groups[1]
    assert everything(found) == stored
    assert found.damage is not None
    assert log.damage is None
