"""Messages out of a log for one client, no faster than it takes them, and none dropped for want of room.

```
 has_room? --> as many messages of a piece as fit into queue and buffer --> session.deliver
     ^                                          `-- the rest stays in the log: its offset is all that is kept
     `-- acknowledgements came, the buffer was written
```
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from flockmq.session.connection import CONNECTED, Connection
from flockmq.session.outbound import DELIVERY_OVERHEAD_BYTES, LogSource
from flockmq.session.session import Session

if TYPE_CHECKING:
    from flockmq.durable.deliver.decoding import Piece
    from flockmq.mqtt.run import Run
    from flockmq.routing.plan import Target
    from flockmq.session.stats import Stats

BUFFER_BYTES: Final = 262_144
"""Bytes in a connection's buffer at which reading on pauses."""
ALL_BUFFERS_BYTES: Final = 64 * 1_024 * 1_024
"""What the buffers, and what waits in the queues, of all sessions that read may take together, about."""
BUFFER_BYTES_MIN: Final = 8_192
QUEUE_MESSAGES: Final = 1_000
"""Messages in a session's queue at which reading on pauses."""


def buffer_room(readers: int) -> int:
    """Bytes that one of so many sessions that read may have in its buffer before reading on pauses."""
    return min(max(ALL_BUFFERS_BYTES // max(readers, 1), BUFFER_BYTES_MIN), BUFFER_BYTES)


def has_room(session: Session, connection: Connection, buffer_bytes: int = BUFFER_BYTES) -> bool:
    """Whether a client takes more now."""
    if connection.blocked or connection.phase != CONNECTED:
        return False
    if connection.out_bytes > min(buffer_bytes, connection.bounds.write_bytes_max // 2):
        return False
    outbound = session.outbound
    if buffer_bytes < BUFFER_BYTES and outbound is not None and outbound.held > buffer_bytes:
        return False  # many read: what waits for acknowledgements counts as well
    return outbound is None or (outbound.queued < QUEUE_MESSAGES and not outbound.is_crowded())


def would_overtake(session: Session, target: Target, qos: int) -> bool:
    """Whether a message, given now, would pass others of its subscription that wait for acknowledgements.

    QoS 0 waits for nothing by itself; where a subscription takes no more than that, all it gets is in order.
    """
    outbound = session.outbound
    return qos == 0 and target.qos > 0 and outbound is not None and outbound.queued > 0


def fits(session: Session, run: Run) -> bool:
    """Whether a session's queue takes a run of QoS 1 or 2 whole, and is not half full already."""
    outbound = session.outbound
    count = run.count
    size = len(run.wire)
    if outbound is None:
        messages_max = session.queue_messages_max
        bytes_max = session.queue_bytes_max
        return (not messages_max or count <= messages_max) and (
            not bytes_max or size + DELIVERY_OVERHEAD_BYTES <= bytes_max
        )
    if outbound.is_crowded():
        return False
    held = outbound.held + size + DELIVERY_OVERHEAD_BYTES
    return outbound.queued + count <= outbound.messages_max and held <= outbound.bytes_max


def give(
    session: Session,
    connection: Connection,
    target: Target,
    group: int,
    piece: Piece,
    stats: Stats,
    now: int,
    buffer_bytes: int = BUFFER_BYTES,
) -> int:
    """Deliver as many messages of a piece of partition ``group`` as there is room for; how many."""
    run = piece.run
    qos = target.qos if target.qos < run.qos else run.qos
    retain = run.retain and target.retain_as_published
    properties = target.identifier_properties
    done = 0
    while done < run.count:
        if not has_room(session, connection, buffer_bytes) or would_overtake(session, target, qos):
            return done
        part = run.part(done, done + part_size(session, connection, run, qos, done, buffer_bytes))
        source = LogSource(group, piece.offset + done) if session.is_logged else None
        lost = session.deliver(part, qos, retain, properties, source, now)
        if qos:
            stats.dropped_queue += lost
        else:
            stats.publishes_out_qos0 += part.count - lost
            stats.dropped_slow += lost
        done += part.count
    return done


def part_size(
    session: Session, connection: Connection, run: Run, qos: int, done: int, buffer_bytes: int = BUFFER_BYTES
) -> int:
    """How many messages of a run, from ``done`` on, may be given at once: at least one."""
    start = run.ends[done - 1] if done else 0
    count = run.count - done
    # Half of what is free: as this client gets them they may be larger than in the run, by properties of their own.
    room = min(buffer_bytes, (connection.bounds.write_bytes_max - connection.out_bytes) // 2)
    if qos:
        outbound = session.outbound
        messages = outbound.messages_max - outbound.queued if outbound is not None else session.queue_messages_max
        held = outbound.held if outbound is not None else 0
        room = buffer_bytes
        if session.queue_bytes_max:
            room = min(room, session.queue_bytes_max - held - DELIVERY_OVERHEAD_BYTES)
        count = min(count, QUEUE_MESSAGES, messages or QUEUE_MESSAGES)
    return max(min(count, bisect_right(run.ends, start + room) - done), 1)
