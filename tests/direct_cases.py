"""Files that are written past the page cache, for the tests of whoever writes them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from flockmq.drivers.direct import BLOCK, BUFFER_BYTES, DirectFile, open_direct

LENGTH: Final = 4 * BUFFER_BYTES


def file_of_zeros(folder: Path) -> Path:
    made = folder / "journal"
    made.write_bytes(bytes(LENGTH))
    return made


def opened_direct(path: Path) -> DirectFile:
    file = open_direct(path)
    if file is None:
        pytest.skip("this file system can't be written past the page cache")
    return file


def records(rng: random.Random) -> Iterator[tuple[int, bytes]]:
    """Positions and records of all sizes, one behind the other, as many as a file has room for."""
    position = rng.choice((0, 100, BLOCK, BLOCK + 1))
    while True:
        record = rng.randbytes(rng.choice((1, 8, 500, BLOCK - 8, BLOCK, 3 * BLOCK, 100_000, BUFFER_BYTES + 5)))
        if position + len(record) > LENGTH:
            return
        yield position, record
        position += len(record)
