"""The edge of a namespace: what its clients send gets the namespace's prefix here, or is refused.

```
 PUBLISH plant/1        --> on_edge_run, edge_publish --> $ns/acme/plant/1        within the namespace's message rate
 PUBLISH $delayed/9/a   -->            "              --> $delayed/9/$ns/acme/a
 SUBSCRIBE $share/g/a/# --> edge_subscribe           ---> $share/g/$ns/acme/a/#
 will                   --> edge_will                ---> $ns/acme/...
```
Clients of the default namespace come this way only for names that begin with ``$``: no client may name ``$ns/``.
In other namespaces no name that begins with ``$`` can be published or subscribed to but those with a meaning to the
broker. So a filter that begins with a wildcard, which reaches everything behind the prefix, never reaches such names,
as MQTT demands [MQTT-4.7.2-1].
"""

from __future__ import annotations

from typing import Final

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt import reasons
from flockmq.mqtt.namespaces import DEFAULT_NAMESPACE, DOLLAR, INSIDE
from flockmq.mqtt.packets import Subscribe, Unsubscribe, Will
from flockmq.mqtt.properties import HAS_ALIAS, property_block, scan_publish_properties, split_publish_properties
from flockmq.mqtt.run import Run, make_run, with_topic
from flockmq.mqtt.topics import DELAYED_PREFIX, QUEUE_PREFIX, SHARE_PREFIX
from flockmq.node.lifecycle import disconnect, end_session
from flockmq.node.publishing import count_in, on_publish, on_run, refuse_run, resolve_alias
from flockmq.node.state import NodeState
from flockmq.session.connection import CONNECTED, Connection
from flockmq.session.space import Space

REPLAY_PREFIX: Final = b"$replay/"
TOPIC_BYTES_MAX: Final = 65_535
BEYOND_RATE: Final = "The namespace publishes more messages a second than it may"


# --- messages ---


def on_edge_run(node: NodeState, connection: Connection, run: Run, now: int) -> None:
    """Take a run from a client of a namespace, or to a topic that begins with ``$``."""
    space = connection.space
    topic = run.topic if space is None else inside_topic(space, run.topic)
    if not topic or (space is None and names_inside(topic)):
        refuse(node, connection, run, reasons.NOT_AUTHORIZED, now)
        return
    if space is None:
        on_run(node, connection, run, now)
        return
    granted = run.count
    if space.messages_per_s_max:
        granted = space.spend(run.count, now)
    if granted:
        part = run.part(0, granted)
        on_run(node, connection, with_topic(part, topic) if space.prefix else part, now)
    if granted < run.count:
        refuse(node, connection, run.part(granted, run.count), reasons.QUOTA_EXCEEDED, now)


def on_edge_publish(node: NodeState, connection: Connection, first: int, body: bytes, now: int) -> None:
    """The same for a PUBLISH that needs decisions of its own."""
    qos = first >> 1 & 3
    end = len(body)
    size = body[0] << 8 | body[1] if end >= 2 else 0
    after = 2 + size
    if after > end or qos == 3 or (qos and after + 2 > end):
        on_publish(node, connection, first, body, now)  # the packet is wrong; on_publish refuses it
        return
    topic = body[2:after]
    space = connection.space
    packet_id = body[after] << 8 | body[after + 1] if qos else 0
    if size:
        topic = topic if space is None else inside_topic(space, topic)
        if not topic or (space is None and names_inside(topic)):
            refused = make_run(4, qos, False, body[2:after], b"", b"", 0, packet_id)
            refuse(node, connection, refused, reasons.NOT_AUTHORIZED, now)
            return
    if space is not None and space.messages_per_s_max and not space.spend(1, now):
        if size:
            learn_alias(connection, topic, body, after + (2 if qos else 0))
        refused = make_run(4, qos, False, b"-", b"", b"", 0, packet_id)
        refuse(node, connection, refused, reasons.QUOTA_EXCEEDED, now)
        return
    if len(topic) != size:
        body = bytes((len(topic) >> 8, len(topic) & 0xFF)) + topic + body[after:]
    on_publish(node, connection, first, body, now)


