"""Does to a dead node's files what power cuts and bad disks do."""

from __future__ import annotations

import random
from pathlib import Path

from flockmq.drivers.disk import FileDisk
from flockmq.log.errors import DamageError
from flockmq.log.recovery import load_store
from flockmq.log.work import Commit
from flockmq.testing.processes.server import SMALL_STORE

SECTOR = 512
ENTRIES_BYTES = 4_000
"""Of each group in a write that is torn."""


def tear(folder: Path, other: Path, rng: random.Random) -> bool:
    """A write that was under way when the power went: some of its sectors are there. False: nothing to write was found.

    What would have been written comes from another node's log, because a record may turn out to be readable although
    some of it is missing, and then it counts.
    """
    disk = FileDisk(folder)
    source = FileDisk(other)
    try:
        commit = _next_commit(disk, source)
    except (OSError, DamageError):
        return False  # the other one is alive, its files changed while they were read
    finally:
        disk.close()
        source.close()
    if commit is None:
        return False
    path = folder / commit.path
    before = path.read_bytes()
    after = bytearray(before)
    after[commit.position : commit.position + len(commit.record)] = commit.record
    first, last = commit.position // SECTOR, (commit.position + len(commit.record) - 1) // SECTOR
    missing = rng.sample(range(first, last + 1), rng.randint(1, last - first + 1))
    for sector in missing:
        after[sector * SECTOR : (sector + 1) * SECTOR] = before[sector * SECTOR : (sector + 1) * SECTOR]
    path.write_bytes(after)
    return True


def _next_commit(disk: FileDisk, source: FileDisk) -> Commit | None:
    here, there = load_store(disk, SMALL_STORE, 0), load_store(source, SMALL_STORE, 0)
    assert here is not None
    assert there is not None
    for group, log in here.store.groups.items():
        known = there.store.groups[group]
        last = log.last_index()
        if known.term_at(last) == log.term_at(last):
            log.append(known.entries(last + 1, known.last_index() + 1, ENTRIES_BYTES))
    return here.store.take_commit()


def flip(folder: Path, rng: random.Random) -> str:
    """One bit of one file, among those that hold something; what was flipped."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.read_bytes().strip(b"\0")]
    path = rng.choice(files)
    data = bytearray(path.read_bytes())
    used = len(bytes(data).rstrip(b"\0"))
    place = rng.randrange(used)
    data[place] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return f"{path.relative_to(folder)} at {place} of {used}"
