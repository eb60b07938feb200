"""Publishers wait for a subscriber that can't keep up, but only for a moment.

```
 subscriber's buffer or queue half full --> the publisher is no longer read (TCP slows it down)
     |-- buffer drained ----------------> publishers go on, nothing was lost
     `-- grace over (a quarter second) --> publishers go on; what does not fit is dropped and counted,
                                           and this subscriber slows nobody down until it has drained once
```
So a burst costs no message, and a subscriber that never reads costs everybody else one grace period, once.
"""

from __future__ import annotations

from flockmq.node.state import CONGESTION_TIMER, NodeState
from flockmq.session.connection import Connection
from flockmq.session.session import Session


def slow_down(node: NodeState, publisher: Connection, subscriber: Connection, now: int) -> None:
    """Stop reading from ``publisher`` until ``subscriber`` has drained or its grace is over."""
    if subscriber.out_of_grace or subscriber is publisher or not node.settings.congestion_grace_ms:
        return
    waiting = subscriber.waiting
    if waiting is None:
        waiting = []
        subscriber.waiting = waiting
        node.timers.add(now + node.settings.congestion_grace_ms, CONGESTION_TIMER, subscriber)
    elif publisher in waiting:
        return
    waiting.append(publisher)
    publisher.waits_for += 1
    publisher.reading_paused = True
    publisher.mark()


def has_drained(session: Session, connection: Connection) -> bool:
    """Whether so little waits for a client that its publishers may go on."""
    outbound = session.outbound
    if outbound is not None and (outbound.queued * 4 > outbound.messages_max or outbound.held * 4 > outbound.bytes_max):
        return False
    return connection.out_bytes * 4 <= connection.out_max and not connection.blocked


def let_go(subscriber: Connection, drained: bool) -> None:
    """The subscriber drained, or its grace is over: its publishers go on."""
    subscriber.out_of_grace = not drained
    waiting = subscriber.waiting
    if waiting is None:
        return
    subscriber.waiting = None
    for publisher in waiting:
        publisher.waits_for -= 1
        publisher.start_reading_again()
