"""PUBREL for messages that are in logs: their ids are forgotten there, committed, before the client hears PUBCOMP.

```
 PUBREL ids --> release --> by group --> ReleasePort: a marker in the group's log --> all groups have it --> PUBCOMPs
                                                                                `--> nobody can say: closed, sent again
```
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from flockmq.mqtt import reasons
from flockmq.node.lifecycle import disconnect
from flockmq.node.ports import PENDING
from flockmq.session.acks import AckQueue, PendingAck
from flockmq.session.connection import CONNECTED

if TYPE_CHECKING:
    from flockmq.node.state import NodeState
    from flockmq.session.connection import Connection
    from flockmq.session.session import Session

WHY_LOST = "Nobody could say in time whether a message was released; connect again and send PUBREL again"


class ReleasePort(Protocol):
    """Who has logs forget QoS 2 ids."""

    def release(
        self, group: int, client: bytes, epoch: int, packet_ids: list[int], reply: Callable[[bool], None], now: int
    ) -> None:
        """Forget these ids of a client; ``reply`` once, True when that is committed."""


class Releasing:
    """One PUBREL or several that came together."""

    def __init__(self, node: NodeState, connection: Connection, session: Session, pending: PendingAck) -> None:
        self.node = node
        self.connection = connection
        self.session = session
        self.pending = pending
        self.has_failed = False

    def start(self, port: ReleasePort, packet_ids: list[int], now: int) -> None:
        """Ask all groups that know some of these."""
        stored = self.session.stored or {}
        by_group: dict[int, list[int]] = {}
        for packet_id in packet_ids:
            by_group.setdefault(stored[packet_id], []).append(packet_id)
        client = self.session.client_id.encode()
        for group, ids in by_group.items():
            port.release(group, client, self.session.epoch, ids, _Reply(self, ids).told, now)

    def told(self, packet_ids: list[int], ok: bool) -> None:
        """A group has answered."""
        if ok:
            self.forget(packet_ids)
            return
        if not self.has_failed and self.connection.phase == CONNECTED:
            disconnect(self.node, self.connection, reasons.UNSPECIFIED_ERROR, WHY_LOST, self.node.now)
        self.has_failed = True

    def forget(self, packet_ids: list[int]) -> None:
        """No log knows these any more, and neither does the session."""
        session = self.session
        for packet_id in packet_ids:
            if session.stored is not None:
                session.stored.pop(packet_id, None)
            if session.received is not None:
                session.received.discard(packet_id)
        self.pending.left -= len(packet_ids)
        if not self.pending.left:
            self.connection.go_on_answering()


class _Reply:
    """The answer of one group."""

    def __init__(self, releasing: Releasing, packet_ids: list[int]) -> None:
        self._releasing = releasing
        self._packet_ids = packet_ids

    def told(self, ok: bool) -> None:
        """It has come."""
        self._releasing.told(self._packet_ids, ok)


def release(node: NodeState, port: ReleasePort | None, connection: Connection, packet_ids: list[int], now: int) -> int:
    """See ``DurablePort.release``; without a port no log remembers ids."""
    session = connection.session
    if session is None:
        return PENDING
    queue = connection.releases
    if queue is None:
        queue = AckQueue()
        connection.releases = queue
    distinct = list(dict.fromkeys(packet_ids))
    data = b"".join([b"\x70\x02" + packet_id.to_bytes(2, "big") for packet_id in packet_ids])
    pending = PendingAck(data, len(distinct))
    queue.add(pending)
    releasing = Releasing(node, connection, session, pending)
    if port is None:
        releasing.forget(distinct)
    else:
        releasing.start(port, distinct, now)
    return PENDING
