"""Waiting for more of the logs that have a replica here.

```
 watch({group: offset, ...}) --> Watch: a promise of the partitions that have more --> set once, or cancelled
      ^-- machines apply entries, or a replica is closed (then: of none; the reader asks anew)
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.tasks import Promise

if TYPE_CHECKING:
    from flockmq.durable.logs.local import LocalLogs
    from flockmq.raft.entry import Entry

WATCHES_MAX: Final = 10_000
WATCHED_GROUPS_MAX: Final = 100_000
"""Partitions of all watches together."""


class Watch(Promise[list[int]]):
    """A reader at the end of some logs; the promise of those that have more."""

    __slots__ = ("_watching", "positions")

    def __init__(self, watching: Watching, positions: dict[int, int]) -> None:
        super().__init__()
        self._watching = watching
        self.positions = positions

    __hash__ = object.__hash__

    def cancel(self) -> None:
        """Stop waiting; the promise is never set then."""
        self._watching.forget(self)


class Watching:
    """All watches; a listener of ``Machines``."""

    def __init__(self, local: LocalLogs) -> None:
        self._local = local
        self._by_group: dict[int, dict[Watch, None]] = {}
        self._watches: set[Watch] = set()
        self._groups = 0

    def watch(self, positions: dict[int, int]) -> Watch | None:
        """Wait until the log of one of these partitions goes beyond its offset; None: too many wait already.

        The promise is set at once when a log is beyond its offset already.
        """
        if len(self._watches) >= WATCHES_MAX or self._groups + len(positions) > WATCHED_GROUPS_MAX:
            return None
        watch = Watch(self, positions)
        grown = [group for group, offset in positions.items() if self._local.end(group) > offset]
        if grown:
            watch.set(grown)
            return watch
        self._watches.add(watch)
        self._groups += len(positions)
        for group in positions:
            self._by_group.setdefault(group, {})[watch] = None
        return watch

    def forget(self, watch: Watch) -> None:
        """A watch is over."""
        if watch not in self._watches:
            return
        self._watches.discard(watch)
        self._groups -= len(watch.positions)
        for group in watch.positions:
            waiting = self._by_group[group]
            del waiting[watch]
            if not waiting:
                del self._by_group[group]

    def applied(self, group: int, entries: list[Entry]) -> None:  # noqa: ARG002
        """A log may have grown."""
        waiting = self._by_group.get(group)
        if waiting is not None:
            end = self._local.end(group)
            for watch in [one for one in waiting if end > one.positions[group]]:
                self.forget(watch)
                watch.set([group])

    def closed(self, group: int) -> None:
        """The replica here is no more."""
        for watch in list(self._by_group.get(group, ())):
            self.forget(watch)
            watch.set([])
