"""Batches that lie end to end, as nodes send them to each other."""

from __future__ import annotations

from flockmq.log.batch import BatchError, BatchView
from flockmq.log.header import HEADER_BYTES, size_of


def split_batches(data: bytes, position: int = 0) -> list[bytes]:
    """The batches from a position on, verified; BatchError when one is cut off or damaged."""
    batches: list[bytes] = []
    while position < len(data):
        if len(data) - position < HEADER_BYTES:
            raise BatchError("A batch is cut off.")
        size = size_of(data, position)
        if size < HEADER_BYTES or size > len(data) - position:
            raise BatchError("A batch is cut off.")
        batch = data[position : position + size]
        BatchView(batch).verify()
        batches.append(batch)
        position += size
    return batches
