"""Whether a connection may come in: how many a listener holds, all listeners together, and how many new ones a second.

```
 new connection --> below both limits ----------------------------> ADMITTED
                --> too many, too fast --> refusals not too many --> the reason code for its CONNACK
                                      `--> else -------------------> DROPPED, without a word, and counted
```
A refused client is told why, which keeps its socket open until its CONNECT came. So refusals have a rate of their own:
a flood can't turn politeness into the memory that the limit was to protect.
"""

from __future__ import annotations

from typing import Final

from flockmq.mqtt import reasons

ADMITTED: Final = 0
DROPPED: Final = -1
REFUSALS_PER_S_MAX: Final = 100


class Bucket:
    """A rate with a burst of one second's worth."""

    __slots__ = ("_at_ms", "_millitokens", "_per_s")

    def __init__(self, per_s: int) -> None:
        self._per_s = per_s
        self._millitokens = per_s * 1_000
        self._at_ms = 0

    def take(self, now: int) -> bool:
        """Take one token if there is one."""
        if self._at_ms:
            grown = self._millitokens + (now - self._at_ms) * self._per_s
            self._millitokens = min(self._per_s * 1_000, grown)
        self._at_ms = now
        if self._millitokens < 1_000:
            return False
        self._millitokens -= 1_000
        return True


class Room:
    """Counts the connections of all listeners together; 0: no limit."""

    __slots__ = ("live", "most")

    def __init__(self, most: int = 0) -> None:
        self.most = most
        self.live = 0

    def is_full(self) -> bool:
        """Whether there is room for no more."""
        return self.most > 0 and self.live >= self.most


class Admission:
    """Counts the connections of one listener. A limit of 0 is none."""

    __slots__ = ("_arrivals", "_connections_max", "_refusals", "_room", "dropped", "live")

    def __init__(self, connections_max: int, connections_per_s_max: int, room: Room | None = None) -> None:
        self._connections_max = connections_max
        self._room = room if room is not None else Room()
        self._arrivals = Bucket(connections_per_s_max) if connections_per_s_max else None
        self._refusals = Bucket(REFUSALS_PER_S_MAX)
        self.live = 0
        self.dropped = 0
        """Connections closed at once, since the listener started."""

    def arrive(self, now: int) -> int:
        """Count a new connection and judge it. Unless it is DROPPED, ``leave`` must follow some day."""
        code = ADMITTED
        if self._arrivals is not None and not self._arrivals.take(now):
            code = reasons.CONNECTION_RATE_EXCEEDED
        elif (self._connections_max and self.live >= self._connections_max) or self._room.is_full():
            code = reasons.QUOTA_EXCEEDED
        if code and not self._refusals.take(now):
            self.dropped += 1
            return DROPPED
        self.live += 1
        self._room.live += 1
        return code

    def leave(self) -> None:
        """Count a connection that is gone."""
        self.live -= 1
        self._room.live -= 1
