"""How long a suspect has to contradict: Lifeguard's dogpile.

```
 timeout
   max |*                        one node alone suspects: perhaps that node is the one with the problem
       |   *
       |        *                each independent confirmation makes it shorter,
   min |               * * *     down to the least after ``needed`` of them
       '-----------------------> confirmations
```
timeout = max - (max - min) * log(confirmations + 1) / log(needed + 1)
"""

from __future__ import annotations

import math


class Suspicion:
    """One suspect as this node sees it."""

    def __init__(self, source: int, minimum_ms: int, maximum_ms: int, needed: int, now: int) -> None:
        self.sources: set[int] = {source}
        self.minimum_ms = minimum_ms
        self.maximum_ms = maximum_ms
        self.needed = needed
        self.began = now
        self.last_words = 0
        """How many last pings were sent."""
        self.last_word_at = 0

    def confirm(self, source: int) -> bool:
        """Another node suspects it too; whether that was new and counts."""
        if source in self.sources or len(self.sources) > self.needed:
            return False
        self.sources.add(source)
        return True

    def timeout_ms(self) -> int:
        """How long it has in all, with the confirmations so far."""
        if self.needed <= 0:
            return self.minimum_ms
        share = math.log(len(self.sources)) / math.log(self.needed + 1)
        return max(self.minimum_ms, int(self.maximum_ms - (self.maximum_ms - self.minimum_ms) * share))

    def ends_at(self) -> int:
        """When its time is over."""
        return self.began + self.timeout_ms()
