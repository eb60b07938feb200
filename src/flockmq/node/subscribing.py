"""SUBSCRIBE and UNSUBSCRIBE: enter a filter, answer, and send retained messages.

Each filter of a packet gets its own reason code. The answer goes out before any message of the new subscription; in a
cluster it waits until the other nodes know of it (port ``routes``), and messages may come before it, as MQTT allows.
Retained messages always follow the answer: from then on each node that publishes knows the subscription.

```
 user property flockmq-from: START     |--> the filter itself, ``node.ports.replay`` brings history first
 $replay/START/FILTER (MQTT 3.1.1)     |    instead of what is retained, and says from where on it is live
```
"""

from __future__ import annotations

from typing import Final

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt import reasons
from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.namespaces import DOLLAR
from flockmq.mqtt.packets import Suback, Subscribe, SubscribeEntry, Unsuback, Unsubscribe
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.topics import check_topic_filter, split_queue, split_replay, split_shared
from flockmq.node.namespaces import is_foreign
from flockmq.node.retained_feed import add_retained
from flockmq.node.state import NodeState
from flockmq.node.turns import FILTER
from flockmq.routing.subscription import Subscription
from flockmq.session.connection import Connection
from flockmq.session.session import Session

FROM: Final = "flockmq-from"
"""User property of a SUBSCRIBE: where in the log of durable topics to begin."""
INFO: Final = "flockmq-info"
"""User property of a SUBSCRIBE to a consumer group: ``1`` for user properties about each delivery."""
LATEST: Final = b"latest"
WHY_REFUSED: Final = {
    reasons.NOT_AUTHORIZED: "This client may not subscribe to one of the filters",
    reasons.QUOTA_EXCEEDED: "The session holds as many subscriptions as it may",
    reasons.TOPIC_FILTER_INVALID: "One of the topic filters is not valid, too long or too deep",
}
NO_GROUPS: Final = "This broker has no durable topics, so that there are no consumer groups"
WHY_NOT_QOS_0: Final = "Subscribe to a consumer group at QoS 1: its members acknowledge each message"
WHY_NOT_CAPTURED: Final = (
    "This client may not have messages stored for its session on one of the filters: subscribe at QoS 0, or connect "
    "with a session that ends with its connection"
)


class Entering:
    """The common data of the filters of one SUBSCRIBE, and their results."""

    def __init__(self, properties: Properties | None) -> None:
        self.identifier = 0
        self.start = b""
        """From where on history is wanted; empty: none."""
        self.wants_info = False
        """Messages of consumer groups shall say what delivery they are."""
        self.entered: list[Subscription] = []
        self.fresh: list[Subscription] = []
        """Subscriptions that get retained messages."""
        self.why = ""
        """More about the first refusal."""
        self.uncaptured: list[bytes] = []
        """Filters that the session may not have messages stored for."""
        if properties is not None:
            if properties.subscription_identifiers:
                self.identifier = properties.subscription_identifiers[0]
            for name, value in properties.user:
                if name == FROM:
                    self.start = value.encode()
                elif name == INFO:
                    self.wants_info = value == "1"


def on_subscribe(node: NodeState, connection: Connection, packet: Subscribe) -> None:
    """Enter all filters of a SUBSCRIBE and answer it, now or when the other nodes know."""
    session = connection.session
    if session is None:
        return
    entering = Entering(packet.properties)
    codes: list[int] = []
    problem = 0
    for entry in packet.entries:
        code = subscribe(node, connection, session, entry, entering)
        if code >= 0x80:
            problem = problem or code
            if connection.version != 5:
                code = 0x80
        codes.append(code)
    if entering.uncaptured:
        fields = {"client_id": session.client_id, "username": session.username, "filter": entering.uncaptured[0]}
        node.events.note("capture_refused", {**fields, "filters": len(entering.uncaptured)})
    node.stats.subscribes += len(codes)
    node.turns.work += FILTER * len(codes)
    suback = Suback(packet.packet_id, codes, problem_text(connection, problem, entering.why))
    entered = entering.entered
    logs = node.ports.replay
    if logs is not None and entered and logs.hold(connection, session, suback, entered, entering.fresh, node.now):
        return
    answer(node, connection, session, suback, entered, entering.fresh)


def answer(
    node: NodeState,
    connection: Connection,
    session: Session,
    packet: Suback,
    entered: list[Subscription],
    fresh: list[Subscription],
) -> None:
    """Answer a SUBSCRIBE, now or when the log of its session and the other nodes know."""
    keeper = node.ports.sessions
    if keeper is not None and entered and keeper.hold(connection, session, packet, entered, fresh):
        return
    tell_routes(node, connection, session, packet, entered, fresh)


def tell_routes(
    node: NodeState,
    connection: Connection,
    session: Session,
    packet: Suback,
    entered: list[Subscription],
    fresh: list[Subscription],
) -> None:
    """Answer a SUBSCRIBE, now or when the other nodes know."""
    suback = encode_packet(packet, connection.version)
    if packet.properties is not None and connection.client_packet_max and len(suback) > connection.client_packet_max:
        suback = encode_packet(Suback(packet.packet_id, packet.reasons), connection.version)  # [MQTT-3.9.2-1]
    peers = node.ports.routes
    if peers is not None and entered and peers.hold(connection, session, suback, entered, fresh, node.now):
        return
    subscribed(node, connection, session, suback, fresh)


