from __future__ import annotations

import errno
import random

import pytest

from flockmq.log.errors import DamageError
from flockmq.log.reading import CHUNK_BYTES
from flockmq.log.settings import StoreSettings
from flockmq.testing.simulation.disk import SimulatedDisk
from log_cases import append, batch_of, everything, new_disk, opened, settle

WIDE = StoreSettings(
    journal_bytes=1 << 22, commit_bytes=1 << 21, segment_bytes=1 << 20, cache_bytes=0, index_bytes=100_000
)


def test_batches_of_every_size_around_a_chunk() -> None:
    disk = new_disk()
    store = opened(disk, WIDE)
    log = store.create(1)
    sizes = [10, CHUNK_BYTES - 300, 10, CHUNK_BYTES, 3 * CHUNK_BYTES, 10, CHUNK_BYTES // 2, CHUNK_BYTES // 2, 5]
    stored = [append(log, batch_of(bytes([number]) * size))[0] for number, size in enumerate(sizes)]
    settle(store, disk, checkpoint=True)
    assert not log.recent
    assert everything(log) == stored
    for index in range(1, len(sizes) + 1):
        assert log.entries(index, index + 1, 1) == [stored[index - 1]]
    total = sum(len(batch) for batch in stored[:5])
    assert log.entries(1, 10, total) == stored[:5]
    assert log.entries(1, 10, total - 1) == stored[:4]


def test_what_can_be_read_before_damage_is_read() -> None:
    disk = new_disk()
    store = opened(disk, WIDE)
    log = store.create(1)
    stored = append(log, *[batch_of(b"x" * 500)] * 10)
    settle(store, disk, checkpoint=True)
    disk.write(log.path(log.segments[0].file_name()), 7 * len(stored[0]) + 200, b"y")
    assert log.entries(1, 11, 10**6) == stored[:7]
    assert log.damage is None
    with pytest.raises(DamageError) as damage:
        log.entries(8, 11, 10**6)
    assert damage.value.index == 8


class ShortOfFiles(SimulatedDisk):
    """Can't open anything just now."""

    error = errno.EMFILE

    def read(self, path: str, position: int, length: int) -> bytes:
        raise OSError(self.error, "it can't be read")


@pytest.mark.parametrize(("error", "is_damage"), [(errno.EMFILE, False), (errno.ENOMEM, False), (errno.EIO, True)])
def test_a_read_that_fails_for_other_reasons_is_no_damage(error: int, is_damage: bool) -> None:
    disk = new_disk()
    store = opened(disk, WIDE)
    log = store.create(1)
    append(log, batch_of(b"x"))
    settle(store, disk, checkpoint=True)
    failing = ShortOfFiles(random.Random(1))
    failing.error = error
    store.staging.disk = failing
    with pytest.raises(DamageError if is_damage else OSError, match="it can't be read"):
        log.entries(1, 2, 1)
    assert (log.damage is not None) == is_damage
