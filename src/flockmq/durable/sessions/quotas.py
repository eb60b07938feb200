"""How many persistent sessions claims may add: the leader of a shard asks the other shards, where there is a limit.

```
 claims of new sessions --> namespaces with limits? --COUNTS to all other shards--> sessions elsewhere
                                    |                                                   |
                                    `--no: nothing is asked            Room of each claim = limit - elsewhere
```
A shard that does not answer within a second counts as empty, so that no client within a limit is refused. So sessions
can exceed a limit when clients connect in several shards at the same moment, and while a shard has no leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.machine.session_bodies import ClaimStatement
from flockmq.durable.machine.session_counts import NO_LIMIT, Room, namespace_of
from flockmq.errors import RemoteProtocolError
from flockmq.peering.fields import U32, Reader, sized
from flockmq.peering.kinds import COUNTS_CALL

if TYPE_CHECKING:
    from flockmq.cluster.model import Limits
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.machine.session_bodies import SessionStatement
    from flockmq.durable.machine.session_table import SessionTable
    from flockmq.durable.sessions.submitting import SessionLog
    from flockmq.durable.state.meta import Meta
    from flockmq.tasks import Task

ASK_MS: Final = 1_000
NAMES_MAX: Final = 4_096


class SessionQuotas:
    """See the module."""

    def __init__(self, calls: PartitionCalls, machines: Machines, log: SessionLog, meta: Meta) -> None:
        self._calls = calls
        self._machines = machines
        self._log = log
        self._meta = meta
        calls.serve_each(COUNTS_CALL, self._on_counts)

    def give_room(self, group: int, table: SessionTable, statements: list[SessionStatement]) -> Task[None]:
        """Write into claims of new persistent sessions how many sessions this shard may have."""
        limited: list[tuple[ClaimStatement, Limits]] = []
        for statement in statements:
            if isinstance(statement, ClaimStatement):
                statement.room = Room()  # no node may choose it
                limits = self._limits_of(table, statement)
                if limits is not None:
                    limited.append((statement, limits))
        if not limited:
            return
        namespaces = list(dict.fromkeys(namespace_of(claim.client) for claim, _ in limited))
        users = list(dict.fromkeys(claim.user for claim, _ in limited if claim.user is not None))
        elsewhere = yield from self._elsewhere(group, namespaces, users)
        for claim, limits in limited:
            of_namespace = of_user = NO_LIMIT
            if limits.persistent_sessions_max:
                others = elsewhere[namespaces.index(namespace_of(claim.client))]
                of_namespace = _least(limits.persistent_sessions_max - others)
            if limits.sessions_per_user_max and claim.user is not None:
                others = elsewhere[len(namespaces) + users.index(claim.user)]
                of_user = _least(limits.sessions_per_user_max - others)
            claim.room = Room(of_namespace, of_user)

    def _limits_of(self, table: SessionTable, claim: ClaimStatement) -> Limits | None:
        """The limits that hold for a claim; None: the claim adds no session, or no limit is set."""
        record = table.records.get(claim.client)
        if not claim.expiry_s or (record is not None and record.is_counted):
            return None
        namespace = self._meta.state.namespaces.get(namespace_of(claim.client).decode("utf-8", "replace"))
        if namespace is None:
            return None
        limits = namespace.limits
        return limits if limits.persistent_sessions_max or limits.sessions_per_user_max else None

    def _elsewhere(self, group: int, namespaces: list[bytes], users: list[bytes]) -> Task[list[int]]:
        """Persistent sessions of these namespaces, then of these users, in all other shards."""
        question = b"".join([_names(namespaces), _names(users)])
        others = [one for one in self._log.groups() if one != group]
        totals = [0] * (len(namespaces) + len(users))
        gathered = yield from self._calls.ask_leaders(others, COUNTS_CALL, question, ASK_MS)
        for body in gathered.found.values():
            try:
                reader = Reader(body)
                totals = [total + reader.u32() for total in totals]
            except RemoteProtocolError:
                continue  # as if the shard had not answered
        return totals

    def _on_counts(self, group: int, reader: Reader) -> bytes | None:
        machine = self._machines.by_group.get(group)
        if machine is None:
            return None
        counts = machine.sessions.counts
        namespaces = [reader.sized() for _ in range(reader.count(NAMES_MAX, 2))]
        users = [reader.sized() for _ in range(reader.count(NAMES_MAX, 2))]
        found = [counts.by_namespace.get(name, 0) for name in namespaces]
        found += [counts.by_user.get(name, 0) for name in users]
        return b"".join([U32.pack(count) for count in found])


def _names(names: list[bytes]) -> bytes:
    return U32.pack(len(names)) + b"".join([sized(name) for name in names])


def _least(room: int) -> int:
    return min(max(room, 0), NO_LIMIT - 1)
