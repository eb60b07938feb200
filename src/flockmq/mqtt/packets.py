"""The packets of MQTT 3.1.1 and 5.0 as plain values.

Topics, filters and payloads are bytes; client ids, user names and other texts are str. ``properties`` is None where a
packet has none (always so in 3.1.1); CONNECT, will, CONNACK and AUTH always bring an object, because there most
of them are read. Versions: 3 is MQTT 3.1, 4 is 3.1.1, 5 is 5.0.
"""

from __future__ import annotations

from typing import Final

from flockmq.mqtt.properties import Properties

CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
PINGREQ: Final = 12
PINGRESP: Final = 13
DISCONNECT: Final = 14
AUTH: Final = 15

# fmt: off
KIND_NAMES: Final = (
    "RESERVED", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBSCRIBE", "SUBACK",
    "UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH",
)
# fmt: on


class Value:
    """Compares and shows itself by its attributes."""

    def fields(self) -> dict[str, object]:
        """Give the attributes, by name, in the order of the wire."""
        return {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and type(self) is type(other) and self.fields() == other.fields()

    def __hash__(self) -> int:
        raise TypeError("A packet can change and so has no hash")

    def __repr__(self) -> str:
        shown = [f"{name}={value!r}" for name, value in self.fields().items()]
        return f"{type(self).__name__}({', '.join(shown)})"


class Packet(Value):
    """Any control packet."""


class Will(Value):
    """The message a server publishes when the client is gone without saying goodbye."""

    def __init__(
        self, topic: bytes, payload: bytes, qos: int = 0, retain: bool = False, properties: Properties | None = None
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties: Properties = Properties() if properties is None else properties

    def fields(self) -> dict[str, object]:
        """See Value."""
        return {
            "topic": self.topic,
            "payload": self.payload,
            "qos": self.qos,
            "retain": self.retain,
            "properties": self.properties,
        }


class Connect(Packet):
    """A client's first packet."""

    def __init__(
        self,
        version: int,
        client_id: str = "",
        clean_start: bool = True,
        keep_alive: int = 0,
        properties: Properties | None = None,
        will: Will | None = None,
        username: str | None = None,
        password: bytes | None = None,
    ) -> None:
        self.version = version
        self.client_id = client_id
        self.clean_start = clean_start
        self.keep_alive = keep_alive
        self.properties: Properties = Properties() if properties is None else properties
        self.will = will
        self.username = username
        self.password = password

    def fields(self) -> dict[str, object]:
        """See Value."""
        return {
            "version": self.version,
            "client_id": self.client_id,
            "clean_start": self.clean_start,
            "keep_alive": self.keep_alive,
            "properties": self.properties,
            "will": self.will,
            "username": self.username,
            "password": self.password,
        }

    def __repr__(self) -> str:
        # Reprs end in logs; a password must not.
        hidden = "None" if self.password is None else "..."
        return (
            f"Connect(version={self.version}, client_id={self.client_id!r}, clean_start={self.clean_start},"
            f" keep_alive={self.keep_alive}, properties={self.properties!r}, will={self.will!r},"
            f" username={self.username!r}, password={hidden})"
        )


class Connack(Packet):
    """A server's answer to CONNECT. ``reason`` is an MQTT 5 reason code, or the return code 0 to 5 of 3.1.1."""

    def __init__(self, session_present: bool, reason: int, properties: Properties | None = None) -> None:
        self.session_present = session_present
        self.reason = reason
        self.properties: Properties = Properties() if properties is None else properties

    def fields(self) -> dict[str, object]:
        """See Value."""
        return {"session_present": self.session_present, "reason": self.reason, "properties": self.properties}


class Publish(Packet):
    """A message. ``packet_id`` is 0 at QoS 0."""

    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 0,
        properties: Properties | None = None,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.dup = dup
        self.packet_id = packet_id
        self.properties = properties

    def fields(self) -> dict[str, object]:
        """See Value."""
        return {
            "topic": self.topic,
            "payload": self.payload,
            "qos": self.qos,
            "retain": self.retain,
            "dup": self.dup,
            "packet_id": self.packet_id,
            "properties": self.properties,
        }


class Ack(Packet):
    """PUBACK, PUBREC, PUBREL or PUBCOMP, as ``kind`` says."""

    def __init__(self, kind: int, packet_id: int, reason: int = 0, properties: Properties | None = None) -> None:
        self.kind = kind
        self.packet_id = packet_id
        self.reason = reason
        self.properties = properties

    def fields(self) -> dict[str, object]:
        """See Value."""
        return {
            "kind": KIND_NAMES[self.kind],
            "packet_id": self.packet_id,
            "reason": self.reason,
            "properties": self.properties,
        }


class SubscribeEntry(Value):
    """One filter of a SUBSCRIBE with its options. The last three are MQTT 5 only."""

    def __init__(
        self,
        topic_filter: bytes,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
    ) -> None:
        self.topic_filter = topic_filter
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.retain_handling = retain_handling

    def fields(self) -> dict[str, object]:
        """See Value."""
        return {
            "topic_filter": self.topic_filter,
            "qos": self.qos,
            "no_local": self.no_local,
            "retain_as_published": self.retain_as_published,
            "retain_handling": self.retain_handling,
        }


class Subscribe(Packet):
    """A client wants messages."""

    def __init__(self, packet_id: int, entries: list[SubscribeEntry], properties: Properties | None = None) -> None:
        self.packet_id = packet_id
        self.entries = entries
        self.properties = properties

    def fields(self) -> dict[str, object]:
        """See Value."""
        return {"packet_id": self.packet_id, "entries": self.entries, "properties": self.properties}


class Suback(Packet):
    """The outcome for each filter of a SUBSCRIBE, in its order."""

    def __init__(self, packet_id: int, reasons: list[int], properties: Properties | None = None) -> None:
        self.packet_id = packet_id
        self.reasons = reasons
        self.properties = properties

    def fields(self) -> dict[str, object]:
        """See Value."""
        return {"packet_id": self.packet_id, "reasons": self.reasons, "properties": self.properties}


class Unsubscribe(Packet):
    """A client wants no more of these."""

    def __init__(self, packet_id: int, topic_filters: list[bytes], properties: Properties | None = None) -> None:
        self.packet_id = packet_id
        self.topic_filters = topic_filters
        self.properties = properties

    def fields(self) -> dict[str, object]:
        """See Value."""
        return {"packet_id": self.packet_id, "topic_filters": self.topic_filters, "properties": self.properties}


class Unsuback(Packet):
    """The outcome for each filter of an UNSUBSCRIBE, in its order; none in 3.1.1."""

    def __init__(self, packet_id: int, reasons: list[int], properties: Properties | None = None) -> None:
        self.packet_id = packet_id
        self.reasons = reasons
        self.properties = properties

    def fields(self) -> dict[str, object]:
        """See Value."""
        return {"packet_id": self.packet_id, "reasons": self.reasons, "properties": self.properties}


class Pingreq(Packet):
    """Are you there?"""


class Pingresp(Packet):
    """Yes."""


class Disconnect(Packet):
    """Goodbye, and why."""

    def __init__(self, reason: int = 0, properties: Properties | None = None) -> None:
        self.reason = reason
        self.properties = properties

    def fields(self) -> dict[str, object]:
        """See Value."""
        return {"reason": self.reason, "properties": self.properties}


class Auth(Packet):
    """A step of an enhanced authentication."""

    def __init__(self, reason: int = 0, properties: Properties | None = None) -> None:
        self.reason = reason
        self.properties: Properties = Properties() if properties is None else properties

    def fields(self) -> dict[str, object]:
        """See Value."""
        return {"reason": self.reason, "properties": self.properties}
