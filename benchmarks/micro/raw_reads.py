"""What a raw read of a log costs on both sides: processor time per batch and bytes per second of it.

    python benchmarks/micro/raw_reads.py [--rounds 5] [--json]

``memory``       a node takes batches that are still in memory
``file``         the same out of a segment file, every batch verified
``file, filter`` and none of the names of any batch is wanted: all are looked at, none is served
``client``       whoever reads finds the batches in the answer and verifies each

Batches of 5, 30 and 2,500 records of 100 bytes, about 10 MB together. Processor time, best of the rounds: on a busy
machine wall clock would tell how busy it is.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from flockmq.client.log_client import Batches
from flockmq.cluster.wanted_names import WantedNames
from flockmq.drivers.disk import FileDisk
from flockmq.log.batch import BatchBuilder, stamp
from flockmq.log.extents import Extents, FilePart
from flockmq.log.extents_reading import scan_extents
from flockmq.log.settings import StoreSettings
from flockmq.log.staging import Staging

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPES = ((12_000, 5), (2_500, 30), (32, 2_500))
READ_BYTES = 64 << 20
FILE = "segment"


def batches(count: int, records: int) -> list[bytes]:
    """Stamped batches of a log."""
    made = []
    for number in range(count):
        builder = BatchBuilder()
        for each in range(records):
            builder.add(b"plant/%d" % ((7 * number + each) % 1_000), b"client", 1_000, 1, bytes(100))
        made.append(stamp(builder.build(), 1, number + 1, number * records))
    return made


def best(rounds: int, work: Callable[[], object]) -> float:
    """Processor seconds of the best round."""
    found = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def verify(data: bytes) -> None:
    """What ``LogClient.read`` does with an answer."""
    for view in Batches(data, 0, 0, 0, ""):
        view.verify()


def measure(folder: Path, count: int, records: int, rounds: int) -> list[dict[str, object]]:
    """All cases for batches of one size."""
    made = batches(count, records)
    data = b"".join(made)
    disk = FileDisk(folder)
    disk.write(FILE, 0, data)
    staging = Staging(disk, StoreSettings())
    memory = Extents(1, 0, count, READ_BYTES, READ_BYTES)
    memory.parts = list(made)
    file = Extents(1, 0, count, READ_BYTES, READ_BYTES)
    file.parts = [FilePart(FILE, 0, len(data), 1)]
    cases: dict[str, Callable[[], object]] = {
        "memory": lambda: scan_extents(staging, memory).data(),
        "file": lambda: scan_extents(staging, file).data(),
        "file, filter": lambda: scan_extents(staging, file, WantedNames([b"else/#", b"none/+/x"]).wants_any).data(),
        "client": lambda: verify(data),
    }
    rows: list[dict[str, object]] = []
    for name, work in cases.items():
        seconds = best(rounds, work)
        rows.append(
            {
                "records per batch": records,
                "case": name,
                "us per batch": round(seconds / count * 1e6, 2),
                "MB per s": round(len(data) / seconds / 1e6),
            }
        )
    return rows


def main() -> None:
    """Print a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    for count, records in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            rows += measure(Path(folder), count, records, options.rounds)
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print("  ".join(f"{name}: {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
