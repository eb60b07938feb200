"""How connections and sessions end, and when wills are published.

```
 protocol error, timeout, kick, takeover --> disconnect(reason) --.
 transport lost ------------------------------------------------- +--> detach --> will: now | after its delay | dropped
 DISCONNECT from the client --------------------------------------'        |
                                                                           +--> session ends now, or when it expires
```
A will is published once, when its delay has passed or its session ends, whichever is first. It is not published if the
client disconnected with reason 0, or came back before. Where the log keeps the will (``is_will_logged``), the node
states there how the connection ended, and the leader of the shard publishes the will.
"""

from __future__ import annotations

from flockmq.mqtt import reasons
from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.packets import Disconnect
from flockmq.mqtt.properties import Properties
from flockmq.node.admission import Admission
from flockmq.node.congestion import let_go
from flockmq.node.delivering import reroute
from flockmq.node.publishing import publish_will
from flockmq.node.state import SESSION_TIMER, WILL_TIMER, NodeState
from flockmq.node.turns import FILTER, LEAVE
from flockmq.routing.shared import ShareGroup
from flockmq.session.connection import CLOSED, CONNECTED, Connection
from flockmq.session.session import Session

NEVER_EXPIRES = 0xFFFFFFFF
TAKEN_OVER = "Another connection uses this client id"
REASON_CHARACTERS_MAX = 1_000
"""Longest reason that clients and the log are given: it may quote what another node or client wrote."""


def disconnect(node: NodeState, connection: Connection, reason: int, text: str, now: int, will: bool = True) -> None:
    """Close a connection from this side; an MQTT 5 client is told why."""
    if connection.phase == CLOSED:
        return
    text = text[:REASON_CHARACTERS_MAX]
    if connection.phase == CONNECTED and connection.version == 5:
        properties = None
        if text and connection.wants_problem_information:
            properties = Properties()
            properties.reason_string = text
        packet = encode_packet(Disconnect(reason, properties), 5)
        if connection.client_packet_max and len(packet) > connection.client_packet_max:
            packet = encode_packet(Disconnect(reason, None), 5)
        connection.reply(packet)
    hang_up(node, connection, reason, text, now, will)


def hang_up(node: NodeState, connection: Connection, reason: int, text: str, now: int, will: bool) -> None:
    """Close a connection after the bytes in its buffer, without another packet."""
    if connection.phase == CLOSED:
        return
    was_connected = connection.phase == CONNECTED
    connection.closing = True
    connection.rest = b""
    connection.chunks = None
    connection.mark()
    forget_connection(node, connection)
    session = connection.session
    if was_connected and session is not None:
        node.events.note(
            "disconnected",
            {
                "client_id": session.client_id,
                "username": session.username,
                "peer": connection.peer,
                "reason_code": reason,
                "reason": text or reasons.NAMES.get(reason, ""),
            },
        )
        if session.connection is connection:
            detach(node, session, now, will)


def forget_connection(node: NodeState, connection: Connection) -> None:
    """Release everything that the node holds for a connection."""
    node.turns.work += LEAVE
    connection.phase = CLOSED
    node.strangers.leave(connection)
    node.turns.forget_lost(connection)
    if node.connections.pop(connection.number, None) is not None:
        node.stats.connections_closed += 1
        if connection.space is not None:
            connection.space.connections -= 1
    node.timers.cancel(connection.timer)
    connection.timer = None
    node.timers.cancel(connection.packet_timer)
    connection.packet_timer = None
    node.timers.cancel(connection.authority_timer)
    connection.authority_timer = None
    if connection.auth is not None:
        connection.auth.abandoned = True
        connection.auth = None
    admission = connection.admission
    if isinstance(admission, Admission) and admission.claimed is not None and node.ports.sessions is not None:
        node.ports.sessions.abandoned(admission.claimed)
    connection.admission = None
    connection.aliases_in = None
    let_go(node, connection, True)


