"""A session as bytes, for its way to another node: all that a client may rely on when it comes back there.

```
 session = format, versions, epoch, expiry | user name | record | will | subscriptions | QoS 2 ids | outbound | places
 outbound = next packet id | ids being released | deliveries in flight, with their ids | deliveries that wait
 delivery = QoS, retain, first id, time left | shared group or log | subscription ids | acknowledged places | packets
```
Times travel as what is left or has passed: the clocks of two nodes have nothing in common. Messages are the wire bytes
of their runs, cut to what is not acknowledged; what comes in is checked as if a client had sent it.
"""

from __future__ import annotations

import struct
from typing import Final

from flockmq.mqtt.packets import Will
from flockmq.mqtt.properties import (
    IN_WILL,
    PUBLISH_NEEDS_DECISION,
    decode_properties,
    encode_block,
    property_block,
    scan_publish_properties,
)
from flockmq.mqtt.run import Run
from flockmq.mqtt.topics import check_topic_filter, check_topic_name, split_shared
from flockmq.mqtt.varint import decode_varint
from flockmq.node.subscribing import filter_weight
from flockmq.peering.fields import NUMBER_MAX, U16, U32, U64, Reader, large, malformed, sized
from flockmq.routing.plan import IDENTIFIERS_MAX
from flockmq.routing.shared import ShareGroup
from flockmq.routing.subscription import Subscription
from flockmq.session.outbound import DELIVERY_OVERHEAD_BYTES, PACKET_IDS, Delivery, LogSource, Outbound
from flockmq.session.places import START, LogPlace
from flockmq.session.session import Session

FORMAT: Final = 1
SESSION_BYTES_MAX: Final = 67_108_864
"""Largest session that moves. What waits beyond it is dropped, newest first, and counted."""
SUBSCRIPTIONS_MAX: Final = 1_000_000
DELIVERIES_MAX: Final = 4_000_000
WILL_BYTES_MAX: Final = 262_144
IDENTIFIERS_BYTES_MAX: Final = IDENTIFIERS_MAX * 5
NO_HOLES: Final[list[int]] = []

HEAD: Final = struct.Struct("<BBBBQIQQQ")
"""Format, MQTT version, flags, unused, epoch, expiry in s, age, time to expiry + 1 (0: not running), dropped."""
HAS_USERNAME: Final = 1
HAS_WILL: Final = 2
HAS_OUTBOUND: Final = 4
HAS_PLACES: Final = 8
HAS_PEER: Final = 16
HAS_RECORD: Final = 32
"""The log has a record of it, under the epoch that follows."""
PLACE: Final = struct.Struct("<BQQ")
"""What it is, partition, offset; then the filter of a subscription."""
PLACES_MAX: Final = 1_000_000
DELIVERY: Final = struct.Struct("<BBHQHHI")
"""MQTT version of the run, QoS and flags, first packet id (0: waits), time left + 1 (0: never expires), lengths of the
subscription ids, of the acknowledged places (in numbers) and of the packets."""
RETAIN: Final = 4
SHARED: Final = 8
LOGGED: Final = 16
"""Partition and offset of the first message follow."""
SOURCE: Final = struct.Struct("<QQ")
WILL: Final = struct.Struct("<BQ")
"""QoS and flags, time until it is due + 1 (0: its client is connected)."""


class GroupName:
    """A shared group by name: what a delivery was chosen by, until it meets the groups of its new node."""

    def __init__(self, group: bytes, topic_filter: bytes) -> None:
        self.group = group
        self.topic_filter = topic_filter


class MovedSession:
    """A session that came from another node, not yet anywhere in this one."""

    def __init__(self, session: Session, expires_in: int, will_in: int) -> None:
        self.session = session
        self.expires_in = expires_in
        """Ms until it expires; -1: never, or not while its client is connected."""
        self.will_in = will_in
        """Ms until its will is due; -1: it has none that runs."""


