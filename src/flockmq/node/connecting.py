"""CONNECT and AUTH: which user is the client, may it connect, and which session does it get.

```
 CONNECT --> listener full? banned? --> gate --Refuse--> CONNACK code, close
                                         |---Continue--> AUTH <--> AUTH ...
                                         |---None------> (reading pauses) ... Broker.auth_result
                                         `---Accept----> persistent: its turn (resuming.py)
                                                         claim the client id (durable/sessions/owning.py)
                                                         take over a live session (0x8E to the old connection)
                                                         clean start: end the old one | resume it
                                                         CONNACK, then what was in flight, then the queue
```
"""

from __future__ import annotations

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt import reasons
from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.namespaces import INSIDE_ID, inside_client_id, split_client_id
from flockmq.mqtt.packets import Auth, Connack, Connect
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.topics import check_topic_name
from flockmq.node.admission import Admission
from flockmq.node.lifecycle import (
    NEVER_EXPIRES,
    REASON_CHARACTERS_MAX,
    TAKEN_OVER,
    disconnect,
    displace,
    end_session,
    hang_up,
    send_will,
)
from flockmq.node.namespaces import edge_will
from flockmq.node.ports import CLAIM_BUSY, CLAIMED, Accept, AuthRequest, Continue, Identity, Refuse, Verdict
from flockmq.node.reviewing import review_session
from flockmq.node.state import AUTHORITY_TIMER, CONNECTION_TIMER, RESUME_TIMER, NodeState
from flockmq.node.turns import CONNECT
from flockmq.session.connection import AUTHENTICATING, CLOSED, CONNECTED, NEW, Connection
from flockmq.session.session import Session

WANTS_PLACES = ("flockmq-ack", "offset")
"""User property of a CONNECT: say in each PUBACK where the message is in its durable topic."""

CLIENT_ID_BYTES_MAX = 65_535
"""Longest client id with its namespace: other nodes are told it with two bytes of length."""


KEEP_ALIVE_MS = 1_500
"""How long a client may be silent for each second of its keep alive."""
TOO_MANY_RESUME = "Too many clients come back to their sessions at once; try again in a moment"
MOVING = "This node is on its way to another cluster; connect to another one, or again in a moment"
NOT_KNOWN_YET = "This node was just started and does not know its clients yet; try again in a moment"


def on_connect(node: NodeState, connection: Connection, connect: Connect, now: int) -> None:
    """Judge a CONNECT."""
    node.turns.work += CONNECT
    connection.version = 5 if connect.version == 5 else 4
    if connect.version == 3:
        connection.reply(encode_packet(Connack(False, 1), 4))
        hang_up(node, connection, reasons.UNSUPPORTED_PROTOCOL_VERSION, "MQTT 3.1 is not supported", now, False)
        return
    properties = connect.properties
    connection.wants_problem_information = properties.request_problem_information != 0
    connection.client_packet_max = properties.maximum_packet_size or 0
    refusal = connection.refusal
    if refusal is not None:
        refuse(node, connection, connect.client_id, refusal.reason_code, refusal.text, now)
        return
    if node.stopping:
        # 0x8B is for DISCONNECT only [MQTT-3.2.2-8]
        refuse(node, connection, connect.client_id, reasons.SERVER_UNAVAILABLE, "The broker is stopping", now)
        return
    if node.moving:
        refuse(node, connection, connect.client_id, reasons.USE_ANOTHER_SERVER, MOVING, now)
        return
    check_will(connection, connect)
    assigned = not connect.client_id
    client_id = connect.client_id or assign_client_id(node)
    namespace, username = node.spaces.of_listener(connection.listener), connect.username
    if username is not None:
        if "/" in username and not node.spaces.is_known:  # this node does not know its namespaces yet
            refuse(node, connection, client_id, reasons.SERVER_UNAVAILABLE, NOT_KNOWN_YET, now)
            return
        namespace, username = node.spaces.locate(username, connection.listener)
    ban = node.bans.check(inside_client_id(namespace, client_id), username, connection.peer, now)
    if ban is not None:
        refuse(node, connection, client_id, reasons.BANNED, ban.reason, now)
        return
    if client_id.startswith(INSIDE_ID):
        text = "Client ids that begin with $ns/ are the broker's own"
        refuse(node, connection, client_id, reasons.CLIENT_IDENTIFIER_NOT_VALID, text, now)
        return
    request = AuthRequest(
        connection_id=connection.number,
        client_id=client_id,
        username=username,
        password=connect.password,
        method=properties.authentication_method,
        data=properties.authentication_data,
        listener=connection.listener,
        peer=connection.peer,
        certificate_name=connection.certificate_name,
        now_ms=now,
        namespace=namespace,
        spaces=node.spaces,
    )
    connection.auth_method = properties.authentication_method
    connection.auth = request
    connection.admission = Admission(connect, request, assigned)
    connection.phase = AUTHENTICATING
    settle(node, connection, node.gate.authenticate(request), now)


