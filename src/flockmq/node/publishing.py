"""From a publisher to all subscribers.

```
 scan_run / decode --> on_run --> allowed? --> QoS 2 ids --> plan --> retained --> targets, groups --> acknowledged
                         |                                   |                 (delivering.py)
                         |                                   |-- durable --> into a log; all the rest when it is there
                         |                                   `-- captured --> a copy into the log of persistent sessions
                         `-- $delayed/... waits for its time, $SYS/... is not for clients
```
``on_run`` is the hot path: it runs once for all consecutive messages of a publisher to one topic.
"""

from __future__ import annotations

from typing import Final

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt import reasons
from flockmq.mqtt.encode import encode_ack
from flockmq.mqtt.fields import read_text, read_u16
from flockmq.mqtt.packets import PUBACK, PUBREC, Will
from flockmq.mqtt.properties import (
    HAS_ALIAS,
    HAS_PAYLOAD_FORMAT,
    IN_PUBLISH,
    Properties,
    decode_properties,
    encode_block,
    property_block,
    scan_publish_properties,
    split_publish_properties,
)
from flockmq.mqtt.run import Run, make_run
from flockmq.mqtt.topics import check_topic_name
from flockmq.node.delaying import delay_run
from flockmq.node.delivering import route
from flockmq.node.ports import BEYOND_CAPTURE, CUT_OFF, NAMESPACE_FULL, NOT_KEPT, PENDING, TOO_LARGE
from flockmq.node.state import NodeState
from flockmq.routing.plan import RoutePlan
from flockmq.session.connection import Connection
from flockmq.session.outbound import PACKET_IDS
from flockmq.session.session import Session

VERDICTS_MAX: Final = 1_024
VERDICT_TOPIC_BYTES_MAX: Final = 512
"""Longest topic whose verdict is kept: with the number of verdicts it bounds what a connection can make us keep."""
WHY_REFUSED: Final = {
    reasons.NOT_AUTHORIZED: "This client may not publish to this topic",
    reasons.QUOTA_EXCEEDED: "The broker holds as many retained or delayed messages as it may, or this one is too large",
    reasons.UNSPECIFIED_ERROR: "This node can't store messages now: nothing was stored; publish through another one",
    reasons.PAYLOAD_FORMAT_INVALID: "The payload is said to be UTF-8 and is not",
    reasons.TOPIC_NAME_INVALID: "Delayed messages go to $delayed/SECONDS/TOPIC, within the longest delay allowed",
}

WHY_NAMESPACE_FULL: Final = (
    "The durable topics of this namespace store as many bytes as they may, so this was not stored: raise its limit "
    "stored_bytes, shorten retention, or delete topics"
)
WHY_TOO_LARGE: Final = "The message is larger than an entry of a log may be, so this was not stored; send it in parts"
WHY_CUT_OFF: Final = (
    "This node has had no word of a majority of nodes for some seconds, and can't know whether a persistent session "
    "waits for this message: nothing was taken; publish it again later, or through another node"
)
WHY_BEYOND_CAPTURE: Final = (
    "The namespace has as many bytes a second stored for persistent sessions as it may, so this was not taken: publish "
    "more slowly, or raise its limit captured_bytes_per_second"
)
SAID: Final = {
    NAMESPACE_FULL: (reasons.QUOTA_EXCEEDED, WHY_NAMESPACE_FULL),
    TOO_LARGE: (reasons.QUOTA_EXCEEDED, WHY_TOO_LARGE),
    CUT_OFF: (reasons.UNSPECIFIED_ERROR, WHY_CUT_OFF),
    BEYOND_CAPTURE: (reasons.QUOTA_EXCEEDED, WHY_BEYOND_CAPTURE),
}
"""Reason code and sentence of refusals that have several reasons."""


