"""News on its way: what is piggybacked next, and how often it still is.

```
 put(node, claim) --> level 0     take(room): from the lowest level up, whatever fits
                      level 1  <-- each claim taken moves one level up
                      ...
                      level N  --> told often enough, forgotten
```
At most one claim per member waits, the newest; so the queue can't be longer than the list of members. Fresh news goes
before old news.
"""

from __future__ import annotations

from typing import Final

from flockmq.gossip.claims import HEAD_BYTES

MISFITS_MAX: Final = 4
"""After so many claims that don't fit the search for a small one ends: datagrams are made often, the queue is long."""


class Broadcasts:
    """The claims that this node still spreads."""

    def __init__(self) -> None:
        self._levels: list[dict[int, bytes]] = [{}]
        self._level_of: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._level_of)

    def put(self, node_id: int, claim: bytes) -> None:
        """Spread this claim instead of what was said about the same member before."""
        self.drop(node_id)
        self._levels[0][node_id] = claim
        self._level_of[node_id] = 0

    def drop(self, node_id: int) -> None:
        """Nothing more of this member."""
        level = self._level_of.pop(node_id, -1)
        if level >= 0:
            del self._levels[level][node_id]

    def take(self, room: int, limit: int) -> list[bytes]:
        """Claims for one datagram with so many bytes of room; each is given out at most ``limit`` times."""
        taken: list[bytes] = []
        if not self._level_of:
            return taken
        moved: list[int] = []
        misfits = 0
        for waiting in self._levels:
            for node_id, claim in waiting.items():
                if len(claim) <= room:
                    taken.append(claim)
                    moved.append(node_id)
                    room -= len(claim)
                else:
                    misfits += 1
                if room < HEAD_BYTES or misfits > MISFITS_MAX:
                    break
            if room < HEAD_BYTES or misfits > MISFITS_MAX:
                break
        for node_id in moved:
            self._promote(node_id, limit)
        return taken

    def _promote(self, node_id: int, limit: int) -> None:
        level = self._level_of[node_id]
        claim = self._levels[level].pop(node_id)
        level += 1
        if level >= limit:
            del self._level_of[node_id]
            return
        while len(self._levels) <= level:
            self._levels.append({})
        self._levels[level][node_id] = claim
        self._level_of[node_id] = level
