"""Publishers that are not read for a while, for one reason: TCP slows them down."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flockmq.node.state import NodeState
    from flockmq.session.connection import Connection


class Stopped:
    """Connections that wait, maybe for several reasons; one is read when no reason is left."""

    def __init__(self) -> None:
        self._waiting: dict[int, Connection] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def stop(self, connection: Connection) -> None:
        """Read no more from it, unless it stopped before."""
        if connection.number not in self._waiting:
            self._waiting[connection.number] = connection
            connection.waits_for += 1
            connection.reading_paused = True
            connection.mark()

    def let_go(self, node: NodeState, connection: Connection) -> None:
        """Remove this reason to pause the connection; read it again when none is left."""
        if self._waiting.pop(connection.number, None) is not None:
            connection.waits_for -= 1
            connection.last_read_at = node.now  # the node did not read from it; the client was not silent
            connection.start_reading_again()

    def let_all_go(self, node: NodeState) -> None:
        """No connection has to wait for this reason any more."""
        for connection in list(self._waiting.values()):
            self.let_go(node, connection)