def learn_alias(connection: Connection, topic: bytes, body: bytes, pos: int) -> None:
    """A message that is refused for its moment alone may set an alias that later ones rely on."""
    if connection.version != 5:
        return
    start, stop = property_block(body, pos, len(body))
    if stop > start and scan_publish_properties(body, start, stop, connection.bounds.properties_max) & HAS_ALIAS:
        resolve_alias(connection, topic, split_publish_properties(body, start, stop)[0])


def refuse(node: NodeState, connection: Connection, run: Run, code: int, now: int) -> None:
    """Answer messages that don't get in. At QoS 0 no answer is awaited."""
    count_in(node, connection, run, now)
    if code == reasons.NOT_AUTHORIZED:
        node.stats.publishes_denied += run.count
        refuse_run(connection, run, code)
    elif run.qos:
        if connection.version != 5:
            raise RemoteProtocolError(code, BEYOND_RATE)  # 3.1.1 can't be told otherwise [MQTT-4.8.0-2]
        refuse_run(connection, run, code, BEYOND_RATE)


def names_inside(topic: bytes) -> bool:
    """Whether a name that a client of the default namespace gave reaches into another one."""
    while topic.startswith(DELAYED_PREFIX):
        slash = topic.find(b"/", 9)
        if slash < 0:
            return False
        topic = topic[slash + 1 :]
    return topic.startswith(INSIDE) or topic == b"$ns"


def inside_topic(space: Space, topic: bytes) -> bytes:
    """A topic name of a namespace's client as the broker knows it; nothing when it is none of theirs."""
    prefix = space.prefix
    if not prefix:
        return b"" if topic[0] == DOLLAR and names_inside(topic) else topic
    head = b""
    if topic.startswith(DELAYED_PREFIX):
        slash = topic.find(b"/", 9) + 1
        if not slash or slash == len(topic):
            return topic  # malformed, and will be told so
        head = topic[:slash]
        topic = topic[slash:]
    if topic[0] == DOLLAR:
        return b""
    inside = head + prefix + topic
    if len(inside) > TOPIC_BYTES_MAX:
        raise RemoteProtocolError(reasons.TOPIC_NAME_INVALID, "The topic name is too long for this namespace")
    return inside


def edge_will(space: Space | None, will: Will) -> bytes:
    """The topic of a will inside; nothing when it is none that this client could publish to."""
    if space is not None:
        return inside_topic(space, will.topic)
    return b"" if will.topic[0] == DOLLAR and names_inside(will.topic) else will.topic


# --- subscriptions ---


def edge_subscribe(space: Space, packet: Subscribe) -> None:
    """Put the filters of a SUBSCRIBE into the namespace."""
    for entry in packet.entries:
        entry.topic_filter = inside_filter(space, entry.topic_filter)


def edge_unsubscribe(space: Space, packet: Unsubscribe) -> None:
    """Put the filters of an UNSUBSCRIBE into the namespace."""
    packet.topic_filters = [inside_filter(space, one) for one in packet.topic_filters]


def inside_filter(space: Space, full_filter: bytes) -> bytes:
    """A whole filter of a namespace's client as the broker knows it. One that is malformed stays so."""
    at = 0
    if full_filter.startswith(QUEUE_PREFIX):
        at = full_filter.find(b"/", len(QUEUE_PREFIX)) + 1
        if not at:
            return full_filter
    elif full_filter.startswith(SHARE_PREFIX):
        at = full_filter.find(b"/", 7) + 1
        if not at:
            return full_filter
    if full_filter.startswith(REPLAY_PREFIX, at):
        slash = full_filter.find(b"/", at + 8) + 1
        if not slash:
            return full_filter
        at = slash
    if at == len(full_filter):
        return full_filter
    inside = full_filter[:at] + space.prefix + full_filter[at:]
    return inside if len(inside) <= TOPIC_BYTES_MAX else b""


def is_foreign(space: Space | None, topic_filter: bytes) -> bool:
    """Whether a filter from inside that begins with ``$`` (``$share/GROUP/`` is off) is not the client's to read."""
    if topic_filter.startswith(REPLAY_PREFIX):
        topic_filter = topic_filter[topic_filter.find(b"/", 8) + 1 :]
    if space is None or not space.prefix:
        return topic_filter.startswith(INSIDE) or topic_filter == b"$ns"
    prefix = space.prefix
    return not topic_filter.startswith(prefix) or topic_filter[len(prefix) : len(prefix) + 1] == b"$"