def on_run(node: NodeState, connection: Connection, run: Run, now: int, is_repeat: bool = False) -> None:
    """Take a run from a client: check, acknowledge, deliver. ``is_repeat``: it says that it sent this before."""
    count_in(node, connection, run, now)
    topic = run.topic
    plan = node.table.plans.get(topic)
    special = topic[0] == 0x24  # $
    bounds = connection.bounds
    if plan is None or special or bounds.topic_levels_max != node.topic_levels_max:
        check_topic_name(topic, bounds.topic_levels_max, bounds.topic_bytes_max)
    elif bounds.topic_bytes_max and len(topic) > bounds.topic_bytes_max:
        raise RemoteProtocolError(reasons.TOPIC_NAME_INVALID, "The topic name is longer than this broker allows")
    if not node.gate_is_open and not may_publish(node, connection, topic):
        node.stats.publishes_denied += run.count
        refuse_run(connection, run, reasons.NOT_AUTHORIZED)
        return
    if run.qos == 2:
        renew_ids(connection, run, is_repeat)
    if run.qos == 2 and not take_all(connection, run):
        for index in range(run.count):  # repeats among them, or too many: one by one, in their order
            one = run.part(index, index + 1)
            if take_one(node, connection, one):
                accept(node, connection, one, plan, now, is_repeat)
        return
    accept(node, connection, run, plan, now, is_repeat)


def count_in(node: NodeState, connection: Connection, run: Run, now: int) -> None:
    """Count what a client sent, in the statistics and against its message rate."""
    stats = node.stats
    count = run.count
    connection.messages_in += count
    if run.qos == 0:
        stats.publishes_in_qos0 += count
    elif run.qos == 1:
        stats.publishes_in_qos1 += count
    else:
        stats.publishes_in_qos2 += count
    per_second = connection.bounds.messages_per_s_max
    if per_second:
        spend_tokens(connection, per_second, count, now)


def accept(
    node: NodeState, connection: Connection, run: Run, plan: RoutePlan | None, now: int, is_repeat: bool = False
) -> None:
    """Retain, deliver and acknowledge a run that is allowed and new."""
    topic = run.topic
    code = -1
    text = ""
    if topic[0] == 0x24:
        try:
            code = special_topic(node, connection, run, now)
        except RemoteProtocolError:
            forget_ids(connection, run)
            raise
    if code < 0:
        if plan is None:
            plan = node.table.plan(topic)
        if plan.durable is not None and node.ports.appending is not None:
            node.turns.work += run.count
            code = node.ports.appending.append(plan.durable, run, connection, now, "", is_repeat)
            if code == PENDING:
                return
        elif run.qos and (
            plan.captured is not None or now >= node.table.capture.lapses_at or must_be_logged(connection, run)
        ):
            code = capture(node, plan, run, connection, now, "", is_repeat)
            if code == PENDING:
                return
        elif run.retain and not keep(node, run, now):
            code = NOT_KEPT
        else:
            code = reasons.SUCCESS if route(node, plan, run, connection, now) else reasons.NO_MATCHING_SUBSCRIBERS
    if not run.qos:
        return
    if code == NOT_KEPT:
        code = reasons.QUOTA_EXCEEDED
        text = why_not_kept(node, connection, topic, now)
    elif code < 0:
        code, text = SAID[code]
    if code < 0x80:
        acknowledge(connection, run, code)
        return
    forget_ids(connection, run)
    if connection.version != 5 and code != reasons.NOT_AUTHORIZED:
        # 3.1.1 can't be told, and an acknowledgement would be a lie: close. [MQTT-4.8.0-2]
        raise RemoteProtocolError(code, text or WHY_REFUSED.get(code, reasons.name(code)))
    refuse_run(connection, run, code, text)


def must_be_logged(connection: Connection, run: Run) -> bool:
    """Exactly once needs a log: its next owner learns there what a persistent session has published at QoS 2."""
    session = connection.session
    return run.qos == 2 and session is not None and session.is_logged


def capture(
    node: NodeState,
    plan: RoutePlan,
    run: Run,
    connection: Connection | None,
    now: int,
    client_id: str = "",
    is_repeat: bool = False,
) -> int:
    """Retain a run, copy it into the log of persistent sessions, deliver it to all others; returns an outcome of
    ``DurablePort.append``.

    Persistent sessions get the run from that log. Other subscribers get QoS 2 messages once these are committed,
    because a refused message may come again. Without a lease this node may not know all filters: then it captures every
    name, and refuses messages of clients if it does not know of the log.
    """
    topic = plan.captured if plan.captured is not None else node.table.capture.topic
    appending = node.ports.appending
    if topic is None and connection is not None and now >= node.table.capture.lapses_at:
        return CUT_OFF
    if connection is not None and not is_repeat and is_beyond_capture(node, connection, run, now):
        node.stats.capture_refused += run.count
        return BEYOND_CAPTURE
    if run.retain and not keep(node, run, now) and connection is not None:
        return NOT_KEPT
    if topic is None or appending is None:
        return reasons.SUCCESS if route(node, plan, run, connection, now) else reasons.NO_MATCHING_SUBSCRIBERS
    node.turns.work += run.count
    node.stats.captured += run.count
    code = appending.append(topic, run, connection, now, client_id, is_repeat)
    if code == PENDING and (run.qos == 1 or connection is None):
        route(node, plan, run, connection, now)
    return code


