"""Where a message on one topic name goes: decided once per name, then only read.

```
 subscriptions that match the name
     |-- not shared, by session --> Target: one copy. One subscription is its own target, several are merged
     |-- of other nodes' clients -> Peer: one copy, however many clients want it there
     `-- shared -----------------> ShareGroup: one member of it gets the message, here or on another node
 the durable topic it belongs to -> its partition's log; all of the above get the message when it is committed
 or ``captured``: persistent sessions wait for it, wherever they are -> a copy goes to the log that they read
```
Targets and their lists are shared between plans and never changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.mqtt.varint import encode_varint
from flockmq.routing.names import Named

if TYPE_CHECKING:
    from flockmq.routing.durable import DurableTopic
    from flockmq.routing.peer import Peer
    from flockmq.routing.shared import ShareGroup
    from flockmq.session.session import Session

SUBSCRIPTION_IDENTIFIER: Final = b"\x0b"
IDENTIFIERS_MAX: Final = 128
"""Most subscription identifiers on one message. Thousands of a session's filters can match one name, and each message
of a few bytes would be built with tens of kilobytes of them."""


def encode_identifiers(identifiers: tuple[int, ...]) -> bytes:
    """Encode Subscription Identifier properties, one after the other, as an MQTT 5 PUBLISH carries them."""
    out = b""
    for identifier in identifiers:
        out += SUBSCRIPTION_IDENTIFIER + encode_varint(identifier)
    return out


class Target:
    """What one session gets of a topic."""

    def __init__(
        self,
        session: Session,
        qos: int,
        retain_as_published: bool,
        identifiers: tuple[int, ...],
        has_no_local: bool,
        own: Target | None,
    ) -> None:
        self.session = session
        self.qos = qos
        self.retain_as_published = retain_as_published
        self.identifiers = identifiers
        """Subscription identifiers in order of subscribing; one used twice stands here twice. [MQTT-3.3.4-4]"""
        self.identifier_properties = encode_identifiers(identifiers) if identifiers else b""
        self.has_no_local = has_no_local
        """Whether the session's own messages are treated as ``own`` says."""
        self.own = own
        """With ``has_no_local``: what the session gets of what it published itself; None: nothing. [MQTT-3.8.3-3]"""


class RoutePlan(Named):
    """All receivers of one topic name."""

    def __init__(self, topic: bytes, targets: list[Target], groups: list[ShareGroup], remotes: list[Peer]) -> None:
        super().__init__(topic)
        self.targets = targets
        self.groups = groups
        self.remotes = remotes
        """Other nodes whose clients subscribed to the name, each once."""
        self.durable: DurableTopic | None = None
        self.captured: DurableTopic | None = None
        """Where messages of QoS 1 and 2 are kept for persistent sessions that wait for them; None: none does."""
        self.group = -1
        """The Raft group of the name's partition, -1 when that depends on the message."""
        self.slot = -1
        """The slot in which the table keeps the plan."""
        self.current = False
        """True while the table keeps the plan, and replaces it when subscriptions change. Else: use the plan once."""
