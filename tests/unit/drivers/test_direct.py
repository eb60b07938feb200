"""Writes past the page cache leave the same bytes as writes through it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from flockmq.drivers.direct import BLOCK, BUFFER_BYTES, DirectFile, fill, open_direct

LENGTH = 4 * BUFFER_BYTES


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "journal"
    made.write_bytes(bytes(LENGTH))
    return made


def opened(path: Path) -> DirectFile:
    file = open_direct(path)
    if file is None:
        pytest.skip("this file system can't be written past the page cache")
    return file


@pytest.mark.parametrize("seed", range(5))
def test_records_one_after_the_other(path: Path, seed: int) -> None:
    rng = random.Random(seed)
    file = opened(path)
    wanted = bytearray(LENGTH)
    position = rng.choice((0, 100, BLOCK, BLOCK + 1))
    while True:
        record = rng.randbytes(rng.choice((1, 8, 500, BLOCK - 8, BLOCK, 3 * BLOCK, 100_000, BUFFER_BYTES + 5)))
        if position + len(record) > LENGTH:
            break
        file.write(position, record)
        wanted[position : position + len(record)] = record
        position += len(record)
    file.close()
    assert path.read_bytes() == wanted
    assert path.stat().st_size == LENGTH


def test_anywhere_in_a_file_that_has_something_already(path: Path) -> None:
    rng = random.Random(7)
    wanted = bytearray(rng.randbytes(LENGTH))
    path.write_bytes(wanted)
    for position, length in ((5, 10), (BLOCK - 1, 2), (3 * BLOCK, BLOCK), (LENGTH - 9, 9), (10 * BLOCK + 7, 5 * BLOCK)):
        file = opened(path)  # afresh: nothing is known of the block that it begins in
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
