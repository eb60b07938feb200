"""Writes past the page cache leave the same bytes as writes through it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from direct_cases import LENGTH, file_of_zeros, opened_direct, records
from flockmq.drivers.direct import BLOCK, BUFFER_BYTES, fill, open_direct


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return file_of_zeros(tmp_path)


@pytest.mark.parametrize("seed", range(5))
def test_records_one_after_the_other(path: Path, seed: int) -> None:
    file = opened_direct(path)
    wanted = bytearray(LENGTH)
    for position, record in records(random.Random(seed)):
        file.write(position, record)
        wanted[position : position + len(record)] = record
    file.close()
    assert path.read_bytes() == wanted
    assert path.stat().st_size == LENGTH


def test_anywhere_in_a_file_that_has_something_already(path: Path) -> None:
    rng = random.Random(7)
    wanted = bytearray(rng.randbytes(LENGTH))
    path.write_bytes(wanted)
    for position, length in ((5, 10), (BLOCK - 1, 2), (3 * BLOCK, BLOCK), (LENGTH - 9, 9), (10 * BLOCK + 7, 5 * BLOCK)):
        file = opened_direct(path)  # afresh: nothing is known of the block that it begins in
        record = rng.randbytes(length)
        file.write(position, record)
        wanted[position : position + length] = record
        file.close()
    assert path.read_bytes() == wanted


def test_a_file_that_is_not_made_of_blocks_is_left_to_others(path: Path) -> None:
    os.truncate(path, BLOCK + 1)
    assert open_direct(path) is None


def test_no_file(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_direct(path.with_name("other"))


def test_a_file_of_zeros(path: Path) -> None:
    path.write_bytes(b"x" * 10)
    if not fill(path, 3 * BLOCK + BUFFER_BYTES):
        pytest.skip("this file system can't be written past the page cache")
    assert path.read_bytes() == bytes(3 * BLOCK + BUFFER_BYTES)
    assert path.stat().st_blocks * 512 >= 3 * BLOCK + BUFFER_BYTES
    assert not fill(path, BLOCK + 1)
