"""PUBACK, PUBREC, PUBREL, PUBCOMP: a flat loop over the plain four-byte forms, and the long forms one by one.

```
 towards a subscriber   QoS 1: PUBLISH -> PUBACK             settled, window opens
                        QoS 2: PUBLISH -> PUBREC             settled, answered with PUBREL; if the record of its session
                                                            lists the message, after that has the PUBREC
                               PUBREL  -> PUBCOMP            finished, window opens
 from a publisher       QoS 2: PUBREL                        id released, answered with PUBCOMP; if its message is in
                                                            a log, after that has forgotten the id
```
"""

from __future__ import annotations

from typing import Final

from flockmq.mqtt import reasons
from flockmq.mqtt.encode import encode_ack
from flockmq.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Ack
from flockmq.node.congestion import look_again
from flockmq.node.ports import PENDING
from flockmq.node.state import NodeState
from flockmq.session.connection import Connection
from flockmq.session.members import refuse
from flockmq.session.outbound import Outbound
from flockmq.session.session import Session

UNKNOWN: Final = 0
RELEASE: Final = 1
LATER: Final = 2
"""How to answer a PUBREC: there is no such message; PUBREL; PUBREL when the record of the session has the PUBREC."""


def on_plain_acks(node: NodeState, connection: Connection, buf: bytes, pos: int, end: int, now: int) -> int:
    """Handle all four-byte acknowledgements of one kind that stand at ``pos``; where they end (``pos``: none)."""
    first = buf[pos]
    session = connection.session
    if session is None:
        return pos
    if first == 0x40:
        return on_pubacks(node, session, buf, pos, end, now)
    if first == 0x62:
        return on_pubrels(node, connection, session, buf, pos, end, now)
    if first == 0x50:
        return on_pubrecs(connection, session, buf, pos, end)
    if first == 0x70:
        return on_pubcomps(node, session, buf, pos, end, now)
    return pos


def on_pubacks(node: NodeState, session: Session, buf: bytes, pos: int, end: int, now: int) -> int:
    """QoS 1 messages have arrived."""
    outbound = session.outbound
    while pos + 4 <= end and buf[pos] == 0x40 and buf[pos + 1] == 2:
        pid = buf[pos + 2] << 8 | buf[pos + 3]
        if pid == 0:
            break  # the decoder will report the error; so below
        if outbound is not None and outbound.settle(pid, 1):
            outbound.inflight -= 1
        pos += 4
    go_on(node, session, now)
    return pos


def go_on(node: NodeState, session: Session, now: int) -> None:
    """The window may have opened: send what waits."""
    outbound = session.outbound
    if outbound is not None and outbound.is_waiting():
        node.stats.dropped_queue += session.pump(now)
    connection = session.connection
    if connection is None:
        return
    if connection.backlog is not None:
        connection.mark()
    look_again(node, connection)


def on_pubrecs(connection: Connection, session: Session, buf: bytes, pos: int, end: int) -> int:
    """QoS 2 messages have arrived: release them."""
    outbound = session.outbound
    parts: list[bytes] = []
    while pos + 4 <= end and buf[pos] == 0x50 and buf[pos + 1] == 2:
        pid = buf[pos + 2] << 8 | buf[pos + 3]
        if pid == 0:
            break
        answer = UNKNOWN if outbound is None else received(session, outbound, pid)
        if answer == LATER:
            pass
        elif answer == RELEASE or connection.version != 5:
            parts.append(b"\x62\x02" + buf[pos + 2 : pos + 4])
        else:
            parts.append(encode_ack(PUBREL, pid, reasons.PACKET_IDENTIFIER_NOT_FOUND, 5))
        pos += 4
    if parts:
        connection.reply(b"".join(parts))
    return pos


def received(session: Session, outbound: Outbound, pid: int) -> int:
    """Note that the client has a QoS 2 message: ``RELEASE``, ``LATER``, or ``UNKNOWN`` if there is no such message."""
    if outbound.settle(pid, 2):
        exact = session.exact
        outbound.releasing[pid] = exact is None or not exact.received(pid)
    may_release = outbound.releasing.get(pid)
    if may_release is None:
        return UNKNOWN
    return RELEASE if may_release else LATER


