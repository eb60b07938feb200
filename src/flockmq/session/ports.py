"""QoS 2 exactly once to a client whose session outlives its node: what is under way is in the log first.

```
 launch --> hold: SEND2 in the log --> PUBLISH      PUBREC --> received: REC2 in the log --> PUBREL
                                                    PUBCOMP --> finished: DONE2, later
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from flockmq.session.outbound import Delivery
    from flockmq.session.sources import MemberSource


class ExactPort(Protocol):
    """The list of QoS 2 messages of logs that are under way to one client, as the record of its session has it."""

    def room(self) -> int:
        """How many more messages may be under way."""

    def hold(self, flight: Delivery) -> None:
        """A flight has packet ids, and is sent (``Session.send_held``) when the record lists it."""

    def received(self, packet_id: int) -> bool:
        """PUBREC came. True: the record lists the message, and PUBREL follows when the record says so."""

    def finished(self, packet_id: int) -> None:
        """The packet id is free again."""

    def unread(self) -> None:
        """The next message to be sent again is not read from its log yet."""


class QueuePort(Protocol):
    """The groups that one session is a member of."""

    def note(self, source: MemberSource) -> None:
        """The client has acknowledged a message of a source that has no other acknowledgement to be taken."""

    def refused(self, source: MemberSource, place: int, reason: int) -> None:
        """The client does not take a message, for this reason code."""