# --- which namespaces there are ---


class NamespaceLimits:
    """A namespace that shall exist, and what it may use on all nodes together. 0 is no limit."""

    def __init__(
        self,
        name: str,
        connections: int = 0,
        sessions: int = 0,
        retained: int = 0,
        messages_per_s: int = 0,
        stored_bytes: int = 0,
        captured_bytes_per_s: int = 0,
    ) -> None:
        self.name = name
        self.connections = connections
        self.sessions = sessions
        self.retained = retained
        self.messages_per_s = messages_per_s
        self.stored_bytes = stored_bytes
        self.captured_bytes_per_s = captured_bytes_per_s


def set_namespaces(node: NodeState, wanted: list[NamespaceLimits], now: int) -> None:
    """These namespaces exist, and those of listeners. Clients of a namespace that no longer exists are disconnected."""
    spaces = node.spaces
    limits = {one.name: one for one in wanted}
    names = {*limits, *spaces.listeners.values()} - {DEFAULT_NAMESPACE}
    gone = [space for name, space in spaces.by_name.items() if name not in names]
    for space in gone:
        close_namespace(node, space, now)
    fresh = [Space(name) for name in sorted(names) if name not in spaces.by_name]
    for space in fresh:
        spaces.by_name[space.name] = space
    for space in list(spaces.by_name.values()):
        set_limits(node, space, limits.get(space.name))
    count_again = len(fresh) > 0
    own = limits.get(DEFAULT_NAMESPACE)
    default = spaces.default
    if default is None and own is not None:
        default = Space(DEFAULT_NAMESPACE)
        set_limits(node, default, own)
        if default.is_limited():
            spaces.default = default
            count_again = True
            move_in(node, default)
    elif default is not None:
        set_limits(node, default, own)  # stays, even without a limit: connections hold it
    if count_again:
        count_sessions(node)


def set_listener_namespace(node: NodeState, listener: str, namespace: str) -> None:
    """A client that comes through a listener and names no namespace is in this one."""
    spaces = node.spaces
    spaces.listeners[listener] = namespace
    if namespace != DEFAULT_NAMESPACE and namespace not in spaces.by_name:
        spaces.by_name[namespace] = Space(namespace)
        count_sessions(node)


def set_limits(node: NodeState, space: Space, limits: NamespaceLimits | None) -> None:
    """Limit a namespace, or no longer."""
    if limits is None:
        space.limit(0, 0, 0, 0)
    else:
        space.limit(limits.connections, limits.sessions, limits.retained, limits.messages_per_s, limits.stored_bytes)
    space.limit_capture(0 if limits is None else limits.captured_bytes_per_s)
    node.retained.usage.limit_prefix(space.prefix, space.retained_max)


def move_in(node: NodeState, default: Space) -> None:
    """The default namespace has limits now: sessions that are there already count."""
    for connection in node.connections.values():
        if connection.phase == CONNECTED and connection.space is None:
            connection.space = default
            default.connections += 1


def count_sessions(node: NodeState) -> None:
    """Count all sessions anew: a namespace may be heard of after a session of it came from another node."""
    for space in node.spaces.all():
        space.sessions = 0
    for client_id in node.sessions:
        node.spaces.session_began(client_id)


def close_namespace(node: NodeState, space: Space, now: int) -> None:
    """A namespace is no more: nor are its connections, sessions and retained messages."""
    text = f"The namespace {space.name} was deleted"
    for connection in list(node.connections.values()):
        if connection.space is space:
            disconnect(node, connection, reasons.ADMINISTRATIVE_ACTION, text, now, False)
    start = f"$ns/{space.name}/"
    for client_id in [one for one in node.sessions if one.startswith(start)]:
        session = node.sessions.get(client_id)
        if session is not None:
            session.will = None
            end_session(node, session, now)
    for message in node.retained.match(space.prefix + b"#", now):
        node.retained.delete(message.topic, now)
    node.retained.usage.limit_prefix(space.prefix, 0)
    del node.spaces.by_name[space.name]
    node.events.note("namespace_deleted", {"namespace": space.name})
