"""The record of one session, for people: found at the leader of its shard, and ended there if no node has the session.

```
 find(client) --RECORD--> leader of the shard --> the record | none
 end(client) --> find --> END with the epoch of the record --> find again: none
 until_ended(client) --> find, again and again: a node has said END for its session, and the shard may not know yet
```
| outcome of ``end`` | what is true |
| --- | --- |
| ENDED | the record was there, and is gone |
| ABSENT | there was no record |
| CLAIMED | the client connected meanwhile: the session has another epoch, and goes on |
| UNKNOWN | no leader said in time what is there |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from flockmq.durable.calls import OK, Reply
from flockmq.durable.machine.session_bodies import EndStatement
from flockmq.durable.machine.session_record import SessionRecord, read_record
from flockmq.errors import RemoteProtocolError
from flockmq.peering.fields import Reader, sized
from flockmq.peering.kinds import RECORD_CALL
from flockmq.tasks import Sleep

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.sessions.submitting import SessionLog
    from flockmq.tasks import Promise, Task

UNTIL_ENDED_MS: Final = 1_000
LOOK_MS: Final = 20

ENDED: Final = 0
ABSENT: Final = 1
CLAIMED: Final = 2
UNKNOWN: Final = 3


class Sought(NamedTuple):
    """The result of a search for a record."""

    is_known: bool
    """False: no leader of the shard answered in time."""
    record: SessionRecord | None


class SessionFinder:
    """See the module."""

    def __init__(self, calls: PartitionCalls, machines: Machines, log: SessionLog) -> None:
        self._calls = calls
        self._machines = machines
        self._log = log
        calls.serve_leader(RECORD_CALL, self._on_record)

    def find(self, client: bytes) -> Promise[Sought]:
        """The record of a client's session."""
        return self._calls.tasks.start("the record of a session", self._find(client))

    def end(self, client: bytes) -> Promise[int]:
        """End the session of a client; the module lists the outcomes."""
        return self._calls.tasks.start("the end of a session without a node", self._end(client))

    def until_ended(self, client: bytes) -> Promise[None]:
        """Wait a moment until the present record is gone or belongs to another claim."""
        return self._calls.tasks.start("the end of a session to be applied", self._until_ended(client))

    def _on_record(self, group: int, reader: Reader) -> Reply:
        record = self._machines.by_group[group].sessions.records.get(reader.sized())
        return Reply(OK, b"" if record is None else record.encode())

    def _find(self, client: bytes) -> Task[Sought]:
        group = self._log.group_of(client)
        if not group:
            return Sought(True, None)  # no session was ever persistent
        reply = yield from self._calls.ask_leader(group, RECORD_CALL, sized(client))
        if reply.code != OK:
            return Sought(False, None)
        try:
            return Sought(True, read_record(Reader(reply.body)) if reply.body else None)
        except RemoteProtocolError:
            return Sought(False, None)

    def _end(self, client: bytes) -> Task[int]:
        sought = yield from self._find(client)
        if sought.record is None:
            return ABSENT if sought.is_known else UNKNOWN
        said = yield from self._log.say(client, EndStatement(client, sought.record.epoch))
        if said is None:
            return UNKNOWN
        left = yield from self._find(client)
        if not left.is_known:
            return UNKNOWN
        return ENDED if left.record is None else CLAIMED

    def _until_ended(self, client: bytes) -> Task[None]:
        due_at = self._calls.now + UNTIL_ENDED_MS
        first = yield from self._find(client)
        sought = first
        while sought.record is not None and first.record is not None and self._calls.now < due_at:
            if sought.record.epoch != first.record.epoch:
                return
            yield Sleep(LOOK_MS)
            sought = yield from self._find(client)
