"""Builds the packets of one publisher: a block of units that all have the same size.

```
 unit over TCP, TLS:      | header | topic length | topic | packet id | properties | payload |
 unit over WebSocket:     | frame head, key | the same, masked |
                                                    ^ digits_at: digits of a fresh name
                                                                               ^ stamp_at: time of sending
```
A WebSocket unit is one frame with one packet, as real clients send it. The key is the same for all units, so what
changes in place later can be masked byte by byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flockmq.client.load import frames
from flockmq.client.load.plan import FRESH_DIGITS, Load, topic_name, topics_of_publisher
from flockmq.errors import FlockError
from flockmq.wire.websocket import encode_client_frame

BLOCK_BYTES: Final = 262_144
FRESH_UNITS: Final = 1_000
PACKET_IDS_MAX: Final = 65_000


@dataclass(frozen=True, slots=True)
class Units:
    """The block and where things stand in each unit (0: not there)."""

    block: bytearray
    count: int
    unit_bytes: int
    frame_bytes: int
    """Length of the WebSocket frame head with its key; 0 without WebSocket."""
    stamp_at: int
    digits_at: int
    key: bytes
    preamble: bytes
    """Messages that go out first and once: they tell the broker the topic aliases."""
    preamble_count: int

    def key_at(self, place: int, width: int) -> bytes:
        """The WebSocket key as it falls on ``width`` bytes of a unit; zeros without WebSocket."""
        start = (place - self.frame_bytes) % 4
        return ((self.key or bytes(4)) * (width // 4 + 2))[start : start + width]


def build_units(load: Load, publisher: int, key: bytes = b"") -> Units:
    """Build the block of one publisher; ``key`` is the four byte WebSocket key, empty for plain MQTT."""
    topics = [topic_name(load, topic).encode() for topic in topics_of_publisher(load, publisher)]
    count = unit_count(load, len(topics))
    plain = [_packet(load, topics, index, named=not load.topic_alias) for index in range(count)]
    preamble = [_packet(load, topics, index, named=True) for index in range(len(topics) if load.topic_alias else 0)]
    units = [encode_client_frame(one, key) for one in plain] if key else plain
    first = [encode_client_frame(one, key) for one in preamble] if key else preamble
    unit_bytes = len(units[0])
    frame_bytes = unit_bytes - len(plain[0])
    name_at = frame_bytes + plain[0].index(topics[0]) if load.fresh_names else 0
    return Units(
        block=bytearray().join(units),
        count=count,
        unit_bytes=unit_bytes,
        frame_bytes=frame_bytes,
        stamp_at=unit_bytes - load.payload_bytes if load.timed else 0,
        digits_at=name_at + len(topics[0]) - FRESH_DIGITS if load.fresh_names else 0,
        key=key,
        preamble=b"".join(first),
        preamble_count=len(first),
    )


def unit_count(load: Load, topics: int) -> int:
    """How many units a block gets: whole laps over the topics, and four windows so that packet ids are long free."""
    wanted = max(64, BLOCK_BYTES // (load.payload_bytes + 16))
    if load.qos:
        wanted = max(4 * load.window, 64)
    if load.fresh_names:
        wanted = max(wanted, FRESH_UNITS)
    count = topics * -(-wanted // topics)
    if load.qos and count > PACKET_IDS_MAX:
        raise FlockError(
            f"{topics} topics for a publisher and a window of {load.window} need more packet ids than there are; "
            "use more publishers or fewer topics"
        )
    return count


def _packet(load: Load, topics: list[bytes], index: int, *, named: bool) -> bytes:
    topic = index % len(topics)
    properties = frames.user_properties(load.user_properties)
    packet_id = index + 1
    if load.topic_alias:
        properties = frames.topic_alias(topic + 1) + properties
        if named:
            packet_id = 65_535 - index
    return frames.publish(
        load.version,
        topics[topic] if named else b"",
        b"x" * load.payload_bytes,
        qos=load.qos,
        packet_id=packet_id if load.qos else 0,
        retain=load.retain,
        properties=properties,
    )
