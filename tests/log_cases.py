"""Batches, small stores and their disks, for the tests of the log."""

from __future__ import annotations

import random
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from flockmq.log.batch import BatchBuilder, BatchView, stamp
from flockmq.log.recovery import open_store
from flockmq.log.settings import StoreSettings
from flockmq.testing.simulation.disk import SimulatedDisk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flockmq.log.disk import Disk
    from flockmq.log.group import GroupLog
    from flockmq.log.store import Store
    from flockmq.log.work import Commit

SMALL: Final = StoreSettings(
    journal_bytes=32 * 1024,
    commit_bytes=8 * 1024,
    segment_bytes=2 * 1024,
    index_bytes=512,
    cache_bytes=0,
    loaded_indexes=2,
)


@contextmanager
def files_up_to(length: int) -> Iterator[None]:
    """What this process writes behind that many bytes of a file fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def new_disk() -> SimulatedDisk:
    return SimulatedDisk(random.Random(1))


def opened(disk: SimulatedDisk, settings: StoreSettings = SMALL) -> Store:
    return open_store(disk, settings, random.Random(2))


def batch_of(*payloads: bytes, timestamp_ms: int = 1000, topic: bytes = b"t") -> bytes:
    builder = BatchBuilder()
    for payload in payloads:
        builder.add(topic, b"c", timestamp_ms, 1, payload)
    return builder.build()


def append(log: GroupLog, *batches: bytes, term: int = 1) -> list[bytes]:
    """Stamp batches so that they follow on, and append them."""
    stamped = []
    for batch in batches:
        stamped.append(stamp(batch, term, log.last_index() + 1, log.next_offset()))
        log.append([stamped[-1]])
    return stamped


def fill(log: GroupLog, count: int, start_ms: int = 1000, size: int = 100) -> list[bytes]:
    """Append batches of two records each, a second apart."""
    first = log.last_index() + 1
    found = []
    for number in range(first, first + count):
        payloads = (b"%d" % number, bytes([number % 251]) * size)
        found += append(log, batch_of(*payloads, timestamp_ms=start_ms + 1000 * number))
    return found


def commit(store: Store, disk: Disk) -> Commit:
    taken = store.take_commit()
    assert taken is not None
    taken.perform(disk)
    store.committed(taken)
    return taken


def settle(store: Store, disk: Disk, *, checkpoint: bool = False) -> None:
    """Do all that there is to do."""
    if checkpoint:
        store.request_checkpoint()
    while True:
        taken = store.take_commit()
        if taken is not None:
            taken.perform(disk)
            store.committed(taken)
        chore = store.take_chore()
        if chore is not None:
            chore.perform(disk)
            store.done(chore)
        if taken is None and chore is None:
            return


def payloads(batches: list[bytes]) -> list[bytes]:
    return [record.payload for batch in batches for record in BatchView(batch).records()]


def everything(log: GroupLog) -> list[bytes]:
    return log.entries(log.first_index(), log.last_index() + 1, 1 << 30)
