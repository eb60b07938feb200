"""Listings in pages at a bounded cost per request, over structures that change between two requests.

```
 first page   generator starts: copies the keys (one flat copy, nothing sorted), then looks entries up one by one
                 |-- all done in this page ------------------------------> next = null, nothing is kept
                 `-- limit or scan bound reached: the walk is kept ------> next = "<walk>.<page>"
 next page    the walk goes on where it stopped
```
What a caller can rely on:

- An entry that exists from the first page to the last is listed exactly once. One that goes away in between may be
  missing, one that comes in between is not listed. Entries come in the order in which the broker got to know them.
- A page examines at most ``scan_max`` entries, however few of them the filters let through, so a page may be short or
  empty while ``next`` is not null. Only ``next = null`` is the end.
- The first page of a listing copies references to all keys: 10 to 50 ms for a million sessions, and 8 bytes each until
  the walk ends. No page sorts, and no page starts over to find its place.
- The last page given can be asked for again (a lost answer); anything older is ``cursor_expired``, as is a walk that
  no client continued for ``idle_ms_max`` or that made way for newer ones: at most ``walks_max`` are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final, TypeVar

import msgspec

from flockmq.admin.model import Page
from flockmq.errors import CURSOR_EXPIRED, INVALID_PARAMETER, ApiError

WALKS_MAX: Final = 16
IDLE_MS_MAX: Final = 60_000
SCAN_MAX: Final = 10_000

T = TypeVar("T")
Entries = Iterator[T | None]
"""A walk over a listing: an entry, or None for one that was examined and filtered out. None may not be skipped
silently: it is what the scan bound counts."""


class _Walk:
    """A listing that has more pages."""

    def __init__(self, listing: Hashable, entries: Iterator[Any]) -> None:
        self.listing = listing
        self.entries = entries
        self.pages = 0
        self.last: Page[Any] | None = None
        self.used_at_ms = 0


class Pager:
    """Keeps the walks that are under way."""

    def __init__(
        self,
        new_id: Callable[[], str],
        *,
        walks_max: int = WALKS_MAX,
        idle_ms_max: int = IDLE_MS_MAX,
        scan_max: int = SCAN_MAX,
    ) -> None:
        self._new_id = new_id
        self._walks_max = walks_max
        self._idle_ms_max = idle_ms_max
        self._scan_max = scan_max
        self._walks: OrderedDict[str, _Walk] = OrderedDict()

    def __len__(self) -> int:
        return len(self._walks)

    def page(
        self,
        listing: Hashable,
        start: Callable[[], Entries[T]],
        after: str | None,
        limit: int,
        now_ms: int,
        bytes_max: int = 0,
    ) -> Page[T]:
        """One page of ``listing`` (its path and filters); ``start`` begins the walk when ``after`` is None. With
        ``bytes_max`` the page ends with the entry that makes it longer than that as JSON."""
        self._expire(now_ms)
        if after is None:
            walk = _Walk(listing, start())
            identity = self._new_id()
        else:
            identity, walk, repeated = self._find(listing, after)
            walk.used_at_ms = now_ms
            self._walks.move_to_end(identity)
            if repeated is not None:
                return repeated
        items, exhausted = self._collect(walk.entries, limit, bytes_max)
        walk.pages += 1
        walk.used_at_ms = now_ms
        if exhausted:
            self._walks.pop(identity, None)
            return Page(items=items, next=None)
        page = Page(items=items, next=f"{identity}.{walk.pages}")
        walk.last = page
        self._walks[identity] = walk
        if len(self._walks) > self._walks_max:
            self._walks.popitem(last=False)
        return page

    def _collect(self, entries: Entries[T], limit: int, bytes_max: int) -> tuple[list[T], bool]:
        items: list[T] = []
        size = 0
        for _ in range(self._scan_max):
            try:
                entry = next(entries)
            except StopIteration:
                return items, True
            if entry is not None:
                items.append(entry)
                size += len(msgspec.json.encode(entry)) if bytes_max else 0
                if len(items) == limit or (bytes_max and size >= bytes_max):
                    break
        return items, False

    def _find(self, listing: Hashable, after: str) -> tuple[str, _Walk, Page[Any] | None]:
        identity, dot, number = after.rpartition(".")
        if not dot or not number.isascii() or not number.isdigit() or len(number) > 18:
            raise ApiError(INVALID_PARAMETER, "`after` is not a cursor; give the `next` of the page before, unchanged")
        walk = self._walks.get(identity)
        if walk is not None and walk.listing != listing:
            raise ApiError(
                INVALID_PARAMETER,
                "`after` belongs to a listing with other filters; repeat the filters of the first page",
            )
        if walk is not None and int(number) == walk.pages:
            return identity, walk, None
        if walk is not None and int(number) == walk.pages - 1 and walk.last is not None and int(number) > 0:
            return identity, walk, walk.last
        raise ApiError(
            CURSOR_EXPIRED,
            f"This listing is no longer kept (it rested over {self._idle_ms_max // 1000} s, gave way to newer ones, or "
            "was read further already); start again without `after`",
        )

    def _expire(self, now_ms: int) -> None:
        while self._walks:
            identity, walk = next(iter(self._walks.items()))
            if now_ms - walk.used_at_ms <= self._idle_ms_max:
                return
            del self._walks[identity]
