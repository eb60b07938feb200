"""What ``LogClient.read`` gives back, and whom it asks first.

```
 bytes of an answer --> Batches --> BatchView, BatchView, ...     next_offset: where to read on
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

from flockmq.admin import durable_model as model
from flockmq.errors import FlockError
from flockmq.log.batch import BatchView

FILTER_BYTES_MAX: Final = 4_096
"""Filters that are sent with a read, as a URL has room for."""

ReadFrom = Literal["any", "leader", "follower"]


class OffsetGoneError(FlockError):
    """The records at an offset were removed by retention; ``first_offset`` is the oldest that is there."""

    def __init__(self, message: str, first_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset


class OffsetBeyondEndError(FlockError):
    """The log does not reach to an offset, which its leader is sure of; ``end_offset`` is where it ends."""

    def __init__(self, message: str, end_offset: int) -> None:
        super().__init__(message)
        self.end_offset = end_offset


class Batches:
    """Part of a partition's log: whole batches end to end. The first may begin before the offset that was asked for."""

    def __init__(
        self, data: bytes, offset: int, first_offset: int, end_offset: int, server_url: str, next_offset: int = 0
    ) -> None:
        self.data = data
        self.offset = offset
        """What was asked for."""
        self.first_offset = first_offset
        """The oldest record of the partition."""
        self.end_offset = end_offset
        """End of what was committed when it was read."""
        self.server_url = server_url
        """Who served it."""
        self.views = list(_views(data))
        self.next_offset = max(next_offset, self.views[-1].next_offset if self.views else offset)
        """Where to read on; further than the last batch when others were left out behind it."""

    def __iter__(self) -> Iterator[BatchView]:
        return iter(self.views)

    def __len__(self) -> int:
        return len(self.views)


def _is_late(replica: model.Replica) -> bool:
    return replica.lag is None or replica.lag > 0


def what_fits(filters: Sequence[str]) -> Sequence[str]:
    """All filters, or none where they are too many for a request: then all batches come."""
    size = sum(3 * len(one.encode()) + 8 for one in filters)
    return filters if len(filters) <= model.FILTERS_PER_READ_MAX and size <= FILTER_BYTES_MAX else ()


def _views(data: bytes) -> Iterator[BatchView]:
    position = 0
    while position < len(data):
        view = BatchView(data, position)
        yield view
        position = view.end


ORDERS: Final[dict[ReadFrom, Callable[[model.Replica], tuple[bool, bool]]]] = {
    "any": lambda one: (_is_late(one), False),
    "leader": lambda one: (one.role != "leader", _is_late(one)),
    "follower": lambda one: (one.role == "leader", _is_late(one)),
}
"""Which replicas come first: by what the caller prefers, and whether they are behind."""