def subscribed(
    node: NodeState, connection: Connection, session: Session, suback: bytes, fresh: list[Subscription]
) -> None:
    """Send the SUBACK and retained messages; a connection that closed meanwhile is left alone."""
    if session.connection is not connection:
        return
    connection.answer(suback)
    add_retained(node, connection, session, fresh)


def problem_text(connection: Connection, code: int, why: str = "") -> Properties | None:
    """A reason string for the first filter that was refused, for clients that want one."""
    if not code or connection.version != 5 or not connection.wants_problem_information:
        return None
    properties = Properties()
    properties.reason_string = why or WHY_REFUSED.get(code, reasons.NAMES.get(code, ""))
    return properties


def subscribe(
    node: NodeState, connection: Connection, session: Session, entry: SubscribeEntry, entering: Entering
) -> int:
    """Enter one filter; its reason code."""
    limits = connection.limits
    try:
        queue = split_queue(entry.topic_filter)
        if queue is not None:
            return join_group(node, connection, session, entry, queue, entering)
        start, full_filter = split_replay(entry.topic_filter)
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
        if is_captured(session, group, entry.qos) and not node.gate.may_capture(identity, topic_filter):
            entering.uncaptured.append(topic_filter)
            entering.why = entering.why or WHY_NOT_CAPTURED
            return reasons.NOT_AUTHORIZED
    start_code = reasons.TOPIC_FILTER_INVALID if start else reasons.IMPLEMENTATION_SPECIFIC_ERROR
    start = start or entering.start
    if start:
        why = replay_refusal(node, group, topic_filter, start)
        if why:
            entering.why = entering.why or why
            return start_code
    old = session.subscriptions.get(full_filter)
    if old is None:
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
        entering.identifier,
    )
    subscription.replaces = old is not None
    session.subscriptions[full_filter] = subscription
    node.table.add(subscription)
    entering.entered.append(subscription)
    if group is not None:
        return entry.qos
    if node.ports.replay is not None:
        node.ports.replay.entered(subscription, old, start, node.now)
    wants_retained = entry.retain_handling == 0 or (entry.retain_handling == 1 and old is None)
    if wants_retained and start in (b"", LATEST):
        entering.fresh.append(subscription)
    return entry.qos


def join_group(
    node: NodeState,
    connection: Connection,
    session: Session,
    entry: SubscribeEntry,
    queue: tuple[bytes, bytes],
    entering: Entering,
) -> int:
    """Make the client a member of a consumer group while it is connected; the reason code."""
    name, inner = queue
    groups = node.ports.groups
    if inner:
        check_topic_filter(inner, connection.limits.topic_levels_max, connection.limits.topic_bytes_max)
    if groups is None or not entry.qos:
        entering.why = entering.why or (NO_GROUPS if groups is None else WHY_NOT_QOS_0)
        return reasons.TOPIC_FILTER_INVALID
    if inner and inner[0] == DOLLAR and is_foreign(connection.space, inner):
        return reasons.NOT_AUTHORIZED
    code, why = groups.join(session, entry.topic_filter, name, inner, entering.identifier, entering.wants_info)
    entering.why = entering.why or why
    return 1 if code == 0 else code


def is_captured(session: Session, group: bytes | None, qos: int) -> bool:
    """Whether a subscription makes publishers store what it matches."""
    return session.is_logged and qos > 0 and not group


def replay_refusal(node: NodeState, group: bytes | None, topic_filter: bytes, start: bytes) -> str:
    """Why there is no history for a subscription; empty: there is."""
    if group is not None:
        return "A shared subscription has no history; subscribe without $share"
    if node.ports.replay is None:
        return "This broker has no durable topics, so that there is no history"
    return node.ports.replay.refusal(topic_filter, start)


def filter_weight(topic_filter: bytes) -> int:
    """As how many subscriptions a filter counts. Each level may cost a node of the tree, each byte is kept."""
    return 1 + topic_filter.count(b"/") // 16 + len(topic_filter) // 1_024


def without_start(topic_filter: bytes) -> bytes:
    """The filter that a replay is a subscription to."""
    try:
        return split_replay(topic_filter)[1]
    except RemoteProtocolError:
        return topic_filter  # no client can have subscribed to that


def leave(node: NodeState, session: Session, full_filter: bytes) -> bool:
    """End a subscription; False when there is none."""
    if full_filter in session.queues and node.ports.groups is not None:
        node.ports.groups.leave(session, full_filter)
        return True
    subscription = session.subscriptions.pop(full_filter, None)
    if subscription is None:
        return False
    session.subscriptions_weight -= filter_weight(full_filter)
    node.table.remove(session, subscription.group, subscription.topic_filter)
    if node.ports.replay is not None:
        node.ports.replay.left(subscription)
    return True


def on_unsubscribe(node: NodeState, connection: Connection, packet: Unsubscribe) -> None:
    """Remove all filters of an UNSUBSCRIBE and answer it, now or when the log of its session has them no more."""
    session = connection.session
    if session is None:
        return
    codes: list[int] = []
    full_filters = [without_start(asked) for asked in packet.topic_filters]
    for full_filter in full_filters:
        is_left = leave(node, session, full_filter)
        codes.append(reasons.SUCCESS if is_left else reasons.NO_SUBSCRIPTION_EXISTED)
    node.stats.unsubscribes += len(codes)
    node.turns.work += FILTER * len(codes)
    unsuback = encode_packet(Unsuback(packet.packet_id, codes), connection.version)
    keeper = node.ports.sessions
    if keeper is not None and keeper.hold_unsuback(connection, session, full_filters, unsuback):
        return
    connection.answer(unsuback)