def assign_client_id(node: NodeState) -> str:
    """A client id that no client has: 80 random bits. [MQTT-3.1.3-6]"""
    return f"flockmq-{node.rng.getrandbits(80):020x}"


def check_will(connection: Connection, connect: Connect) -> None:
    """A will must be something this client could publish."""
    will = connect.will
    if will is None:
        return
    limits = connection.limits
    check_topic_name(will.topic, limits.topic_levels_max, limits.topic_bytes_max)
    if will.topic.startswith((b"$SYS/", b"$delayed/")):
        raise RemoteProtocolError(
            reasons.TOPIC_NAME_INVALID, "A will can't be published to a topic of the broker's own"
        )


def settle(node: NodeState, connection: Connection, verdict: Verdict | None, now: int) -> None:
    """Act on the gate's verdict; None: the verdict comes later."""
    request = connection.auth
    if request is None or verdict is None:
        return
    if isinstance(verdict, Continue):
        question = encode_auth(connection, reasons.CONTINUE_AUTHENTICATION, verdict.data)
        if connection.client_packet_max and len(question) > connection.client_packet_max:  # [MQTT-3.1.2-24]
            verdict = Refuse(reasons.PACKET_TOO_LARGE, "The next step of the authentication is too large for you")
        else:
            connection.reply(question)
            connection.awaits_auth = True
    if isinstance(verdict, Continue):
        pass
    elif isinstance(verdict, Refuse):
        node.stats.authentication_failures += 1
        if connection.phase == AUTHENTICATING:
            refuse(node, connection, request.client_id, verdict.reason_code, verdict.text, now)
        else:
            code = verdict.reason_code
            if code not in reasons.IN_DISCONNECT:  # for example 0x86, which only CONNACK has [MQTT-3.14.2-1]
                code = reasons.NOT_AUTHORIZED
            disconnect(node, connection, code, verdict.text, now)
        return
    elif connection.phase == AUTHENTICATING:
        admit(node, connection, verdict, now)
    else:
        renew(node, connection, verdict, now)
    if connection.phase == AUTHENTICATING and connection.reading_paused and not is_claiming(connection):
        connection.reading_paused = False
        connection.mark()


def is_claiming(connection: Connection) -> bool:
    """Whether the gate has accepted the client, and the claim of its client id is under way."""
    admission = connection.admission
    return isinstance(admission, Admission) and admission.accept is not None


def refuse(node: NodeState, connection: Connection, client_id: str, code: int, text: str, now: int) -> None:
    """Answer a CONNECT with a refusal and close."""
    node.stats.connects_refused += 1
    text = text[:REASON_CHARACTERS_MAX]
    if connection.version == 5:
        if code not in reasons.IN_CONNACK:  # an error of a packet before CONNACK may have no code of CONNACK
            code = reasons.PROTOCOL_ERROR
        properties = Properties()
        if text and connection.wants_problem_information:
            properties.reason_string = text
        packet = encode_packet(Connack(False, code, properties), 5)
        if connection.client_packet_max and len(packet) > connection.client_packet_max:
            packet = encode_packet(Connack(False, code), 5)
    else:
        packet = encode_packet(Connack(False, reasons.connack_code_v3(code)), 4)
    connection.answer(packet)  # [MQTT-3.1.2-24]
    node.events.note(
        "connect_refused",
        {
            "client_id": client_id,
            "peer": connection.peer,
            "listener": connection.listener,
            "reason_code": code,
            "reason": text or reasons.NAMES.get(code, ""),
        },
    )
    hang_up(node, connection, code, text, now, False)


