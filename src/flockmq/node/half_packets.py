"""Packets that have begun and do not end: how long the rest of one may take.

```
 the end of a read is in the middle of a packet --> since when is noted; one timer, if there is none
 the timer --> a whole packet came since: no timer any more, or one for the next half
          `--> still the same half: it has GRACE_MS, and then as long as all its bytes take at the slowest rate
```
Keep alive counts whole packets [MQTT-3.1.2-22], so bytes that trickle in do not keep a client alive. This module bounds
clients whose keep alive is long, or 0. A stream of packets that reads cut anywhere costs a timer every GRACE_MS.
"""

from __future__ import annotations

from typing import Final

from flockmq.mqtt import reasons
from flockmq.node.lifecycle import disconnect
from flockmq.node.state import PACKET_TIMER, NodeState
from flockmq.session.connection import CONNECTED, Connection

GRACE_MS: Final = 30_000
"""The time that any packet may take, however small it is."""


def watch_half(node: NodeState, connection: Connection, now: int) -> None:
    """A packet has begun just now."""
    connection.half_since = now
    if connection.packet_timer is None and connection.limits.packet_bytes_per_s_min:
        connection.packet_timer = node.timers.add(now + GRACE_MS, PACKET_TIMER, connection)


def on_packet_timer(node: NodeState, connection: Connection, now: int) -> None:
    """The timer fired: check whether the packet that had begun is complete."""
    connection.packet_timer = None
    if connection.phase != CONNECTED or not connection.half_since:
        return
    if connection.reading_paused or connection.held_back or connection.waits_turn:
        connection.half_since = now  # the broker does not read from it, or its bytes wait for their turn
    chunks = connection.chunks
    size = len(chunks) + connection.missing if chunks is not None else len(connection.rest)
    allowed_ms = GRACE_MS + size * 1000 // connection.limits.packet_bytes_per_s_min
    deadline = max(connection.half_since, connection.last_read_at) + allowed_ms
    if now < deadline:
        connection.packet_timer = node.timers.add(deadline, PACKET_TIMER, connection)
        return
    node.stats.packet_timeouts += 1
    disconnect(node, connection, reasons.KEEP_ALIVE_TIMEOUT, "A packet has begun, and its rest comes too slowly", now)
