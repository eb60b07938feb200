"""The leaders of ``$sessions`` hold captured messages until all sessions that wait for them have read them.

```
 every 30 s: ends of all shards of $capture --> for each shard of $sessions that this node leads, confirmed by a quorum:
                 sessions that are away pass what they do not match (advancing.py)
                 the least position of its sessions, or the end where none waits --> cursor $sessions/SHARD in $capture
 retention_sweeper: segments before all these cursors may go; others only beyond what $capture keeps: a gap, reported
```
The leader asks for the ends before it reads the table: a session that subscribes meanwhile needs nothing before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.cluster.model import CAPTURE_TOPIC, DEFAULT_NAMESPACE
from flockmq.cluster.tables import key_of
from flockmq.durable.cursors.cursors import DONE
from flockmq.durable.state.layout import SESSION_HOLDS
from flockmq.log.starts import LATEST, Start
from flockmq.tasks import Promise, Sleep

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.cursors.cursors import Cursors
    from flockmq.durable.logs.locating import Located
    from flockmq.durable.logs.logs import Logs
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.sessions.advancing import Advancing
    from flockmq.durable.sessions.submitting import SessionLog
    from flockmq.durable.state.meta import Meta
    from flockmq.tasks import Task

HOLD_MS: Final = 30_000
RECORDS: Final = 500
"""Records that are looked at before other work has its turn."""


class CaptureHolds:
    """See the module."""

    def __init__(
        self,
        calls: PartitionCalls,
        meta: Meta,
        machines: Machines,
        log: SessionLog,
        logs: Logs,
        cursors: Cursors,
        advancing: Advancing,
    ) -> None:
        self._calls = calls
        self._meta = meta
        self._machines = machines
        self._log = log
        self._logs = logs
        self._cursors = cursors
        self._advancing = advancing
        self._told: dict[tuple[int, int], int] = {}
        """(shard of ``$sessions``, group of ``$capture``) -> where this node has put the cursor."""
        self._is_busy = False
        self._hold_at = 0

    def tick(self, now: int) -> None:
        """Move the cursors of the shards that this node leads."""
        if now < self._hold_at or self._is_busy:
            return
        self._hold_at = now + HOLD_MS
        shards = [(shard, group) for shard, group in enumerate(self._log.groups()) if self._leads(group)]
        capture = self._meta.state.topics.get(key_of(DEFAULT_NAMESPACE, CAPTURE_TOPIC))
        if shards and capture is not None:
            self._is_busy = True
            groups = [partition.group for partition in capture.partitions]
            self._calls.tasks.start("holds of captured messages", self._hold_all(shards, groups))

    def hurry(self) -> None:
        """Move the cursors with the next tick."""
        self._hold_at = 0

    def _leads(self, group: int) -> bool:
        engine = self._calls.engine
        return engine.is_leader(group) and engine.knows_all(group) and group in self._machines.by_group

    def _hold_all(self, shards: list[tuple[int, int]], groups: list[int]) -> Task[None]:
        try:
            ends = yield from self._logs.locate(groups, Start(LATEST))
            for shard, group in shards:
                yield from self._hold(shard, group, ends)
        finally:
            self._is_busy = False

    def _hold(self, shard: int, group: int, ends: dict[int, Located]) -> Task[None]:
        confirmed: Promise[bool] = Promise()
        self._calls.engine.read(group, confirmed.set, self._calls.now)
        machine = self._machines.by_group.get(group)
        if not (yield from confirmed) or machine is None:
            return
        yield from self._advancing.advance(group, machine, ends)
        least: dict[int, int] = {}
        for number, record in enumerate(list(machine.sessions.records.values())):
            if number % RECORDS == RECORDS - 1:
                yield Sleep(0)
            machine.sessions.lessen(least, record, list(ends))
        if self._machines.by_group.get(group) is not machine or not self._leads(group):
            return
        for captured, found in ends.items():
            offset = min(least.get(captured, found.end), found.end)
            if offset > self._told.get((shard, captured), 0):
                moved = yield from self._cursors.commit(captured, SESSION_HOLDS[shard], offset)
                if moved.code == DONE:
                    self._told[shard, captured] = offset
