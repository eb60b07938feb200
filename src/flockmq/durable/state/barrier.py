"""The applied barrier: a change of cluster state is answered once all live nodes have applied it.

```
 wait(index) --> all live nodes have told that they are so far (``facts``) --> True
             `-- WAIT_MS are over: one of them stands still ------------------> False
```
A user may create a topic on one node and publish on another in the next moment. A node that does not know the topic yet
would pass the message on, acknowledge it, and not keep it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from flockmq.tasks import Promise, promised

if TYPE_CHECKING:
    from flockmq.durable.state.facts import Facts

WAIT_MS: Final = 1_000
WAITING_MAX: Final = 10_000


class AppliedBarrier:
    """See the module."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._waiting: deque[tuple[int, int, Promise[bool]]] = deque()
        """(index, deadline, promise). Sorted by index and by deadline."""

    def wait(self, index: int, now: int) -> Promise[bool]:
        """A promise of True once all live nodes have applied ``index``, which is never less than that of an earlier
        call."""
        if len(self._waiting) >= WAITING_MAX:
            return promised(False)
        known: Promise[bool] = Promise()
        self._waiting.append((index, now + WAIT_MS, known))
        if len(self._waiting) == 1:
            self.flush(now)
        return known

    def flush(self, now: int) -> None:
        """End a turn: answer the waiting calls whose index all live nodes have applied."""
        waiting = self._waiting
        if not waiting:
            return
        heads = self._facts.heads()
        least = min([heads[node].index for node in self._facts.alive() if node in heads], default=-1)
        while waiting:
            index, due_at, known = waiting[0]
            is_known = least < 0 or least >= index
            if not is_known and now < due_at:
                return
            waiting.popleft()
            known.set(is_known)
