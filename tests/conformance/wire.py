"""MQTT packets put together byte by byte, also the ones that are wrong.

On purpose this shares nothing with the broker's own encoder: a mistake there must not hide itself here.
"""

from __future__ import annotations

from typing import Final

# Property identifiers of MQTT 5, section 2.2.2.2.
PAYLOAD_FORMAT: Final = 0x01
MESSAGE_EXPIRY: Final = 0x02
CONTENT_TYPE: Final = 0x03
RESPONSE_TOPIC: Final = 0x08
CORRELATION_DATA: Final = 0x09
SUBSCRIPTION_ID: Final = 0x0B
SESSION_EXPIRY: Final = 0x11
ASSIGNED_CLIENT_ID: Final = 0x12
SERVER_KEEP_ALIVE: Final = 0x13
AUTH_METHOD: Final = 0x15
AUTH_DATA: Final = 0x16
REQUEST_PROBLEM: Final = 0x17
WILL_DELAY: Final = 0x18
REQUEST_RESPONSE: Final = 0x19
RESPONSE_INFORMATION: Final = 0x1A
SERVER_REFERENCE: Final = 0x1C
REASON_STRING: Final = 0x1F
RECEIVE_MAX: Final = 0x21
TOPIC_ALIAS_MAX: Final = 0x22
TOPIC_ALIAS: Final = 0x23
MAX_QOS: Final = 0x24
RETAIN_AVAILABLE: Final = 0x25
USER_PROPERTY: Final = 0x26
MAX_PACKET: Final = 0x27
WILDCARD_AVAILABLE: Final = 0x28
SUBSCRIPTION_ID_AVAILABLE: Final = 0x29
SHARED_AVAILABLE: Final = 0x2A

_BYTE: Final = (0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A)
_TWO: Final = (0x13, 0x21, 0x22, 0x23)
_FOUR: Final = (0x02, 0x11, 0x18, 0x27)

Value = int | bytes | tuple[bytes, bytes]


def hexa(text: str) -> bytes:
    """Bytes from hexadecimal text, blanks allowed."""
    return bytes.fromhex(text)


def u16(value: int) -> bytes:
    """Two bytes, big-endian."""
    return value.to_bytes(2, "big")


def u32(value: int) -> bytes:
    """Four bytes, big-endian."""
    return value.to_bytes(4, "big")


def varint(value: int) -> bytes:
    """Variable byte integer, as short as possible."""
    out = bytearray()
    while True:
        value, digit = divmod(value, 128)
        out.append(digit | (0x80 if value else 0))
        if not value:
            return bytes(out)


def field(value: bytes) -> bytes:
    """A string or binary field with its length."""
    return u16(len(value)) + value


def prop(identifier: int, value: Value) -> bytes:
    """One property, encoded by its type."""
    if isinstance(value, tuple):
        return bytes([identifier]) + field(value[0]) + field(value[1])
    if isinstance(value, bytes):
        return bytes([identifier]) + field(value)
    if identifier in _BYTE:
        return bytes([identifier, value])
    if identifier in _TWO:
        return bytes([identifier]) + u16(value)
    if identifier in _FOUR:
        return bytes([identifier]) + u32(value)
    return bytes([identifier]) + varint(value)


def props(*pairs: tuple[int, Value]) -> bytes:
    """A property block with its length."""
    return block(b"".join(prop(identifier, value) for identifier, value in pairs))


def block(encoded: bytes) -> bytes:
    """The length before properties that are encoded already."""
    return varint(len(encoded)) + encoded


def packet(first: int, body: bytes) -> bytes:
    """Fixed header and body."""
    return bytes([first]) + varint(len(body)) + body


def connect(
    client_id: bytes = b"c",
    *,
    version: int = 5,
    flags: int = 0x02,
    keep_alive: int = 0,
    properties: bytes | None = None,
    rest: bytes = b"",
    name: bytes = b"MQTT",
    first: int = 0x10,
) -> bytes:
    """CONNECT; ``rest`` is the payload after the client id (will, user name, password) as it stands on the wire."""
    head = field(name) + bytes([version, flags]) + u16(keep_alive)
    if properties is None:
        properties = b"\0" if version == 5 else b""
    return packet(first, head + properties + field(client_id) + rest)


def publish(
    topic: bytes,
    payload: bytes = b"",
    *,
    qos: int = 0,
    pid: int = 0,
    retain: int = 0,
    dup: int = 0,
    properties: bytes | None = b"\0",
) -> bytes:
    """PUBLISH; ``properties`` None leaves the block out, which is MQTT 3.1.1."""
    body = field(topic) + (u16(pid) if qos else b"") + (properties or b"") + payload
    return packet(0x30 | dup << 3 | qos << 1 | retain, body)


def publish3(topic: bytes, payload: bytes = b"", *, qos: int = 0, pid: int = 0, retain: int = 0, dup: int = 0) -> bytes:
    """PUBLISH of MQTT 3.1.1."""
    return publish(topic, payload, qos=qos, pid=pid, retain=retain, dup=dup, properties=None)


def ack(first: int, pid: int, tail: bytes = b"") -> bytes:
    """PUBACK 0x40, PUBREC 0x50, PUBREL 0x62, PUBCOMP 0x70; ``tail`` is the reason code and properties."""
    return packet(first, u16(pid) + tail)


def subscribe(pid: int, *filters: tuple[bytes, int], properties: bytes | None = b"\0", first: int = 0x82) -> bytes:
    """SUBSCRIBE with (filter, options) pairs."""
    body = b"".join(field(topic_filter) + bytes([options]) for topic_filter, options in filters)
    return packet(first, u16(pid) + (properties or b"") + body)


def subscribe3(pid: int, *filters: tuple[bytes, int], first: int = 0x82) -> bytes:
    """SUBSCRIBE of MQTT 3.1.1."""
    return subscribe(pid, *filters, properties=None, first=first)


def unsubscribe(pid: int, *filters: bytes, properties: bytes | None = b"\0", first: int = 0xA2) -> bytes:
    """UNSUBSCRIBE."""
    return packet(first, u16(pid) + (properties or b"") + b"".join(field(topic_filter) for topic_filter in filters))


def unsubscribe3(pid: int, *filters: bytes, first: int = 0xA2) -> bytes:
    """UNSUBSCRIBE of MQTT 3.1.1."""
    return unsubscribe(pid, *filters, properties=None, first=first)


PINGREQ: Final = b"\xc0\x00"
PINGRESP: Final = b"\xd0\x00"
DISCONNECT: Final = b"\xe0\x00"
