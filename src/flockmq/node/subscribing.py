"""SUBSCRIBE and UNSUBSCRIBE: enter a filter, answer, and send what is retained for it.

The answer goes out before any message of the new subscription; each filter of a packet gets its own reason code.
"""

from __future__ import annotations

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt import reasons
from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.packets import Suback, Subscribe, SubscribeEntry, Unsuback, Unsubscribe
from flockmq.mqtt.topics import check_topic_filter, split_shared
from flockmq.node.state import NodeState
from flockmq.routing.subscription import Subscription
from flockmq.session.connection import Connection
from flockmq.session.session import Session


def on_subscribe(node: NodeState, connection: Connection, packet: Subscribe, now: int) -> None:
    """Enter all filters of a SUBSCRIBE."""
    session = connection.session
    if session is None:
        return
    identifier = 0
    if packet.properties is not None and packet.properties.subscription_identifiers:
        identifier = packet.properties.subscription_identifiers[0]
    codes: list[int] = []
    fresh: list[Subscription] = []
    for entry in packet.entries:
        code = subscribe(node, connection, session, entry, identifier, fresh)
        if connection.version != 5 and code >= 0x80:
            code = 0x80
        codes.append(code)
    node.stats.subscribes += len(codes)
    connection.reply(encode_packet(Suback(packet.packet_id, codes), connection.version))
    for subscription in fresh:
        send_retained(node, session, subscription, now)


def subscribe(
    node: NodeState,
    connection: Connection,
    session: Session,
    entry: SubscribeEntry,
    identifier: int,
    fresh: list[Subscription],
) -> int:
    """Enter one filter; its reason code. Those that want retained messages are added to ``fresh``."""
    limits = connection.limits
    full_filter = entry.topic_filter
    try:
        group, topic_filter = split_shared(full_filter)
        check_topic_filter(topic_filter, limits.topic_levels_max, limits.topic_bytes_max)
    except RemoteProtocolError as error:
        if error.reason_code != reasons.TOPIC_FILTER_INVALID or connection.version != 5:
            raise
        return error.reason_code
    if group is not None and entry.no_local:  # [MQTT-3.8.3-4]
        raise RemoteProtocolError(reasons.PROTOCOL_ERROR, "A shared subscription can't be No Local")
    if not node.gate_is_open:
        identity = connection.identity
        if identity is None or not node.gate.may_subscribe(identity, topic_filter):
            return reasons.NOT_AUTHORIZED
    known = full_filter in session.subscriptions
    if not known and limits.subscriptions_max and len(session.subscriptions) >= limits.subscriptions_max:
        return reasons.QUOTA_EXCEEDED
    subscription = Subscription(
        session,
        topic_filter,
        group or b"",
        entry.qos,
        entry.no_local,
        entry.retain_as_published,
        entry.retain_handling,
        identifier,
    )
    session.subscriptions[full_filter] = subscription
    node.table.add(subscription)
    wants_retained = entry.retain_handling == 0 or (entry.retain_handling == 1 and not known)
    if group is None and wants_retained:
        fresh.append(subscription)
    return entry.qos


def send_retained(node: NodeState, session: Session, subscription: Subscription, now: int) -> None:
    """Give a new subscription what is retained for its filter."""
    if session.connection is None:
        return
    stats = node.stats
    properties = subscription.target().identifier_properties
    for message in node.retained.match(subscription.topic_filter, now):
        run = message.run
        qos = subscription.qos if subscription.qos < run.qos else run.qos
        lost = session.deliver(run, qos, True, properties, None, now)
        if qos == 0:
            stats.publishes_out_qos0 += 1
            stats.dropped_slow += lost
        else:
            if qos == 1:
                stats.publishes_out_qos1 += 1
            else:
                stats.publishes_out_qos2 += 1
            stats.dropped_queue += lost


def on_unsubscribe(node: NodeState, connection: Connection, packet: Unsubscribe) -> None:
    """Remove all filters of an UNSUBSCRIBE."""
    session = connection.session
    if session is None:
        return
    codes: list[int] = []
    for topic_filter in packet.topic_filters:
        subscription = session.subscriptions.pop(topic_filter, None)
        if subscription is None:
            codes.append(reasons.NO_SUBSCRIPTION_EXISTED)
        else:
            node.table.remove(session, subscription.group, subscription.topic_filter)
            codes.append(reasons.SUCCESS)
    node.stats.unsubscribes += len(codes)
    connection.reply(encode_packet(Unsuback(packet.packet_id, codes), connection.version))
