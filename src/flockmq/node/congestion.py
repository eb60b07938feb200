"""Publishers wait for a subscriber that can't keep up, but only for a moment.

```
 subscriber's buffer or queue half full --> the publisher is no longer read (TCP slows it down)
     |   and what was read of it already waits
     |-- buffer drained ----------------> publishers go on, nothing was lost
     `-- grace over (a quarter second) --> publishers go on; what does not fit is dropped and counted,
                                           and this subscriber slows no publisher until it has drained once
```
So a burst costs no message, and a subscriber that never reads costs its publishers one grace period, once.

Other nodes take part on both sides. A node that takes no more slows publishers down as a subscriber does, with a grace
of its own. Where the publisher is a client of another node, that node is told to wait, and slows it down there.
"""

from __future__ import annotations

from flockmq.node.state import CONGESTION_TIMER, NodeState
from flockmq.routing.peer import Peer
from flockmq.session.connection import CONNECTED, Connection
from flockmq.session.session import Session
from flockmq.session.timers import Timer


def slow_down(node: NodeState, publisher: Connection, subscriber: Connection, now: int) -> None:
    """Stop reading from ``publisher`` until ``subscriber`` has drained or its grace is over."""
    if subscriber.out_of_grace or subscriber is publisher or not node.settings.congestion_grace_ms:
        return
    waiting = subscriber.waiting
    if waiting is None:
        waiting = {}
        subscriber.waiting = waiting
        settings = node.settings
        grace_ms = settings.forward_grace_ms if isinstance(subscriber, Peer) else settings.congestion_grace_ms
        deadline = now + grace_ms
        subscriber.congestion_timer = node.timers.add(deadline, CONGESTION_TIMER, subscriber)
    elif publisher.number in waiting:
        return
    waiting[publisher.number] = publisher
    publisher.waits_for += 1
    publisher.reading_paused = True
    publisher.mark()


def has_drained(session: Session, connection: Connection) -> bool:
    """Whether so little waits for a client that its publishers may go on."""
    outbound = session.outbound
    if outbound is not None and (outbound.queued * 4 > outbound.messages_max or outbound.held * 4 > outbound.bytes_max):
        return False
    return connection.out_bytes * 4 <= connection.bounds.write_bytes_max and not connection.blocked


def look_again(node: NodeState, subscriber: Connection) -> None:
    """Something was written, or acknowledged: publishers go on if that was enough."""
    if subscriber.waiting is None and not subscriber.out_of_grace:
        return
    session = subscriber.session
    if subscriber.phase == CONNECTED and session is not None and has_drained(session, subscriber):
        let_go(node, subscriber, True)


def look_at_peer(node: NodeState, peer: Peer) -> None:
    """Another node took something, or has acknowledged it: publishers go on if that was enough."""
    if (peer.waiting is not None or peer.out_of_grace) and peer.has_room():
        let_go(node, peer, True)


def on_grace_over(node: NodeState, subscriber: Connection, timer: Timer) -> None:
    """The grace of a subscriber is over. A timer that is not its present one was cancelled as it came due."""
    if subscriber.congestion_timer is timer:
        let_go(node, subscriber, False)


def let_go(node: NodeState, subscriber: Connection, drained: bool) -> None:
    """The subscriber drained or is gone, or its grace is over: its publishers go on."""
    subscriber.out_of_grace = not drained
    node.timers.cancel(subscriber.congestion_timer)
    subscriber.congestion_timer = None
    waiting = subscriber.waiting
    if waiting is None:
        return
    subscriber.waiting = None
    for publisher in waiting.values():
        publisher.waits_for -= 1
        publisher.last_read_at = node.now  # the broker did not read from it; the client was not silent
        publisher.start_reading_again()
