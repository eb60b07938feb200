"""Which live member is probed next, and which ones are chosen at random.

```
 look_at(member) --> check_soon: hinted at, probed before others
 enter, leave -----> live --> a round: each once in random order, newcomers at a random place of what is left of it
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

CHECKS_MAX: Final = 32


class ProbeOrder:
    """The live members but this node, by their ids."""

    def __init__(self, rng: random.Random) -> None:
        self.live: list[int] = []
        """Members that are alive or suspected."""
        self.round: list[int] = []
        """The present round; members that left since are skipped."""
        self.check_soon: dict[int, None] = {}
        """Members to probe before others."""
        self._rng = rng
        self._at = 0

    def enter(self, node_id: int) -> None:
        """A member lives: into the round, at a random place of what is left of it."""
        self.live.append(node_id)
        if len(self.round) > 2 * len(self.live) + CHECKS_MAX:  # members came and went again and again
            self._begin_round()
            return
        place = self._at + int(self._rng.random() * (len(self.round) - self._at + 1))
        self.round.insert(place, node_id)

    def leave(self, node_id: int) -> None:
        """A member is dead or has left."""
        self.live.remove(node_id)
        self.check_soon.pop(node_id, None)

    def look_at(self, node_id: int) -> None:
        """Probe this member before others."""
        if len(self.check_soon) < CHECKS_MAX:
            self.check_soon[node_id] = None

    def take_urgent(self) -> int:
        """The member that was hinted at first; 0 if there is none."""
        for node_id in self.check_soon:
            del self.check_soon[node_id]
            return node_id
        return 0

    def take_next(self) -> int:
        """The next member of the round, or of the one after it; 0 if there is none."""
        for _ in range(2):
            while self._at < len(self.round):
                node_id = self.round[self._at]
                self._at += 1
                if node_id in self.live:
                    return node_id
            self._begin_round()
        return 0

    def _begin_round(self) -> None:
        self.round = self.live.copy()
        self._rng.shuffle(self.round)
        self._at = 0

    def pick(self, count: int) -> list[int]:
        """Some live members at random, all different."""
        live = self.live
        size = len(live)
        if size <= count:
            return live.copy()
        found: list[int] = []
        while len(found) < count:
            node_id = live[int(self._rng.random() * size)]
            if node_id not in found:
                found.append(node_id)
        return found
