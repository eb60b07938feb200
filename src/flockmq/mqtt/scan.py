"""The hot loop of the broker: find the run of plain PUBLISH packets at a place in a read buffer.

Plain means: nothing in the packet needs a decision of its own (no DUP, no topic alias, no message expiry). Within a run
each further packet costs one slice and one comparison as long as its size stays the same; everything that is checked
for the first packet (QoS, topic, properties) holds for the others because their bytes are equal.

```
 pos                                   end of run
  |30 4A 0003 t/a xxxx|30 4A 0003 t/a yyyy|30 0C 0003 t/a z|30 .. 0003 t/b ...
   `----prefix---'     `----prefix---'      other size: parsed once more, same topic: same run
```
``None`` is not an error: the packet is incomplete, or the ordinary decoder shall look at it (and name what is wrong).
"""

from __future__ import annotations

from typing import Final

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt.properties import HAS_PAYLOAD_FORMAT, PUBLISH_NEEDS_DECISION, UNBOUNDED, scan_publish_properties
from flockmq.mqtt.run import NO_POSITIONS, Run

KEPT_MAX: Final = 1_024
"""Most messages in a run of QoS 1 or 2. Queues are bounded by messages: runs much shorter than that let a publisher be
stopped in time, where a whole read of small messages would be too many."""


def scan_run(
    buf: bytes, pos: int, end: int, version: int, packet_max: int, properties_max: int = UNBOUNDED
) -> Run | None:
    """The longest run of plain PUBLISH packets at ``pos``; its length is ``len(run.wire)``."""
    first = buf[pos]
    qos = (first >> 1) & 3
    if first & 0x08 or qos == 3:
        return None
    begin = pos
    topic = b""
    topic_field = b""
    pid_at: list[int] = [] if qos else NO_POSITIONS
    ends: list[int] = [] if qos else NO_POSITIONS
    count = 0
    most = KEPT_MAX if qos else end
    while pos + 2 <= end and buf[pos] == first and count < most:
        at = pos + 1
        length = buf[at]
        if length >= 0x80:
            at, length = long_length(buf, at, end)
            if length < 0:
                break
        at += 1
        stop = at + length
        if stop > end or stop - pos > packet_max or length < 2:
            break
        if count:
            body = at + len(topic_field)
            if buf[at:body] != topic_field:
                break
        else:
            body = at + 2 + (buf[at] << 8 | buf[at + 1])
            if body == at + 2 or body > stop:
                break
            topic_field = buf[at:body]
            topic = buf[at + 2 : body]
        prefix_length = body - pos
        prefix = buf[pos:body] if stop < end else b""  # nothing follows that could be compared with it
        tail = b""
        tail_length = 0
        if qos:
            body += 2
            if body > stop or (buf[body - 2] == 0 and buf[body - 1] == 0):
                break
        if version == 5:
            tail = plain_properties(buf, body, stop, properties_max)
            tail_length = len(tail)
            if not tail_length:
                break
        # The packet at pos is plain. Take it, and all that follow with the same header, length, topic and properties.
        size = stop - pos
        if qos:
            pid_at.append(pos - begin + prefix_length)
            ends.append(stop - begin)
            pos = stop
            count += 1
            while pos + size <= end and count < most and buf[pos : pos + prefix_length] == prefix:
                body = pos + prefix_length
                if buf[body] == 0 and buf[body + 1] == 0:
                    break
                if tail_length and buf[body + 2 : body + 2 + tail_length] != tail:
                    break
                pid_at.append(body - begin)
                pos += size
                ends.append(pos - begin)
                count += 1
        else:
            if tail_length:
                prefix += tail
                prefix_length += tail_length
            pos = stop
            count += 1
            while pos + size <= end and buf[pos : pos + prefix_length] == prefix:
                pos += size
                count += 1
    if not count:
        return None
    return Run(version, qos, bool(first & 1), topic, buf[begin:pos], count, pid_at, ends)


def long_length(buf: bytes, at: int, end: int) -> tuple[int, int]:
    """A Remaining Length of several bytes from ``at`` on: where its last byte is, and the length; -1: not plain."""
    length = buf[at] & 0x7F
    shift = 7
    while True:
        at += 1
        if at == end or shift == 28:
            return at, -1
        byte = buf[at]
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            # Padded with a zero: wrong in MQTT 5, not to be forwarded in 3.1.1.
            return at, length if byte else -1
        shift += 7


def plain_properties(buf: bytes, pos: int, end: int, most: int = UNBOUNDED) -> bytes:
    """The property block at ``pos`` with its length if every property in it can be forwarded as it is, else nothing."""
    if pos >= end:
        return b""
    length = buf[pos]
    at = pos + 1
    if length == 0:
        return b"\0"
    if length >= 0x80:
        length &= 0x7F
        shift = 7
        while True:
            if at == end or shift == 28:
                return b""
            byte = buf[at]
            at += 1
            length |= (byte & 0x7F) << shift
            if byte == 0:  # longer than needed [MQTT-1.5.5-1]
                return b""
            if byte < 0x80:
                break
            shift += 7
    if at + length > end:
        return b""
    try:
        if scan_publish_properties(buf, at, at + length, most) & (PUBLISH_NEEDS_DECISION | HAS_PAYLOAD_FORMAT):
            return b""
    except RemoteProtocolError:
        return b""  # the ordinary decoder will say what is wrong
    return buf[pos : at + length]
