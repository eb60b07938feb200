"""What a leader knows of a follower, and how it sends to it.

```
            ok                       entries gone here
 PROBE ----------> REPLICATE ------------------------> SNAPSHOT
   ^                   |                                  |
   `---- refused ------'<------------ arrived ------------'

 PROBE      one append at a time, until the logs agree somewhere
 REPLICATE  appends are sent ahead, within a window of bytes
 SNAPSHOT   the follower lacks entries that are gone here: a snapshot is on its way
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flockmq.raft.messages import SnapshotMeta

PROBE: Final = 0
REPLICATE: Final = 1
SNAPSHOT: Final = 2
PROGRESS_NAMES: Final = ("probe", "replicate", "snapshot")


class Sent:
    """An append that is out: behind which entry, up to which, how large, and the latest heartbeat round by then."""

    def __init__(self, prev_index: int, last_index: int, size: int, lease_round: int) -> None:
        self.prev_index = prev_index
        self.last_index = last_index
        self.size = size
        self.lease_round = lease_round


class Progress:
    """Replication to one member."""

    def __init__(self, next_index: int) -> None:
        self.state = PROBE
        self.match = 0
        """Last entry known to be durable there."""
        self.next = next_index
        """First entry to send next."""
        self.sent: list[Sent] = []
        """Appends that are out, oldest first; one at most in PROBE."""
        self.sent_bytes = 0
        self.impaired = False
        """The follower said that it lost entries: it will neither vote nor lead."""
        self.sent_at = -1
        """When the latest append left; never before."""
        self.active = True
        """Heard from since the last check of the quorum."""
        self.heard_round = 0
        """Latest lease round that the follower answered."""
        self.answered_tick = -1
        """The tick at which such a round began: from then on the follower held this node for the leader; -1: unknown.
        """
        self.told_commit = 0
        """Commit index in the latest message to the follower."""
        self.knows_commit = 0
        """Commit index in the latest answer of the follower."""
        self.snapshot: SnapshotMeta | None = None
        self.snapshot_position = 0
        self.chunk_round = -1
        """Lease round when a piece left that is not answered yet; -1 when none is out."""

    def probe(self, next_index: int) -> None:
        """Find out anew where the logs agree."""
        self._enter(PROBE, max(next_index, self.match + 1))

    def replicate(self) -> None:
        """The logs agree up to ``match``: send ahead."""
        self._enter(REPLICATE, self.match + 1)

    def send_snapshot(self, meta: SnapshotMeta) -> None:
        """The follower needs this snapshot first."""
        self._enter(SNAPSHOT, meta.index + 1)
        self.snapshot = meta

    def _enter(self, state: int, next_index: int) -> None:
        self.state = state
        self.next = next_index
        self.sent.clear()
        self.sent_bytes = 0
        self.snapshot = None
        self.snapshot_position = 0
        self.chunk_round = -1

    def lacks_commit(self, commit: int) -> bool:
        """Whether it has to be told what is committed. After an append that is under way another one may tell."""
        return self.told_commit < commit and not self.sent

    def note_sent(self, prev_index: int, last_index: int, size: int, lease_round: int) -> None:
        """Entries up to ``last_index`` are out."""
        self.sent.append(Sent(prev_index, last_index, size, lease_round))
        self.sent_bytes += size
        self.next = last_index + 1

    def acknowledged(self, index: int) -> bool:
        """All up to ``index`` is durable there; False when that is no news."""
        done = 0
        while done < len(self.sent) and self.sent[done].last_index <= index:
            self.sent_bytes -= self.sent[done].size
            done += 1
        if done:
            del self.sent[:done]
        if index <= self.match:
            return False
        self.match = index
        self.next = max(self.next, index + 1)
        return True

    def has_lost(self, lease_round: int, matched: int) -> bool:
        """Whether an append is missing there, although a heartbeat that left after it has arrived."""
        for sent in self.sent:
            if sent.lease_round >= lease_round:
                return False
            if sent.last_index > matched:
                return True
        return False

    def send_again(self, matched: int) -> None:
        """Appends behind ``matched`` were lost on the way."""
        if self.state == REPLICATE:
            self.next = max(self.match, min(matched, self.next - 1)) + 1
        elif self.sent:
            self.next = self.sent[0].prev_index + 1
        self.sent.clear()
        self.sent_bytes = 0
