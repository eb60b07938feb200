"""The last retained message of each topic name, within limits.

```
 put ----> messages: name -> RetainedMessage      get: exact name        refused when a limit would be passed
              |-> tree of names                   match: by filter       walks only branches that can match
              `-> names that expire               sweep: a few a call    so that nothing expired stays for long
```
What has expired is never handed out, swept or not. ``$SYS`` messages are the broker's own: they count in no limit and
in no listing.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from flockmq.routing.names import UNBOUNDED, Named, NameTree

if TYPE_CHECKING:
    from flockmq.mqtt.run import Run

MESSAGE_OVERHEAD_BYTES: Final = 512
"""What a retained message takes beside its topic and packet: objects, slots in maps, its place in the tree."""

LEVELS_INCLUDED: Final = 8
LEVEL_OVERHEAD_BYTES: Final = 200
"""What each level beyond those may take: two names that share a hundred levels need a hundred branches."""

SWEEP_WHEN_FULL: Final = 64
"""How many names a refused message may look at to find expired ones that make room for it."""


class RetainedMessage(Named):
    """The message that new subscribers to a topic name get first."""

    def __init__(self, topic: bytes, run: Run, stored_at: int, is_system: bool) -> None:
        super().__init__(topic)
        self.run = run
        self.stored_at = stored_at
        self.is_system = is_system
        self.sequence = 0
        """Place in the order of storing, set by the store."""

    def is_expired(self, now: int) -> bool:
        """Whether its message expiry interval has passed."""
        return 0 < self.run.expires_at <= now


def message_bytes(topic: bytes, run: Run) -> int:
    """Count what a message takes of the limit in bytes."""
    deeper = topic.count(b"/") - LEVELS_INCLUDED
    levels = deeper * LEVEL_OVERHEAD_BYTES if deeper > 0 else 0
    return len(topic) + len(run.wire) + MESSAGE_OVERHEAD_BYTES + levels


class RetainedStore:
    """All retained messages of a node. A limit of 0 is no limit."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self.count = 0
        """Messages without the broker's own."""
        self.bytes = 0
        """What those take, overhead included."""
        self.steps = 0
        """Names and branches that the last match looked at: a leading ``+`` may mean all of them."""
        self.sequence = 0
        """Messages stored so far, the broker's own included."""
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._messages: dict[bytes, RetainedMessage] = {}
        self._names: NameTree[RetainedMessage] = NameTree()
        self._expiring: dict[bytes, None] = {}
        self._to_sweep: list[bytes] = []

    def put(self, topic: bytes, run: Run, now: int) -> bool:
        """Keep a message in place of the topic's last one; False, and nothing changed, when a limit would be passed."""
        size = message_bytes(topic, run)
        if not self._fits(topic, size):
            self.sweep(now, SWEEP_WHEN_FULL)
            if not self._fits(topic, size):
                return False
        self._set(RetainedMessage(topic, run, now, False))
        self.count += 1
        self.bytes += size
        return True

    def put_system(self, topic: bytes, run: Run, now: int) -> None:
        """Keep a message of the broker's own."""
        self._set(RetainedMessage(topic, run, now, True))

    def delete(self, topic: bytes) -> bool:
        """Remove a topic's message; False when there is none."""
        message = self._messages.get(topic)
        if message is None:
            return False
        self._uncount(message)
        del self._messages[topic]
        self._names.remove(topic)
        self._expiring.pop(topic, None)
        return True

    def get(self, topic: bytes, now: int) -> RetainedMessage | None:
        """Find the message of a topic name."""
        message = self._messages.get(topic)
        if message is not None and message.is_expired(now):
            self.delete(topic)
            return None
        return message

    def match(self, topic_filter: bytes, now: int) -> list[RetainedMessage]:
        """Find the messages whose topic names match a filter; ``steps`` then says how much work it was."""
        found = self.match_within(topic_filter, now, UNBOUNDED)
        return found if found is not None else []

    def match_within(self, topic_filter: bytes, now: int, steps_max: int) -> list[RetainedMessage] | None:
        """Match, but give up with None after ``steps_max`` steps."""
        found = self._names.match_within(topic_filter, steps_max)
        self.steps = self._names.steps
        if found is None or not self._expiring:
            return found
        fresh = [message for message in found if not message.is_expired(now)]
        if len(fresh) < len(found):
            for message in found:
                if message.is_expired(now):
                    self.delete(message.topic)
        return fresh

    def topics(self) -> list[bytes]:
        """List all topic names in no particular order, the broker's own and expired ones included."""
        return list(self._messages)

    def sweep(self, now: int, budget: int) -> int:
        """Look at up to ``budget`` names that expire, in turn, and remove those that have: how many."""
        left = min(budget, len(self._to_sweep) + len(self._expiring))  # the rest of a round, then at most one more
        removed = 0
        while left > 0:
            if not self._to_sweep:
                self._to_sweep = list(self._expiring)
                left = min(left, len(self._to_sweep))
                continue
            left -= 1
            message = self._messages.get(self._to_sweep.pop())
            if message is not None and message.is_expired(now):
                self.delete(message.topic)
                removed += 1
        return removed

    def page(self, after: bytes, limit: int) -> list[RetainedMessage]:
        """List up to ``limit`` messages in order of topic name, from behind ``after``; the broker's own left out."""
        names = [topic for topic, message in self._messages.items() if topic > after and not message.is_system]
        return [self._messages[topic] for topic in heapq.nsmallest(limit, names)]

    def _fits(self, topic: bytes, size: int) -> bool:
        count = self.count + 1
        total = self.bytes + size
        old = self._messages.get(topic)
        if old is not None and not old.is_system:
            count -= 1
            total -= message_bytes(topic, old.run)
        if self._messages_max and count > self._messages_max:
            return False
        return not self._bytes_max or total <= self._bytes_max

    def _set(self, message: RetainedMessage) -> None:
        topic = message.topic
        self.sequence += 1
        message.sequence = self.sequence
        old = self._messages.get(topic)
        if old is not None:
            self._uncount(old)
        self._messages[topic] = message
        self._names.set(message)
        if message.run.expires_at:
            self._expiring[topic] = None
        elif old is not None:
            self._expiring.pop(topic, None)

    def _uncount(self, message: RetainedMessage) -> None:
        if not message.is_system:
            self.count -= 1
            self.bytes -= message_bytes(message.topic, message.run)
