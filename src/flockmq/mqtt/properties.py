"""MQTT 5 properties: which packet may hold which, and their way from bytes to attributes and back.

```
 |length|id value|id value|...        decode_properties       CONNECT, SUBSCRIBE, ...: rare, into a Properties object
        `------ block ----'           scan_publish_properties PUBLISH: checked in place, forwarded as the bytes they are
```
A block is given as ``buf[pos:end]`` without its length; ``property_block`` finds it. What is wrong with a block is
named the same way by both: a property that does not exist or does not belong into the packet is malformed
(section 2.2.2.2); one that is there twice, or has a value it can't have, is a protocol error, except for topic alias 0.
Both stop at the first property beyond ``most``: five bytes on the wire become objects of two hundred.
"""

from __future__ import annotations

from typing import Final

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt.fields import binary, read_binary, read_text, read_u16, read_u32, text, u16, u32
from flockmq.mqtt.reasons import MALFORMED_PACKET, PROTOCOL_ERROR, QUOTA_EXCEEDED, TOPIC_ALIAS_INVALID
from flockmq.mqtt.topics import has_wildcard
from flockmq.mqtt.varint import decode_varint, encode_varint

UNBOUNDED: Final = 268_435_456
"""More properties, or filters, than fit into any packet."""

PAYLOAD_FORMAT: Final = 0x01
MESSAGE_EXPIRY: Final = 0x02
CONTENT_TYPE: Final = 0x03
RESPONSE_TOPIC: Final = 0x08
CORRELATION_DATA: Final = 0x09
SUBSCRIPTION_IDENTIFIER: Final = 0x0B
SESSION_EXPIRY: Final = 0x11
ASSIGNED_CLIENT_ID: Final = 0x12
SERVER_KEEP_ALIVE: Final = 0x13
AUTHENTICATION_METHOD: Final = 0x15
AUTHENTICATION_DATA: Final = 0x16
REQUEST_PROBLEM_INFORMATION: Final = 0x17
WILL_DELAY: Final = 0x18
REQUEST_RESPONSE_INFORMATION: Final = 0x19
RESPONSE_INFORMATION: Final = 0x1A
SERVER_REFERENCE: Final = 0x1C
REASON_STRING: Final = 0x1F
RECEIVE_MAXIMUM: Final = 0x21
TOPIC_ALIAS_MAXIMUM: Final = 0x22
TOPIC_ALIAS: Final = 0x23
MAXIMUM_QOS: Final = 0x24
RETAIN_AVAILABLE: Final = 0x25
USER: Final = 0x26
MAXIMUM_PACKET_SIZE: Final = 0x27
WILDCARD_SUBSCRIPTION_AVAILABLE: Final = 0x28
SUBSCRIPTION_IDENTIFIERS_AVAILABLE: Final = 0x29
SHARED_SUBSCRIPTION_AVAILABLE: Final = 0x2A

# How a value stands on the wire and in the attribute.
_FLAG: Final = 1  # one byte, 0 or 1
_U16: Final = 2
_U32: Final = 3
_TEXT: Final = 4  # str
_TOPIC: Final = 5  # UTF-8 bytes, a topic name
_BINARY: Final = 6

