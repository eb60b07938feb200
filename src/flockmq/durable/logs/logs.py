"""The logs of all partitions, asked in one way wherever their replicas are.

```
 locate(groups, start)   where a start is, and where the logs begin and end         LOCATE  leaders, quorum or replicas
 fetch(group, offset)    committed batches from an offset on, now or in a moment    FETCH   the replica here, or another
 seek(questions)         where the next record may be that filters match            SEEK    the replica here, or another
 watch(positions)        when a log with a replica here goes beyond an offset
 history.read            the same batches for MQTT sessions, a piece at a time
 feeds                   new batches of logs without a replica here, pushed as they are committed
```
MQTT replay, cursors, the HTTP API and with it Spark ask here. Answers are promises, for tasks and for callers outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flockmq.durable.logs.feeds import Feeds
from flockmq.durable.logs.fetching import Fetching
from flockmq.durable.logs.history import History
from flockmq.durable.logs.locating import LEADERS, TIMEOUT_MS, Locating
from flockmq.durable.logs.replica_peers import ReplicaPeers
from flockmq.durable.logs.seeking import Seeking
from flockmq.durable.logs.watching import Watching

if TYPE_CHECKING:
    from flockmq.durable.logs.fetching import Fetched
    from flockmq.durable.logs.local import LocalLogs, Placement
    from flockmq.durable.logs.locating import Located
    from flockmq.durable.logs.seeking import Seek, Sought
    from flockmq.durable.logs.watching import Watch
    from flockmq.log.starts import Start
    from flockmq.peering.calls import Calls
    from flockmq.peering.ports import Outbox
    from flockmq.raft.entry import Entry
    from flockmq.tasks import Running


class Logs:
    """See the module; a listener of ``Machines``. ``wake`` asks for another turn."""

    def __init__(
        self,
        node_id: int,
        local: LocalLogs,
        placement: Placement,
        calls: Calls,
        outbox: Outbox,
        wake: Callable[[], None],
    ) -> None:
        peers = ReplicaPeers(node_id, local, placement)
        self.local = local
        self.tasks = calls.tasks
        self._watching = Watching(local)
        self._locating = Locating(local, peers, calls)
        self._fetching = Fetching(local, peers, self._watching, calls)
        self._seeking = Seeking(local, peers, calls)
        self.history = History(local, self._locating, self._fetching, self._seeking, calls, wake)
        self.feeds = Feeds(local, peers, self._locating, calls, outbox, wake)
        self.caught_up = self._locating.caught_up
        """Partitions whose replica here has all that was committed before this node started."""
        self.wake = wake

    def locate(
        self, groups: list[int], start: Start, sure: int = LEADERS, timeout_ms: int = TIMEOUT_MS
    ) -> Running[dict[int, Located]]:
        """Find a start in the logs of some partitions; those that no node could answer for are missing."""
        return self._locating.locate(groups, start, sure, timeout_ms)

    def located_here(self, group: int, start: Start, sure: int = LEADERS) -> Located | None:
        """The answer of the replica here, if its word is enough."""
        return self._locating.here(group, start, sure)

    def fetch(self, group: int, offset: int, bytes_max: int, wait_ms: int = 0, until: int = 0) -> Running[Fetched]:
        """Batches from ``offset`` on, from a replica that reaches to ``until``; see ``Fetching.fetch``."""
        return self._fetching.fetch(group, offset, bytes_max, wait_ms, until)

    def seek(self, questions: list[Seek]) -> Running[list[Sought | None]]:
        """Where the next records may be that filters match; see ``Seeking``."""
        return self._seeking.seek(questions)

    def watch(self, positions: dict[int, int]) -> Watch | None:
        """Wait until the log of one of these partitions goes beyond its offset; None: too many wait already."""
        return self._watching.watch(positions)

    def applied(self, group: int, entries: list[Entry]) -> None:
        """A replica here has applied more."""
        self._watching.applied(group, entries)
        self.feeds.server.applied(group)

    def closed(self, group: int) -> None:
        """The replica of a partition here is no more."""
        self._watching.closed(group)
        self.feeds.server.closed(group)
