"""Clients whose sessions outlive their connections, and publishers to names that belong to no durable topic.

```
 persistent subscriber: begins --> SUBSCRIBE, once --> acknowledges, at times late --> away for a while --> any node
 live publisher: as publishers of the durable topic, to live/NAME/KEY
```
``session_rules.py`` says what those subscribers were promised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.mqtt import packets as p
from flockmq.testing.simulation.nodes.clients import TOPIC, Client, Publisher

if TYPE_CHECKING:
    import random

    from flockmq.testing.simulation.nodes.world import NodesWorld

LIVE: Final = "live"
FILTERS: Final = (f"{LIVE}/#".encode(), f"{TOPIC}/#".encode())
PERSISTENT_SUBSCRIBERS: Final = (1, 1, 2)
"""Their QoS."""
LIVE_PUBLISHERS: Final = (1, 1, 2)
STAY_US: Final = 2_000_000
"""Mean time until a subscriber wants to leave, again and again."""
AWAY_US: Final = (200_000, 4_000_000)
LATE_SHARE: Final = 0.1
LATE_US: Final = 200_000
"""Mean delay of acknowledgements that are late."""


class LivePublisher(Publisher):
    """Publishes to names of no durable topic."""

    def __init__(self, cluster: NodesWorld, name: str, qos: int, rng: random.Random) -> None:
        super().__init__(cluster, name, qos, rng, cluster.live, LIVE)


class PersistentSubscriber(Client):
    """Subscribes once, goes away, comes back."""

    def __init__(self, cluster: NodesWorld, name: str, qos: int, rng: random.Random) -> None:
        self.qos = qos
        self._story = cluster.sessions.opened(name)
        self._is_subscribed = False
        self._owed: list[p.Ack] = []
        """Acknowledgements that were not sent yet, in the order of what they acknowledge."""
        self._away_until = cluster.queue.now + rng.randrange(cluster.plan.duration_ms * 1_000 // 2)
        super().__init__(cluster, name, rng, clean=False)
        self._later(STAY_US, self._leave)

    # Connections.

    def is_away(self) -> bool:
        """Whether the client has no connection because it wants none."""
        return self._cluster.queue.now < self._away_until

    def is_waiting(self) -> bool:
        """Whether the session can't get its messages yet."""
        return not (self.connected and self._is_subscribed)

    def _connect(self, connection: int) -> None:
        if self.is_away():
            self._cluster.queue.at(self._away_until, self._connect, connection)
        else:
            super()._connect(connection)

    def _leave(self) -> None:
        self._later(STAY_US, self._leave)
        if self.connected and not self.quiet:
            self._cluster.count("absences")
            self._away_until = self._cluster.queue.now + self._rng.randrange(*AWAY_US)
            self.lost()

    def begun(self, connack: p.Connack) -> None:
        """Subscribe, unless a SUBACK came on an earlier connection."""
        self._owed.clear()
        self._cluster.sessions.connected(self._story, connack.session_present, is_first=self.connections == 1)
        if not self._is_subscribed:
            self._cluster.sessions.asked(self._story)
            self.send(p.Subscribe(1, [p.SubscribeEntry(one, self.qos) for one in FILTERS]))

    # Packets.

    def got(self, packet: p.Packet) -> None:
        """The SUBACK, a message, or a PUBREL."""
        if isinstance(packet, p.Suback):
            self._answered(packet)
        elif isinstance(packet, p.Publish):
            if not packet.retain:  # what comes with a SUBSCRIBE is not of the stream
                self._cluster.sessions.came(self._story, packet)
            if packet.qos:
                self._owe(p.Ack(p.PUBACK if packet.qos == 1 else p.PUBREC, packet.packet_id))
        elif isinstance(packet, p.Ack) and packet.kind == p.PUBREL:
            self._cluster.sessions.released(self._story, packet.packet_id)
            self._owe(p.Ack(p.PUBCOMP, packet.packet_id))

    def _answered(self, suback: p.Suback) -> None:
        if any(reason >= 0x80 for reason in suback.reasons):
            self._cluster.count("refused subscriptions")
            self.lost()
        else:
            self._is_subscribed = True
            self._cluster.sessions.granted(self._story)

    def _owe(self, ack: p.Ack) -> None:
        """Acknowledge, at once or late; others wait behind one that is late, as MQTT asks for their order."""
        self._owed.append(ack)
        if len(self._owed) > 1:
            return
        if self._rng.random() < LATE_SHARE:
            self._later(LATE_US, self._pay, self.connections)
        else:
            self._pay(self.connections)

    def _pay(self, connection: int) -> None:
        if connection == self.connections:
            owed, self._owed = self._owed, []
            for ack in owed:
                self.send(ack)