def is_beyond_capture(node: NodeState, connection: Connection, run: Run, now: int) -> bool:
    """Whether a namespace has as many bytes a second stored for persistent sessions as it may.

    What a node captures for want of a lease alone does not count.
    """
    space = connection.space
    if space is None or not space.captured_bytes_per_s_max or now >= node.table.capture.lapses_at:
        return False
    return not space.spend_capture(len(run.wire), now)


# --- checks ---


def spend_tokens(connection: Connection, per_second: int, count: int, now: int) -> None:
    """A bucket of one second's worth; an empty one ends the connection."""
    tokens = connection.tokens + (now - connection.tokens_at) * per_second
    tokens = min(tokens, per_second * 1000)  # in thousandths of a message
    connection.tokens_at = now
    connection.tokens = tokens - count * 1000
    if connection.tokens < 0:
        raise RemoteProtocolError(
            reasons.MESSAGE_RATE_TOO_HIGH, f"More than {per_second} messages a second; publish more slowly"
        )


def may_publish(node: NodeState, connection: Connection, topic: bytes) -> bool:
    """Ask the gate, once per connection and topic until its rules change."""
    version = node.gate.version
    verdicts = connection.verdicts
    if verdicts is None or connection.verdicts_version != version or len(verdicts) > VERDICTS_MAX:
        verdicts = {}
        connection.verdicts = verdicts
        connection.verdicts_version = version
    verdict = verdicts.get(topic)
    if verdict is None:
        identity = connection.identity
        if identity is None:
            return False
        if topic.startswith(b"$delayed/"):
            parts = topic.split(b"/", 2)
            verdict = len(parts) == 3 and node.gate.may_publish(identity, parts[2])
        else:
            verdict = node.gate.may_publish(identity, topic)
        if len(topic) <= VERDICT_TOPIC_BYTES_MAX:
            verdicts[topic] = verdict
    return verdict


def renew_ids(connection: Connection, run: Run, is_repeat: bool) -> None:
    """A client lost its session, while logs hold ids of it: a message without DUP is new, even if a log has its id."""
    session = connection.session
    if session is None or session.collected is None:
        return
    for pid in packet_ids(run):
        if pid not in session.collected:
            continue
        if is_repeat:
            session.collected = None  # the client remembers its session: the ids in logs are repeats
            return
        session.collected.discard(pid)
        if session.received is not None:
            session.received.discard(pid)


def take_all(connection: Connection, run: Run) -> bool:
    """QoS 2: note the packet ids if all of them are new and there is room for them; otherwise note none."""
    session = connection.session
    if session is None:
        return False
    received = session.received
    if received is None:
        received = set()
        session.received = received
    before = len(received)
    if before + run.count > (connection.limits.receive_max or PACKET_IDS):
        return False
    wire = run.wire
    if before:
        for at in run.pid_at:
            if (wire[at] << 8 | wire[at + 1]) in received:
                return False
    for at in run.pid_at:
        received.add(wire[at] << 8 | wire[at + 1])
    if len(received) < before + run.count:  # the same id twice in this run
        received.difference_update(packet_ids(run))
        return False
    return True


def take_one(node: NodeState, connection: Connection, run: Run) -> bool:
    """QoS 2 dedupe: note the packet id of one message; a known id only gets its PUBREC again. [MQTT-4.3.3-10]"""
    session = connection.session
    if session is None or session.received is None:
        return False
    received = session.received
    pid = packet_ids(run)[0]
    if pid in received:
        is_unsettled = session.unsettled is not None and pid in session.unsettled
        if not is_unsettled or node.ports.appending is None or not node.ports.appending.repeat(connection, pid):
            connection.acknowledge(encode_ack(PUBREC, pid, reasons.SUCCESS, connection.version))
        return False
    most = connection.limits.receive_max or PACKET_IDS
    if len(received) >= most:
        raise RemoteProtocolError(
            reasons.RECEIVE_MAXIMUM_EXCEEDED, f"More than {most} QoS 2 messages wait for their PUBREL"
        )
    received.add(pid)
    return True