# --- out ---


def encode_session(
    session: Session,
    expires_in: int,
    will_in: int,
    now: int,
    logged: set[int] | None = None,
    bytes_max: int = SESSION_BYTES_MAX,
) -> bytes:
    """Encode a whole session. ``expires_in`` and ``will_in`` are ms, -1 where nothing runs.

    ``logged``: QoS 2 ids that are for logs to know. They stay behind; what a session says of them may be old.
    """
    flags = 0
    parts: list[bytes] = []
    if session.username is not None:
        flags |= HAS_USERNAME
        parts.append(sized(session.username.encode()))
    if session.peer:
        flags |= HAS_PEER
        parts.append(sized(session.peer.encode()))
    if session.is_logged:
        flags |= HAS_RECORD
        parts.append(U64.pack(session.record_epoch))
    if session.will is not None:
        flags |= HAS_WILL
        parts.append(encode_will(session.will, will_in))
    parts.append(U32.pack(len(session.subscriptions)))
    for full_filter, subscription in session.subscriptions.items():
        options = (
            subscription.qos
            | int(subscription.no_local) << 2
            | int(subscription.retain_as_published) << 3
            | subscription.retain_handling << 4
        )
        parts.append(sized(full_filter) + bytes((options,)) + U32.pack(subscription.identifier))
    parts.append(encode_ids(sorted((session.received or set()) - (logged or set()))))
    dropped = 0
    outbound = session.outbound
    if outbound is not None:
        flags |= HAS_OUTBOUND
        size = 0
        for part in parts:
            size += len(part)
        dropped = encode_outbound(outbound, parts, bytes_max - size - HEAD.size, now)
    if session.places:
        flags |= HAS_PLACES
        parts.append(encode_places(session.places))
    head = HEAD.pack(
        FORMAT,
        session.version,
        flags,
        0,
        session.epoch,
        session.expiry_s,
        max(now - session.created_at, 0),
        expires_in + 1,
        session.dropped + dropped,
    )
    return head + b"".join(parts)


def encode_ids(ids: list[int]) -> bytes:
    """Packet ids with their count."""
    return U32.pack(len(ids)) + b"".join([U16.pack(pid) for pid in ids])


def encode_places(places: list[LogPlace]) -> bytes:
    """Where it stands in logs."""
    encoded = [PLACE.pack(place.kind, place.group, place.offset) + sized(place.topic_filter) for place in places]
    return U32.pack(len(places)) + b"".join(encoded)


def encode_will(will: Will, due_in: int) -> bytes:
    """Encode a will, with when it is due."""
    head = WILL.pack(will.qos | (RETAIN if will.retain else 0), due_in + 1)
    return head + sized(will.topic) + sized(will.payload) + large(encode_block(will.properties))


def encode_outbound(outbound: Outbound, parts: list[bytes], room: int, now: int) -> int:
    """Encode what is on its way to the client; how many messages there was no room for."""
    parts.append(U16.pack(outbound.next_pid))
    parts.append(encode_ids(list(outbound.releasing)))
    flights: list[bytes] = []
    for flight in outbound.flights[outbound.flights_head :]:
        if flight.settled < flight.high - flight.low:
            encoded = encode_delivery(flight, now)
            room -= len(encoded)
            flights.append(encoded)
    parts.append(U32.pack(len(flights)))
    parts.extend(flights)
    waiting, dropped = encode_waiting(outbound, room, now)
    parts.append(waiting)
    return dropped


def encode_waiting(outbound: Outbound, room: int, now: int) -> tuple[bytes, int]:
    """Encode what waits for the client, and how many messages there was no room for."""
    encoded: list[bytes] = []
    dropped = 0
    for delivery in outbound.queue[outbound.queue_head :]:
        if delivery.run.expires_at and delivery.run.expires_at <= now:
            dropped += delivery.high - delivery.low
            continue
        part = encode_delivery(delivery, now) if room > 0 else b""
        room -= len(part)
        if room < 0 or not part:
            room = 0  # from here on nothing: holes in the order would be worse
            dropped += delivery.high - delivery.low
            continue
        encoded.append(part)
    return U32.pack(len(encoded)) + b"".join(encoded), dropped


