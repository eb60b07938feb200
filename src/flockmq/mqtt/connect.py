"""Decoding CONNECT: the one packet that brings its own version, and the one most often sent by what is no MQTT client.

```
 |name|level|flags|keep alive|properties (5)|client id|will properties (5), topic, payload|user name|password|
```
"""

from __future__ import annotations

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt.fields import read_binary, read_text, read_u16
from flockmq.mqtt.packets import Connect, Will
from flockmq.mqtt.properties import IN_CONNECT, IN_WILL, UNBOUNDED, Properties, decode_properties, property_block
from flockmq.mqtt.reasons import (
    CLIENT_IDENTIFIER_NOT_VALID,
    MALFORMED_PACKET,
    PROTOCOL_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from flockmq.mqtt.topics import check_topic_name


def protocol_level(body: bytes) -> int:
    """Look up the level a CONNECT asks for, whatever else may be wrong with it; 0 when this is no MQTT at all."""
    if body.startswith(b"\x00\x04MQTT") and len(body) > 6:
        return body[6]
    if body.startswith(b"\x00\x06MQIsdp") and len(body) > 8:
        return body[8]
    return 0


def decode_connect(body: bytes, properties_max: int = UNBOUNDED) -> Connect:
    """Decode the body of a CONNECT; at most so many properties of its own, and of its will."""
    end = len(body)
    name = read_text(body, 0, end)
    pos = 2 + len(name)
    if pos >= end:
        raise RemoteProtocolError(MALFORMED_PACKET, "CONNECT ends before the protocol version")
    version = body[pos]
    _check_protocol(name, version)
    pos += 1
    if pos >= end:
        raise RemoteProtocolError(MALFORMED_PACKET, "CONNECT ends before its flags")
    flags = body[pos]
    _check_flags(flags, version)
    keep_alive = read_u16(body, pos + 1, end)
    pos += 3
    properties: Properties | None = None
    if version == 5:
        start, pos = property_block(body, pos, end)
        properties = decode_properties(body, start, pos, IN_CONNECT, properties_max)
        if properties.authentication_data is not None and properties.authentication_method is None:
            raise RemoteProtocolError(PROTOCOL_ERROR, "CONNECT has authentication data but no authentication method")
    client_id = read_text(body, pos, end)
    pos += 2 + len(client_id)
    clean_start = flags & 0x02 != 0
    if not client_id and version != 5 and (version == 3 or not clean_start):  # 3.1.1: [MQTT-3.1.3-8]
        raise RemoteProtocolError(CLIENT_IDENTIFIER_NOT_VALID, "An empty client id needs a clean session")
    will: Will | None = None
    if flags & 0x04:
        will, pos = _decode_will(body, pos, end, flags, version, properties_max)
    username: str | None = None
    if flags & 0x80:  # [MQTT-3.1.2-17]
        name = read_text(body, pos, end)
        pos += 2 + len(name)
        username = name.decode()
    password: bytes | None = None
    if flags & 0x40:  # [MQTT-3.1.2-19]
        password = read_binary(body, pos, end)
        pos += 2 + len(password)
    if pos != end:
        raise RemoteProtocolError(MALFORMED_PACKET, "CONNECT goes on after its last field")
    return Connect(version, client_id.decode(), clean_start, keep_alive, properties, will, username, password)


def _check_protocol(name: bytes, level: int) -> None:
    if name == b"MQTT":
        if level not in (4, 5):  # [MQTT-3.1.2-2]
            raise RemoteProtocolError(
                UNSUPPORTED_PROTOCOL_VERSION, f"Protocol level {level} is not supported; use 4 (3.1.1) or 5"
            )
    elif name == b"MQIsdp":
        if level != 3:
            raise RemoteProtocolError(
                UNSUPPORTED_PROTOCOL_VERSION, f"Protocol level {level} of MQIsdp is not supported; use MQTT 3.1.1 or 5"
            )
    else:  # [MQTT-3.1.2-1]
        raise RemoteProtocolError(UNSUPPORTED_PROTOCOL_VERSION, f"Protocol {name[:32]!r} is not MQTT")


def _check_flags(flags: int, version: int) -> None:
    if flags & 0x01:  # [MQTT-3.1.2-3]
        raise RemoteProtocolError(MALFORMED_PACKET, "CONNECT reserved flag is set")
    if flags & 0x04:
        if flags & 0x18 == 0x18:  # [MQTT-3.1.2-12], 3.1.1: [MQTT-3.1.2-14]
            raise RemoteProtocolError(MALFORMED_PACKET, "CONNECT asks for a will with QoS 3")
    elif flags & 0x18:  # [MQTT-3.1.2-11], 3.1.1: [MQTT-3.1.2-13]
        raise RemoteProtocolError(MALFORMED_PACKET, "CONNECT has a will QoS but no will")
    elif flags & 0x20:  # [MQTT-3.1.2-13], 3.1.1: [MQTT-3.1.2-15]
        raise RemoteProtocolError(MALFORMED_PACKET, "CONNECT has will retain set but no will")
    if version != 5 and flags & 0xC0 == 0x40:  # 3.1.1: [MQTT-3.1.2-22]; MQTT 5 allows it
        raise RemoteProtocolError(MALFORMED_PACKET, "CONNECT has a password but no user name")


def _decode_will(body: bytes, pos: int, end: int, flags: int, version: int, properties_max: int) -> tuple[Will, int]:
    properties: Properties | None = None
    if version == 5:
        start, pos = property_block(body, pos, end)
        properties = decode_properties(body, start, pos, IN_WILL, properties_max)
    topic = read_binary(body, pos, end)
    check_topic_name(topic)  # [MQTT-3.1.3-11]
    pos += 2 + len(topic)
    payload = read_binary(body, pos, end)
    pos += 2 + len(payload)
    return Will(topic, payload, flags >> 3 & 3, flags & 0x20 != 0, properties), pos
