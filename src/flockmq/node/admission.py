"""The state of a client between its CONNECT and its CONNACK."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flockmq.mqtt.packets import Connect
    from flockmq.node.ports import Accept, AuthRequest, Claimed


class Admission:
    """The state between CONNECT and CONNACK; belongs to the AuthRequest that the gate judges."""

    def __init__(self, connect: Connect, request: AuthRequest, assigned: bool) -> None:
        self.connect = connect
        self.request = request
        self.assigned = assigned
        self.accept: Accept | None = None
        """The gate's verdict, kept while the claim of the client id is under way."""
        self.is_let_on = False
        """True: the client has had its turn among those that come back to persistent sessions."""
        self.is_claimed = False
        """True: the client id belongs to this node."""
        self.unreleased: set[int] | None = None
        """Packet ids of QoS 2 messages that an owner which died left in logs; None: no log had to be asked."""
        self.claimed: Claimed | None = None
        """The result of the claim; None: no claim was made, or the session is attached."""
