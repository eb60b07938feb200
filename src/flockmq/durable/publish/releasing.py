"""PUBREL for messages that are in logs: their ids are forgotten there, committed, before the client hears PUBCOMP.

```
 PUBREL ids --> release --> ReleasePort: a marker in the log of each group that knows some --> committed --> PUBCOMPs
                                                                          `--> not known: closed, and sent again
```
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from flockmq.mqtt import reasons
from flockmq.node.lifecycle import disconnect
from flockmq.node.ports import PENDING
from flockmq.session.acks import AckQueue, PendingAck
from flockmq.session.connection import CONNECTED

if TYPE_CHECKING:
    from flockmq.node.state import NodeState
    from flockmq.session.connection import Connection
    from flockmq.session.session import Session

WHY_LOST = "The partition did not confirm the release in time; connect again and send PUBREL again"


OPENED: Final = 0
FULL: Final = 1
"""The session publishes into as many partitions as it may."""
LOST: Final = 2
"""No majority said so in time, or another owner has the session."""


class ReleasePort(Protocol):
    """Knows which ids of a session are in which logs, and has them forgotten (``releases.py``)."""

    def is_open(self, session: Session, groups: list[int]) -> bool:
        """Whether the session may publish into these partitions now."""

    def open(self, session: Session, groups: list[int], reply: Callable[[int], None]) -> None:
        """Let a session publish into partitions: the next owner will ask these. ``reply``: OPENED, FULL or LOST."""

    def fenced(self, session: Session, group: int) -> None:
        """A partition does not take records of this owner: it has to be opened again."""

    def may_append(self, session: Session, group: int) -> bool:
        """Whether it is known which of the session's ids a group has."""

    def tag(self, session: Session) -> int:
        """The session epoch for a record with a packet id; 0: the session leaves no ids in logs."""

    def note(self, session: Session, group: int, ids: list[int]) -> None:
        """Records with these ids were given to a partition."""

    def drop(self, session: Session, ids: list[int]) -> None:
        """The messages with these ids are certainly not in the log."""

    def release(self, session: Session, ids: list[int], reply: Callable[[bool], None], now: int) -> bool:
        """The client releases ids. False: nothing to wait for, ``reply`` is not called. True: it will be, once."""


class Releasing:
    """One PUBREL, or several that came together."""

    def __init__(self, node: NodeState, connection: Connection, session: Session, packet_ids: list[int]) -> None:
        self.node = node
        self.connection = connection
        self.session = session
        self.packet_ids = packet_ids
        data = b"".join([b"\x70\x02" + packet_id.to_bytes(2, "big") for packet_id in packet_ids])
        self.pending = PendingAck(data, len(packet_ids))

    def told(self, ok: bool) -> None:
        """The logs have forgotten the ids, or that is not known."""
        connection = self.connection
        if not ok:
            if connection.phase == CONNECTED:
                disconnect(self.node, connection, reasons.UNSPECIFIED_ERROR, WHY_LOST, self.node.now)
            return
        if self.session.received is not None:
            self.session.received.difference_update(self.packet_ids)
        self.pending.left = 0
        connection.go_on_answering()


def release(node: NodeState, port: ReleasePort, connection: Connection, packet_ids: list[int], now: int) -> int:
    """See ``DurablePort.release``."""
    session = connection.session
    if session is None:
        return reasons.SUCCESS
    releasing = Releasing(node, connection, session, packet_ids)
    if not port.release(session, packet_ids, releasing.told, now):
        return reasons.SUCCESS
    queue = connection.releases
    if queue is None:
        queue = AckQueue()
        connection.releases = queue
    queue.add(releasing.pending)
    if not releasing.pending.left:
        connection.go_on_answering()
    return PENDING
