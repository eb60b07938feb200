"""What all groups of a node ask for together in one turn, and what is being written of it.

```
 take_turn() --> Turn: writes of all groups as one | frames, one per peer | what to apply and answer
                   `-- Flight, until persisted(number)
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flockmq.raft.node import RaftNode
    from flockmq.raft.ready import Ready
    from flockmq.raft.settings import RaftSettings

TURN_WRITE_BYTES_MAX: Final = 4_194_304
"""About how much all groups together give out to be written in a turn."""
TURN_OVERHEAD_BYTES: Final = 65_536


def turn_bytes_max(settings: RaftSettings) -> int:
    """The most bytes that a turn gives out to be written: the last group's share may begin right below the limit."""
    return TURN_WRITE_BYTES_MAX + settings.write_bytes_max + settings.entry_bytes_max + TURN_OVERHEAD_BYTES


class GroupReady:
    """What one group asks for in a turn."""

    def __init__(self, group: int, ready: Ready) -> None:
        self.group = group
        self.ready = ready


class Turn:
    """What all groups ask for.

    1. Write ``writes`` together, behind those of all turns before; when they are durable call ``persisted(number)``.
    2. Send ``frames``.
    3. Apply and answer what ``applies`` has: ``install``, then ``committed``, then ``reads``.
    """

    def __init__(self) -> None:
        self.number = 0
        """0 when there is nothing to write."""
        self.writes: list[GroupReady] = []
        self.applies: list[GroupReady] = []
        self.frames: list[tuple[int, bytes]] = []
        """(node, frame)"""


class Flight:
    """A turn that is being written."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.nodes: list[RaftNode] = []
        self.numbers: list[int] = []