def encode_delivery(delivery: Delivery, now: int) -> bytes:
    """Encode what is left of a delivery."""
    low = delivery.low + delivery.settled
    run = delivery.run.part(low, delivery.high)
    first = delivery.first + delivery.settled if delivery.first else 0
    flags = delivery.qos | (RETAIN if delivery.retain else 0)
    group = b""
    if isinstance(delivery.group, ShareGroup):
        flags |= SHARED
        group = sized(delivery.group.name) + sized(delivery.group.topic_filter)
    elif isinstance(delivery.group, LogSource):
        flags |= LOGGED
        group = SOURCE.pack(delivery.group.partition, delivery.group.offset + delivery.skipped + low)
    left = max(run.expires_at - now, 0) + 1 if run.expires_at else 0
    holes = sorted(place - delivery.settled for place in delivery.holes) if delivery.holes else []
    properties = delivery.properties
    head = DELIVERY.pack(run.version, flags, first, left, len(properties), len(holes), len(run.wire))
    return b"".join([head, group, properties, *[U16.pack(place) for place in holes], run.wire])


def encode_rest(outbound: Outbound | None, now: int, bytes_max: int = SESSION_BYTES_MAX) -> tuple[bytes, int]:
    """Encode what came for a session after it was encoded, and how many messages there was no room for."""
    if outbound is None:
        return bytes((FORMAT,)) + U32.pack(0), 0
    waiting, dropped = encode_waiting(outbound, bytes_max, now)
    return bytes((FORMAT,)) + waiting, dropped


# --- in ---


def decode_session(client_id: str, data: bytes, now: int, messages_max: int, bytes_max: int) -> MovedSession:
    """Build a session from what another node sent; its subscriptions are not in any table yet."""
    if len(data) > SESSION_BYTES_MAX + SESSION_BYTES_MAX // 4:
        raise malformed("a session that is too large")
    reader = Reader(data)
    check_format(reader)
    version = reader.u8()
    if version not in (4, 5):
        raise malformed(f"a session of MQTT version {version}")
    flags = reader.u8()
    reader.u8()
    session = Session(client_id, version, now)
    session.epoch = reader.number()
    session.expiry_s = reader.u32()
    session.created_at = now - reader.number()
    expires_in = reader.number() - 1
    session.dropped = reader.number()
    session.queue_messages_max = messages_max
    session.queue_bytes_max = bytes_max
    will_in = -1
    if flags & HAS_USERNAME:
        session.username = reader.text()
    if flags & HAS_PEER:
        session.peer = reader.text()
    if flags & HAS_RECORD:
        session.is_logged = True
        session.has_record = True
        session.record_epoch = reader.number()
    if flags & HAS_WILL:
        session.will, will_in = decode_will(reader)
    for _ in range(reader.count(SUBSCRIPTIONS_MAX, 7)):
        read_subscription(reader, session)
    received = read_ids(reader)
    if received:
        session.received = set(received)
    if flags & HAS_OUTBOUND:
        session.outbound = read_outbound(reader, messages_max, bytes_max, now)
    if flags & HAS_PLACES:
        session.places = [read_place(reader) for _ in range(reader.count(PLACES_MAX, PLACE.size + 2))]
    reader.finish()
    return MovedSession(session, expires_in, will_in)


def check_format(reader: Reader) -> None:
    """Refuse what a newer version wrote."""
    found = reader.u8()
    if found != FORMAT:
        raise malformed(f"a session in format {found}, this one knows {FORMAT}")


