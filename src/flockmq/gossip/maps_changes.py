"""Changes of other owners' maps that wait for their user, and what owners may be told once they were taken.

```
 a copy moved --> changes, then a Mark behind them --> take: changes to the user --> marks passed: acknowledgements
```
An acknowledgement leaves only after all changes before its mark were taken.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

    from flockmq.gossip.maps_codec import Change, Claims
    from flockmq.gossip.maps_replica import Replica


class Mark:
    """An owner may be told of this version when so many changes have been taken."""

    def __init__(self, end: int, owner: int, boot: int, version: int) -> None:
        self.end = end
        self.owner = owner
        self.boot = boot
        self.version = version


class ChangeQueue:
    """One per node."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        """In order; not taken yet."""
        self._taken_count = 0
        """Changes that were taken since the start."""
        self._marks: deque[Mark] = deque()
        self._passed: dict[int, Mark] = {}
        """The last mark of each owner whose changes were taken."""

    def mark(self, replica: Replica) -> None:
        """Tell the owner what is here now, once all changes up to here are taken."""
        self._marks.append(Mark(self._taken_count + len(self.changes), replica.owner, replica.boot, replica.version))

    def forget(self, owner: int) -> None:
        """Send no acknowledgement to an owner that is dead."""
        self._marks = deque(mark for mark in self._marks if mark.owner != owner)
        self._passed.pop(owner, None)

    def take(self, most: int) -> list[Change]:
        """So many changes since the last call, in order; they count as known to the caller from then on."""
        changes = self.changes
        if len(changes) > most:
            self.changes = changes[most:]
            del changes[most:]
        else:
            self.changes = []
        self._taken_count += len(changes)
        marks = self._marks
        while marks and marks[0].end <= self._taken_count:
            mark = marks.popleft()
            self._passed[mark.owner] = mark
        return changes

    def take_acknowledgements(self, replicas: dict[int, Replica], linked: Container[int]) -> Claims:
        """What is known here of the maps of linked owners, where it moved."""
        if not self._passed:
            return []
        found: Claims = []
        for owner, mark in self._passed.items():
            replica = replicas.get(owner)
            if replica is not None and replica.boot and replica.boot == mark.boot and owner in linked:
                found.append((owner, mark.boot, mark.version))  # else it lives anew, and that was not taken yet
        self._passed = {}
        return found
