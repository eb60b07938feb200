"""Which filters the sessions of a table wait with, and how that set has changed lately.

```
 subscription stored  --> counts[filter] 0 -> 1: the set grows     --> changes: (index, filter, added)
 subscription removed --> counts[filter] 1 -> 0: the set shrinks   --> version = index
 a node that has version v --> changes_since(v): what to add and remove, or None: send the whole set
```
Publishing nodes copy this set, and store each message that matches a filter in it before they acknowledge the message.
"""

from __future__ import annotations

from collections import deque
from typing import Final

CHANGES_MAX: Final = 65_536


class SessionFilters:
    """See the module."""

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}
        """Filter -> how many subscriptions have it."""
        self.version = 0
        """Index of the last entry that changed the set."""
        self.changes_max = CHANGES_MAX
        self.changes: deque[tuple[int, bytes, bool]] = deque()
        """(index, filter, whether it was added), oldest first."""
        self.oldest = 0
        """``changes`` has all changes after this index."""

    def add(self, topic_filter: bytes, index: int) -> None:
        """One more subscription has this filter."""
        count = self.counts.get(topic_filter, 0)
        self.counts[topic_filter] = count + 1
        if not count:
            self._note(index, topic_filter, True)

    def remove(self, topic_filter: bytes, index: int) -> None:
        """One subscription less has this filter."""
        count = self.counts[topic_filter] - 1
        if count:
            self.counts[topic_filter] = count
        else:
            del self.counts[topic_filter]
            self._note(index, topic_filter, False)

    def restart(self, index: int) -> None:
        """The set is that of a checkpoint at ``index``; earlier changes are not known."""
        self.version = index
        self.oldest = index
        self.changes.clear()

    def changes_since(self, version: int) -> list[tuple[bytes, bool]] | None:
        """What to add (True) and remove (False), in order; None when too much has changed since ``version``."""
        if version < self.oldest:
            return None
        found: list[tuple[bytes, bool]] = []
        for index, topic_filter, is_added in reversed(self.changes):
            if index <= version:
                break
            found.append((topic_filter, is_added))
        found.reverse()
        return found

    def _note(self, index: int, topic_filter: bytes, is_added: bool) -> None:
        self.version = index
        self.changes.append((index, topic_filter, is_added))
        if len(self.changes) > self.changes_max:
            self.oldest = self.changes.popleft()[0]
