"""One client of a ``BrokerHarness``: sends packets or any bytes, and looks at what came back.

Three ways to read: ``received()`` gives everything, ``expect(Suback)`` demands what comes next, ``consume()`` plays the
well-behaved subscriber that acknowledges all it gets. What was read is gone.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeVar

from flockmq.mqtt.decode import decode_packet
from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.packets import (
    KIND_NAMES,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Connack,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Unsuback,
    Unsubscribe,
)
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.varint import frame_length

if TYPE_CHECKING:
    from flockmq.session.connection import Connection
    from flockmq.testing.harness import BrokerHarness

AnyPacket = TypeVar("AnyPacket", bound=Packet)

PACKET_IDS: Final = 65_535


def make_properties(**values: object) -> Properties:
    """Properties from keywords: ``make_properties(session_expiry_s=60, user=[("a", "b")])``."""
    properties = Properties()
    for name, value in values.items():
        if not hasattr(properties, name):
            raise AssertionError(f"MQTT has no property {name!r}")
        setattr(properties, name, value)
    return properties


class Inbox:
    """The packets that came from the broker. What was read is gone."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.closed = False
        """The broker closed the connection, or ``drop`` did."""
        self.farewell: Disconnect | None = None
        """The DISCONNECT that the broker sent last."""
        self._inbox: list[bytes] = []
        self._rest = b""
        self._aliases: dict[int, bytes] = {}

    def _take_in(self, data: bytes) -> None:
        """Cut bytes into packets; half a packet waits for the rest."""
        data = self._rest + data
        pos = 0
        end = len(data)
        while pos < end:
            _, length = frame_length(data, pos, end)
            if not length or pos + length > end:
                break
            self._inbox.append(data[pos : pos + length])
            pos += length
        self._rest = data[pos:]

    def received_bytes(self) -> bytes:
        """Give all that came and was not read yet, as it stood on the wire."""
        taken = b"".join(self._inbox) + self._rest
        self._inbox = []
        self._rest = b""
        return taken

    def received(self) -> list[Packet]:
        """Give all packets that came and were not read yet."""
        taken = [self._decode(frame) for frame in self._inbox]
        self._inbox = []
        return taken

    @property
    def has_received(self) -> bool:
        """Whether something came that was not read yet."""
        return bool(self._inbox)

    def expect(self, kind: type[AnyPacket]) -> AnyPacket:
        """Give the next packet, which must be of this class."""
        if not self._inbox:
            raise AssertionError(f"No {kind.__name__} came, nothing at all{' (closed)' if self.closed else ''}")
        packet = self._decode(self._inbox.pop(0))
        if not isinstance(packet, kind):
            raise AssertionError(f"Expected a {kind.__name__}, came {packet!r}")  # noqa: TRY004 a test failed
        return packet

    def expect_ack(self, kind: int, packet_id: int) -> Ack:
        """Give the first PUBACK, PUBREC, PUBREL or PUBCOMP that waits; it must be this one."""
        packet = self._take(Ack)
        if packet.kind != kind or packet.packet_id != packet_id:
            raise AssertionError(f"Expected {KIND_NAMES[kind]} with packet id {packet_id}, came {packet!r}")
        return packet

    def expect_nothing(self) -> None:
        """Nothing came."""
        if self._inbox or self._rest:
            raise AssertionError(f"Expected nothing, came {self.received()!r} {self._rest!r}")

    def messages(self) -> list[Publish]:
        """Give the messages that came, topic aliases resolved; other packets stay. Nothing is acknowledged."""
        taken = [self._decode(frame) for frame in self._inbox]
        kept = [frame for frame, packet in zip(self._inbox, taken, strict=True) if not isinstance(packet, Publish)]
        self._inbox = kept
        return [self.resolve(packet) for packet in taken if isinstance(packet, Publish)]

    def topics(self) -> list[bytes]:
        """Give the topics of the messages that came."""
        return [message.topic for message in self.messages()]

    def payloads(self) -> list[bytes]:
        """Give the payloads of the messages that came."""
        return [message.payload for message in self.messages()]

    def _decode(self, frame: bytes) -> Packet:
        header, _ = frame_length(frame, 0, len(frame))
        packet = decode_packet(self.version, frame[0], frame[header:])
        if isinstance(packet, Disconnect):
            self.farewell = packet
        return packet

    def _take(self, kind: type[AnyPacket]) -> AnyPacket:
        """Take the first packet of a class, whatever stands before it."""
        for index, frame in enumerate(self._inbox):
            packet = self._decode(frame)
            if isinstance(packet, kind):
                del self._inbox[index]
                return packet
        raise AssertionError(
            f"No {kind.__name__} came{' and the broker closed' if self.closed else ''}: {self.received()!r}"
        )

    def resolve(self, message: Publish) -> Publish:
        """Put the topic back that an alias stands for; once for each message, in their order."""
        alias = message.properties.topic_alias if message.properties is not None else None
        if alias is not None:
            if message.topic:
                self._aliases[alias] = message.topic
            else:
                message.topic = self._aliases[alias]
        return message


