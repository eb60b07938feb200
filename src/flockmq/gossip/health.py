"""Lifeguard's local health: a node that hears badly blames itself first.

```
 own probe failed, or a helper did not even say "no answer"   +1     0 ... health_max
 had to contradict a suspicion of oneself                      +1     probe interval and timeouts are
 noticed that it was not run for a while                       +1     multiplied by (1 + score)
 own probe succeeded                                           -1
```
"""

from __future__ import annotations


class LocalHealth:
    """How much this node trusts its own ears."""

    def __init__(self, score_max: int) -> None:
        self.score = 0
        self._score_max = score_max

    def worse(self, by: int = 1) -> None:
        """Something speaks against this node."""
        self.score = min(self._score_max, self.score + by)

    def better(self) -> None:
        """A probe succeeded."""
        self.score = max(0, self.score - 1)

    def scale(self, duration_ms: int) -> int:
        """A duration as this node should use it now."""
        return duration_ms * (1 + self.score)
