"""A run on its way to another node: the publisher's own bytes behind a small head.

```
 flags 1 byte | length of the wire bytes 4 | [time left, ms 8] | [shared: hops 1, group, filter, publisher's id] | wire
```
Numbers are little-endian, texts have two bytes of length before them. Most heads are five bytes. What arrives is
looked at as closely as what clients send: the loop that reads clients' buffers reads these, too.

A parcel that is not shared is for all clients of the node that gets it; it is never sent on. A shared one is for one
member of its group; a node without one sends it on, ``HOPS_MAX`` times at most. The publisher's client id is in shared
ones only, for choices by its hash. "No Local" needs none: a session and the connection that it publishes through are
on the same node. (What a client publishes and then overtakes by moving to another node reaches it there as if
another client had sent it.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt.fields import read_text, read_u16
from flockmq.mqtt.properties import PUBLISH_NEEDS_DECISION, property_block, scan_publish_properties
from flockmq.mqtt.reasons import MALFORMED_PACKET
from flockmq.mqtt.run import NO_POSITIONS, Run
from flockmq.mqtt.scan import scan_run
from flockmq.mqtt.varint import frame_length

if TYPE_CHECKING:
    from flockmq.routing.shared import ShareGroup

HEAD_BYTES: Final = 5
VERSION_5: Final = 1
EXPIRES: Final = 2
SHARED: Final = 4
KNOWN_FLAGS: Final = 7
HOPS_MAX: Final = 2
PACKET_MAX: Final = 268_435_460


class Parcel:
    """A run as it arrived, and with ``group`` the shared group that shall get it."""

    def __init__(self, run: Run, hops: int, group: bytes, topic_filter: bytes, publisher_id: str) -> None:
        self.run = run
        self.hops = hops
        """How many nodes have passed it on."""
        self.group = group
        self.topic_filter = topic_filter
        self.publisher_id = publisher_id


def run_head(run: Run, now: int) -> bytes:
    """What goes before the wire bytes of a run that is not shared."""
    flags = VERSION_5 if run.version == 5 else 0
    length = len(run.wire)
    if not run.expires_at:
        return bytes((flags, length & 0xFF, length >> 8 & 0xFF, length >> 16 & 0xFF, length >> 24))
    left = max(run.expires_at - now, 1)
    return bytes((flags | EXPIRES,)) + length.to_bytes(4, "little") + left.to_bytes(8, "little")


def shared_head(run: Run, group: ShareGroup, hops: int, publisher_id: str, now: int) -> bytes:
    """What goes before the wire bytes of a run that is for one member of a group."""
    head = run_head(run, now)
    sender = publisher_id.encode()[:0xFFFF]
    return (
        bytes((head[0] | SHARED,))
        + head[1:]
        + bytes((hops,))
        + len(group.name).to_bytes(2, "little")
        + group.name
        + len(group.topic_filter).to_bytes(2, "little")
        + group.topic_filter
        + len(sender).to_bytes(2, "little")
        + sender
    )


def read_parcels(body: bytes, pos: int, now: int) -> list[Parcel]:
    """All parcels from ``pos`` to the end of a part; RemoteProtocolError when anything in them is wrong."""
    parcels: list[Parcel] = []
    end = len(body)
    while pos < end:
        at = pos + HEAD_BYTES
        if at > end:
            raise malformed("ends within a head")
        flags = body[pos]
        length = body[pos + 1] | body[pos + 2] << 8 | body[pos + 3] << 16 | body[pos + 4] << 24
        if flags > KNOWN_FLAGS:
            raise malformed(f"has the unknown flags 0x{flags:02X}")
        expires_at = 0
        hops = 0
        group = b""
        topic_filter = b""
        publisher_id = ""
        if flags & EXPIRES:
            if at + 8 > end:
                raise malformed("ends within a head")
            expires_at = now + int.from_bytes(body[at : at + 8], "little")
            at += 8
        if flags & SHARED:
            if at >= end:
                raise malformed("ends within a head")
            hops = body[at]
            group = short_text(body, at + 1, end)
            at += 3 + len(group)
            topic_filter = short_text(body, at, end)
            at += 2 + len(topic_filter)
            sender = short_text(body, at, end)
            at += 2 + len(sender)
            publisher_id = sender.decode("utf-8", "replace")
        pos = at + length
        if pos > end:
            raise malformed(f"announces {length} bytes where {end - at} are left")
        version = 5 if flags & VERSION_5 else 4
        run = scan_run(body, at, pos, version, PACKET_MAX) if length and body[at] >> 4 == 3 else None
        if run is None or len(run.wire) != length:
            run = read_single(body[at:pos], version)
        run.expires_at = expires_at
        parcels.append(Parcel(run, hops, group, topic_filter, publisher_id))
    return parcels


def read_single(wire: bytes, version: int) -> Run:
    """One message that the hot loop does not take: with a payload format, or of the broker's own (packet id 0)."""
    end = len(wire)
    header, total = frame_length(wire, 0, end, version) if end else (0, 0)
    first = wire[0] if end else 0
    qos = first >> 1 & 3
    if total != end or not total or first >> 4 != 3 or first & 0x08 or qos == 3:
        raise malformed("is not what a node forwards")
    topic = read_text(wire, header, end)
    pos = header + 2 + len(topic)
    pid_at = NO_POSITIONS
    if qos:
        read_u16(wire, pos, end)
        pid_at = [pos]
        pos += 2
    if version == 5:
        start, stop = property_block(wire, pos, end)
        if scan_publish_properties(wire, start, stop) & PUBLISH_NEEDS_DECISION:
            raise malformed("has properties that belong to a connection")
    return Run(version, qos, first & 1 != 0, topic, wire, 1, pid_at, [end])


def short_text(body: bytes, pos: int, end: int) -> bytes:
    """Bytes with their length before them."""
    if pos + 2 > end:
        raise malformed("ends within a head")
    stop = pos + 2 + (body[pos] | body[pos + 1] << 8)
    if stop > end:
        raise malformed("ends within a head")
    return body[pos + 2 : stop]


def malformed(what: str) -> RemoteProtocolError:
    """The error for a parcel that can't be read."""
    return RemoteProtocolError(MALFORMED_PACKET, f"A message from another node {what}")
