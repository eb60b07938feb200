"""A session out of its record: its node is gone, and its client goes on here.

```
 record: subscriptions --> the session and the table        positions, starts --> places --> Catchup: read on from there
```
| partition | the session goes on |
| --- | --- |
| the record has a position | there; subscriptions that began later get nothing from before their start |
| only starts of subscriptions | at the first of them |
| neither: the partition is newer than what the record knows | at its beginning: all came after the SUBACK |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.machine.session_bodies import NO_LOCAL, RETAIN_AS_PUBLISHED
from flockmq.mqtt.topics import has_wildcard, split_shared
from flockmq.node.subscribing import filter_weight
from flockmq.routing.subscription import Subscription
from flockmq.session.outbound import PACKET_IDS, Outbound
from flockmq.session.places import POSITION, START, LogPlace
from flockmq.session.session import Session

PID_STRIDE: Final = 40_503
"""Spreads the first packet ids of owners that follow each other."""

if TYPE_CHECKING:
    from flockmq.durable.deliver.interest import Interest
    from flockmq.durable.machine.session_record import SessionRecord
    from flockmq.node.state import NodeState


def restore(node: NodeState, client_id: str, record: SessionRecord, interest: Interest, now: int) -> Session:
    """Make the session, enter its subscriptions, and let it read on from where it stood."""
    limits = node.settings.limits
    session = Session(client_id, record.version, now)
    session.username = None if record.user is None else record.user.decode("utf-8", "replace")
    session.expiry_s = record.expiry_s
    session.queue_messages_max = limits.queue_messages_max
    session.queue_bytes_max = limits.queue_bytes_max
    # The client may remember ids of QoS 2 messages that it has not released: begin far from them.
    session.outbound = Outbound(limits.queue_messages_max, limits.queue_bytes_max)
    session.outbound.next_pid = 1 + record.epoch * PID_STRIDE % PACKET_IDS
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
    if node.ports.replay is not None:
        node.ports.replay.arrived(session, now)
    return session


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
    for group, found in starts.items():
        position = record.positions.get(group, min([offset for _, offset in found]))
        places.append(LogPlace(POSITION, b"", group, position))
        places += [LogPlace(START, name, group, offset) for name, offset in found if offset > position]
    return places
