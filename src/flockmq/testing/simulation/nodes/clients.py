"""Clients of simulated nodes that behave as MQTT asks, and take every answer at its word.

```
 publisher (one QoS each): connect to some node --> a few messages under way --> PUBACK, or PUBREC PUBREL PUBCOMP
             ^                                                                    |
             `-- closed, or silence: another node; what is open is sent again, in its order (DUP), or its PUBREL
 subscriber: connect --> SUBSCRIBE --> what comes, taken down for each connection apart
```
Payloads are ``NAME KEY NUMBER``; numbers count up for every publisher and key. Some messages of QoS 1 are retained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.mqtt import packets as p
from flockmq.testing.harness import make_properties

if TYPE_CHECKING:
    import random

    from flockmq.testing.harness import HarnessClient
    from flockmq.testing.simulation.events import Action
    from flockmq.testing.simulation.nodes.deliveries import Seen
    from flockmq.testing.simulation.nodes.ledger import Ledger
    from flockmq.testing.simulation.nodes.world import NodesWorld

TOPIC: Final = "t"
KEYS: Final = 2
WINDOW: Final = 4
GAP_US: Final = 80_000
"""Mean time between two messages of a publisher."""
SILENCE_US: Final = 4_000_000
CONNECT_US: Final = 50_000
EXPIRY_S: Final = 3_600
RETAIN_EVERY: Final = 5
BURST: Final = (1, 1, 2, 4)


class Client:
    """One after the other, each with a connection of its own."""

    def __init__(self, cluster: NodesWorld, name: str, rng: random.Random, *, clean: bool) -> None:
        self.name = name
        self.node = 0
        self.connected = False
        self.connections = 0
        self.quiet = False
        """Whether it should begin nothing new."""
        self._cluster = cluster
        self._rng = rng
        self._clean = clean
        self._link: HarnessClient | None = None
        self._life = 0
        self._heard = 0
        self._later(CONNECT_US, self._connect, self.connections)

    def _later(self, mean_us: int, action: Action, *arguments: object) -> None:
        self._cluster.queue.after(int(self._rng.random() * 2 * mean_us) + 1, action, *arguments)

    # Connections.

    def _connect(self, connection: int) -> None:
        if connection != self.connections:
            return
        machine = self._cluster.machine(self._rng.randrange(len(self._cluster.machines)) + 1)
        if machine.process is None or machine.paused or not machine.process.takes_clients():
            self._later(CONNECT_US, self._connect, connection)
            return
        self.connections += 1
        self.node = machine.number
        self._life = machine.life
        self._heard = self._cluster.queue.now
        machine.do(machine.life, self._dial, self.connect_packet(), self.connections)
        self._cluster.queue.after(SILENCE_US, self._look, self.connections)

    def connect_packet(self) -> p.Connect:
        """How the client introduces itself."""
        properties = make_properties(session_expiry_s=0 if self._clean else EXPIRY_S)
        return p.Connect(5, self.name, self._clean, 0, properties)

    def _dial(self, packet: p.Connect, connection: int) -> None:
        process = self._cluster.machine(self.node).process
        if process is not None and connection == self.connections:
            self._link = process.connect(packet, self._came)

    def lost(self) -> None:
        """The connection is gone, with or without a word: go elsewhere."""
        link, self._link = self._link, None
        if self.connected:
            self.ended()
        self.connected = False
        self.connections += 1
        machine = self._cluster.machine(self.node)
        if link is not None and not link.closed and machine.process is not None:
            machine.do(self._life, link.drop)
        self._later(CONNECT_US, self._connect, self.connections)

    def _look(self, connection: int) -> None:
        """A client that waits for too long goes elsewhere."""
        if connection != self.connections:
            return
        if self._cluster.queue.now - self._heard >= SILENCE_US and (self.is_waiting() or not self.connected):
            self._cluster.count("silences")
            self.lost()
        else:
            self._cluster.queue.after(SILENCE_US // 4, self._look, connection)

    def send(self, packet: p.Packet) -> None:
        """To the node, unless it died."""
        link = self._link
        if link is not None and not link.closed:
            self._cluster.machine(self.node).do(self._life, link.send, packet)

    def _came(self) -> None:
        link = self._link
        if link is None:
            return
        if link.has_received:
            self._heard = self._cluster.queue.now
            for packet in link.received():
                if isinstance(packet, p.Connack):
                    if packet.reason:
                        self._cluster.count("refused connections")
                        self.lost()
                        return
                    self.connected = True
                    self.begun(packet)
                else:
                    self.got(packet)
                if self._link is not link:
                    return
        if link.closed:
            self.lost()

    # What kinds of clients do.

    def is_waiting(self) -> bool:
        """Whether an answer is due."""
        return False

    def is_away(self) -> bool:
        """Whether the client has no connection because it wants none."""
        return False

    def begun(self, connack: p.Connack) -> None:
        """A connection stands."""

    def ended(self) -> None:
        """A connection that stood is gone."""

    def got(self, packet: p.Packet) -> None:
        """A packet came."""


class _Message:
    """One message until it is done."""

    def __init__(self, packet_id: int, topic: bytes, payload: bytes, retain: bool) -> None:
        self.packet_id = packet_id
        self.topic = topic
        self.payload = payload
        self.retain = retain
        self.released = False
        """QoS 2: its PUBREC came."""


class Publisher(Client):
    """Publishes with one QoS, to names below ``root``; ``ledger`` hears of everything."""

    def __init__(
        self, cluster: NodesWorld, name: str, qos: int, rng: random.Random, ledger: Ledger, root: str = TOPIC
    ) -> None:
        self.qos = qos
        self._ledger = ledger
        self._root = root
        self.open: list[_Message] = []
        self._numbers = [0] * KEYS
        super().__init__(cluster, name, rng, clean=qos != 2)
        self._later(GAP_US, self._publish)

    def is_waiting(self) -> bool:
        """Whether an answer is due."""
        return bool(self.open)

    def begun(self, connack: p.Connack) -> None:  # noqa: ARG002
        """Send again what is open. A session that was lost does not matter: the log knows what it holds."""
        for message in self.open:
            if message.released:
                self.send(p.Ack(p.PUBREL, message.packet_id))
            else:
                self._ledger.sent_again(message.payload)
                again = p.Publish(message.topic, message.payload, self.qos, message.retain, True, message.packet_id)
                self.send(again)

    def _publish(self) -> None:
        self._later(GAP_US, self._publish)
        if not self.connected or self.quiet:
            return
        for _ in range(self._rng.choice(BURST)):
            if len(self.open) >= WINDOW:
                return
            self._publish_one()

    def _publish_one(self) -> None:
        key = self._rng.randrange(KEYS)
        self._numbers[key] += 1
        topic = f"{self._root}/{self.name}/{key}".encode()
        payload = f"{self.name} {key} {self._numbers[key]}".encode()
        self._ledger.sent(payload, topic, self.qos, self.connections)
        if self.qos == 0:
            self.send(p.Publish(topic, payload))
            return
        # The smallest free one: ids are used again as soon as they may be, which is what hurts.
        used = {message.packet_id for message in self.open}
        packet_id = next(number for number in range(1, WINDOW + 1) if number not in used)
        retain = self.qos == 1 and self._numbers[key] % RETAIN_EVERY == 0
        self.open.append(_Message(packet_id, topic, payload, retain))
        self.send(p.Publish(topic, payload, self.qos, retain, False, packet_id))

    def got(self, packet: p.Packet) -> None:
        """An answer."""
        if not isinstance(packet, p.Ack):
            return
        message = next((one for one in self.open if one.packet_id == packet.packet_id), None)
        if message is None:
            if packet.kind != p.PUBCOMP:  # which may come twice when PUBREL was sent twice
                self._cluster.rules.broken("answers", f"{self.name}: {packet} answers nothing")
            return
        if packet.kind in (p.PUBACK, p.PUBREC) and packet.reason >= 0x80:
            self._ledger.refused(message.payload, packet.reason)
            self.open.remove(message)
        elif packet.kind == p.PUBACK:
            self._expect_first(message)
            self._ledger.acknowledged(message.payload, self.node)
            self.open.remove(message)
        elif packet.kind == p.PUBREC:
            self._ledger.acknowledged(message.payload, self.node)
            message.released = True
            self.send(p.Ack(p.PUBREL, message.packet_id))
        elif packet.kind == p.PUBCOMP:
            self.open.remove(message)

    def _expect_first(self, message: _Message) -> None:
        if message is not self.open[0]:
            text = f"{self.name}: PUBACK {message.packet_id} came before that of {self.open[0].packet_id}"
            self._cluster.rules.broken("answers in order", text)


class Subscriber(Client):
    """Hears everything, from now on or from the beginning, and takes it down for each connection apart."""

    def __init__(self, cluster: NodesWorld, name: str, qos: int, rng: random.Random, *, replay: bool) -> None:
        self.qos = qos
        self.replay = replay
        self._seen: Seen | None = None
        self._is_subscribed = False
        self._asked = 0
        self._unreleased: set[int] = set()
        super().__init__(cluster, name, rng, clean=True)

    def is_waiting(self) -> bool:
        """Whether the SUBACK is due."""
        return self.connected and not self._is_subscribed

    def begun(self, connack: p.Connack) -> None:  # noqa: ARG002
        """Subscribe."""
        self._seen = self._cluster.rules.asked(self.name, self)
        self._is_subscribed = False
        self._asked = self._cluster.queue.now
        self._unreleased.clear()
        properties = make_properties(user=[("flockmq-from", "earliest")]) if self.replay else None
        self.send(p.Subscribe(1, [p.SubscribeEntry(f"{TOPIC}/#".encode(), self.qos)], properties))

    def ended(self) -> None:
        """Whatever comes on the next connection is another matter."""
        self._seen = None

    def got(self, packet: p.Packet) -> None:
        """The SUBACK, or a message."""
        if self._seen is None:
            return
        if isinstance(packet, p.Suback):
            if packet.reasons[0] >= 0x80:
                self._cluster.count("refused subscriptions")
                self.lost()
            else:
                self._is_subscribed = True
                self._cluster.rules.promised_to(self._seen, self.replay, self._cluster.queue.now - self._asked)
        elif isinstance(packet, p.Publish):
            if packet.qos == 2 and packet.packet_id in self._unreleased:
                self._cluster.rules.broken("delivery", f"{self.name}: packet id {packet.packet_id} came again")
            if not packet.retain:  # what comes with a SUBSCRIBE is not of the stream
                self._seen.messages.append((packet.topic, packet.payload))
            self._answer(packet)
        elif isinstance(packet, p.Ack) and packet.kind == p.PUBREL:
            self._unreleased.discard(packet.packet_id)
            self.send(p.Ack(p.PUBCOMP, packet.packet_id))

    def _answer(self, packet: p.Publish) -> None:
        if packet.qos == 1:
            self.send(p.Ack(p.PUBACK, packet.packet_id))
        elif packet.qos == 2:
            self._unreleased.add(packet.packet_id)
            self.send(p.Ack(p.PUBREC, packet.packet_id))
