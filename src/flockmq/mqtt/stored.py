"""A retained PUBLISH that comes from a disk or another node, looked at as closely as one from a client.

What was stored is in the form that runs have: no DUP, no topic alias, no expiry, no subscription identifier, and it has
the retain flag and a payload. Its packet id means nothing.
"""

from __future__ import annotations

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt.properties import PUBLISH_NEEDS_DECISION, property_block, scan_publish_properties
from flockmq.mqtt.reasons import MALFORMED_PACKET
from flockmq.mqtt.run import NO_POSITIONS, Run, one_position
from flockmq.mqtt.topics import check_topic_name
from flockmq.mqtt.varint import decode_varint


def stored_run(version: int, wire: bytes, expires_at: int) -> Run:
    """The run that these bytes are; RemoteProtocolError when they are something else."""
    end = len(wire)
    if end < 2 or version not in (4, 5):
        raise RemoteProtocolError(MALFORMED_PACKET, "A retained message is cut off, or of an unknown MQTT version")
    first = wire[0]
    qos = first >> 1 & 3
    if first & 0xF9 != 0x31 or qos == 3:
        raise RemoteProtocolError(MALFORMED_PACKET, f"A retained message begins with 0x{first:02X}")
    length, at = decode_varint(wire, 1, end)
    if at + length != end or length < 2:
        raise RemoteProtocolError(MALFORMED_PACKET, "A retained message has another length than it says")
    body = at + 2 + (wire[at] << 8 | wire[at + 1])
    topic = wire[at + 2 : body]
    pid_at = NO_POSITIONS
    if qos:
        pid_at = one_position(body)
        body += 2
    if body > end:
        raise RemoteProtocolError(MALFORMED_PACKET, "A retained message ends within its topic name or packet id")
    check_topic_name(topic)
    if version == 5:
        start, body = property_block(wire, body, end)
        if scan_publish_properties(wire, start, body) & PUBLISH_NEEDS_DECISION:
            raise RemoteProtocolError(MALFORMED_PACKET, "A retained message holds a topic alias or an expiry")
    if body == end:
        raise RemoteProtocolError(MALFORMED_PACKET, "A retained message has no payload")
    run = Run(version, qos, True, topic, wire, 1, pid_at, one_position(end), expires_at)
    run.keeps_forms = False
    return run
