"""Records of persistent sessions as the admin API asks for them: at the leaders of their shards.

```
 session_records(group) --RECORDS--> leader: ``RecordListings``, a page
 session_record(client) --RECORD---> leader: the record               end_session_record(client) --> END
```
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from flockmq.admin.moments import Moments
from flockmq.admin.paging import Pager
from flockmq.admin.session_records import RecordListings, Surroundings
from flockmq.drivers.clock import now_ms, wall_ms
from flockmq.durable.calls import LATER, OK, Reply
from flockmq.durable.sessions.finding import ABSENT, CLAIMED, ENDED
from flockmq.durable.sessions.lag import SessionLag
from flockmq.durable.sessions.positions import Positions
from flockmq.errors import NoLeader, OutcomeUnknown, Refused
from flockmq.peering.kinds import RECORDS_CALL
from flockmq.server.durable_asking import Asking

if TYPE_CHECKING:
    from flockmq.admin.metrics import Number
    from flockmq.durable.machine.session_record import SessionRecord
    from flockmq.durable.sessions.lag import Lag
    from flockmq.peering.fields import Reader
    from flockmq.server.cluster import ClusterService
    from flockmq.session.session import Session
    from flockmq.tasks import Task

WALKS_MAX: Final = 64
"""Listings that nodes are in the middle of at this leader."""
ASK_MS: Final = 2_000
WHY_NO_LEADER: Final = "No majority of the nodes that keep the record of this session can be reached; ask again."
WHY_UNKNOWN: Final = "No node said in time whether the session is gone; look before you delete it again."
WHY_CLAIMED: Final = "The client connected just now and has its session; delete it again to disconnect the client."


class SessionRecordsView(Asking):
    """See the module; the part of ``DurablePort`` that is about persistent sessions."""

    def __init__(self, service: ClusterService) -> None:
        super().__init__(service)
        pager = Pager(lambda: secrets.token_urlsafe(9), walks_max=WALKS_MAX)
        node = self._node
        self._lag = SessionLag(node.logs, node.delivery, Positions(node.delivery))
        moments = Moments(now_ms, wall_ms)
        around = Surroundings(service.node.broker, self._boots, self._name_of, moments, self._lag.of_record)
        machines = node.machines
        self._records = RecordListings(lambda group: machines.by_group[group].sessions, around, pager)
        node.calls.serve_leader(RECORDS_CALL, self._on_records)

    def _on_records(self, group: int, reader: Reader) -> Task[Reply]:
        question = reader.data[reader.pos :]
        yield from self._lag.refresh()
        if group not in self._node.machines.by_group:
            return Reply(LATER)
        return Reply(OK, self._records.answer(group, question))

    def session_lag(self, session: Session) -> Lag:
        """See ``DurablePort``."""
        return self._lag.of_session(session)

    async def record_lag(self, record: SessionRecord) -> Lag | None:
        """See ``DurablePort``."""
        await self._await(self._working().logs.tasks.start("ends of logs", self._lag.refresh(0)))
        return self._lag.of_record(record, None)

    def _boots(self) -> dict[int, int]:
        return {one.node_id: one.boot for one in self._service.node.swim.members.values() if one.is_live}

    def _name_of(self, node_id: int) -> str:
        member = self._service.node.swim.members.get(node_id)
        if member is not None:
            return member.name
        known = self._node.meta.state.nodes.get(node_id)
        return known.name if known is not None else f"{node_id:016x}"

    def _sessions_logged(self) -> dict[str, Number]:
        """Records of the shards that this node leads, for the metrics."""
        node = self._node
        led = [group for group in node.session_room.log.groups() if node.engine.is_leader(group)]
        tables = [node.machines.by_group[group].sessions for group in led if group in node.machines.by_group]
        connected = sum(table.connected for table in tables)
        away = sum(len(table.records) for table in tables) - connected
        clean = sum(table.clean for table in tables)
        return {"sessions_logged_connected": connected - clean, "sessions_logged_away": away}

    def _capture_bytes(self) -> int:
        """What the replicas of ``$capture`` on this node take."""
        replicas = self._node.engine.replicas
        groups = self._service.node.broker.node.table.capture.groups
        return sum(replicas[group].log.size() for group in groups if group in replicas)

    def session_shards(self) -> list[int]:
        """See ``DurablePort``."""
        return self._node.session_room.log.groups()

    def session_shard_of(self, client_id: str) -> int:
        """See ``DurablePort``."""
        return self._node.session_room.log.group_of(client_id.encode())

    async def session_records(self, group: int, question: bytes) -> bytes | None:
        """See ``DurablePort``."""
        reply = await self._await(self._working().calls.ask_leader(group, RECORDS_CALL, question, ASK_MS))
        return reply.body if reply.code == OK else None

    async def session_record(self, client_id: str) -> SessionRecord | None:
        """See ``DurablePort``."""
        sought = await self._await(self._working().session_room.finder.find(client_id.encode()))
        if not sought.is_known:
            raise NoLeader(WHY_NO_LEADER)
        return sought.record

    async def session_record_ended(self, client_id: str) -> None:
        """See ``DurablePort``."""
        await self._await(self._working().session_room.finder.until_ended(client_id.encode()))

    async def end_session_record(self, client_id: str) -> bool:
        """See ``DurablePort``."""
        outcome = await self._await(self._working().session_room.finder.end(client_id.encode()))
        if outcome == CLAIMED:
            raise Refused(WHY_CLAIMED)
        if outcome not in (ENDED, ABSENT):
            raise OutcomeUnknown(WHY_UNKNOWN)
        return outcome == ENDED