def forget_ids(connection: Connection, run: Run) -> None:
    """QoS 2: a run was refused, so that its packet ids mean nothing any more."""
    session = connection.session
    if run.qos == 2 and session is not None and session.received:
        session.received.difference_update(packet_ids(run))


def packet_ids(run: Run) -> list[int]:
    """The publisher's packet ids of a QoS 1 or 2 run."""
    wire = run.wire
    return [wire[at] << 8 | wire[at + 1] for at in run.pid_at]


def special_topic(node: NodeState, connection: Connection, run: Run, now: int) -> int:
    """Topics that mean something to the broker: the reason code if it took the run, -1 for ordinary ones."""
    if run.topic.startswith(b"$SYS/"):
        return reasons.NOT_AUTHORIZED
    if run.topic.startswith(b"$delayed/"):
        sender = connection.session.client_id if connection.session is not None else ""
        return delay_run(node, run, sender, connection.bounds.topic_levels_max, now)
    return -1


def keep(node: NodeState, run: Run, now: int) -> bool:
    """Retain the last message of a run, or with an empty payload forget what was retained; False when full."""
    last = run.count - 1
    if not run.payload(last):
        node.retained.delete(run.topic, now)
        return True
    message = run.part(last, run.count).alone()
    if node.retained.put(run.topic, message, now):
        return True
    node.stats.retained_refused += run.count
    # At QoS 0 the publisher waits for no answer: the message still reaches connected subscribers. Above that, "taken"
    # would be a lie: MQTT 5 is told, 3.1.1 is closed. [MQTT-4.8.0-2]
    return run.qos == 0


def why_not_kept(node: NodeState, connection: Connection, topic: bytes, now: int) -> str:
    """Why a message was not retained, where that is because of its namespace; else empty."""
    space = connection.space
    if space is None or not space.retained_max or node.retained.get(topic, now) is not None:
        return ""
    count = node.retained.usage.count_of(space.prefix)
    if count < space.retained_max:
        return ""
    return (
        f"The namespace {space.name} holds {count} retained messages, as many as it may: clear some, or raise its "
        "limit retained"
    )


# --- answers ---


def acknowledge(connection: Connection, run: Run, code: int) -> None:
    """PUBACK or PUBREC for every message of a run, in one piece."""
    wire = run.wire
    parts: list[bytes] = []
    kind = 0x40 if run.qos == 1 else 0x50
    if connection.version == 5 and code:
        head = bytes((kind, 3))
        tail = bytes((code,))
        for at in run.pid_at:
            parts.append(head)
            parts.append(wire[at : at + 2])
            parts.append(tail)
    else:
        head = bytes((kind, 2))
        for at in run.pid_at:
            parts.append(head)
            parts.append(wire[at : at + 2])
    connection.acknowledge(b"".join(parts))


def refuse_run(connection: Connection, run: Run, code: int, text: str = "") -> None:
    """Tell an MQTT 5 publisher that its messages are not wanted; a 3.1.1 one can only be answered as if they were.

    ``text``: why, where the code has several reasons.
    """
    if not run.qos:
        return
    text = text or WHY_REFUSED.get(code, "")
    if connection.version != 5 or not text or not connection.wants_problem_information:
        acknowledge(connection, run, code)
        return
    kind = PUBACK if run.qos == 1 else PUBREC
    ids = packet_ids(run)
    limit = connection.client_packet_max
    if limit and len(encode_ack(kind, ids[0], code, 5, text)) > limit:  # [MQTT-3.4.2-2], [MQTT-3.5.2-2]
        acknowledge(connection, run, code)
        return
    for pid in ids:
        connection.acknowledge(encode_ack(kind, pid, code, 5, text))


# --- the slow way in ---


