"""Clients that resume persistent sessions at the same time are admitted by rate, fairly between namespaces.

```
 CONNECT, accepted --> within the rate, and no other client waits --------------------> its claim
                  `--> waits: a line per namespace, one of each in turn --rate--------> its claim
                           |--> more wait than the rate lets on in eight seconds: CONNACK 0x89 to the one that came
                           |    last in the longest line
                           `--> has waited for eight seconds: CONNACK 0x89
```
"""

from __future__ import annotations

from collections import deque
from typing import Final

from flockmq.session.connection import AUTHENTICATING, Connection

WAIT_MS: Final = 8_000
"""Longest wait: clients give up after about ten seconds, and so does the broker."""
WAITING_MIN: Final = 16


class Waiting:
    """A client in its line."""

    def __init__(self, connection: Connection, due_at: int) -> None:
        self.connection = connection
        self.due_at = due_at


class Resumes:
    """See the module. A rate of 0 is no limit."""

    def __init__(self, per_s_max: int, now: int) -> None:
        self._rate = per_s_max
        self._burst = per_s_max * 1_000
        self._waiting_max = max(per_s_max * WAIT_MS // 1_000, WAITING_MIN)
        self._credit = self._burst
        """Thousandths of clients that may be let on now."""
        self._credit_at = now
        self._lines: dict[str, deque[Waiting]] = {}
        """Waiting clients by namespace, the next namespace first; no line is empty."""
        self.waiting = 0

    def passes(self, now: int) -> bool:
        """Whether a client may resume at once; a client that may is counted."""
        if not self._rate:
            return True
        self._earn(now)
        if self.waiting or self._credit < 1_000:
            return False
        self._credit -= 1_000
        return True

    def wait(self, connection: Connection, namespace: str, now: int) -> Connection | None:
        """Let a client wait for its turn. If too many wait, returns the one to refuse."""
        line = self._lines.get(namespace)
        if line is None:
            line = self._lines[namespace] = deque()
        line.append(Waiting(connection, now + WAIT_MS))
        self.waiting += 1
        if self.waiting <= self._waiting_max:
            return None
        longest = namespace
        for name, other in self._lines.items():
            if len(other) > len(self._lines[longest]):
                longest = name
        surplus = self._lines[longest].pop()
        self._left(longest)
        return surplus.connection

    def take(self, now: int) -> Connection | None:
        """The next client to resume; None: no client waits, or the rate allows none yet."""
        self._earn(now)
        while self._lines and self._credit >= 1_000:
            namespace = next(iter(self._lines))
            line = self._lines.pop(namespace)
            self._lines[namespace] = line  # the next turn is another namespace's
            connection = line.popleft().connection
            self._left(namespace)
            if connection.phase == AUTHENTICATING:  # else it has gone
                self._credit -= 1_000
                return connection
        return None

    def late(self, now: int) -> list[Connection]:
        """Take the clients that have waited for too long out of their lines."""
        found: list[Connection] = []
        for namespace in list(self._lines):
            line = self._lines[namespace]
            while line and (line[0].due_at <= now or line[0].connection.phase != AUTHENTICATING):
                connection = line.popleft().connection
                self.waiting -= 1
                if connection.phase == AUTHENTICATING:
                    found.append(connection)
            if not line:
                del self._lines[namespace]
        return found

    def _left(self, namespace: str) -> None:
        self.waiting -= 1
        if not self._lines[namespace]:
            del self._lines[namespace]

    def _earn(self, now: int) -> None:
        self._credit = min(self._credit + max(now - self._credit_at, 0) * self._rate, self._burst)
        self._credit_at = max(now, self._credit_at)
