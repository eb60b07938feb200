"""One client id, one owner: how a client that connects to this node gets its session.

```
 CONNECT, accepted --> this node is alone, nothing is to be kept, no log of sessions ------------------> CONNACK at once
        `--> claim in the log (claims.py) --> refused: CONNACK with the code
                  `--> granted --> the session goes on: ask the former owner where it stands (reloading.py),
                           |       and the partitions that the record touches for QoS 2 ids
                           |--> another node claimed the id meanwhile: CONNACK 0x89
                           `--> CONNACK
```
The log decides the order of connections with one client id; the last one keeps the session. Nodes carry that out.
Takeover between two connections to the same node: ``node/connecting.claim_session``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.machine.session_record import SessionRecord
from flockmq.mqtt import reasons
from flockmq.mqtt.packets import Will
from flockmq.node.admission import Admission
from flockmq.node.connecting import agreed_expiry_s, refuse
from flockmq.node.namespaces import edge_will
from flockmq.node.ports import CLAIM_BUSY, CLAIM_WAITS, CLAIMED
from flockmq.session.connection import AUTHENTICATING

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.qos2.releases import Releases
    from flockmq.durable.sessions.claims import Uncertain
    from flockmq.durable.sessions.keeping import SessionKeeper
    from flockmq.durable.sessions.reloading import Reloading
    from flockmq.node.broker import Broker
    from flockmq.node.ports import Claimed
    from flockmq.session.connection import Connection
    from flockmq.session.session import Session
    from flockmq.tasks import Task

CLAIMS_MAX: Final = 10_000
"""Clients that wait for their claim; beyond it they are refused with Server busy."""
WHY_OVERTAKEN: Final = "Another connection with this client id came meanwhile"


class SessionOwner:
    """See the module. The broker's port ``ownership``."""

    def __init__(
        self,
        broker: Broker,
        calls: PartitionCalls,
        keeper: SessionKeeper,
        reloading: Reloading,
        releases: Releases,
        uncertain: Uncertain,
    ) -> None:
        self._broker = broker
        self._node = broker.node
        self._calls = calls
        self._keeper = keeper
        self._reloading = reloading
        self._releases = releases
        self._uncertain = uncertain
        self._waiting: dict[str, Connection] = {}
        """By client id, the client that came last."""

    def claim(self, connection: Connection, client_id: str) -> int:
        """See ``OwnerPort``."""
        admission = connection.admission
        assert isinstance(admission, Admission)
        connect = admission.connect
        if not self._keeper.wants(agreed_expiry_s(self._node, connect), connect.will is not None):
            return CLAIMED
        previous = self._waiting.get(client_id)
        if previous is None and len(self._waiting) >= CLAIMS_MAX:
            return CLAIM_BUSY
        self._waiting[client_id] = connection
        if previous is not None and previous.phase == AUTHENTICATING:
            refuse(self._node, previous, client_id, reasons.SERVER_BUSY, WHY_OVERTAKEN, self._node.now)
        self._calls.tasks.start("a client that connects", self._admit(connection, admission, client_id))
        return CLAIM_WAITS

    def ended(self, session: Session) -> None:
        """See ``OwnerPort``."""
        self._releases.ended(session)

    def _admit(self, connection: Connection, admission: Admission, client_id: str) -> Task[None]:
        try:
            is_admitted = yield from self._decide(connection, admission, client_id)
        finally:
            if self._waiting.get(client_id) is connection:
                del self._waiting[client_id]
        if is_admitted:
            self._broker.claimed(connection, self._node.now)

    def _decide(self, connection: Connection, admission: Admission, client_id: str) -> Task[bool]:
        claimed = yield from self._claim(connection, admission, client_id)
        record = claimed.record
        if connection.phase != AUTHENTICATING:
            if not claimed.code:
                self._keeper.abandoned(claimed)
            return False
        if claimed.code:
            refuse(self._node, connection, client_id, claimed.code, claimed.text, self._node.now)
            return False
        admission.claimed = claimed  # from now on the end of the connection gives up the session
        if isinstance(record, SessionRecord):
            if record.had_session:
                yield from self._bring(client_id, admission, claimed, record)
            if connection.phase != AUTHENTICATING:
                return False
            if self._uncertain.granted.pop(record.client, 0) != record.epoch:
                refuse(self._node, connection, client_id, reasons.SERVER_BUSY, WHY_OVERTAKEN, self._node.now)
                return False
        return True

    def _claim(self, connection: Connection, admission: Admission, client_id: str) -> Task[Claimed]:
        """Claim the client id in the log."""
        connect = admission.connect
        accept = admission.accept
        will = connect.will
        if will is not None and accept is not None:
            topic = edge_will(self._node.spaces.find(accept.identity.namespace), will)
            will = Will(topic, will.payload, will.qos, will.retain, will.properties)
        return (
            yield from self._keeper.claim(
                connection,
                client_id,
                accept.identity.username if accept is not None else None,
                agreed_expiry_s(self._node, connect),
                connect.clean_start,
                will,
            )
        )

    def _bring(self, client_id: str, admission: Admission, claimed: Claimed, record: SessionRecord) -> Task[None]:
        """Collect what the record lacks: the session's exact positions, and its client's QoS 2 ids in logs."""
        collected = self._releases.collect(client_id, claimed) if self._releases.wants(claimed) else None
        claimed.standing = yield from self._reloading.take(record)
        if collected is not None:
            admission.unreleased = yield from collected