# The properties that may stand once: wire identifier, attribute, kind.
_SINGLE: Final[list[tuple[int, str, int]]] = [
    (PAYLOAD_FORMAT, "payload_format", _FLAG),
    (MESSAGE_EXPIRY, "message_expiry_s", _U32),
    (CONTENT_TYPE, "content_type", _TEXT),
    (RESPONSE_TOPIC, "response_topic", _TOPIC),
    (CORRELATION_DATA, "correlation_data", _BINARY),
    (SESSION_EXPIRY, "session_expiry_s", _U32),
    (ASSIGNED_CLIENT_ID, "assigned_client_id", _TEXT),
    (SERVER_KEEP_ALIVE, "server_keep_alive_s", _U16),
    (AUTHENTICATION_METHOD, "authentication_method", _TEXT),
    (AUTHENTICATION_DATA, "authentication_data", _BINARY),
    (REQUEST_PROBLEM_INFORMATION, "request_problem_information", _FLAG),
    (WILL_DELAY, "will_delay_s", _U32),
    (REQUEST_RESPONSE_INFORMATION, "request_response_information", _FLAG),
    (RESPONSE_INFORMATION, "response_information", _TEXT),
    (SERVER_REFERENCE, "server_reference", _TEXT),
    (REASON_STRING, "reason_string", _TEXT),
    (RECEIVE_MAXIMUM, "receive_maximum", _U16),
    (TOPIC_ALIAS_MAXIMUM, "topic_alias_maximum", _U16),
    (TOPIC_ALIAS, "topic_alias", _U16),
    (MAXIMUM_QOS, "maximum_qos", _FLAG),
    (RETAIN_AVAILABLE, "retain_available", _FLAG),
    (MAXIMUM_PACKET_SIZE, "maximum_packet_size", _U32),
    (WILDCARD_SUBSCRIPTION_AVAILABLE, "wildcard_subscription_available", _FLAG),
    (SUBSCRIPTION_IDENTIFIERS_AVAILABLE, "subscription_identifiers_available", _FLAG),
    (SHARED_SUBSCRIPTION_AVAILABLE, "shared_subscription_available", _FLAG),
]
_BY_ID: Final[dict[int, tuple[int, str, int]]] = {row[0]: row for row in _SINGLE}


def _mask(*identifiers: int) -> int:
    mask = 0
    for identifier in identifiers:
        mask |= 1 << identifier
    return mask


# Which packet may hold which (table 2-4), as bit masks over the identifiers.
IN_CONNECT: Final[int] = _mask(
    SESSION_EXPIRY,
    AUTHENTICATION_METHOD,
    AUTHENTICATION_DATA,
    REQUEST_PROBLEM_INFORMATION,
    REQUEST_RESPONSE_INFORMATION,
    RECEIVE_MAXIMUM,
    TOPIC_ALIAS_MAXIMUM,
    USER,
    MAXIMUM_PACKET_SIZE,
)
IN_WILL: Final[int] = _mask(
    PAYLOAD_FORMAT, MESSAGE_EXPIRY, CONTENT_TYPE, RESPONSE_TOPIC, CORRELATION_DATA, WILL_DELAY, USER
)
IN_CONNACK: Final[int] = _mask(
    SESSION_EXPIRY,
    ASSIGNED_CLIENT_ID,
    SERVER_KEEP_ALIVE,
    AUTHENTICATION_METHOD,
    AUTHENTICATION_DATA,
    RESPONSE_INFORMATION,
    SERVER_REFERENCE,
    REASON_STRING,
    RECEIVE_MAXIMUM,
    TOPIC_ALIAS_MAXIMUM,
    MAXIMUM_QOS,
    RETAIN_AVAILABLE,
    USER,
    MAXIMUM_PACKET_SIZE,
    WILDCARD_SUBSCRIPTION_AVAILABLE,
    SUBSCRIPTION_IDENTIFIERS_AVAILABLE,
    SHARED_SUBSCRIPTION_AVAILABLE,
)
IN_PUBLISH: Final[int] = _mask(
    PAYLOAD_FORMAT,
    MESSAGE_EXPIRY,
    CONTENT_TYPE,
    RESPONSE_TOPIC,
    CORRELATION_DATA,
    SUBSCRIPTION_IDENTIFIER,
    TOPIC_ALIAS,
    USER,
)
IN_ACK: Final[int] = _mask(REASON_STRING, USER)  # PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK
IN_SUBSCRIBE: Final[int] = _mask(SUBSCRIPTION_IDENTIFIER, USER)
IN_UNSUBSCRIBE: Final[int] = _mask(USER)
IN_DISCONNECT: Final[int] = _mask(SESSION_EXPIRY, SERVER_REFERENCE, REASON_STRING, USER)
IN_AUTH: Final[int] = _mask(AUTHENTICATION_METHOD, AUTHENTICATION_DATA, REASON_STRING, USER)

