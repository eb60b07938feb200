"""SUBSCRIBE and UNSUBSCRIBE: enter a filter, answer, and send what is retained for it.

Each filter of a packet gets its own reason code. The answer goes out before any message of the new subscription; in a
cluster it waits until the other nodes know of it (``node.peers``), and messages may come before it, as MQTT allows.
Retained messages follow it always: only then nothing is published any more by a node that does not know.
"""

from __future__ import annotations

from typing import Final

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt import reasons
from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.namespaces import DOLLAR
from flockmq.mqtt.packets import Suback, Subscribe, SubscribeEntry, Unsuback, Unsubscribe
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.topics import check_topic_filter, split_shared
from flockmq.node.namespaces import is_foreign
from flockmq.node.retained_feed import add_retained
from flockmq.node.state import NodeState
from flockmq.routing.subscription import Subscription
from flockmq.session.connection import Connection
from flockmq.session.session import Session

WHY_REFUSED: Final = {
    reasons.NOT_AUTHORIZED: "This client may not subscribe to one of the filters",
    reasons.QUOTA_EXCEEDED: "The session holds as many subscriptions as it may",
    reasons.TOPIC_FILTER_INVALID: "One of the topic filters is not valid, too long or too deep",
}


def on_subscribe(node: NodeState, connection: Connection, packet: Subscribe) -> None:
    """Enter all filters of a SUBSCRIBE and answer it, now or when the other nodes know."""
    session = connection.session
    if session is None:
        return
    identifier = 0
    if packet.properties is not None and packet.properties.subscription_identifiers:
        identifier = packet.properties.subscription_identifiers[0]
    codes: list[int] = []
    fresh: list[Subscription] = []
    entered: list[Subscription] = []
    problem = 0
    for entry in packet.entries:
        code = subscribe(node, connection, session, entry, identifier, entered, fresh)
        if code >= 0x80:
            problem = problem or code
            if connection.version != 5:
                code = 0x80
        codes.append(code)
    node.stats.subscribes += len(codes)
    suback = encode_packet(Suback(packet.packet_id, codes, problem_text(connection, problem)), connection.version)
    if problem and connection.client_packet_max and len(suback) > connection.client_packet_max:
        suback = encode_packet(Suback(packet.packet_id, codes), connection.version)  # [MQTT-3.9.2-1]
    peers = node.peers
    if peers is not None and entered and peers.hold(connection, session, suback, entered, fresh, node.now):
        return
    subscribed(node, connection, session, suback, fresh)


def subscribed(
    node: NodeState, connection: Connection, session: Session, suback: bytes, fresh: list[Subscription]
) -> None:
    """Tell the client, and send what is retained; a connection that closed meanwhile is left alone."""
    if session.connection is not connection:
        return
    connection.answer(suback)
    add_retained(node, connection, session, fresh)


def problem_text(connection: Connection, code: int) -> Properties | None:
    """A reason string for the first filter that was refused, for clients that want one."""
    if not code or connection.version != 5 or not connection.wants_problem_information:
        return None
    properties = Properties()
    properties.reason_string = WHY_REFUSED.get(code, reasons.NAMES.get(code, ""))
    return properties


def subscribe(
    node: NodeState,
    connection: Connection,
    session: Session,
    entry: SubscribeEntry,
    identifier: int,
    entered: list[Subscription],
    fresh: list[Subscription],
) -> int:
    """Enter one filter; its reason code. It is added to ``entered``, and if it wants retained ones to ``fresh``."""
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
    if topic_filter[0] == DOLLAR and is_foreign(connection.space, topic_filter):
        return reasons.NOT_AUTHORIZED
    if not node.gate_is_open:
        identity = connection.identity
        if identity is None or not node.gate.may_subscribe(identity, topic_filter):
            return reasons.NOT_AUTHORIZED
    known = full_filter in session.subscriptions
    if not known:
        weight = session.subscriptions_weight + filter_weight(full_filter)
        if limits.subscriptions_max and weight > limits.subscriptions_max:
            return reasons.QUOTA_EXCEEDED
        session.subscriptions_weight = weight
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
    entered.append(subscription)
    wants_retained = entry.retain_handling == 0 or (entry.retain_handling == 1 and not known)
    if group is None and wants_retained:
        fresh.append(subscription)
    return entry.qos


def filter_weight(topic_filter: bytes) -> int:
    """As how many subscriptions a filter counts. Each level may cost a node of the tree, each byte is kept."""
    return 1 + topic_filter.count(b"/") // 16 + len(topic_filter) // 1_024


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
            session.subscriptions_weight -= filter_weight(topic_filter)
            node.table.remove(session, subscription.group, subscription.topic_filter)
            codes.append(reasons.SUCCESS)
    node.stats.unsubscribes += len(codes)
    connection.answer(encode_packet(Unsuback(packet.packet_id, codes), connection.version))