class HarnessClient(Inbox):
    """A connection to the broker, as its client sees it."""

    def __init__(self, harness: BrokerHarness, connection: Connection, version: int) -> None:
        super().__init__(version)
        self.harness = harness
        self.connection = connection
        self.client_id = ""
        self.connack: Connack = Connack(False, 0)
        self._unsent: deque[bytes] = deque()
        self._next_id = 0

    # --- sending ---

    def send(self, data: Packet | bytes) -> None:
        """Send a packet, or any bytes. While the broker does not read from this client they wait."""
        encoded = data if isinstance(data, bytes) else encode_packet(data, self.version)
        self._unsent.extend(self.harness.pieces(encoded))
        self.harness.flush(self)

    def feed(self) -> bool:
        """Let the broker read the next piece of what was sent; False when there is none or it does not want to."""
        if not self._unsent or self.closed or self.connection.reading_paused:
            return False
        self.harness.broker.receive(self.connection, self._unsent.popleft(), self.harness.now)
        return True

    @property
    def has_unsent(self) -> bool:
        """Tell whether something waits until the broker reads again."""
        return bool(self._unsent) and not self.closed

    def publish(
        self,
        topic: bytes,
        payload: bytes = b"",
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> int:
        """Publish and go through with the handshake: the reason code of PUBACK or PUBREC, 0 at QoS 0."""
        packet_id = self.next_id() if qos else 0
        self.send(Publish(topic, payload, qos, retain, False, packet_id, properties))
        if qos == 0:
            return 0
        answer = self.expect_ack(PUBACK if qos == 1 else PUBREC, packet_id)
        if qos == 2 and answer.reason < 0x80:
            self.send(Ack(PUBREL, packet_id))
            self.expect_ack(PUBCOMP, packet_id)
        return answer.reason

    def subscribe(
        self,
        topic_filter: bytes,
        qos: int = 0,
        *,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        identifier: int = 0,
    ) -> int:
        """Subscribe to one filter: the reason code of the SUBACK. Retained messages are then in ``received()``."""
        packet_id = self.next_id()
        entry = SubscribeEntry(topic_filter, qos, no_local, retain_as_published, retain_handling)
        properties = make_properties(subscription_identifiers=[identifier]) if identifier else None
        self.send(Subscribe(packet_id, [entry], properties))
        answer = self._take(Suback)
        if answer.packet_id != packet_id or len(answer.reasons) != 1:
            raise AssertionError(f"{answer!r} does not answer the SUBSCRIBE with packet id {packet_id}")
        return answer.reasons[0]

    def unsubscribe(self, topic_filter: bytes) -> int:
        """Unsubscribe from one filter: the reason code of the UNSUBACK, 0 for MQTT 3.1.1."""
        packet_id = self.next_id()
        self.send(Unsubscribe(packet_id, [topic_filter]))
        answer = self._take(Unsuback)
        if answer.packet_id != packet_id:
            raise AssertionError(f"{answer!r} does not answer the UNSUBSCRIBE with packet id {packet_id}")
        return answer.reasons[0] if answer.reasons else 0

    def acknowledge(self, message: Publish, reason: int = 0) -> None:
        """Acknowledge a message as its QoS asks for; at QoS 2 go through to PUBCOMP unless ``reason`` refuses it."""
        if message.qos == 1:
            self.send(Ack(PUBACK, message.packet_id, reason))
        elif message.qos == 2:
            self.send(Ack(PUBREC, message.packet_id, reason))
            if reason < 0x80:
                self.expect_ack(PUBREL, message.packet_id)
                self.send(Ack(PUBCOMP, message.packet_id))

    def ping(self) -> None:
        """PINGREQ and its answer: the connection works. What came before stays in ``received()``."""
        self.send(Pingreq())
        self._take(Pingresp)

    def disconnect(self, reason: int = 0, session_expiry_s: int | None = None) -> None:
        """Take leave with DISCONNECT, then close."""
        properties = None if session_expiry_s is None else make_properties(session_expiry_s=session_expiry_s)
        self.send(Disconnect(reason, properties))
        self.drop()

    def drop(self) -> None:
        """Lose the connection without a word, as when a cable is cut."""
        if not self.closed:
            self.closed = True
            self.harness.broker.closed(self.connection, self.harness.now)
            self.harness.flush()

    def next_id(self) -> int:
        """Give the next packet identifier."""
        self._next_id = self._next_id % PACKET_IDS + 1
        return self._next_id

    # --- flow control ---

    def block(self) -> None:
        """Stop reading: the broker's writes pile up on its side."""
        self.harness.broker.pause_writing(self.connection)

    def unblock(self) -> None:
        """Read again."""
        self.harness.broker.resume_writing(self.connection, self.harness.now)
        self.harness.flush()

    def drain(self) -> None:
        """Take what the broker wants written, and obey. Called by the harness."""
        self._take_in(b"".join(self.connection.take()))
        if self.connection.closing:
            self.closed = True

    # --- receiving ---

    def consume(self) -> list[Publish]:
        """Read and acknowledge like a well-behaved subscriber until nothing more comes: all messages, in order."""
        got: list[Publish] = []
        while fresh := self.messages():
            for message in fresh:
                if not self.closed:
                    self.acknowledge(message)
            got += fresh
        return got
