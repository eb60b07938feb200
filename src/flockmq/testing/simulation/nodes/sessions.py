"""Clients whose sessions outlive their connections, and publishers to names that belong to no durable topic.

```
 persistent subscriber: begins --> SUBSCRIBE, once --> acknowledges, at times late --> away for a while --> any node
 live publisher: as publishers of the durable topic, to live/NAME/KEY
```
``sessions=2``: they take their subscriptions back at times, and clients without a persistent session listen, too.
``session_rules.py`` says what those subscribers were promised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.mqtt import packets as p
from flockmq.testing.simulation.nodes.clients import TOPIC, Client, Publisher
from flockmq.testing.simulation.nodes.session_rules import LiveOrder

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
WITH_US: Final = 1_500_000
WITHOUT_US: Final = 600_000
"""Mean times until a fickle subscriber takes its subscriptions back, and wants them again."""
LIVE_SUBSCRIBERS: Final = (1, 2)
SUBSCRIBED: Final = 1
UNSUBSCRIBED: Final = 2
"""Packet ids of SUBSCRIBE and UNSUBSCRIBE."""


class LivePublisher(Publisher):
    """Publishes to names of no durable topic."""

    def __init__(self, cluster: NodesWorld, name: str, qos: int, rng: random.Random) -> None:
        super().__init__(cluster, name, qos, rng, cluster.live, LIVE)


class PersistentSubscriber(Client):
    """Subscribes once, goes away, comes back."""

    def __init__(self, cluster: NodesWorld, name: str, qos: int, rng: random.Random) -> None:
        self.qos = qos
        self._story = cluster.sessions.opened(name)
        cluster.positions.opened(name)
        self._is_subscribed = False
        self._owed: list[tuple[p.Ack, bytes]] = []
        """Acknowledgements that were not sent yet, in the order of what they acknowledge, and its payload."""
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
        is_first = self.connections == 1
        self._cluster.sessions.connected(self._story, connack.session_present, is_first=is_first, node=self.node)
        if not self._is_subscribed:
            self.ask()

    def ask(self) -> None:
        """Send the SUBSCRIBE."""
        self._cluster.sessions.asked(self._story)
        self.send(p.Subscribe(SUBSCRIBED, [p.SubscribeEntry(one, self.qos) for one in FILTERS]))

    # Packets.

    def got(self, packet: p.Packet) -> None:
        """The SUBACK, a message, or a PUBREL."""
        if isinstance(packet, p.Suback):
            self._answered(packet)
        elif isinstance(packet, p.Publish):
            if not packet.retain:  # what comes with a SUBSCRIBE is not of the stream
                self._cluster.sessions.came(self._story, packet)
            if packet.qos:
                self._owe(p.Ack(p.PUBACK if packet.qos == 1 else p.PUBREC, packet.packet_id), packet.payload)
        elif isinstance(packet, p.Ack) and packet.kind == p.PUBREL:
            self._cluster.sessions.released(self._story, packet.packet_id)
            self._owe(p.Ack(p.PUBCOMP, packet.packet_id), b"")

    def _answered(self, suback: p.Suback) -> None:
        if any(reason >= 0x80 for reason in suback.reasons):
            self._cluster.count("refused subscriptions")
            self.lost()
        else:
            self._is_subscribed = True
            self._cluster.sessions.granted(self._story)

    def _owe(self, ack: p.Ack, payload: bytes) -> None:
        """Acknowledge, at once or late; others wait behind one that is late, as MQTT asks for their order."""
        self._owed.append((ack, payload))
        if len(self._owed) > 1:
            return
        if self._rng.random() < LATE_SHARE:
            self._later(LATE_US, self._pay, self.connections)
        else:
            self._pay(self.connections)

    def _pay(self, connection: int) -> None:
        if connection == self.connections:
            owed, self._owed = self._owed, []
            for ack, payload in owed:
                self._cluster.positions.acknowledged(self.name, payload)
                self.send(ack)


class FickleSubscriber(PersistentSubscriber):
    """Takes its subscriptions back at times: names are captured for a while, then not, then again."""

    def __init__(self, cluster: NodesWorld, name: str, qos: int, rng: random.Random) -> None:
        self._wants = True
        super().__init__(cluster, name, qos, rng)
        self._later(WITH_US, self._change_mind)

    def _change_mind(self) -> None:
        """Only what is settled is changed: a SUBACK or an UNSUBACK has come."""
        if self._is_subscribed == self._wants and not (self.quiet and self._wants):
            self._wants = not self._wants
            if not self._wants:
                self._cluster.sessions.leaving(self._story)
            if self.connected:
                self.ask()
        self._later(WITH_US if self._wants else WITHOUT_US, self._change_mind)

    def is_waiting(self) -> bool:
        """Whether an answer is due; in the end, whether the session can't get its messages yet."""
        return not self.connected or self._is_subscribed != self._wants or (self.quiet and not self._wants)

    def begun(self, connack: p.Connack) -> None:
        """Say again what has no answer yet."""
        settled, self._is_subscribed = self._is_subscribed, True
        super().begun(connack)
        self._is_subscribed = settled
        if self._is_subscribed != self._wants:
            self.ask()

    def ask(self) -> None:
        """SUBSCRIBE, or UNSUBSCRIBE."""
        if self._wants:
            super().ask()
        else:
            self._cluster.count("unsubscriptions")
            self.send(p.Unsubscribe(UNSUBSCRIBED, list(FILTERS)))

    def got(self, packet: p.Packet) -> None:
        """An UNSUBACK besides."""
        if isinstance(packet, p.Unsuback):
            if not self._wants and self._is_subscribed:
                self._is_subscribed = False
                self._cluster.sessions.left(self._story)
        elif not (isinstance(packet, p.Suback) and not self._wants):
            super().got(packet)


class LiveSubscriber(Client):
    """Without a persistent session: hears all names of no durable topic, from memory alone."""

    def __init__(self, cluster: NodesWorld, name: str, qos: int, rng: random.Random) -> None:
        self.qos = qos
        self._order = LiveOrder(name, cluster.live)
        super().__init__(cluster, name, rng, clean=True)

    def begun(self, connack: p.Connack) -> None:  # noqa: ARG002
        """Subscribe."""
        self._order = LiveOrder(self.name, self._cluster.live)
        self.send(p.Subscribe(SUBSCRIBED, [p.SubscribeEntry(FILTERS[0], self.qos)]))

    def got(self, packet: p.Packet) -> None:
        """A message, or a PUBREL."""
        if isinstance(packet, p.Publish):
            if not packet.retain:
                self._cluster.count("live deliveries")
                self._order.came(packet)
            if packet.qos:
                self.send(p.Ack(p.PUBACK if packet.qos == 1 else p.PUBREC, packet.packet_id))
        elif isinstance(packet, p.Ack) and packet.kind == p.PUBREL:
            self.send(p.Ack(p.PUBCOMP, packet.packet_id))
