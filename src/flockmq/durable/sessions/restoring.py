"""A session is made from its record, because its client continues on this node.

```
 record: subscriptions --> the session and the table        positions, starts --> places --> Catchup: read on from there
 standing, if its former owner lives (standing.py) ------> exact places; messages in flight, with their packet ids
```
| partition | the session goes on |
| --- | --- |
| the former owner has told a position | there, with the starts that it has told |
| the record has a position | there; subscriptions that began later get nothing from before their start |
| only starts of subscriptions | at the first of them |
| neither: the partition is newer than what the record knows | at its beginning: all came after the SUBACK |
| offsets that the record lists (``machine/session_sent.py``) | past these: their messages are under way, or done |

Messages that the record lists are in flight again: PUBREL follows CONNACK for those that the client has; the others are
read from their logs and sent again (``sending.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.machine.session_bodies import NO_LOCAL, RETAIN_AS_PUBLISHED
from flockmq.durable.sessions.sending import unread_flights
from flockmq.mqtt.topics import has_wildcard, split_shared
from flockmq.node.subscribing import filter_weight
from flockmq.routing.subscription import Subscription
from flockmq.session.outbound import PACKET_IDS, Outbound
from flockmq.session.places import LISTED, POSITION, START, LogPlace
from flockmq.session.session import Session

PID_STRIDE: Final = 40_503
"""Spreads the first packet ids of owners that follow each other."""

if TYPE_CHECKING:
    from flockmq.durable.deliver.interest import Interest
    from flockmq.durable.machine.session_record import SessionRecord
    from flockmq.durable.machine.session_sent import SentMessages
    from flockmq.durable.sessions.standing import Standing
    from flockmq.node.state import NodeState


def restore(
    node: NodeState, client_id: str, record: SessionRecord, standing: Standing | None, interest: Interest, now: int
) -> Session:
    """Make the session, enter its subscriptions, and let it read on from where it stood."""
    limits = node.settings.limits
    session = Session(client_id, record.version, now)
    session.username = None if record.user is None else record.user.decode("utf-8", "replace")
    session.expiry_s = record.expiry_s
    session.queue_messages_max = limits.queue_messages_max
    session.queue_bytes_max = limits.queue_bytes_max
    # The client may remember unreleased QoS 2 ids of the former owner: begin far from them.
    session.outbound = Outbound(limits.queue_messages_max, limits.queue_bytes_max)
    session.outbound.next_pid = 1 + record.epoch * PID_STRIDE % PACKET_IDS
    if standing is not None:
        fill(session.outbound, standing)  # ``sending.py`` puts the other listed messages in flight
        pass_over(session.outbound, record.sent)
    else:
        put_under_way(session.outbound, record.sent)
    session.is_logged = True
    session.has_record = True
    session.record_epoch = record.epoch
    for full_filter, stored in record.subscriptions.items():
        group, topic_filter = split_shared(full_filter)
        subscription = Subscription(
            session,
            topic_filter,
            group or b"",
            stored.qos,
            stored.options & NO_LOCAL != 0,
            stored.options & RETAIN_AS_PUBLISHED != 0,
            stored.options >> 2,
            stored.identifier,
        )
        session.subscriptions[full_filter] = subscription
        session.subscriptions_weight += filter_weight(full_filter)
        node.table.add(subscription)
    session.places = places_of(session, record, interest)
    if standing is not None:
        session.places = exact_places(session.places, standing.places)
    if node.ports.replay is not None:
        node.ports.replay.arrived(session, now)
    return session


def put_under_way(outbound: Outbound, sent: SentMessages) -> None:
    """Put listed messages in flight under their packet ids; no other message gets one of these ids."""
    pass_over(outbound, sent)
    for packet_id, message in sent.by_id.items():
        if message.is_received:
            outbound.releasing[packet_id] = True
            outbound.inflight += 1
    outbound.add_flights(
        unread_flights({packet_id: one for packet_id, one in sent.by_id.items() if not one.is_received})
    )


def pass_over(outbound: Outbound, sent: SentMessages) -> None:
    """Advance the next packet id past the ids that the record lists."""
    while outbound.next_pid in sent.by_id:
        outbound.next_pid = outbound.next_pid % PACKET_IDS + 1


def fill(outbound: Outbound, standing: Standing) -> None:
    """Fill the window and the queue with the messages of the former owner."""
    outbound.next_pid = standing.next_pid
    for pid in standing.releasing:
        outbound.releasing[pid] = True
    outbound.inflight = len(standing.releasing)
    for delivery in standing.deliveries:
        outbound.held += delivery.held
        if delivery.first:
            outbound.flights.append(delivery)
            outbound.inflight += delivery.high
        else:
            outbound.queue.append(delivery)
            outbound.queued += delivery.high


def exact_places(stored: list[LogPlace], told: list[LogPlace]) -> list[LogPlace]:
    """Places that the former owner told; for other partitions, those of the record."""
    known = {place.group for place in told if place.kind == POSITION}
    wanted = {place.group for place in stored}
    exact = [place for place in told if place.group in known and place.group in wanted and place.kind != LISTED]
    return exact + [place for place in stored if place.group not in known or place.kind == LISTED]


def places_of(session: Session, record: SessionRecord, interest: Interest) -> list[LogPlace]:
    """Where the session stands, by partition; see the module."""
    starts: dict[int, list[tuple[bytes, int]]] = {}
    for full_filter, subscription in session.subscriptions.items():
        if subscription.group:
            continue
        stored = record.subscriptions[full_filter].starts
        is_name = not has_wildcard(subscription.topic_filter)
        for topic in interest.sources(subscription.topic_filter):
            groups = [topic.group_of(subscription.topic_filter)] if topic.is_capture and is_name else topic.groups
            for group in groups:
                starts.setdefault(group, []).append((subscription.topic_filter, stored.get(group, 0)))
    places: list[LogPlace] = []
    listed = record.sent.offsets()
    positions = record.positions
    for group, found in starts.items():
        position = positions.get(group, min([offset for _, offset in found]))
        places.append(LogPlace(POSITION, b"", group, position))
        places += [LogPlace(START, name, group, offset) for name, offset in found if offset > position]
        places += [LogPlace(LISTED, b"", group, offset) for offset in listed.get(group, ()) if offset >= position]
    return places
