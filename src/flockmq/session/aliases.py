"""Topic aliases towards a client: the first message to a topic names both, later ones only the alias.

The first topics a connection is sent get the aliases there are; later topics go without. A client that allows n aliases
thus saves most for its steadiest topics, and the broker never has to reassign one.
"""

from __future__ import annotations

from flockmq.mqtt.namespaces import outside_topic
from flockmq.mqtt.run import Run
from flockmq.mqtt.varint import encode_varint
from flockmq.session.connection import Connection


def with_alias(
    connection: Connection, run: Run, qos: int, retain: bool, properties: bytes, first_pid: int = 0
) -> list[bytes]:
    """The packets of a run, using an alias for its topic if the client's table has room for one.

    At QoS 0 those that are too large for the client are left out.
    """
    aliases = connection.aliases_out
    if aliases is None:
        aliases = {}
        connection.aliases_out = aliases
    alias = aliases.get(run.topic, 0)
    topic = b"" if alias else outside_topic(run.topic)
    # A packet that is too large will not be sent, so it must not set an alias either.
    limit = connection.client_packet_max
    if (
        not alias
        and len(aliases) < connection.client_alias_max
        and (not limit or len(run.wire) + len(properties) + 16 < limit)
    ):
        alias = len(aliases) + 1
        aliases[run.topic] = alias
    alias_property = b"\x23" + bytes((alias >> 8, alias & 0xFF)) if alias else b""
    parts: list[bytes] = []
    for index in range(run.count):
        own, payload = run.parse(index)
        block = own + properties + alias_property
        body = bytes((len(topic) >> 8, len(topic) & 0xFF)) + topic
        if qos:
            pid = first_pid + index
            body += bytes((pid >> 8, pid & 0xFF))
        body += encode_varint(len(block)) + block + payload
        packet = bytes((0x30 | qos << 1 | int(retain),)) + encode_varint(len(body)) + body
        if not limit or len(packet) <= limit or first_pid:
            parts.append(packet)
        if alias:
            topic = b""
    return parts


def send_with_alias(connection: Connection, run: Run, retain: bool, properties: bytes) -> int:
    """Write a QoS 0 run with its alias; how many messages were dropped. An alias that was never sent is taken back."""
    known = connection.aliases_out is not None and run.topic in connection.aliases_out
    packets = with_alias(connection, run, 0, retain, properties)
    if connection.send(b"".join(packets), len(packets)):
        return run.count - len(packets)
    if not known and connection.aliases_out is not None:
        connection.aliases_out.pop(run.topic, None)
    return run.count