_NOT_ZERO: Final[int] = _mask(RECEIVE_MAXIMUM, MAXIMUM_PACKET_SIZE)

# What scan_publish_properties finds.
HAS_PAYLOAD_FORMAT: Final = 1
HAS_EXPIRY: Final = 2
HAS_CONTENT_TYPE: Final = 4
HAS_RESPONSE_TOPIC: Final = 8
HAS_CORRELATION_DATA: Final = 16
HAS_ALIAS: Final = 32
HAS_USER: Final = 64
# A message with one of these can't be forwarded as the bytes it came in.
PUBLISH_NEEDS_DECISION: Final = 34  # HAS_EXPIRY | HAS_ALIAS


class Properties:
    """One attribute per property, None where it is absent."""

    def __init__(self) -> None:
        self.payload_format: int | None = None
        self.message_expiry_s: int | None = None
        self.content_type: str | None = None
        self.response_topic: bytes | None = None
        self.correlation_data: bytes | None = None
        self.session_expiry_s: int | None = None
        self.assigned_client_id: str | None = None
        self.server_keep_alive_s: int | None = None
        self.authentication_method: str | None = None
        self.authentication_data: bytes | None = None
        self.request_problem_information: int | None = None
        self.will_delay_s: int | None = None
        self.request_response_information: int | None = None
        self.response_information: str | None = None
        self.server_reference: str | None = None
        self.reason_string: str | None = None
        self.receive_maximum: int | None = None
        self.topic_alias_maximum: int | None = None
        self.topic_alias: int | None = None
        self.maximum_qos: int | None = None
        self.retain_available: int | None = None
        self.maximum_packet_size: int | None = None
        self.wildcard_subscription_available: int | None = None
        self.subscription_identifiers_available: int | None = None
        self.shared_subscription_available: int | None = None
        self.subscription_identifiers: list[int] = []
        self.user: list[tuple[str, str]] = []

    def present(self) -> dict[str, object]:
        """Give the properties that are there, by attribute."""
        found: dict[str, object] = {}
        for _, attribute, _ in _SINGLE:
            value: object = getattr(self, attribute)
            if value is not None:
                found[attribute] = value
        if self.subscription_identifiers:
            found["subscription_identifiers"] = self.subscription_identifiers
        if self.user:
            found["user"] = self.user
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Properties) and self.present() == other.present()

    def __hash__(self) -> int:
        raise TypeError("Properties can change and so have no hash")

    def __repr__(self) -> str:
        # Authentication data is a secret: reprs end in logs.
        shown = [
            f"{key}={'...' if key == 'authentication_data' else repr(value)}" for key, value in self.present().items()
        ]
        return f"Properties({', '.join(shown)})"


def property_block(buf: bytes, pos: int, end: int) -> tuple[int, int]:
    """Read the property length at ``pos``: where the block starts and ends."""
    length, start = decode_varint(buf, pos, end)
    if start + length > end:
        raise RemoteProtocolError(MALFORMED_PACKET, "The properties are longer than what is left of their packet")
    return start, start + length


def decode_properties(buf: bytes, pos: int, end: int, allowed: int, most: int = UNBOUNDED) -> Properties:
    """Decode a block, given the mask of what its packet may hold (``IN_CONNECT`` and so on) and how many."""
    properties = Properties()
    seen = 0
    count = 0
    while pos < end:
        identifier = buf[pos]
        pos += 1
        count += 1
        if count > most:
            raise _too_many(most)
        if identifier > SHARED_SUBSCRIPTION_AVAILABLE or not allowed >> identifier & 1:
            raise RemoteProtocolError(MALFORMED_PACKET, f"Property 0x{identifier:02X} does not belong into this packet")
        if identifier == USER:
            key = read_text(buf, pos, end)
            pos += 2 + len(key)
            value = read_text(buf, pos, end)
            pos += 2 + len(value)
            properties.user.append((key.decode(), value.decode()))
            continue
        if identifier == SUBSCRIPTION_IDENTIFIER:
            number, pos = decode_varint(buf, pos, end)
            _check_subscription_identifier(number)
            properties.subscription_identifiers.append(number)
            if allowed == IN_PUBLISH:
                continue  # a server names all subscriptions that match; a client gives one with its SUBSCRIBE
        else:
            pos = _decode_single(buf, pos, end, identifier, properties)
        if seen >> identifier & 1:
            raise _twice(identifier)
        seen |= 1 << identifier
    return properties


