"""How much a restart would have to apply again, and which groups are to be checkpointed to keep that bounded.

```
 applied(group, bytes) --> sum over all groups above the bound --> due(): those with the most, to be saved
                                                                     begun(group) ... saved(group): that much less
```
The log itself is on disk in any case; this is about the state behind it: the table of senders, and whatever machine
stands behind a group.
"""

from __future__ import annotations


class ReplayBound:
    """One for all groups of a node."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        """All groups together, since their latest checkpoints."""
        self._applied: dict[int, int] = {}
        self._saving: dict[int, int] = {}
        """Bytes that a checkpoint which is being saved stands for."""

    @property
    def saving(self) -> list[int]:
        """Groups whose checkpoints are being saved."""
        return list(self._saving)

    def applied(self, group: int, size: int) -> None:
        """Entries of a group were applied."""
        self._applied[group] = self._applied.get(group, 0) + size
        self.bytes += size

    def due(self, count_max: int) -> list[int]:
        """Groups to checkpoint now, those first that bring most."""
        excess = self.bytes - self.bytes_max - sum(self._saving.values())
        if excess <= 0:
            return []
        candidates = [(size, group) for group, size in self._applied.items() if group not in self._saving]
        candidates.sort(reverse=True)
        found: list[int] = []
        for size, group in candidates:
            if excess <= 0 or len(found) + len(self._saving) >= count_max:
                break
            found.append(group)
            excess -= size
        return found

    def begun(self, group: int) -> None:
        """A checkpoint of all that is applied is being saved."""
        self._saving[group] = self._applied.get(group, 0)

    def saved(self, group: int) -> None:
        """The saved checkpoint is now the restart point."""
        self._drop(group, self._saving.pop(group, 0))

    def forget(self, group: int) -> None:
        """The group is no more."""
        self._saving.pop(group, None)
        self.bytes -= self._applied.pop(group, 0)

    def installed(self, group: int) -> None:
        """A checkpoint of another node took the place of everything."""
        self._saving.pop(group, None)
        self._drop(group, self._applied.get(group, 0))

    def _drop(self, group: int, size: int) -> None:
        left = self._applied.get(group, 0) - size
        self.bytes -= size
        if left > 0:
            self._applied[group] = left
        else:
            self._applied.pop(group, None)
