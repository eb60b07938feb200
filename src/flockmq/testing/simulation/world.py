"""What the simulated clusters of all layers have: a seed, virtual time, a trace, figures."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from flockmq.testing.simulation.events import EventQueue
from flockmq.testing.simulation.trace import Trace

LOOK_MS: Final = 100
"""How often a condition that must come true is looked at."""


class Violation(Exception):  # noqa: N818
    """A rule was broken."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class World:
    """One run: ``run`` does everything, and raises Violation when a rule is broken."""

    def __init__(self, seed: int, trace: bool = False) -> None:
        self.seed = seed
        self.queue = EventQueue()
        self.trace = Trace(self.queue, trace)
        self.figures: dict[str, int] = {}
        """Counts by name, for the report."""

    def run(self) -> None:
        """The whole run."""
        raise NotImplementedError

    def frames(self) -> int:
        """How many frames the network carried."""
        raise NotImplementedError

    def died(self, number: int) -> None:
        """The process on a machine ended."""

    def rng(self, name: object) -> random.Random:
        """Chance of one part of the run, apart from that of all others."""
        return random.Random(f"{self.seed} {name}")  # noqa: S311

    def count(self, name: str, by: int = 1) -> None:
        """Count something for the figures of the run."""
        self.figures[name] = self.figures.get(name, 0) + by

    def run_for(self, ms: int) -> None:
        """Let time pass."""
        self.queue.run_until(self.queue.now + ms * 1_000)

    def until(
        self, what: str, missing: Callable[[], str], ms_max: int, look_ms: int = LOOK_MS, rule: str = "liveness"
    ) -> None:
        """Let time pass until nothing is missing; Violation of a rule when something still is."""
        end = self.queue.now + ms_max * 1_000
        while lack := missing():
            if self.queue.now >= end:
                raise Violation(rule, f"{what}: after {ms_max} ms {lack}")
            self.run_for(look_ms)
