"""Which stores a witness takes for the one it knows."""

from __future__ import annotations

import pytest

from flockmq.log.witness import (
    GAP_MS,
    GONE,
    OLDER,
    OTHER,
    SAME,
    SLOT_BYTES,
    Witness,
    Witnessing,
    judge,
    read_witness,
    whole_file,
)


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
    witnessing = Witnessing(7, 100)
    witnessing.committed(101)
    position, data = witnessing.last(0)
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


def test_the_first_commit_after_a_while_is_written_at_once_others_wait() -> None:
    witnessing = Witnessing(7, 100)
    assert witnessing.due(0) is not None
    witnessing.committed(101)
    assert witnessing.due(GAP_MS - 1) is None
    assert witnessing.due(GAP_MS) is not None
    assert witnessing.due(10 * GAP_MS) is None
    witnessing.committed(102)
    assert witnessing.due(10 * GAP_MS) is not None
