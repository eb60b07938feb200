"""Which member of a shared subscription gets a message.

```
 strategy     choice                                       member away
 random       anew for each message                        anew among the connected
 round_robin  the next one for each message                passed over
 sticky       one, kept                                    another one, kept
 hash_client  by the publisher's client id                 by hashing again
 hash_topic   by the topic name                            by hashing again
```
Connected members come first. Only when all are away, one of them is chosen as if connected: its session queues the
message. The common case, everybody connected, looks at one member; a few tries find one where many are away, and
only after those the whole group is looked through.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final
from zlib import crc32

from flockmq.errors import ConfigError

if TYPE_CHECKING:
    from flockmq.routing.subscription import Subscription
    from flockmq.session.session import Session

RANDOM: Final = 0
ROUND_ROBIN: Final = 1
STICKY: Final = 2
HASH_CLIENT: Final = 3
HASH_TOPIC: Final = 4
TRIES_MAX: Final = 8
STRATEGIES: Final = ("random", "round_robin", "sticky", "hash_client", "hash_topic")


def strategy_number(name: str) -> int:
    """Look up a strategy by its configured name."""
    for number, known in enumerate(STRATEGIES):
        if known == name:
            return number
    raise ConfigError(f"Unknown strategy for shared subscriptions {name!r}: use one of {', '.join(STRATEGIES)}")


class ShareGroup:
    """The members of ``$share/<name>/<topic_filter>`` and whose turn it is."""

    def __init__(self, name: bytes, topic_filter: bytes, strategy: int, rng: random.Random) -> None:
        self.name = name
        self.topic_filter = topic_filter
        self.members: list[Subscription] = []
        self.spreads = strategy <= ROUND_ROBIN
        """True: the choice is made for each message. False: one choice holds for a whole run of messages."""
        self._strategy = strategy
        self._rng = rng
        self._turn = 0
        self._kept: Subscription | None = None

    def add(self, subscription: Subscription) -> Subscription | None:
        """Let a member in; one of the same session is replaced, keeps its place and is returned."""
        members = self.members
        for index in range(len(members)):
            old = members[index]
            if old.session is subscription.session:
                members[index] = subscription
                if self._kept is old:
                    self._kept = subscription
                return old
        members.append(subscription)
        return None

    def remove(self, session: Session) -> bool:
        """Let the member of this session go, so that nobody else misses a turn."""
        members = self.members
        for index in range(len(members)):
            old = members[index]
            if old.session is session:
                del members[index]
                if index < self._turn:
                    self._turn -= 1
                if self._kept is old:
                    self._kept = None
                return True
        return False

    def pick(self, publisher_id: str, topic: bytes) -> Subscription | None:
        """Choose who gets the next message (or run of messages, unless ``spreads``); None when nobody is left."""
        members = self.members
        count = len(members)
        if count == 0:
            return None
        strategy = self._strategy
        if strategy == ROUND_ROBIN:
            return self._next(members, count)
        if strategy == RANDOM:
            return self._draw(members, count)
        if strategy == STICKY:
            kept = self._kept
            if kept is None or kept.session.connection is None:
                chosen = self._draw(members, count)
                if kept is None or chosen.session.connection is not None:
                    self._kept = kept = chosen
            return kept
        number = crc32(topic) if strategy == HASH_TOPIC else crc32(publisher_id.encode())
        return self._hashed(members, count, number)

    def _next(self, members: list[Subscription], count: int) -> Subscription:
        """Take the first connected member from the one whose turn it is; that one itself when all are away."""
        turn = self._turn
        if turn >= count:
            turn = 0
        for step in range(count):
            index = turn + step
            if index >= count:
                index -= count
            member = members[index]
            if member.session.connection is not None:
                self._turn = index + 1
                return member
        self._turn = turn + 1
        return members[turn]

    def _draw(self, members: list[Subscription], count: int) -> Subscription:
        """Draw one of the connected members; any when all are away."""
        rng = self._rng
        first = members[int(rng.random() * count)]
        if first.session.connection is not None:
            return first
        for _ in range(TRIES_MAX):
            member = members[int(rng.random() * count)]
            if member.session.connection is not None:
                return member
        connected = self._connected()
        return connected[int(rng.random() * len(connected))] if connected else first

    def _hashed(self, members: list[Subscription], count: int, number: int) -> Subscription:
        """Take the member that the hash says; hash on when it is away, so that its share is spread over the others."""
        first = members[number % count]
        if first.session.connection is not None:
            return first
        for _ in range(TRIES_MAX):
            number = crc32(number.to_bytes(4, "big"))
            member = members[number % count]
            if member.session.connection is not None:
                return member
        connected = self._connected()
        return connected[number % len(connected)] if connected else first

    def _connected(self) -> list[Subscription]:
        return [member for member in self.members if member.session.connection is not None]