def _decode_single(buf: bytes, pos: int, end: int, identifier: int, into: Properties) -> int:
    _, attribute, kind = _BY_ID[identifier]
    if kind == _U32:
        number = read_u32(buf, pos, end)
        pos += 4
    elif kind == _U16:
        number = read_u16(buf, pos, end)
        pos += 2
    elif kind == _FLAG:
        number = _read_flag(buf, pos, end, identifier)
        pos += 1
    else:
        if kind == _BINARY:
            data = read_binary(buf, pos, end)
            setattr(into, attribute, data)
        elif kind == _TOPIC:
            data = read_text(buf, pos, end)
            _check_response_topic(data)
            setattr(into, attribute, data)
        else:
            data = read_text(buf, pos, end)
            setattr(into, attribute, data.decode())
        return pos + 2 + len(data)
    if number == 0:
        _check_zero(identifier)
    setattr(into, attribute, number)
    return pos


def _read_flag(buf: bytes, pos: int, end: int, identifier: int) -> int:
    if pos >= end:
        raise RemoteProtocolError(MALFORMED_PACKET, f"Property 0x{identifier:02X} is cut off")
    if buf[pos] > 1:
        raise RemoteProtocolError(PROTOCOL_ERROR, f"Property 0x{identifier:02X} is {buf[pos]}; it can be 0 or 1")
    return buf[pos]


def _check_zero(identifier: int) -> None:
    if identifier == TOPIC_ALIAS:  # [MQTT-3.3.2-8]
        raise RemoteProtocolError(TOPIC_ALIAS_INVALID, "Topic alias 0 is not allowed")
    if _NOT_ZERO >> identifier & 1:
        raise RemoteProtocolError(PROTOCOL_ERROR, f"Property 0x{identifier:02X} must not be 0")


def _check_subscription_identifier(number: int) -> None:
    if number == 0:
        raise RemoteProtocolError(PROTOCOL_ERROR, "Subscription identifier 0 is not allowed")


def _check_response_topic(topic: bytes) -> None:
    if not topic:  # [MQTT-4.7.3-1]
        raise RemoteProtocolError(PROTOCOL_ERROR, "The response topic is empty")
    if has_wildcard(topic):  # [MQTT-3.3.2-14]
        raise RemoteProtocolError(PROTOCOL_ERROR, "The response topic holds a wildcard")


def _too_many(most: int) -> RemoteProtocolError:
    return RemoteProtocolError(QUOTA_EXCEEDED, f"More than {most} properties in one packet")


def _twice(identifier: int) -> RemoteProtocolError:
    return RemoteProtocolError(PROTOCOL_ERROR, f"Property 0x{identifier:02X} is there twice")


