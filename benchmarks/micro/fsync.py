"""What it costs to make bytes durable here, and hence how many groups should share a write.

    python benchmarks/micro/fsync.py [--folder DIR] [--rounds 200] [--groups 300] [--json]

``append, fdatasync``      the file grows: every sync writes the file system's own journal as well
``allocated, fdatasync``   the blocks are there, full of zeros: only the bytes are written
``allocated, O_DSYNC``     the same in one call
``reserved, O_DSYNC``      blocks reserved by fallocate and never written: each write changes metadata
``a file per group``       one round of a node where every group has its own file, synced by 16 threads
``one journal``            the same bytes of all groups as one write into an allocated file
``checkpoint, in turn``    100 KB into a file of each group, then synced one after the other
``checkpoint, 16 at once`` the same, synced by 16 threads

Times are wall clock, in milliseconds: best, median and 99th percentile of the rounds. On a busy machine the best tells
most: waiting for a processor is not what is measured here.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK = 4096
JOURNAL_BYTES = 8 << 20
CHECKPOINT_BYTES = 100_000
THREADS = 16


def timed(rounds: int, work: Callable[[int], object]) -> list[float]:
    """Milliseconds of each round, sorted."""
    found = []
    for number in range(rounds):
        start = time.perf_counter()
        work(number)
        found.append((time.perf_counter() - start) * 1000)
    return sorted(found)


def allocated(path: Path, *, zeros: bool = True) -> None:
    """A file of JOURNAL_BYTES, written once or only reserved."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    if zeros:
        os.pwrite(descriptor, bytes(JOURNAL_BYTES), 0)
    elif hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, JOURNAL_BYTES)
    os.fsync(descriptor)
    os.close(descriptor)


def appending(folder: Path, rounds: int) -> list[float]:
    """The file grows."""
    descriptor = os.open(folder / "append", os.O_RDWR | os.O_CREAT, 0o600)

    def work(number: int) -> None:
        os.pwrite(descriptor, b"x" * BLOCK, number * BLOCK)
        os.fdatasync(descriptor)

    return timed(rounds, work)


def writing(folder: Path, rounds: int, name: str, size: int, *, zeros: bool = True, dsync: bool = True) -> list[float]:
    """The file is there."""
    allocated(folder / name, zeros=zeros)
    descriptor = os.open(folder / name, os.O_RDWR | (os.O_DSYNC if dsync else 0))

    def work(number: int) -> None:
        os.pwrite(descriptor, b"x" * size, number * size % (JOURNAL_BYTES - size))
        if not dsync:
            os.fdatasync(descriptor)

    return timed(rounds, work)


def file_per_group(folder: Path, rounds: int, groups: int) -> list[float]:
    """Every group appends to its own file and syncs it."""
    files = [os.open(folder / f"group-{number}", os.O_RDWR | os.O_CREAT, 0o600) for number in range(groups)]
    with ThreadPoolExecutor(THREADS) as pool:

        def work(number: int) -> None:
            for descriptor in files:
                os.pwrite(descriptor, b"x" * 200, number * 200)
            list(pool.map(os.fdatasync, files))

        return timed(rounds, work)


def checkpoint(folder: Path, rounds: int, groups: int, threads: int) -> list[float]:
    """Every group's file grows by what a journal file held of it."""
    files = [os.open(folder / f"segment-{threads}-{number}", os.O_RDWR | os.O_CREAT, 0o600) for number in range(groups)]
    with ThreadPoolExecutor(threads) as pool:

        def work(number: int) -> None:
            for descriptor in files:
                os.pwrite(descriptor, b"x" * CHECKPOINT_BYTES, number * CHECKPOINT_BYTES)
            list(pool.map(os.fdatasync, files))

        return timed(rounds, work)


def measure(folder: Path, rounds: int, groups: int) -> dict[str, list[float]]:
    few = max(rounds // 10, 3)
    return {
        "append, fdatasync": appending(folder, rounds),
        "allocated, fdatasync": writing(folder, rounds, "data", BLOCK, dsync=False),
        "allocated, O_DSYNC": writing(folder, rounds, "dsync", BLOCK),
        "reserved, O_DSYNC": writing(folder, rounds, "reserved", BLOCK, zeros=False),
        f"a file per group ({groups})": file_per_group(folder, few, groups),
        f"one journal ({groups} groups)": writing(folder, rounds, "journal", 200 * groups),
        f"checkpoint, in turn ({groups})": checkpoint(folder, 3, groups, 1),
        f"checkpoint, {THREADS} at once ({groups})": checkpoint(folder, 3, groups, THREADS),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="on the disk that is meant; default: the temporary folder")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--groups", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="flockmq-fsync-", dir=options.folder))
    try:
        found = measure(folder, options.rounds, options.groups)
    finally:
        shutil.rmtree(folder)
    rows = {name: (times[0], times[len(times) // 2], times[len(times) * 99 // 100]) for name, times in found.items()}
    if options.json:
        print(json.dumps({"machine": platform.platform(), "ms": rows}, indent=2))
        return
    print(f"{platform.platform()}, {os.cpu_count()} processors")
    print(f"{'ms':<34}{'best':>10}{'median':>10}{'99 %':>10}")
    for name, (best, median, worst) in rows.items():
        print(f"{name:<34}{best:>10.2f}{median:>10.2f}{worst:>10.2f}")


if __name__ == "__main__":
    main()
