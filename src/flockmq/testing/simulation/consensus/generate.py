"""Draws a schedule of faults from a seed.

Each seed draws which kinds of faults and which recipes (``recipes.py``) it has and how dense they are: a run full of
crashes without any partition finds other bugs than one with a little of everything (swarm testing).

Two rules keep the schedule fair, because no consensus survives their breach: bits turn over and disks are replaced only
on *victims*, a fixed set that is a minority of every configuration the schedule asks for.
"""

from __future__ import annotations

import itertools
import random
from typing import Final

from flockmq.testing.simulation.consensus.plan import ConsensusPlan
from flockmq.testing.simulation.consensus.recipes import RECIPES
from flockmq.testing.simulation.plan import Fault

WEIGHTS: Final = {
    "crash": 6,
    "kill": 3,
    "pause": 3,
    "jump": 3,
    "cut": 6,
    "network": 3,
    "fail": 2,
    "full": 1,
    "slow": 2,
    "flip": 2,
    "wipe": 1,
    "members": 3,
    "move": 3,
    "compact": 3,
}
NODES: Final = 5
JUMPS_MS: Final = (-60_000, -5_000, -1_500, -300, 300, 1_500, 5_000, 60_000)


class _Drawing:
    """State while a schedule is drawn."""

    def __init__(self, rng: random.Random, nodes: int, groups: int) -> None:
        self.rng = rng
        self.nodes = nodes
        self.groups = groups
        self.names = list(range(1, nodes + 1))
        size = nodes if nodes < 4 or rng.random() < 0.5 else 3
        self.voters = tuple(sorted(rng.sample(self.names, size)))
        self.victims: list[int] = []
        self.faults: list[Fault] = []

    def add(self, at_ms: int, kind: str, *words: object) -> None:
        self.faults.append(Fault(at_ms, kind, tuple(map(str, words))))

    def draw(self, kind: str, at: int) -> None:
        rng = self.rng
        node = rng.choice(self.names)
        back = at + rng.choice((50, 300, 1_000, 3_000, 6_000))
        if kind in ("crash", "kill", "full"):
            self.add(at, kind, node)
            self.add(back, "start", node)
        elif kind == "pause":
            self.add(at, kind, node, rng.choice((100, 700, 1_500, 4_000)))
        elif kind == "jump":
            self.add(at, kind, node, rng.choice(JUMPS_MS))
        elif kind == "cut":
            self._cut(at, back)
        elif kind == "network":
            permille = [rng.choice((0, 0, 20, 100, 300)) for _ in range(3)]
            self.add(at, kind, *permille, rng.choice((0, 0, 5, 50)), rng.choice((1, 5, 50, 200)))
            if rng.random() < 0.7:
                self.add(back, kind, 0, 0, 0, 0, 1)
        elif kind == "fail":
            self.add(at, kind, node, rng.randrange(1, 30))
            self.add(back, "start", node)
        elif kind == "slow":
            self.add(at, kind, node, rng.choice((20, 100, 400)))
        elif kind in ("flip", "wipe"):
            if self.victims:
                victim = rng.choice(self.victims)
                self.add(at, kind, victim, *([rng.choice((1, 1, 3, 20))] if kind == "flip" else []))
                self.add(back, "start", victim)
        elif kind == "members":
            self._members(at)
        elif kind == "move":
            self.add(at, kind, self._group(), node)
        elif kind == "compact":
            self.add(at, kind, node, self._group())

    def _group(self) -> int:
        return self.rng.randrange(self.groups)

    def _members(self, at: int) -> None:
        rng = self.rng
        least = max(2 * len(self.victims) + 1, 1 if rng.random() < 0.1 else 2)
        voters = sorted(rng.sample(self.names, rng.randrange(least, self.nodes + 1)))
        others = [name for name in self.names if name not in voters]
        learners = rng.sample(others, rng.randrange(len(others) + 1))
        words = [",".join(map(str, voters))]
        if learners:
            words.append(",".join(map(str, sorted(learners))))
        self.add(at, "members", self._group(), *words)

    def _cut(self, at: int, back: int) -> None:
        rng = self.rng
        pairs = [(a, b) for a in self.names for b in self.names if a != b]
        shape = rng.randrange(5)
        if shape <= 1:
            side = set(rng.sample(self.names, rng.randrange(1, self.nodes)))
            one_way = shape == 1
            cut = [
                (a, b)
                for a, b in pairs
                if (a in side and b not in side) or (not one_way and a not in side and b in side)
            ]
        elif shape == 2:
            lone = rng.choice(self.names)
            cut = [(a, b) for a, b in pairs if lone in (a, b)]
        elif shape == 3:
            # A chain: each node reaches only its neighbours.
            order = rng.sample(self.names, self.nodes)
            near = set(itertools.pairwise(order))
            cut = [(a, b) for a, b in pairs if (a, b) not in near and (b, a) not in near]
        else:
            cut = rng.sample(pairs, rng.randrange(1, len(pairs)))
        words = [f"{a}>{b}" for a, b in cut]
        self.add(at, "cut", *words, *(["hold"] if rng.random() < 0.3 else []))
        self.add(back, "join")


def draw_plan(seed: int, nodes: int = 0) -> ConsensusPlan:
    """Everything about a run that is decided before it begins; of five nodes unless another number is given."""
    nodes = nodes or NODES
    rng = random.Random(f"{seed} plan")  # noqa: S311
    drawing = _Drawing(rng, nodes, rng.choice((1, 1, 2, 3)))
    kinds = [kind for kind in WEIGHTS if rng.random() < 0.6] or ["crash"]
    weights = [WEIGHTS[kind] for kind in kinds]
    recipes = [RECIPES[name] for name in RECIPES if rng.random() < 0.4]
    if rng.random() < 0.7:
        most = (len(drawing.voters) - 1) // 2
        drawing.victims = sorted(rng.sample(drawing.names, rng.randrange(most + 1)))
    duration_ms = rng.choice((8_000, 12_000, 18_000))
    gap_ms = rng.choice((300, 700, 1_500))
    at = rng.choice((200, 2_000))
    while at < duration_ms:
        if recipes and rng.random() < 0.3:
            end = rng.choice(recipes)(drawing, at)
            at = end if rng.random() < 0.7 else at
        else:
            drawing.draw(rng.choices(kinds, weights)[0], at)
        at += rng.randrange(1, 2 * gap_ms)
    return ConsensusPlan(
        nodes=nodes,
        groups=drawing.groups,
        voters=drawing.voters,
        victims=tuple(drawing.victims),
        election_ms=rng.choice((300, 600, 1_000)),
        tiny=rng.random() < 0.4,
        lease=rng.random() < 0.7,
        prefer=rng.random() < 0.2,
        duration_ms=duration_ms,
        faults=tuple(sorted(fault for fault in drawing.faults if fault.at_ms < duration_ms)),
    )