def scan_publish_properties(buf: bytes, pos: int, end: int, most: int = UNBOUNDED) -> int:
    """Check the block of a PUBLISH from a client in place; tell what it holds as a sum of ``HAS_*``."""
    found = 0
    count = 0
    while pos < end:
        identifier = buf[pos]
        pos += 1
        if identifier == USER:
            pos += 2 + len(read_text(buf, pos, end))
            pos += 2 + len(read_text(buf, pos, end))
            found |= HAS_USER
            count += 1
            if count > most:
                raise _too_many(most)
            continue
        if identifier == PAYLOAD_FORMAT:
            bit = HAS_PAYLOAD_FORMAT
            _read_flag(buf, pos, end, identifier)
            pos += 1
        elif identifier == MESSAGE_EXPIRY:
            bit = HAS_EXPIRY
            read_u32(buf, pos, end)
            pos += 4
        elif identifier == CONTENT_TYPE:
            bit = HAS_CONTENT_TYPE
            pos += 2 + len(read_text(buf, pos, end))
        elif identifier == RESPONSE_TOPIC:
            bit = HAS_RESPONSE_TOPIC
            topic = read_text(buf, pos, end)
            _check_response_topic(topic)
            pos += 2 + len(topic)
        elif identifier == CORRELATION_DATA:
            bit = HAS_CORRELATION_DATA
            pos += 2 + read_u16(buf, pos, end)
            if pos > end:
                raise RemoteProtocolError(MALFORMED_PACKET, "The correlation data is longer than the properties")
        elif identifier == TOPIC_ALIAS:
            bit = HAS_ALIAS
            if read_u16(buf, pos, end) == 0:
                _check_zero(identifier)
            pos += 2
        elif identifier == SUBSCRIPTION_IDENTIFIER:  # [MQTT-3.3.4-6]
            raise RemoteProtocolError(PROTOCOL_ERROR, "A client must not send a subscription identifier in a PUBLISH")
        else:
            raise RemoteProtocolError(MALFORMED_PACKET, f"Property 0x{identifier:02X} does not belong into a PUBLISH")
        if found & bit:
            raise _twice(identifier)
        found |= bit
    return found


def split_publish_properties(buf: bytes, pos: int, end: int) -> tuple[int, int, bytes]:
    """Take alias and expiry out of a checked block: (topic alias or 0, message expiry in s or -1, the rest)."""
    alias = 0
    expiry_s = -1
    rest: list[bytes] = []
    start = pos  # of what is kept and not yet copied
    while pos < end:
        at = pos
        identifier = buf[pos]
        if identifier == TOPIC_ALIAS:
            alias = buf[pos + 1] << 8 | buf[pos + 2]
            pos += 3
        elif identifier == MESSAGE_EXPIRY:
            expiry_s = read_u32(buf, pos + 1, end)
            pos += 5
        else:
            pos = _after_publish_property(buf, pos)
            continue
        if at > start:
            rest.append(buf[start:at])
        start = pos
    if end > start:
        rest.append(buf[start:end])
    return alias, expiry_s, b"".join(rest)


def _after_publish_property(buf: bytes, pos: int) -> int:
    identifier = buf[pos]
    if identifier == PAYLOAD_FORMAT:
        return pos + 2
    pos += 3 + (buf[pos + 1] << 8 | buf[pos + 2])
    if identifier == USER:
        pos += 2 + (buf[pos] << 8 | buf[pos + 1])
    return pos


def encode_block(properties: Properties) -> bytes:
    """Encode without the length: single properties by identifier, then subscription ids, then user properties."""
    parts: list[bytes] = []
    for identifier, attribute, kind in _SINGLE:
        value: object = getattr(properties, attribute)
        if value is None:
            continue
        parts.append(bytes((identifier,)))
        if isinstance(value, int):
            parts.append(u32(value) if kind == _U32 else u16(value) if kind == _U16 else bytes((value,)))
        elif isinstance(value, str):
            parts.append(text(value))
        elif isinstance(value, bytes):
            parts.append(binary(value))
    for number in properties.subscription_identifiers:
        parts.append(b"\x0b")
        parts.append(encode_varint(number))
    for key, content in properties.user:
        parts.append(b"\x26")
        parts.append(text(key))
        parts.append(text(content))
    return b"".join(parts)


def encode_properties(properties: Properties | None) -> bytes:
    """Encode with the length in front; None is an empty block."""
    if properties is None:
        return b"\x00"
    block = encode_block(properties)
    return encode_varint(len(block)) + block