def read_ids(reader: Reader) -> list[int]:
    """Packet ids, each of them once."""
    ids = [reader.u16() for _ in range(reader.count(PACKET_IDS, 2))]
    if len(set(ids)) < len(ids) or 0 in ids:
        raise malformed("a packet id twice, or none")
    return ids


def decode_will(reader: Reader) -> tuple[Will, int]:
    """A will, and in how many ms it is due (-1: not running)."""
    flags = reader.u8()
    due_in = reader.number() - 1
    topic = reader.sized()
    check_topic_name(topic)
    payload = reader.sized()
    block = reader.large(WILL_BYTES_MAX)
    if flags & 3 == 3:
        raise malformed("a will with QoS 3")
    properties = decode_properties(block, 0, len(block), IN_WILL)
    return Will(topic, payload, flags & 3, flags & RETAIN != 0, properties), due_in


def read_subscription(reader: Reader, session: Session) -> None:
    """One subscription, into the session."""
    full_filter = reader.sized()
    options = reader.u8()
    identifier = reader.u32()
    group, topic_filter = split_shared(full_filter)
    check_topic_filter(topic_filter)
    qos = options & 3
    handling = options >> 4 & 3
    if qos == 3 or handling == 3 or options >> 6 or identifier > 268_435_455 or full_filter in session.subscriptions:
        raise malformed("a subscription with options that do not exist, or twice")
    session.subscriptions[full_filter] = Subscription(
        session, topic_filter, group or b"", qos, options & 4 != 0, options & 8 != 0, handling, identifier
    )
    session.subscriptions_weight += filter_weight(full_filter)


def read_place(reader: Reader) -> LogPlace:
    """One place in a log."""
    kind, group, offset = PLACE.unpack_from(reader.data, reader.skip(PLACE.size))
    topic_filter = reader.sized()
    if kind > START or group > NUMBER_MAX or offset > NUMBER_MAX or (kind == START) != bool(topic_filter):
        raise malformed("a place in a log that can't be")
    return LogPlace(kind, topic_filter, group, offset)


def read_outbound(reader: Reader, messages_max: int, bytes_max: int, now: int) -> Outbound:
    """The window and the queue; they are checked to be such as could have come about."""
    outbound = Outbound(messages_max, bytes_max)
    outbound.next_pid = reader.u16()
    if outbound.next_pid == 0:
        raise malformed("packet id 0")
    releasing = read_ids(reader)
    for pid in releasing:
        outbound.releasing[pid] = True
    outbound.inflight = len(releasing)
    age = PACKET_IDS + 1
    for _ in range(reader.count(PACKET_IDS, DELIVERY.size)):
        flight = read_delivery(reader, now, b"")
        count = flight.high - flight.low
        if flight.first == 0 or flight.first + count - 1 > PACKET_IDS:
            raise malformed("messages in flight with ids that do not exist")
        older = outbound.age(flight.first)
        if older >= age or older < count:
            raise malformed("messages in flight whose ids are not in their order")
        age = older - count + 1
        for place in range(count):
            if flight.first + place in outbound.releasing and not (flight.holes and place in flight.holes):
                raise malformed("a packet id that is in flight and being released")
        outbound.flights.append(flight)
        outbound.held += flight.held
        outbound.inflight += len(flight.unsettled())
    for waiting in read_waiting(reader, now):
        outbound.queue.append(waiting)
        outbound.queued += waiting.high
        outbound.held += waiting.held
    return outbound


def read_waiting(reader: Reader, now: int) -> list[Delivery]:
    """Deliveries that have no packet ids yet."""
    found: list[Delivery] = []
    topic = b""
    for _ in range(reader.count(DELIVERIES_MAX, DELIVERY.size)):
        delivery = read_delivery(reader, now, topic)
        topic = delivery.run.topic
        if delivery.first or delivery.holes:
            raise malformed("waiting messages that have packet ids")
        found.append(delivery)
    return found


