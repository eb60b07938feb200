"""Which stores a witness takes for the one it knows."""

from __future__ import annotations

import random

import pytest

from flockmq.log.recovery import open_store
from flockmq.log.settings import StoreSettings
from flockmq.log.store import Store
from flockmq.log.witness import (
    GONE,
    OLDER,
    OTHER,
    SAME,
    SLOT_BYTES,
    Witness,
    Witnessing,
    begin_life,
    judge,
    read_witness,
    whole_file,
)
from flockmq.testing.simulation.disk import SimulatedDisk

SMALL = StoreSettings(journal_bytes=131_072, commit_bytes=65_536, segment_bytes=32_768, index_bytes=2_048)


def opened(disk: SimulatedDisk) -> Store:
    return open_store(disk, SMALL, random.Random(1))


def used_disk() -> SimulatedDisk:
    """With a store that has one record."""
    disk = SimulatedDisk(random.Random(1))
    store = opened(disk)
    store.create(1)
    commit = store.take_commit()
    assert commit is not None
    commit.perform(disk)
    return disk


@pytest.mark.parametrize(
    ("store", "last", "is_new", "is_damaged", "verdict"),
    [
        (7, 100, False, False, SAME),
        (7, 101, False, False, SAME),
        (7, 99, False, False, OLDER),
        (7, 99, False, True, SAME),  # what it lost is marked in its logs
        (8, 0, True, False, GONE),
        (8, 500, False, False, OTHER),
    ],
)
def test_verdicts(store: int, last: int, is_new: bool, is_damaged: bool, verdict: int) -> None:
    assert judge(Witness(7, 100), store, last, is_new=is_new, is_damaged=is_damaged) == verdict


def test_without_a_witness_every_store_is_taken() -> None:
    assert judge(None, 8, 0, is_new=True, is_damaged=False) == SAME


def test_the_later_slot_counts_and_a_torn_one_does_not() -> None:
    file = bytearray(whole_file(7, 100))
    position, data = Witnessing(7).committed(101)
    file[position : position + SLOT_BYTES] = data
    found = read_witness(bytes(file))
    assert found is not None
    assert (found.store, found.sequence) == (7, 101)
    file[position + 9 : position + 30] = bytes(21)
    found = read_witness(bytes(file))
    assert found is not None
    assert found.sequence == 100


@pytest.mark.parametrize("data", [b"", b"\0" * 1024, b"no witness" * 200])
def test_garbage_says_nothing(data: bytes) -> None:
    assert read_witness(data) is None


def test_each_commit_is_witnessed_in_the_slot_that_is_older() -> None:
    file = bytearray(whole_file(7, 100))
    witnessing = Witnessing(7)
    for sequence in (101, 102, 103):
        position, data = witnessing.committed(sequence)
        kept = bytes(file)
        file[position : position + SLOT_BYTES] = bytes(SLOT_BYTES)
        torn = read_witness(bytes(file))
        assert torn is not None
        assert torn.sequence == sequence - 1, "a write that is torn leaves what was said before"
        file[:] = kept
        file[position : position + SLOT_BYTES] = data
        found = read_witness(bytes(file))
        assert found is not None
        assert found.sequence == sequence


def test_each_start_is_later_than_all_copies_from_before_it() -> None:
    disk = used_disk()
    copy = disk.copy()
    witness = read_witness(begin_life(opened(disk), disk))
    disk.put_back(copy)
    store = opened(disk)
    assert judge(witness, store.identity, store.sequence - 1, is_new=False, is_damaged=False) == OLDER


def test_a_start_that_ends_between_record_and_witness_keeps_its_store() -> None:
    disk = used_disk()
    witness = read_witness(begin_life(opened(disk), disk))
    begin_life(opened(disk), disk)  # its witness is not written
    store = opened(disk)
    assert judge(witness, store.identity, store.sequence - 1, is_new=False, is_damaged=False) == SAME


def test_starts_go_on_where_a_journal_file_is_full() -> None:
    disk = used_disk()
    sequence = opened(disk).sequence
    for _ in range(SMALL.journal_bytes // 128 + 2):
        store = opened(disk)
        assert not store.notes
        begin_life(store, disk)
        sequence += 1
        assert store.sequence == sequence
        while (chore := store.take_chore()) is not None:
            chore.perform(disk)
            store.done(chore)
    assert store.journal > 1


def test_a_store_that_nothing_was_written_to_stays_so() -> None:
    disk = SimulatedDisk(random.Random(1))
    for _ in range(2):
        store = opened(disk)
        witness = read_witness(begin_life(store, disk))
        assert witness is not None
        assert (witness.store, witness.sequence) == (store.identity, 0)
        assert store.sequence == 1
