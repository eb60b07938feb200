"""When a node that knows of others logs that it serves clients alone.

```
 alone for ALONE_S --> serving_alone (once) --> others are there --> others_found --> alone again for ALONE_S --> ...
```
A cluster that is being started passes through every node being alone, so a short time alone is not worth a warning.
"""

from __future__ import annotations

from typing import Final

ALONE_S: Final = 10.0
"""How long a node is alone before it logs so."""


class Alone:
    """Follows how many other nodes are alive; times in seconds, from the caller's clock."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._is_told = False

    def look(self, others: int, now: float) -> str:
        """The event to log now: ``serving_alone``, ``others_found``, or none."""
        if others > 0:
            self._since = now
            was_told, self._is_told = self._is_told, False
            return "others_found" if was_told else ""
        if self._is_told or now - self._since < ALONE_S:
            return ""
        self._is_told = True
        return "serving_alone"
