"""Many seeds on all processors, and what came of them.

```
 seeds --> a process per processor -->                        Outcome each --> Totals --> "N passed, M failed"
                                                     `--failed--> shrunk, printed with its command, kept in a file
```
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from flockmq.testing.simulation.layers import LAYERS, run_plan, run_seed
from flockmq.testing.simulation.outcome import Outcome, replay_command
from flockmq.testing.simulation.plan import Fault, Plan
from flockmq.testing.simulation.shrink import shrink

SHRUNK_MAX: Final = 5
"""Failures that are cut down: they are seldom all different, and each costs minutes."""


@dataclass(slots=True)
class Totals:
    """Sums over all runs."""

    passed: int = 0
    failed: int = 0
    simulated_ms: int = 0
    figures: dict[str, int] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """Count a run."""
        if outcome.passed:
            self.passed += 1
        else:
            self.failed += 1
        self.simulated_ms += outcome.simulated_ms
        for name, count in outcome.figures.items():
            self.figures[name] = self.figures.get(name, 0) + count


def shrink_outcome(outcome: Outcome) -> Outcome:
    """The same failure with as few faults as were found to be enough."""

    def still_fails(faults: list[Fault]) -> bool:
        return run_plan(outcome.seed, outcome.plan.with_faults(faults)).rule == outcome.rule

    faults = shrink(list(outcome.plan.faults), still_fails)
    return run_plan(outcome.seed, outcome.plan.with_faults(faults))


def sweep(layer: str, first: int, seeds: int, jobs: int, nodes: int = 0) -> Iterator[Outcome]:
    """Outcomes in the order of the seeds."""
    numbers = range(first, first + seeds)
    work = partial(run_seed, layer, nodes=nodes)
    if jobs == 1 or seeds == 1:
        yield from map(work, numbers)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(work, numbers)


def default_jobs() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def report(outcomes: Iterator[Outcome], seeds: int, keep: Path | None, say: Callable[[str], None]) -> Totals:
    """Tell about failures as they come, and keep them for ever when there is a file for it."""
    totals = Totals()
    for outcome in outcomes:
        totals.add(outcome)
        if not outcome.passed:
            say(f"seed {outcome.seed} FAILED  {outcome.violation}")
            small = shrink_outcome(outcome) if totals.failed <= SHRUNK_MAX else outcome
            say(f"  again: {replay_command(small)}")
            if keep is not None:
                keep_failure(keep, small)
        done = totals.passed + totals.failed
        if done % 100 == 0:
            say(f"{done:>6} of {seeds}: {totals.failed} failed, {totals.simulated_ms / 3_600_000:.1f} h simulated")
    return totals


def keep_failure(file: Path, outcome: Outcome) -> None:
    """Add a failing run to a file of them; ``kept_runs`` reads it."""
    with file.open("a", encoding="utf-8") as lines:
        lines.write(f"# {outcome.violation}\n{outcome.seed} {outcome.plan}\n")


def kept_runs(file: Path, layer: str = "consensus") -> list[tuple[int, Plan]]:
    """Seed and plan of each kept run."""
    runs = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            seed, _, plan = line.partition(" ")
            runs.append((int(seed), LAYERS[layer].parse(plan)))
    return runs
