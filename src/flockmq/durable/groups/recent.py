"""Batches that members of this node read last: several grants lie in one batch, and several groups read the same."""

from __future__ import annotations

from typing import Final

from flockmq.durable.deliver.decoding import BatchDecoder
from flockmq.log.batch import BatchView

BYTES_MAX: Final = 16 * 1_048_576
BATCHES_MAX: Final = 256


class RecentBatch:
    """A batch of a partition."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.view = BatchView(data)
        self.base = self.view.base_offset
        self.end = self.view.next_offset
        self._decoder: BatchDecoder | None = None

    def decoder(self) -> BatchDecoder:
        """For runs."""
        if self._decoder is None:
            self._decoder = BatchDecoder(self.data)
        return self._decoder


class RecentBatches:
    """Of all partitions; the batch that was used last goes last."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], RecentBatch] = {}
        self._bases: dict[int, list[int]] = {}
        self._bytes = 0

    def find(self, partition: int, low: int, high: int) -> list[RecentBatch]:
        """Batches that have the whole range; empty unless all of it is there."""
        found: list[RecentBatch] = []
        for base in self._bases.get(partition, ()):
            batch = self._kept[partition, base]
            if batch.base <= low < batch.end:
                found.append(batch)
                low = batch.end
                if low >= high:
                    return found
        return []

    def put(self, partition: int, data: bytes) -> RecentBatch:
        """Keep a batch."""
        batch = RecentBatch(data)
        key = (partition, batch.base)
        before = self._kept.pop(key, None)
        if before is not None:
            self._bytes -= len(before.data)
        elif batch.view.count:
            bases = self._bases.setdefault(partition, [])
            bases.append(batch.base)
            if len(bases) > 1 and bases[-2] > batch.base:
                bases.sort()
        if batch.view.count:
            self._kept[key] = batch
            self._bytes += len(data)
        while self._bytes > BYTES_MAX or len(self._kept) > BATCHES_MAX:
            oldest = next(iter(self._kept))
            self._bytes -= len(self._kept.pop(oldest).data)
            bases = self._bases[oldest[0]]
            bases.remove(oldest[1])
            if not bases:
                del self._bases[oldest[0]]
        return batch
