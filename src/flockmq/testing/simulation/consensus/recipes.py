"""Sequences of faults that are known to be hard on consensus; chance alone seldom puts them together.

```
 deposed    a leader alone with its clock and its readers, while the others elect another
 narrow     one follower decides what is committed, is hit, and must then elect with those that were cut off
 figure 8   leaders that die with entries on one other node (Raft paper, figure 8)
 coup       a leader is cut off as it is elected, and all that elected it lose power
 race       elections on a slow, doubling network, voters that restart in the middle
 late       a follower so far behind that it needs a snapshot, on a network that delivers old pieces again
 takeover   a leader with new members only, asked twice to leave the old ones out
```
Each adds faults to a schedule from a moment on and says when it is over.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, Protocol


class Draft(Protocol):
    """A schedule in the making."""

    rng: random.Random
    names: list[int]
    victims: list[int]
    groups: int

    def add(self, at_ms: int, kind: str, *words: object) -> None:
        """Add a fault."""


Recipe = Callable[[Draft, int], int]


def deposed(draft: Draft, at: int) -> int:
    """Leases and stale reads."""
    rng = draft.rng
    draft.add(at, "isolate", f"L{rng.randrange(draft.groups)}", rng.choice((0, 0, 1)))
    how = rng.randrange(4)
    if how == 0:
        draft.add(at + rng.randrange(500), "pause", "X", rng.choice((700, 1_500, 3_000)))
    elif how > 1:
        back = rng.choice((250, 250, 1_000))
        for step in range(rng.choice((1, 10, 16))):
            draft.add(at + 20 + step * 250, "jump", "X", -back)
    over = at + rng.choice((2_000, 4_000))
    draft.add(over, "join")
    return over


def narrow(draft: Draft, at: int) -> int:
    """Acknowledgements that one disk stands for."""
    rng = draft.rng
    group = rng.randrange(draft.groups)
    is_victim = bool(draft.victims) and rng.random() < 0.7
    node = rng.choice(draft.victims if is_victim else draft.names)
    draft.add(at, "narrow", group, node)
    if rng.random() < 0.6:
        draft.add(at, "slow", node, rng.choice((5, 20, 100)))
    hit = at + rng.randrange(200, 900)
    starts = hit + rng.randrange(151, 500)
    how = rng.randrange(5)
    if how < 2 and is_victim:
        draft.add(hit, "flip", node, rng.choice((1, 2, 4)), "tail")
    elif how == 2 and is_victim:
        draft.add(hit, "wipe", node)
        draft.add(starts + rng.randrange(500), "kill", node)
        draft.add(starts + rng.randrange(500, 1_000), "start", node)
    elif how < 4:
        draft.add(hit, "trap", node, rng.choice(("write", "write", "sent", "written")))
    else:
        draft.add(hit, "crash", node)
    draft.add(hit + rng.choice((5, 150, 150)), "flank", group, node)
    draft.add(starts, "start", node)
    over = hit + rng.choice((3_000, 5_000))
    draft.add(over, "join")
    return over


def figure_8(draft: Draft, at: int) -> int:
    """Entries of earlier terms: the very steps of the paper, if elections come out as hoped."""
    rng = draft.rng
    group = rng.randrange(draft.groups)
    draft.add(at, "isolate", f"L{group}", 1)
    at += rng.randrange(200, 700)
    # (a) The leader dies; one other node has its last entries.
    draft.add(at, "crash", "X")
    # (b) Another is elected, puts an entry of its own into its log, and dies with it.
    draft.add(at + 1, "ambush", group, 0, "written")
    # (c) A third has the entries of the first; it sends them on, and dies as they are committed.
    draft.add(at + 2, "ambush", group, 2, "applied")
    draft.add(at + 3, "join")
    at += rng.randrange(2_500, 4_500)
    # (d) The second one is back.
    draft.add(at, "join")
    draft.add(at, "start", "Y")
    at += rng.randrange(1_500, 3_000)
    for name in draft.names:
        draft.add(at, "start", name)
    return at


def coup(draft: Draft, at: int) -> int:
    """Votes that must outlive the nodes that gave them."""
    rng = draft.rng
    group = rng.randrange(draft.groups)
    if rng.random() < 0.7:
        for name in draft.names:
            draft.add(at, "slow", name, rng.choice((5, 20, 100)))
    draft.add(at, "coup", group)
    draft.add(at + 1, rng.choice(("crash", "isolate", "pause")), f"L{group}", 0)
    over = at + 5_000
    draft.add(over, "join")
    draft.add(over, "start", "X")
    return over


def race(draft: Draft, at: int) -> int:
    """Votes in elections with several candidates."""
    rng = draft.rng
    draft.add(at, "network", 0, rng.choice((0, 300)), 500, rng.choice((100, 300)), rng.choice((50, 100, 200)))
    over = at + 4_000
    for moment in range(at, over, 1_000):
        draft.add(moment, rng.choice(("crash", "pause")), f"L{rng.randrange(draft.groups)}", 900)
        for name in draft.names:
            if rng.random() < 0.6:
                draft.add(moment + 1, "trap", name, rng.choice(("vote", "written", "sent")))
            for again in range(moment + 100, moment + 1_000, 100):
                draft.add(again, "start", name)
    draft.add(over, "network", 0, 0, 0, 0, 1)
    return over


def late(draft: Draft, at: int) -> int:
    """Snapshots, and old pieces of them."""
    rng = draft.rng
    group = rng.randrange(draft.groups)
    node = rng.choice(draft.names)
    draft.add(at, rng.choice(("isolate", "crash")), node, 0)
    if rng.random() < 0.5:
        draft.add(at, "slow", node, rng.choice((20, 100)))
    compacts = at + rng.randrange(1_000, 2_000)
    for name in draft.names:
        draft.add(compacts, "compact", name, group)
    if rng.random() < 0.7:
        draft.add(compacts, "network", rng.choice((0, 100)), 300, 300, 100, rng.choice((1, 50)))
    draft.add(compacts + 500, "join")
    draft.add(compacts + 500, "start", node)
    over = compacts + 3_000
    draft.add(compacts + 1_500, "compact", f"L{group}", group)
    draft.add(over, "network", 0, 0, 0, 0, 1)
    return over


def takeover(draft: Draft, at: int) -> int:
    """Majorities that share no node."""
    group = draft.rng.randrange(draft.groups)
    draft.add(at, "members", group, "here", "rest")
    draft.add(at + 1_500, "takeover", group)
    over = at + draft.rng.choice((4_500, 6_000))
    draft.add(over, "join")
    return over


RECIPES: Final[dict[str, Recipe]] = {
    "deposed": deposed,
    "narrow": narrow,
    "figure 8": figure_8,
    "coup": coup,
    "race": race,
    "late": late,
    "takeover": takeover,
}
