"""The few packets a load generator writes, as bytes, and the one answer it must understand.

Kept apart from the broker's own codec on purpose: a generator that shares the broker's encoder would share its bugs
and could not see them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from flockmq.errors import FlockError
from flockmq.mqtt.fields import binary, text, u16
from flockmq.mqtt.reasons import NAMES
from flockmq.mqtt.varint import decode_varint, encode_varint

CONNACK: Final = 2
SUBACK: Final = 9
PINGRESP: Final = 13
DISCONNECT: Final = 14

PINGREQ: Final = b"\xc0\x00"
GOODBYE: Final = b"\xe0\x00"

SESSION_EXPIRY_S: Final = 86_400
SUBSCRIBE_BYTES_MAX: Final = 16_384
"""A SUBSCRIBE with many filters is cut here, well below any broker's packet limit."""

REFUSALS_V3: Final = {
    1: "unacceptable protocol version",
    2: "client id rejected",
    3: "server unavailable",
    4: "bad user name or password",
    5: "not authorized",
}

# Width of each CONNACK property's value; -1 is a string, -2 a pair of strings.
CONNACK_PROPERTIES: Final = {
    0x11: 4, 0x12: -1, 0x13: 2, 0x15: -1, 0x16: -1, 0x1A: -1, 0x1C: -1, 0x1F: -1, 0x21: 2, 0x22: 2,
    0x24: 1, 0x25: 1, 0x26: -2, 0x27: 4, 0x28: 1, 0x29: 1, 0x2A: 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Granted:
    """Limits that the broker's CONNACK grants."""

    receive_maximum: int = 65_535
    topic_alias_maximum: int = 0
    maximum_qos: int = 2


def packet(first: int, body: bytes) -> bytes:
    """Put a fixed header before ``body``."""
    return bytes((first,)) + encode_varint(len(body)) + body


def connect(
    version: int,
    client_id: str,
    keep_alive_s: int,
    username: str = "",
    password: str = "",
    alias_maximum: int = 0,
    *,
    persistent: bool = False,
) -> bytes:
    """CONNECT with a clean session, or one that is resumed and outlives the connection."""
    flags = (0 if persistent else 0x02) | (0x80 if username else 0) | (0x40 if password else 0)
    body = b"\x00\x04MQTT" + bytes((version, flags)) + u16(keep_alive_s)
    if version == 5:
        properties = b"\x22" + u16(alias_maximum) if alias_maximum else b""
        properties += b"\x11" + SESSION_EXPIRY_S.to_bytes(4, "big") if persistent else b""
        body += encode_varint(len(properties)) + properties
    body += text(client_id)
    if username:
        body += text(username)
    if password:
        body += text(password)
    return packet(0x10, body)


def subscribes(version: int, filters: Sequence[str], qos: int) -> Iterator[bytes]:
    """SUBSCRIBE packets for all filters, each packet of moderate size, with packet ids from 1 on."""
    packet_id = 1
    body = bytearray()
    for topic_filter in filters:
        body += text(topic_filter)
        body.append(qos)
        if len(body) >= SUBSCRIBE_BYTES_MAX:
            yield _subscribe(version, packet_id, bytes(body))
            packet_id += 1
            body.clear()
    if body:
        yield _subscribe(version, packet_id, bytes(body))


def _subscribe(version: int, packet_id: int, body: bytes) -> bytes:
    return packet(0x82, u16(packet_id) + (b"\x00" if version == 5 else b"") + body)


def publish(
    version: int,
    topic: bytes,
    payload: bytes,
    *,
    qos: int = 0,
    packet_id: int = 0,
    retain: bool = False,
    properties: bytes = b"",
) -> bytes:
    """PUBLISH; ``properties`` are already encoded, without their length."""
    body = binary(topic)
    if qos:
        body += u16(packet_id)
    if version == 5:
        body += encode_varint(len(properties)) + properties
    return packet(0x30 | qos << 1 | retain, body + payload)


def user_properties(count: int) -> bytes:
    """``count`` user properties of a size that devices really send."""
    return b"".join(b"\x26" + text(f"key-{index}") + text(f"value-{index}") for index in range(count))


def topic_alias(alias: int) -> bytes:
    """The property that sets or uses an alias."""
    return b"\x23" + u16(alias)


def read_connack(version: int, whole: bytes) -> Granted:
    """Understand a CONNACK; a refusal becomes an error that says why."""
    header = _header_bytes(whole)
    code = whole[header + 1]
    if code:
        name = NAMES.get(code, hex(code)) if version == 5 else REFUSALS_V3.get(code, hex(code))
        raise FlockError(f"The broker refused the connection: {name}. Check user name, password and protocol version")
    if version != 5:
        return Granted()
    length, at = decode_varint(whole, header + 2, len(whole))
    found = dict(_properties(whole, at, at + length))
    return Granted(found.get(0x21, 65_535), found.get(0x22, 0), found.get(0x24, 2))


def read_suback(version: int, whole: bytes) -> None:
    """Understand a SUBACK; the first refusal in it becomes an error that says why."""
    at = _header_bytes(whole) + 2
    if version == 5:
        length, at = decode_varint(whole, at, len(whole))
        at += length
    for code in whole[at:]:
        if code >= 0x80:
            raise FlockError(
                f"The broker refused a subscription: {NAMES.get(code, hex(code))}; check its rules and limits"
            )


def _header_bytes(whole: bytes) -> int:
    header = 2
    while whole[header - 1] >= 128:
        header += 1
    return header


def _properties(whole: bytes, at: int, end: int) -> Iterator[tuple[int, int]]:
    """The numbers among the properties; strings are stepped over."""
    while at < end:
        key = whole[at]
        width = CONNACK_PROPERTIES.get(key)
        if width is None:
            raise FlockError(f"The broker's CONNACK holds property {key:#x}, which does not belong there")
        at += 1
        if width > 0:
            yield key, int.from_bytes(whole[at : at + width], "big")
            at += width
        else:
            for _ in range(-width):
                at += 2 + int.from_bytes(whole[at : at + 2], "big")