def detach(node: NodeState, session: Session, now: int, will: bool) -> None:
    """A session has lost its connection: see to its will and its expiry."""
    if session.queues and node.ports.groups is not None:
        node.ports.groups.detached(session)
    session.connection = None
    session.detached_at = now
    node.online -= 1
    if not will:
        session.will = None
    if session.expiry_s == 0:
        end_session(node, session, now)
        return
    if session.will is not None and not session.is_will_logged:
        delay = session.will.properties.will_delay_s
        if delay:
            session.will_timer = node.timers.add(now + delay * 1000, WILL_TIMER, session)
        else:
            send_will(node, session, now)
    if session.expiry_s != NEVER_EXPIRES:
        session.timer = node.timers.add(now + session.expiry_s * 1000, SESSION_TIMER, session)
    if node.ports.sessions is not None:
        node.ports.sessions.detached(session)
    leave_will(session)


def displace(node: NodeState, session: Session, now: int) -> None:
    """The log has granted the client id to another connection: close the client, forget this copy."""
    leave_will(session)
    session.is_logged = False
    session.has_record = False
    if session.connection is not None:
        node.stats.takeovers += 1
        disconnect(node, session.connection, reasons.SESSION_TAKEN_OVER, TAKEN_OVER, now)
    if node.sessions.get(session.client_id) is session:
        drop_session(node, session, now)


def drop_session(node: NodeState, session: Session, now: int) -> None:
    """Forget a copy of a session that went on elsewhere, or is over: its will is void, and its record stays."""
    leave_will(session)
    session.will = None
    session.is_logged = False
    session.has_record = False
    end_session(node, session, now)


def end_session(node: NodeState, session: Session, now: int) -> None:
    """Forget a session: its subscriptions and queue, and publish a will that still waits."""
    if node.sessions.get(session.client_id) is session:
        del node.sessions[session.client_id]
        node.spaces.session_ended(session.client_id)
    node.timers.cancel(session.timer)
    session.timer = None
    send_will(node, session, now)
    node.turns.work += FILTER * len(session.subscriptions)
    for subscription in list(session.subscriptions.values()):
        node.table.remove(session, subscription.group, subscription.topic_filter)
    session.subscriptions = {}
    hand_over(node, session, now)
    session.outbound = None
    session.received = None
    session.is_over = True
    if node.ports.replay is not None:
        node.ports.replay.ended(session)
    if node.ports.sessions is not None:
        node.ports.sessions.ended(session)
    leave_will(session)
    if node.ports.ownership is not None:
        node.ports.ownership.ended(session)


def hand_over(node: NodeState, session: Session, now: int) -> None:
    """QoS 1 messages that a shared group had chosen this session for go to another member. [MQTT-4.8.2-4, -5]"""
    outbound = session.outbound
    if outbound is None:
        return
    for delivery in outbound.waiting_runs():
        group = delivery.group
        if isinstance(group, ShareGroup) and (delivery.qos == 1 or delivery.first == 0):
            if delivery.first == 0:
                reroute(node, group, delivery.run.part(delivery.low, delivery.high), now)
                continue
            for place in delivery.unsettled():
                index = delivery.low + place
                reroute(node, group, delivery.run.part(index, index + 1), now)


def leave_will(session: Session) -> None:
    """The log has the end of the connection: the leader of the shard publishes the will, not this node."""
    if session.is_will_logged:
        session.is_will_logged = False
        session.will = None


def forget_will(node: NodeState, session: Session) -> None:
    """No node will publish the will any more."""
    if session.is_will_logged and node.ports.sessions is not None:
        node.ports.sessions.will_revoked(session)
        session.is_will_logged = False
    session.will = None
    node.timers.cancel(session.will_timer)
    session.will_timer = None


def send_will(node: NodeState, session: Session, now: int) -> None:
    """Publish the will once, if the session still has one and the log does not keep it."""
    if not session.is_will_logged:
        send_will_now(node, session, now)


def send_will_now(node: NodeState, session: Session, now: int) -> None:
    """Publish the will from this node, also one that the log keeps: the end of the connection voids it there."""
    will = session.will
    session.will = None
    node.timers.cancel(session.will_timer)
    session.will_timer = None
    if will is not None:
        publish_will(node, session, will, now)