def on_auth(node: NodeState, connection: Connection, auth: Auth, now: int) -> None:
    """AUTH: the next step of an exchange, or the start of a re-authentication."""
    properties = auth.properties
    if connection.auth_method is None or properties.authentication_method != connection.auth_method:
        # [MQTT-4.12.0-5], [MQTT-4.12.1-1]
        raise RemoteProtocolError(reasons.PROTOCOL_ERROR, "AUTH with another method than the one of CONNECT")
    data = properties.authentication_data or b""
    request = connection.auth
    if auth.reason == reasons.CONTINUE_AUTHENTICATION:
        if request is None or not connection.awaits_auth:
            raise RemoteProtocolError(reasons.PROTOCOL_ERROR, "AUTH continues an exchange that is not going on")
        connection.awaits_auth = False
        request.now_ms = now
        settle(node, connection, node.gate.resume(request, data), now)
        return
    if auth.reason != reasons.RE_AUTHENTICATE or connection.phase != CONNECTED or request is not None:
        raise RemoteProtocolError(reasons.PROTOCOL_ERROR, "AUTH does not fit the state of this connection")
    identity = connection.identity
    session = connection.session
    if identity is None or session is None:
        return
    request = AuthRequest(
        connection_id=connection.number,
        client_id=split_client_id(session.client_id)[1],
        username=identity.username,
        password=None,
        method=connection.auth_method,
        data=data,
        listener=connection.listener,
        peer=connection.peer,
        certificate_name=connection.certificate_name,
        now_ms=now,
        namespace=identity.namespace,
        spaces=node.spaces,
    )
    connection.auth = request
    settle(node, connection, node.gate.authenticate(request), now)


def renew(node: NodeState, connection: Connection, accept: Accept, now: int) -> None:
    """A re-authentication succeeded: the identity must still be the same."""
    identity = connection.identity
    connection.auth = None
    if identity is None or accept.identity.username != identity.username:
        disconnect(node, connection, reasons.NOT_AUTHORIZED, "Re-authentication as another user", now)
        return
    connection.identity = accept.identity
    connection.verdicts = None
    set_authority_timer(node, connection, accept)
    connection.reply(encode_auth(connection, reasons.SUCCESS, accept.data))


def encode_auth(connection: Connection, reason: int, data: bytes | None) -> bytes:
    """An AUTH packet of this connection's exchange."""
    properties = Properties()
    properties.authentication_method = connection.auth_method
    properties.authentication_data = data
    return encode_packet(Auth(reason, properties), 5)


def set_authority_timer(node: NodeState, connection: Connection, accept: Accept) -> None:
    """End the connection when its credentials expire."""
    node.timers.cancel(connection.authority_timer)
    connection.authority_timer = None
    if accept.expires_at_ms:
        connection.authority_timer = node.timers.add(accept.expires_at_ms, AUTHORITY_TIMER, connection)


def admit(node: NodeState, connection: Connection, accept: Accept, now: int) -> None:
    """Give an accepted client its session and its CONNACK."""
    admission = connection.admission
    if not isinstance(admission, Admission):
        return
    connect = admission.connect
    identity = accept.identity
    connection.admitted_as = identity.username
    client_id = inside_client_id(identity.namespace, admission.request.client_id)
    old = node.sessions.get(client_id)
    if old is not None and old.connection is not None:
        node.finish(old.connection, now)  # packets that it sent before count, also a DISCONNECT
    problem = objection(node, connection, connect, identity, client_id, now)
    if problem is not None:
        refuse(node, connection, client_id, problem.reason_code, problem.text, now)
        return
    if not may_resume(node, connection, admission, accept, now):
        return
    if (
        node.ports.ownership is not None
        and not admission.is_claimed
        and not has_claimed(node, connection, admission, accept, now)
    ):
        return
    session, present = claim_session(node, connection, admission, client_id, now)
    if admission.claimed is not None and node.ports.sessions is not None:
        node.ports.sessions.attached(session, admission.claimed, now)
        admission.claimed = None
    take_unreleased(node, session, admission, present)
    attach(node, connection, session, identity, connect)
    if present and node.ports.replay is not None:
        node.ports.replay.resumed(session)
    if present and session.queues and node.ports.groups is not None:
        node.ports.groups.resumed(session)
    if present:
        review_session(node, session, None)  # rules, the client's address or its token may have changed
    node.online += 1
    node.stats.connects_accepted += 1
    settings = agree(node, connection, session, connect)
    if admission.assigned:
        settings.assigned_client_id = admission.request.client_id
    if connection.auth_method is not None:
        settings.authentication_method = connection.auth_method
        settings.authentication_data = accept.data
    set_authority_timer(node, connection, accept)
    connection.connected_at = now
    connection.last_read_at = now
    set_keep_alive_timer(node, connection, now)
    if not welcome(node, connection, settings, present, now):
        return
    if connection.reading_paused:
        connection.start_reading_again()
    node.stats.dropped_queue += session.resume(now)