def read_delivery(reader: Reader, now: int, last_topic: bytes) -> Delivery:
    """One delivery, with its run built anew; ``last_topic`` is one that is known to be valid."""
    data = reader.data
    version, flags, first, left, identifiers, count, size = DELIVERY.unpack_from(data, reader.skip(DELIVERY.size))
    if left > NUMBER_MAX:
        raise malformed("a message that never expires and does")
    group: object = None
    if flags & SHARED:
        name = reader.sized()
        group = GroupName(name, reader.sized())
    elif flags & LOGGED:
        partition = reader.number()
        group = LogSource(partition, reader.number())
    properties = b""
    if identifiers:
        pos = reader.skip(identifiers)
        properties = data[pos : pos + identifiers]
        check_identifiers(properties)
    holes = [reader.u16() for _ in range(count)] if count else NO_HOLES
    pos = reader.skip(size)
    run = read_run(data[pos : pos + size], version, now + left - 1 if left else 0, last_topic)
    qos = flags & 3
    if not 1 <= qos <= run.qos:
        raise malformed("a delivery with a QoS its messages do not have")
    delivery = Delivery(run, 0, run.count, qos, flags & RETAIN != 0, properties, group, first)
    for place in holes:
        if place >= run.count or place == 0 or not delivery.settle(place):
            raise malformed("acknowledged messages that do not exist")
    delivery.held = len(run.wire) + DELIVERY_OVERHEAD_BYTES
    return delivery


def check_identifiers(properties: bytes) -> None:
    """Only subscription identifiers are added to messages on their way to a subscriber."""
    end = len(properties)
    if end > IDENTIFIERS_BYTES_MAX:
        raise malformed("too many subscription identifiers")
    pos = 0
    while pos < end:
        if properties[pos] != 0x0B:
            raise malformed("a property that is no subscription identifier")
        identifier, pos = decode_varint(properties, pos + 1, end)
        if identifier == 0:
            raise malformed("subscription identifier 0")


def read_run(wire: bytes, version: int, expires_at: int, last_topic: bytes = b"") -> Run:
    """A run from its packets, which must be as normal as runs are."""
    end = len(wire)
    if end < 5 or version not in (4, 5) or wire[0] >> 4 != 3 or wire[0] & 0x08:
        raise malformed("something that is no run of messages")
    first = wire[0]
    qos = first >> 1 & 3
    if qos in (0, 3):
        raise malformed("a queued message without acknowledgement")
    topic = b""
    pid_at: list[int] = []
    ends: list[int] = []
    pos = 0
    while pos < end:
        length, at = decode_varint(wire, pos + 1, end)
        stop = at + length
        if wire[pos] != first or stop > end or length < 4:
            raise malformed("a run of messages that is cut off or not of one kind")
        body = at + 2 + (wire[at] << 8 | wire[at + 1])
        if body + 2 > stop:
            raise malformed("a message that is shorter than its topic")
        if not ends:
            topic = wire[at + 2 : body]
            if topic != last_topic:
                check_topic_name(topic)
        elif wire[at + 2 : body] != topic:
            raise malformed("a run of messages to several topics")
        pid_at.append(body)
        if version == 5:
            if body + 2 < stop and wire[body + 2] == 0:
                start = after = 0  # the common case: none
            else:
                start, after = property_block(wire, body + 2, stop)
            if start != after and scan_publish_properties(wire, start, after) & PUBLISH_NEEDS_DECISION:
                raise malformed("a queued message with a topic alias or an expiry of its own")
        ends.append(stop)
        pos = stop
    return Run(version, qos, first & 1 != 0, topic, wire, len(ends), pid_at, ends, expires_at)


def decode_rest(data: bytes, now: int) -> list[Delivery]:
    """What came for a session while it moved."""
    reader = Reader(data)
    check_format(reader)
    found = read_waiting(reader, now)
    reader.finish()
    return found