def on_publish(node: NodeState, connection: Connection, first: int, body: bytes, now: int) -> None:
    """A PUBLISH that needs decisions of its own (DUP, topic alias, expiry, payload format), or is wrong."""
    qos = first >> 1 & 3
    if qos == 3:  # [MQTT-3.3.1-4]
        raise RemoteProtocolError(reasons.MALFORMED_PACKET, "PUBLISH has QoS 3")
    if qos == 0 and first & 0x08:  # [MQTT-3.3.1-2]
        raise RemoteProtocolError(reasons.MALFORMED_PACKET, "PUBLISH with QoS 0 has DUP set")
    end = len(body)
    topic = read_text(body, 0, end)
    pos = 2 + len(topic)
    packet_id = 0
    if qos:
        packet_id = read_u16(body, pos, end)
        pos += 2
        if packet_id == 0:  # [MQTT-2.2.1-3]
            raise RemoteProtocolError(reasons.PROTOCOL_ERROR, "PUBLISH has packet id 0")
    version = 4
    properties = b""
    expires_at = 0
    text_payload = False
    if connection.version == 5:
        version = 5
        start, pos = property_block(body, pos, end)
        if pos > start:
            found = scan_publish_properties(body, start, pos, connection.bounds.properties_max)
            alias, expiry_s, properties = split_publish_properties(body, start, pos)
            if found & HAS_ALIAS:
                topic = resolve_alias(connection, topic, alias)
            if expiry_s >= 0:
                expires_at = now + expiry_s * 1000 if expiry_s else now + 1
            text_payload = found & HAS_PAYLOAD_FORMAT != 0 and says_text(properties)
    if not topic:
        raise RemoteProtocolError(reasons.PROTOCOL_ERROR, "PUBLISH has neither a topic name nor a topic alias")
    payload = body[pos:]
    run = make_run(version, qos, first & 1 != 0, topic, payload, properties, expires_at, packet_id)
    if text_payload and not valid_utf8_payload(payload):
        if qos == 0:
            raise RemoteProtocolError(reasons.PAYLOAD_FORMAT_INVALID, "The payload is said to be UTF-8 and is not")
        count_in(node, connection, run, now)
        refuse_run(connection, run, reasons.PAYLOAD_FORMAT_INVALID)
        return
    on_run(node, connection, run, now, first & 0x08 != 0)


def says_text(block: bytes) -> bool:
    """Whether a checked property block, which has a payload format indicator, says that the payload is UTF-8."""
    return decode_properties(block, 0, len(block), IN_PUBLISH).payload_format == 1


def valid_utf8_payload(payload: bytes) -> bool:
    """Whether a payload is UTF-8; unlike names, it may hold U+0000."""
    try:
        payload.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def resolve_alias(connection: Connection, topic: bytes, alias: int) -> bytes:
    """The topic a PUBLISH with an alias means; a new alias is learnt. [MQTT-3.3.2-7..12]"""
    limit = connection.limits.topic_aliases_max
    if alias == 0 or alias > limit:
        raise RemoteProtocolError(reasons.TOPIC_ALIAS_INVALID, f"Topic alias {alias} is not between 1 and {limit}")
    aliases = connection.aliases_in
    if aliases is None:
        aliases = {}
        connection.aliases_in = aliases
    if topic:
        check_topic_name(topic)
        aliases[alias] = topic
        return topic
    known = aliases.get(alias)
    if known is None:
        raise RemoteProtocolError(reasons.PROTOCOL_ERROR, f"Topic alias {alias} was never set on this connection")
    return known


def forwardable(properties: Properties) -> bytes:
    """The properties that subscribers get unchanged, encoded without length."""
    kept = Properties()
    kept.payload_format = properties.payload_format
    kept.content_type = properties.content_type
    kept.response_topic = properties.response_topic
    kept.correlation_data = properties.correlation_data
    kept.user = properties.user
    return encode_block(kept)


def publish_message(node: NodeState, run: Run, now: int, client_id: str = "") -> bool:
    """Publish on the node's own behalf (wills, delayed messages, the admin API); False when no subscriber matched.

    ``client_id``: whose message it is, where it is a client's.
    """
    plan = node.table.plan(run.topic)
    if plan.durable is not None and node.ports.appending is not None:
        return node.ports.appending.append(plan.durable, run, None, now, client_id) == PENDING
    if run.qos and (plan.captured is not None or now >= node.table.capture.lapses_at):
        return capture(node, plan, run, None, now, client_id) in (PENDING, reasons.SUCCESS)
    if run.retain:
        keep(node, run, now)
    return route(node, plan, run, None, now)


def publish_will(node: NodeState, session: Session, will: Will, now: int) -> None:
    """Publish a will as a message of its client."""
    properties = b""
    expires_at = 0
    version = 4
    if session.version == 5:
        version = 5
        properties = forwardable(will.properties)
        if will.properties.message_expiry_s is not None:
            expires_at = now + max(will.properties.message_expiry_s * 1000, 1)
    node.stats.wills_published += 1
    run = make_run(version, will.qos, will.retain, will.topic, will.payload, properties, expires_at)
    node.events.note("will_published", {"client_id": session.client_id, "topic": will.topic})
    publish_message(node, run, now, session.client_id)
