"""Where a message on one topic name goes: decided once per name, then only read.

```
 subscriptions that match the name
     |-- not shared, by session --> Target: one copy, highest QoS, all subscription identifiers
     `-- shared -----------------> ShareGroup: one member of it gets the message
```
Targets and their lists are shared between plans; nobody changes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.mqtt.varint import encode_varint
from flockmq.routing.names import Named

if TYPE_CHECKING:
    from flockmq.routing.shared import ShareGroup
    from flockmq.routing.subscription import Subscription

SUBSCRIPTION_IDENTIFIER: Final = b"\x0b"


def encode_identifiers(identifiers: tuple[int, ...]) -> bytes:
    """Encode Subscription Identifier properties, one after the other, as an MQTT 5 PUBLISH carries them."""
    out = b""
    for identifier in identifiers:
        out += SUBSCRIPTION_IDENTIFIER + encode_varint(identifier)
    return out


class Target:
    """What one session gets of a topic: its matching subscriptions, in order, merged into one copy. [MQTT-3.3.4-2]

    Identifiers repeat where subscriptions use the same one. [MQTT-3.3.4-4]
    """

    def __init__(self, subscriptions: list[Subscription]) -> None:
        self.session = subscriptions[0].session
        qos = 0
        retain_as_published = False
        identifiers: tuple[int, ...] = ()
        others: list[Subscription] = []
        for subscription in subscriptions:
            qos = max(qos, subscription.qos)
            if subscription.retain_as_published:
                retain_as_published = True
            if subscription.identifier:
                identifiers += (subscription.identifier,)
            if not subscription.no_local:
                others.append(subscription)
        self.qos = qos
        self.retain_as_published = retain_as_published
        self.identifiers = identifiers
        self.identifier_properties = encode_identifiers(identifiers) if identifiers else b""
        self.has_no_local = len(others) < len(subscriptions)
        """Whether the session's own messages are to be treated by ``own`` instead."""
        self.own: Target | None = Target(others) if others and len(others) < len(subscriptions) else None
        """With ``has_no_local``: what the session gets of what it published itself; None: nothing."""


class RoutePlan(Named):
    """All receivers of one topic name."""

    def __init__(self, topic: bytes, targets: list[Target], groups: list[ShareGroup]) -> None:
        super().__init__(topic)
        self.targets = targets
        self.groups = groups
        self.slot = -1
        """Where the table's cache keeps it."""
        self.current = True
        """False once the table has let go of it: whoever kept a reference must ask the table again."""