def on_pubrels(
    node: NodeState, connection: Connection, session: Session, buf: bytes, pos: int, end: int, now: int
) -> int:
    """The publisher releases QoS 2 ids: they may mean new messages from now on."""
    if node.ports.appending is not None:
        return on_durable_pubrels(node, connection, session, buf, pos, end, now)
    ids = session.received
    parts: list[bytes] = []
    while pos + 4 <= end and buf[pos] == 0x62 and buf[pos + 1] == 2:
        pid = buf[pos + 2] << 8 | buf[pos + 3]
        if pid == 0:
            break
        known = ids is not None and pid in ids
        if known and ids is not None:
            ids.discard(pid)
        if known or connection.version != 5:
            parts.append(b"\x70\x02" + buf[pos + 2 : pos + 4])
        else:
            parts.append(encode_ack(PUBCOMP, pid, reasons.PACKET_IDENTIFIER_NOT_FOUND, 5))
        pos += 4
    if parts:
        connection.complete(b"".join(parts))
    return pos


def on_durable_pubrels(
    node: NodeState, connection: Connection, session: Session, buf: bytes, pos: int, end: int, now: int
) -> int:
    """As ``on_pubrels``, where logs may hold some of the ids. Ids that come together go to the logs together."""
    known: dict[int, None] = {}
    while pos + 4 <= end and buf[pos] == 0x62 and buf[pos + 1] == 2:
        pid = buf[pos + 2] << 8 | buf[pos + 3]
        if pid == 0:
            break
        pos += 4
        if session.received is not None and pid in session.received and pid not in known:
            known[pid] = None
            continue
        release_known(node, connection, session, list(known), now)
        known = {}
        release_one(node, connection, pid, now)
    release_known(node, connection, session, list(known), now)
    return pos


def release_known(node: NodeState, connection: Connection, session: Session, packet_ids: list[int], now: int) -> None:
    """Release ids of messages that were taken; those in logs when the logs have forgotten them."""
    if session.collected is not None and not session.collected.isdisjoint(packet_ids):
        session.collected = None  # the client remembers its former session
    if not packet_ids or (
        node.ports.appending is not None and node.ports.appending.release(connection, packet_ids, now) == PENDING
    ):
        return
    if session.received is not None:
        session.received.difference_update(packet_ids)
    connection.complete(b"".join([b"\x70\x02" + bytes((pid >> 8, pid & 0xFF)) for pid in packet_ids]))


def release_one(node: NodeState, connection: Connection, pid: int, now: int) -> None:
    """Release an id that the session does not know; a log that could not be asked may."""
    if node.ports.appending is not None and node.ports.appending.release(connection, [pid], now) == PENDING:
        return
    connection.complete(encode_ack(PUBCOMP, pid, reasons.PACKET_IDENTIFIER_NOT_FOUND, connection.version))


def on_pubcomps(node: NodeState, session: Session, buf: bytes, pos: int, end: int, now: int) -> int:
    """QoS 2 messages are through."""
    outbound = session.outbound
    while pos + 4 <= end and buf[pos] == 0x70 and buf[pos + 1] == 2:
        pid = buf[pos + 2] << 8 | buf[pos + 3]
        if pid == 0:
            break
        if outbound is not None and outbound.finish(pid) and session.exact is not None:
            session.exact.finished(pid)
        pos += 4
    go_on(node, session, now)
    return pos


def on_ack(node: NodeState, connection: Connection, ack: Ack, now: int) -> None:
    """An acknowledgement with a reason code or properties."""
    session = connection.session
    if session is None:
        return
    outbound = session.outbound
    pid = ack.packet_id
    if ack.kind == PUBREL:
        if session.received is not None and pid in session.received:
            release_known(node, connection, session, [pid], now)
        else:
            release_one(node, connection, pid, now)
        return
    if outbound is None:
        if ack.kind == PUBREC and ack.reason < 0x80:
            connection.reply(encode_ack(PUBREL, pid, reasons.PACKET_IDENTIFIER_NOT_FOUND, connection.version))
        return
    if ack.kind == PUBACK:
        is_refused = ack.reason >= 0x80 and session.queue is not None and refuse(outbound, pid, ack.reason)
        if not is_refused and outbound.settle(pid, 1):
            outbound.inflight -= 1
    elif ack.kind == PUBREC:
        if ack.reason >= 0x80:
            # The client does not want it: as good as delivered, and for no other client. [MQTT-4.8.2-6]
            if outbound.settle(pid, 2):
                outbound.inflight -= 1
                if session.exact is not None:
                    session.exact.finished(pid)
        else:
            answer = received(session, outbound, pid)
            if answer != LATER:
                reason = reasons.SUCCESS if answer == RELEASE else reasons.PACKET_IDENTIFIER_NOT_FOUND
                connection.reply(encode_ack(PUBREL, pid, reason, connection.version))
            return
    elif outbound.finish(pid) and session.exact is not None:
        session.exact.finished(pid)
    go_on(node, session, now)
