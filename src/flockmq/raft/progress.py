"""What a leader knows of a follower, and how it sends to it.

```
 PROBE      one append at a time, until the logs agree somewhere
 REPLICATE  appends are sent ahead, within a window of bytes
 SNAPSHOT   the follower lacks entries that are gone here: a snapshot is on its way
```
"""

from __future__ import annotations

from typing import Final

PROBE: Final = 0
REPLICATE: Final = 1
SNAPSHOT: Final = 2


class Progress:
    """Replication to one member."""

    def __init__(self, next_index: int) -> None:
        self.state = PROBE
        self.match = 0
        """Last entry known to be durable there."""
        self.next = next_index
        """First entry to send next."""
        self.waiting = False
        """PROBE: an append is out, its answer is awaited."""
        self.sent: list[tuple[int, int]] = []
        """REPLICATE: (last index, bytes) of each append that is out, oldest first."""
        self.sent_bytes = 0
        self.sent_at = 0
        """When the oldest of them was sent, or the window last moved."""
        self.active = True
        """Heard from since the last check of the quorum."""
        self.heard_round = 0
        """Latest lease round it answered."""
        self.knows_commit = 0
        """Commit index told to it in the latest message."""
        self.snapshot_index = 0
        self.snapshot_offset = 0

    def probe(self, next_index: int) -> None:
        """Find out anew where the logs agree."""
        self.state = PROBE
        self.next = max(next_index, self.match + 1)
        self.waiting = False
        self.sent.clear()
        self.sent_bytes = 0

    def replicate(self) -> None:
        """The logs agree up to ``match``: send ahead."""
        self.state = REPLICATE
        self.next = self.match + 1
        self.waiting = False
        self.sent.clear()
        self.sent_bytes = 0

    def note_sent(self, last_index: int, size: int, elapsed: int) -> None:
        """Entries up to ``last_index`` are out."""
        if not self.sent:
            self.sent_at = elapsed
        self.sent.append((last_index, size))
        self.sent_bytes += size
        self.next = last_index + 1

    def acknowledged(self, index: int, elapsed: int) -> bool:
        """All up to ``index`` is durable there; False when that is no news."""
        while self.sent and self.sent[0][0] <= index:
            self.sent_bytes -= self.sent.pop(0)[1]
            self.sent_at = elapsed
        if index <= self.match:
            return False
        self.match = index
        self.next = max(self.next, index + 1)
        return True
