"""Virtual time: a queue of things that will happen, and the moment that has been reached.

```
 at(when, action, ...) --> heap by (when, order of asking) --> run_until(moment): now jumps from one event to the next
```
Nothing else moves time, so a simulated minute lasts as long as its events take to work on, and two runs that ask for
the same things in the same order are the same run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

Action = Callable[..., None]


class EventQueue:
    """``now`` in microseconds of true time; nodes have clocks of their own, which may be wrong (``clock.py``)."""

    def __init__(self) -> None:
        self.now = 0
        self.worked_on = 0
        """Events so far."""
        self._heap: list[tuple[int, int, Action, tuple[object, ...]]] = []
        self._order = 0

    def at(self, when: int, action: Action, *arguments: object) -> None:
        """Call ``action`` at a moment; things of the same moment happen in the order in which they were asked for."""
        self._order += 1
        heapq.heappush(self._heap, (when, self._order, action, arguments))

    def after(self, delay: int, action: Action, *arguments: object) -> None:
        """Call ``action`` some microseconds from now."""
        self._order += 1
        heapq.heappush(self._heap, (self.now + delay, self._order, action, arguments))

    def run_until(self, moment: int) -> None:
        """Work on everything up to a moment, then stand there."""
        heap = self._heap
        pop = heapq.heappop
        while heap and heap[0][0] <= moment:
            when, _, action, arguments = pop(heap)
            self.now = when
            self.worked_on += 1
            action(*arguments)
        self.now = moment
