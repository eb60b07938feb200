"""What is known of a client between its CONNECT and its CONNACK."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flockmq.mqtt.packets import Connect
    from flockmq.node.ports import Accept, AuthRequest, Claimed


class Admission:
    """What is known between CONNECT and CONNACK; rides on the AuthRequest that is being judged."""

    def __init__(self, connect: Connect, request: AuthRequest, assigned: bool) -> None:
        self.connect = connect
        self.request = request
        self.assigned = assigned
        self.accept: Accept | None = None
        """The verdict, while the cluster is asked whose the client id is."""
        self.is_let_on = False
        """It is its turn among the clients that come back to persistent sessions."""
        self.is_claimed = False
        """The client id is this node's."""
        self.unreleased: set[int] | None = None
        """Packet ids of QoS 2 messages that an owner which died left in logs; None: no log had to be asked."""
        self.claimed: Claimed | None = None
        """What the log says of the session; None: it was not asked, or the session is attached."""
