"""Retained messages for new subscriptions, no faster than the client takes them.

```
 SUBSCRIBE --> add --> feed: messages until the buffer or the queue has enough --.
                         ^                                                       |
                         `--- the buffer was written, acknowledgements came -----'
```
A filter may match every retained message. The node holds one match list at a time for a connection; its other filters
wait unmatched. The feed leaves out messages that were replaced or deleted meanwhile, or stored after the SUBSCRIBE: the
client gets the newer message as a live one.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from flockmq.node.state import NodeState
from flockmq.node.turns import STEPS
from flockmq.routing.retained import RetainedMessage
from flockmq.routing.subscription import Subscription
from flockmq.session.connection import CONNECTED, Connection
from flockmq.session.outbound import Outbound
from flockmq.session.session import Session

FEED_BYTES: Final = 262_144
"""Bytes in a connection's buffer at which feeding pauses."""
FEED_STEPS: Final = 50_000
"""Steps of matching filters in one loop turn, after which others have their turn."""
STEPS_PER_MESSAGE: Final = 10
"""Steps that a message costs, also when it is too large for the client."""
FEED_MESSAGES: Final = 1_000
"""Messages in a session's queue at which feeding pauses."""


class RetainedFeed:
    """The retained messages that a connection is still to get."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Subscription, int]] = deque()
        """Filters, each with how many messages had been stored when it was subscribed to."""
        self.subscription: Subscription | None = None
        self.stored = 0
        self.messages: list[RetainedMessage] = []
        self.at = 0

    def add(self, session: Session, subscription: Subscription, stored: int) -> None:
        """Another filter; those that were unsubscribed or asked for again meanwhile are dropped when they pile up."""
        if len(self.waiting) > 2 * len(session.subscriptions):
            self.waiting = deque([one for one in self.waiting if is_current(session, one[0])])
        self.waiting.append((subscription, stored))

    def next_message(self, node: NodeState, now: int) -> RetainedMessage | None:
        """The next message of the current filter; None when it has no more."""
        while self.at < len(self.messages):
            message = self.messages[self.at]
            self.at += 1
            if message.sequence <= self.stored and node.retained.get(message.topic, now) is message:
                return message
        return None

    def begin_next(self, node: NodeState, session: Session, now: int) -> bool:
        """Match the next filter that is still subscribed; False: none is left. ``node.retained.steps`` has the cost."""
        self.at = 0
        self.messages = []
        self.subscription = None
        while self.waiting:
            subscription, stored = self.waiting.popleft()
            if is_current(session, subscription):
                self.subscription = subscription
                self.stored = stored
                self.messages = node.retained.match(subscription.topic_filter, now)
                return True
        return False


def is_current(session: Session, subscription: Subscription) -> bool:
    """Whether a subscription still stands as it was made (only those that are not shared get retained messages)."""
    return session.subscriptions.get(subscription.topic_filter) is subscription


def add_retained(node: NodeState, connection: Connection, session: Session, fresh: list[Subscription]) -> None:
    """Have sent what is retained for new subscriptions, from the end of this loop turn on.

    Not at once: thousands of SUBSCRIBEs fit into one read, and together they get the time of one turn.
    """
    if not fresh:
        return
    feed = connection.backlog
    if not isinstance(feed, RetainedFeed):
        feed = RetainedFeed()
        connection.backlog = feed
    for subscription in fresh:
        feed.add(session, subscription, node.retained.sequence)
    connection.mark()


def has_enough(outbound: Outbound) -> bool:
    """Whether so many messages wait for acknowledgements that further ones could be dropped."""
    return outbound.queued >= FEED_MESSAGES or outbound.is_crowded()


def feed_retained(node: NodeState, connection: Connection, now: int) -> None:
    """Send as much of a connection's backlog as it can take now."""
    feed = connection.backlog
    session = connection.session
    if not isinstance(feed, RetainedFeed) or session is None or connection.phase != CONNECTED:
        connection.backlog = None
        return
    stats = node.stats
    steps = 0
    bytes_max = min(FEED_BYTES, connection.bounds.write_bytes_max // 2)
    while not connection.blocked:
        if connection.out_bytes > bytes_max or steps > FEED_STEPS:
            connection.hungry = True
            node.turns.work += steps // STEPS
            return
        if session.outbound is not None and has_enough(session.outbound):
            return  # acknowledgements will bring us back
        message = feed.next_message(node, now)
        subscription = feed.subscription
        if message is None or subscription is None:
            if not feed.begin_next(node, session, now):
                connection.backlog = None
                node.turns.work += steps // STEPS
                return
            steps += node.retained.steps + 1
            continue
        steps += STEPS_PER_MESSAGE
        run = message.run
        qos = subscription.qos if subscription.qos < run.qos else run.qos
        lost = session.deliver(run, qos, True, subscription.identifier_properties, None, now)
        if qos:
            stats.dropped_queue += lost
        else:
            stats.publishes_out_qos0 += 1 - lost
            stats.dropped_slow += lost