def objection(
    node: NodeState, connection: Connection, connect: Connect, identity: Identity, client_id: str, now: int
) -> Refuse | None:
    """Why a client that the gate accepted can't come in all the same; None when it can."""
    # The user may be known only now: by certificate, token or SCRAM.
    ban = node.bans.check(client_id, identity.username, connection.peer, now)
    if ban is not None:
        return Refuse(reasons.BANNED, ban.reason)
    will = connect.will
    if will is not None:
        topic = edge_will(node.spaces.find(identity.namespace), will)
        if not topic or not may_send_will(node, identity, topic):
            return Refuse(reasons.NOT_AUTHORIZED, "The will's topic is not allowed")
    old = node.sessions.get(client_id)
    problem = namespace_problem(node, identity.namespace, client_id, old)
    if problem is not None:
        return problem
    if old is None and len(node.sessions) >= node.sessions_max:
        return Refuse(reasons.QUOTA_EXCEEDED, "The broker holds all sessions it may")
    if old is not None and old.username != identity.username and not node.gate_is_open:
        # A session belongs to the user that made it: another user must not inherit its messages, or end it.
        return Refuse(reasons.CLIENT_IDENTIFIER_NOT_VALID, "The client id belongs to another user")
    return None


def take_unreleased(node: NodeState, session: Session, admission: Admission, present: bool) -> None:
    """Add the QoS 2 ids in logs to the ids of the session."""
    if present and node.ports.ownership is not None and session.received:
        # Another owner may have had the session since, and died with it.
        session.collected = session.received.difference(admission.unreleased or ())
    if admission.unreleased and not admission.connect.clean_start:
        if not present or not session.received:  # the logs alone know its ids
            session.collected = set(admission.unreleased)
        session.received = admission.unreleased.union(session.received or ())


def attach(node: NodeState, connection: Connection, session: Session, identity: Identity, connect: Connect) -> None:
    """A session and a connection belong together from now on."""
    space = node.spaces.find(identity.namespace)
    connection.let_in()
    node.strangers.leave(connection)
    connection.auth = None
    connection.admission = None
    connection.session = session
    connection.identity = identity
    connection.space = space
    if space is not None:
        space.connections += 1
    session.connection = connection
    session.version = connection.version
    session.username = identity.username
    session.peer = connection.peer
    will = connect.will
    if will is not None:
        will.topic = edge_will(space, will)
    session.will = will


def welcome(node: NodeState, connection: Connection, settings: Properties, present: bool, now: int) -> bool:
    """The CONNACK; False when the client can't take it, and is gone."""
    if connection.version == 5:
        connack = encode_packet(Connack(present, 0, settings), 5)
        if connection.client_packet_max and len(connack) > connection.client_packet_max:
            settings.response_information = None  # the only part that the client can do without
            connack = encode_packet(Connack(present, 0, settings), 5)
            if len(connack) > connection.client_packet_max:  # [MQTT-3.1.2-24]
                text = "The client accepts no packet as large as its CONNACK"
                hang_up(node, connection, reasons.PACKET_TOO_LARGE, text, now, False)
                return False
        connection.reply(connack)
    else:
        connection.reply(b"\x20\x02\x01\x00" if present else b"\x20\x02\x00\x00")
    session = connection.session
    if node.log_connections and session is not None:
        node.events.note(
            "connected",
            {
                "client_id": session.client_id,
                "username": session.username,
                "peer": connection.peer,
                "listener": connection.listener,
                "version": connection.version,
                "session_present": present,
            },
        )
    return True


def namespace_problem(node: NodeState, namespace: str, client_id: str, old: Session | None) -> Refuse | None:
    """Why a namespace has no room for this client; None when it has."""
    if not node.spaces.exists(namespace):
        return Refuse(reasons.NOT_AUTHORIZED, "The namespace was deleted")
    space = node.spaces.find(namespace)
    if space is None:
        return None
    if space.prefix and len(client_id.encode("utf-8", "surrogatepass")) > CLIENT_ID_BYTES_MAX:
        return Refuse(reasons.CLIENT_IDENTIFIER_NOT_VALID, "The client id is too long for this namespace")
    if not space.may_connect() and (old is None or old.connection is None):
        return Refuse(reasons.QUOTA_EXCEEDED, "The namespace has all connections that it may")
    if old is None and not space.may_begin_session():
        return Refuse(reasons.QUOTA_EXCEEDED, "The namespace has all sessions that it may")
    return None


