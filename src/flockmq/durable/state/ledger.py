"""Cluster state as one node knows it: fed with committed commands from wherever, each applied once and in order.

```
 group 0's log, if there is a replica here --.
                                              >--> feed(index, command): the next one is applied, a known one skipped
 commands that a peer was asked for ---------'                |
 a whole state (checkpoint, peer, local copy) --> replace()   '--> recent commands, for peers that are behind
```
A command's index is its offset in group 0's log plus one, so both sources count alike and may overlap: a node that
pulled commands and then gets a replica goes on where it stood.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from flockmq.cluster.state import ClusterState
from flockmq.errors import FlockError

if TYPE_CHECKING:
    from flockmq.cluster.commands import Result

RECENT_MAX: Final = 4_096
"""Commands kept for peers that are behind; others get the whole state."""
RECENT_BYTES_MAX: Final = 16 * 1024 * 1024


class Ledger:
    """See the module. ``state`` is never replaced by an older one."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.jumps = 0
        """How often a whole state took the place of commands, whose results were not seen here."""
        self._recent: deque[bytes] = deque()
        self._recent_bytes = 0
        self._whole = b""
        self._whole_index = -1

    @property
    def index(self) -> int:
        """How many commands were applied."""
        return self.state.index

    @property
    def oldest(self) -> int:
        """A node at this index or after it can be given commands."""
        return self.state.index - len(self._recent)

    def feed(self, index: int, data: bytes) -> Result | None:
        """Apply the command with this index; None when it is known already, or others are missing before it."""
        if index != self.state.index + 1:
            return None
        result = self.state.apply(data)
        self._recent.append(data)
        self._recent_bytes += len(data)
        while len(self._recent) > RECENT_MAX or self._recent_bytes > RECENT_BYTES_MAX:
            self._recent_bytes -= len(self._recent.popleft())
        return result

    def replace(self, data: bytes) -> bool:
        """Go on from a whole state, if it is newer; FlockError when it can't be read."""
        state = ClusterState.decode(data)
        if state.index <= self.state.index:
            return False
        self.state = state
        self.jumps += 1
        self._recent.clear()
        self._recent_bytes = 0
        return True

    def commands_after(self, index: int, bytes_max: int) -> list[bytes]:
        """Commands that follow on an index, at least one and as many as fit; it must not be older than ``oldest``."""
        skip = index - self.oldest
        if skip < 0:
            raise FlockError(f"Commands before {self.oldest} are not kept; ask for the whole state.")
        found: list[bytes] = []
        size = 0
        for position in range(skip, len(self._recent)):
            data = self._recent[position]
            size += len(data)
            if found and size > bytes_max:
                break
            found.append(data)
        return found

    def whole(self) -> tuple[int, bytes]:
        """A whole state that all later commands are kept for, and its index. Encoded anew only when it must be."""
        if self._whole_index < max(self.oldest, 0) or not self._whole:
            self._whole_index = self.state.index
            self._whole = self.state.encode()
        return self._whole_index, self._whole
