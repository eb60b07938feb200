"""Sessions in the log whose user or namespace is no more: the leaders of their shards end them.

```
 a user, a namespace is removed: every node remembers that for a while --> the node that leads a shard --> END
```
Namespaces that listeners name need not be in the cluster state: only one that was there, and is gone, ends sessions.
Nodes end sessions that they have (``node/reviewing.py``). These here are away: no node has anything but their record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.cluster.model import DEFAULT_NAMESPACE
from flockmq.cluster.tables import key_of
from flockmq.durable.machine.session_bodies import EndStatement, SessionStatement
from flockmq.durable.machine.session_counts import namespace_of
from flockmq.tasks import Sleep

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.machine.session_record import SessionRecord
    from flockmq.durable.machine.session_table import SessionTable
    from flockmq.durable.sessions.serving import SessionShards
    from flockmq.durable.sessions.submitting import SessionLog
    from flockmq.durable.state.meta import Meta
    from flockmq.tasks import Task

LOOK_MS: Final = 1_000
KEPT_MS: Final = 120_000
"""How long a node remembers that a user was removed: shards find other leaders, and dead owners are found, by then."""
REMOVED_MAX: Final = 10_000
CONFIRM_MS: Final = 1_000
RECORDS: Final = 500
"""Records that are looked at before other work has its turn, and sessions that one entry ends at most."""


class Pruning:
    """See the module."""

    def __init__(
        self, calls: PartitionCalls, meta: Meta, machines: Machines, log: SessionLog, shards: SessionShards
    ) -> None:
        self._calls = calls
        self._engine = calls.engine
        self._meta = meta
        self._machines = machines
        self._log = log
        self._shards = shards
        self._removed: dict[bytes, int] = {}
        """Users that were removed, and until when that is remembered; the oldest first."""
        self._namespaces: frozenset[str] = frozenset()
        """Namespaces of the cluster state at the last look."""
        self._closed: dict[bytes, int] = {}
        """Namespaces that were removed from it since, and until when that is remembered."""
        self._busy: set[int] = set()
        self._look_at = 0

    def removed(self, users: frozenset[str]) -> None:
        """These users are no more, by their names with namespaces."""
        for user in users:
            name = user.encode()
            self._removed.pop(name, None)
            self._removed[name] = self._calls.now + KEPT_MS
        while len(self._removed) > REMOVED_MAX:
            del self._removed[next(iter(self._removed))]

    def tick(self, now: int) -> None:
        """Look whether a shard that this node leads has such sessions."""
        if now < self._look_at:
            return
        self._look_at = now + LOOK_MS
        while self._removed and next(iter(self._removed.values())) <= now:
            del self._removed[next(iter(self._removed))]
        self._follow_namespaces(now)
        for group in self._log.groups():
            if group not in self._busy and self._leads(group):
                table = self._machines.by_group[group].sessions
                if self._gone_from(table) or self._users(table):
                    self._busy.add(group)
                    self._calls.tasks.start("sessions without user or namespace", self._prune(group))

    def _leads(self, group: int) -> bool:
        return self._engine.is_leader(group) and self._engine.knows_all(group) and group in self._machines.by_group

    def _follow_namespaces(self, now: int) -> None:
        known = frozenset(self._meta.state.namespaces)
        for name in self._namespaces - known:
            self._closed[name.encode()] = now + KEPT_MS
        self._namespaces = known
        for one in [one for one, until in self._closed.items() if until <= now or one.decode() in known]:
            del self._closed[one]

    def _gone_from(self, table: SessionTable) -> set[bytes]:
        """Namespaces of sessions that were removed, and are not there again."""
        return {one for one in self._closed if one in table.counts.by_namespace}

    def _users(self, table: SessionTable) -> set[bytes]:
        """Users of sessions that were removed, and are not there again."""
        return {user for user in self._removed if user in table.counts.by_user and not self._is_there(user)}

    def _is_there(self, user: bytes) -> bool:
        name = user.decode("utf-8", "replace")
        return (name if "/" in name else key_of(DEFAULT_NAMESPACE, name)) in self._meta.state.clients

    def _prune(self, group: int) -> Task[None]:
        try:
            found = list(self._machines.by_group[group].sessions.records.values())
            index = yield from self._meta.committed(CONFIRM_MS)
            if not 0 <= index <= self._meta.state.index:
                return  # a namespace may be new, and not known here yet
            for first in range(0, len(found), RECORDS):
                if not self._leads(group):
                    return
                statements = self._ends(self._machines.by_group[group].sessions, found[first : first + RECORDS])
                if statements and not (yield from self._shards.put(group, statements)):
                    return
                yield Sleep(0)
        finally:
            self._busy.discard(group)

    def _ends(self, table: SessionTable, records: list[SessionRecord]) -> list[SessionStatement]:
        namespaces = self._gone_from(table)
        users = self._users(table)
        statements: list[SessionStatement] = []
        for record in records:
            if record.is_connected or table.records.get(record.client) is not record:
                continue
            if namespace_of(record.client) in namespaces:
                statements.append(EndStatement(record.client, record.epoch, True))
            elif record.user in users:
                statements.append(EndStatement(record.client, record.epoch))
        return statements