def may_resume(node: NodeState, connection: Connection, admission: Admission, accept: Accept, now: int) -> bool:
    """Whether a client may have its persistent session now; False when it waits for its turn, or was refused."""
    connect = admission.connect
    is_new = connect.clean_start or not agreed_expiry_s(node, connect)
    if node.ports.sessions is None or is_new or admission.is_let_on or admission.is_claimed:
        return True
    admission.is_let_on = True
    if node.resumes.passes(now):
        return True
    admission.accept = accept
    connection.auth = None  # the gate has spoken
    connection.reading_paused = True
    connection.mark()
    if not node.resumes.waiting:
        node.timers.add(now + 1, RESUME_TIMER, None)
    surplus = node.resumes.wait(connection, accept.identity.namespace, now)
    if surplus is not None:
        refuse_to_resume(node, surplus, now)
    return False


def refuse_to_resume(node: NodeState, connection: Connection, now: int) -> None:
    """A client has waited too long for its turn: refuse it."""
    admission = connection.admission
    if connection.phase == AUTHENTICATING and isinstance(admission, Admission) and admission.accept is not None:
        client_id = inside_client_id(admission.accept.identity.namespace, admission.request.client_id)
        admission.accept = None
        refuse(node, connection, client_id, reasons.SERVER_BUSY, TOO_MANY_RESUME, now)


def go_on_resuming(node: NodeState, now: int) -> None:
    """Let waiting clients resume their sessions, as many as the rate allows."""
    resumes = node.resumes
    while True:
        connection = resumes.take(now)
        if connection is None:
            break
        admission = connection.admission
        if isinstance(admission, Admission) and admission.accept is not None:
            accept = admission.accept
            admission.accept = None
            admit(node, connection, accept, now)
    for connection in resumes.late(now):
        refuse_to_resume(node, connection, now)
    if resumes.waiting:
        node.timers.add(now + 1, RESUME_TIMER, None)


def has_claimed(node: NodeState, connection: Connection, admission: Admission, accept: Accept, now: int) -> bool:
    """Ask the cluster for the client id; False when the answer comes later, or the client was refused."""
    owner = node.ports.ownership
    if owner is None:
        return True
    client_id = inside_client_id(accept.identity.namespace, admission.request.client_id)
    admission.accept = accept
    outcome = owner.claim(connection, client_id)
    if outcome == CLAIMED:
        admission.accept = None
        admission.is_claimed = True
        return True
    if outcome == CLAIM_BUSY:
        admission.accept = None
        refuse(node, connection, client_id, reasons.SERVER_BUSY, "Too many clients connect at once; try again", now)
    elif connection.phase == AUTHENTICATING:
        connection.auth = None  # the gate has spoken
        connection.reading_paused = True
        connection.mark()
    return False


def go_on_admitting(node: NodeState, connection: Connection, now: int) -> None:
    """The claim is granted: the client id belongs to this node."""
    admission = connection.admission
    if connection.phase != AUTHENTICATING or not isinstance(admission, Admission) or admission.accept is None:
        return
    accept = admission.accept
    admission.accept = None
    admission.is_claimed = True
    admit(node, connection, accept, now)


def may_send_will(node: NodeState, identity: Identity, topic: bytes) -> bool:
    """A will is a publish like any other."""
    return node.gate_is_open or node.gate.may_publish(identity, topic)


def claim_session(
    node: NodeState, connection: Connection, admission: Admission, client_id: str, now: int
) -> tuple[Session, bool]:
    """Give the client its session, and take over from its earlier connection; whether the session was there before."""
    connect = admission.connect
    claimed = admission.claimed
    keeper = node.ports.sessions
    old = node.sessions.get(client_id)
    if old is not None and claimed is not None and keeper is not None and keeper.is_outdated(old, claimed):
        displace(node, old, now)
        old = None
    if old is not None and old.connection is not None:
        node.stats.takeovers += 1
        previous = old.connection
        disconnect(node, previous, reasons.SESSION_TAKEN_OVER, TAKEN_OVER, now)
        old = node.sessions.get(client_id)  # gone if its expiry was 0
    if old is not None:
        node.timers.cancel(old.timer)
        old.timer = None
        if connect.clean_start:
            end_session(node, old, now)
        else:
            # Back before the delay was over: the will is void. [MQTT-3.1.3-9]
            old.will = None
            node.timers.cancel(old.will_timer)
            old.will_timer = None
            return old, True
    restored = keeper.restore(client_id, claimed, now) if keeper is not None and claimed is not None else None
    session = restored if restored is not None else Session(client_id, connection.version, now)
    node.sessions[client_id] = session
    node.spaces.session_began(client_id)
    return session, restored is not None


