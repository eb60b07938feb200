"""QoS 2 messages on their way into a log: their ids are taken, but a PUBREC would be a lie until they are there.

```
 PUBLISH id --> unsettled --> in the log, which remembers the id until PUBREL (releasing.py)
                   |    `---> certainly not, or never known: the id is free again
                   `<-- the same id again, perhaps on another connection: answered with the first one
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.durable.publish.answers import PublishAnswer, RepeatAnswer, Unsettled
from flockmq.mqtt import reasons
from flockmq.session.acks import AckQueue, PendingAck

if TYPE_CHECKING:
    from flockmq.node.state import NodeState
    from flockmq.session.connection import Connection


def note_unsettled(answer: PublishAnswer) -> None:
    """Note packet ids that are taken and have no outcome."""
    session = answer.session
    if session.unsettled is None:
        session.unsettled = {}
    answer.unsettled = []
    for position in range(answer.pending.count):
        unsettled = Unsettled()
        answer.unsettled.append(unsettled)
        session.unsettled[answer.pending.packet_id(position)] = unsettled


def repeat_of(node: NodeState, connection: Connection, packet_id: int) -> bool:
    """A message came again: its PUBREC waits with the first one's; False when that has its outcome."""
    session = connection.session
    if session is None or session.unsettled is None:
        return False
    unsettled = session.unsettled.get(packet_id)
    if not isinstance(unsettled, Unsettled):
        return False
    acks = connection.acks
    if acks is None:
        acks = AckQueue()
        connection.acks = acks
    pending = PendingAck(b"\x50\x02" + packet_id.to_bytes(2, "big"), 1)
    acks.add(pending)
    unsettled.repeats.append(RepeatAnswer(node, connection, session, pending))
    return True


def settle(answer: PublishAnswer, position: int) -> bool:
    """A message has its outcome; False when that was known, or its id may mean another message by now."""
    known = answer.session.unsettled
    packet_id = answer.pending.packet_id(position)
    if known is None or answer.unsettled is None or known.get(packet_id) is not answer.unsettled[position]:
        return False
    del known[packet_id]
    return True


def ids_of(answer: PublishAnswer, first: int, count: int) -> list[int]:
    """Packet ids of some messages of a run."""
    return [answer.pending.packet_id(position) for position in range(first, first + count)]


def ids_noted(answer: PublishAnswer, first: int, count: int) -> list[int]:
    """Packet ids that still belong to these messages; a client may have reused others."""
    known = answer.session.unsettled
    if known is None or answer.unsettled is None:
        return []
    found: list[int] = []
    for position in range(first, first + count):
        packet_id = answer.pending.packet_id(position)
        if known.get(packet_id) is answer.unsettled[position]:
            found.append(packet_id)
    return found


def settle_ids(answer: PublishAnswer, first: int, count: int) -> None:
    """Messages are in a log."""
    for position in range(first, first + count):
        if answer.unsettled is not None and settle(answer, position):
            for repeat in answer.unsettled[position].repeats:
                repeat.stored(0, 1, 0, -1)


def drop_ids(answer: PublishAnswer, first: int, count: int, text: str) -> None:
    """Messages are not in the log, or (without ``text``) that is not known: their ids mean nothing any more."""
    session = answer.session
    for position in range(first, first + count):
        if answer.unsettled is None or not settle(answer, position):
            continue
        if session.received is not None:
            session.received.discard(answer.pending.packet_id(position))
        for repeat in answer.unsettled[position].repeats:
            if text:
                repeat.refused(0, 1, reasons.UNSPECIFIED_ERROR, text)
            else:
                repeat.lost(0, 1)
