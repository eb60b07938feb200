"""Who changed cluster state waits until every live node knows: then it holds wherever a client is connected.

```
 wait(index, reply) --> all live nodes have told that they are so far (``facts``) --> reply(True)
                    `-- WAIT_MS are over: one of them stands still ------------------> reply(False)
```
Somebody makes a topic on one node and publishes on another in the next moment. A node that does not know the topic yet
would pass the message on, acknowledge it, and not keep it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flockmq.durable.facts import Facts

WAIT_MS: Final = 1_000
WAITING_MAX: Final = 10_000

Known = Callable[[bool], None]
"""Whether all live nodes know it."""


class Everybody:
    """See the module. ``alive``: nodes that are, this one among them."""

    def __init__(self, facts: Facts, alive: Callable[[], list[int]]) -> None:
        self._facts = facts
        self._alive = alive
        self._waiting: list[tuple[int, int, Known]] = []
        """Index, when time is over, whom to tell."""

    def wait(self, index: int, reply: Known, now: int) -> None:
        """Call back once all live nodes have applied ``index``; maybe before this returns."""
        if len(self._waiting) >= WAITING_MAX:
            reply(False)
            return
        self._waiting.append((index, now + WAIT_MS, reply))
        self.flush(now)

    def flush(self, now: int) -> None:
        """A turn ends: somebody may have told that he is further."""
        if not self._waiting:
            return
        heads = self._facts.heads()
        alive = self._alive()
        least = min([heads[node].index for node in alive if node in heads], default=-1)
        still: list[tuple[int, int, Known]] = []
        told: list[tuple[bool, Known]] = []
        for index, due_at, reply in self._waiting:
            if 0 <= least < index and now < due_at:
                still.append((index, due_at, reply))
            else:
                told.append((least < 0 or least >= index, reply))
        self._waiting = still
        for is_known, reply in told:
            reply(is_known)