def agree(node: NodeState, connection: Connection, session: Session, connect: Connect) -> Properties:
    """Settle limits between client and broker; returns the properties of the CONNACK."""
    limits = connection.limits
    asked = connect.properties
    told = Properties()
    # session expiry
    session.expiry_s = agreed_expiry_s(node, connect)
    if connection.version == 5 and session.expiry_s != (asked.session_expiry_s or 0):
        told.session_expiry_s = session.expiry_s
    # keep alive
    keep_alive = connect.keep_alive
    if limits.keep_alive_s_max and (keep_alive == 0 or keep_alive > limits.keep_alive_s_max):
        keep_alive = limits.keep_alive_s_max
        told.server_keep_alive_s = keep_alive
    connection.keep_alive_s = keep_alive
    connection.wants_places = connection.wants_problem_information and WANTS_PLACES in asked.user
    # flow
    session.window = asked.receive_maximum or 65_535
    if limits.inflight_max and limits.inflight_max < session.window:
        session.window = limits.inflight_max
    session.queue_messages_max = limits.queue_messages_max
    session.queue_bytes_max = limits.queue_bytes_max
    connection.client_alias_max = min(asked.topic_alias_maximum or 0, limits.topic_aliases_max)
    if limits.receive_max and limits.receive_max < 65_535:
        told.receive_maximum = limits.receive_max
    if limits.topic_aliases_max:
        told.topic_alias_maximum = limits.topic_aliases_max
    if limits.packet_bytes_max:
        told.maximum_packet_size = limits.packet_bytes_max
    if asked.request_response_information == 1 and node.settings.response_information:
        prefix = node.settings.response_information + split_client_id(session.client_id)[1]
        if len(prefix.encode()) <= 0xFFFF:  # else it is no MQTT string
            told.response_information = prefix
    return told


def agreed_expiry_s(node: NodeState, connect: Connect) -> int:
    """How long a session outlives its connection: as long as the client asks for and the broker allows."""
    longest = node.settings.session_expiry_s_max or NEVER_EXPIRES
    if connect.version == 5:
        return min(connect.properties.session_expiry_s or 0, longest)
    return 0 if connect.clean_start else longest


def set_keep_alive_timer(node: NodeState, connection: Connection, now: int) -> None:
    """From the connect timeout to the keep alive, or to no deadline at all."""
    node.timers.cancel(connection.timer)
    connection.timer = None
    if connection.keep_alive_s:
        connection.timer = node.timers.add(now + connection.keep_alive_s * KEEP_ALIVE_MS, CONNECTION_TIMER, connection)


def on_connection_timer(node: NodeState, connection: Connection, now: int) -> None:
    """The keep alive timer fired: end the connection if the client was silent for too long."""
    connection.timer = None
    if connection.phase == CLOSED:  # by a timer that came due with this one
        return
    if connection.phase in (NEW, AUTHENTICATING):
        node.stats.connect_timeouts += 1
        node.events.note("connect_timeout", {"peer": connection.peer, "listener": connection.listener})
        hang_up(node, connection, reasons.KEEP_ALIVE_TIMEOUT, "No CONNECT in time", now, False)
        return
    deadline = connection.last_read_at + connection.keep_alive_s * KEEP_ALIVE_MS
    if deadline > now or connection.waits_for or connection.waits_turn:
        # The client was heard since, or this broker does not read from it.
        deadline = max(deadline, now + 1)
        connection.timer = node.timers.add(deadline, CONNECTION_TIMER, connection)
        return
    node.stats.keep_alive_timeouts += 1
    disconnect(node, connection, reasons.KEEP_ALIVE_TIMEOUT, "Nothing heard within 1.5 times the keep alive", now)


def on_will_timer(node: NodeState, session: Session, now: int) -> None:
    """The will's delay is over."""
    session.will_timer = None
    send_will(node, session, now)


def on_session_timer(node: NodeState, session: Session, now: int) -> None:
    """A session has been without its client for as long as it may."""
    session.timer = None
    if session.connection is None:
        node.stats.sessions_expired += 1
        node.events.note("session_expired", {"client_id": session.client_id})
        end_session(node, session, now)
