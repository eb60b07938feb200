"""``python -m flockmq.testing.simulate``: whole clusters in one process, a seed each, with everything going wrong.

```
 --seeds 1000 --first 0                        a sweep; the last line is "N passed, M failed"
 --seed 42 [--schedule '...'] [--trace]        one run, with its story
 --seed 42 --repeat 100                        the same run again and again: one fingerprint, or it is not deterministic
```
See docs/how-to/simulate.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from flockmq.errors import FlockError
from flockmq.testing.simulation.generate import draw_plan
from flockmq.testing.simulation.outcome import replay_command
from flockmq.testing.simulation.run import run_plan
from flockmq.testing.simulation.schedule import Plan, parse_plan
from flockmq.testing.simulation.sweep import Totals, default_jobs, run_sweep, shrink_outcome


def say(text: str) -> None:
    """Print a line now: sweeps are long and often watched through a pipe."""
    print(text, flush=True)  # noqa: T201


def parse_options(words: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m flockmq.testing.simulate", description="Simulate clusters.")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run (default 100)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default 0)")
    parser.add_argument("--jobs", type=int, default=0, help="processes at a time (default: one a processor)")
    parser.add_argument("--nodes", type=int, default=5, help="nodes of the cluster (default 5)")
    parser.add_argument("--keep", type=Path, help="add failing runs to this file")
    parser.add_argument("--seed", type=int, help="run this one only, and say more about it")
    parser.add_argument("--schedule", help="with --seed: this plan instead of the seed's own")
    parser.add_argument("--trace", action="store_true", help="with --seed: tell all that happens")
    parser.add_argument("--shrink", action="store_true", help="with --seed: if it fails, look for a smaller schedule")
    parser.add_argument("--repeat", type=int, default=1, help="with --seed: run it so often, compare fingerprints")
    return parser.parse_args(words)


def run_one(seed: int, plan: Plan, options: argparse.Namespace) -> int:
    """One seed, told in detail; 1 when it failed."""
    outcome = run_plan(seed, plan, trace=options.trace)
    for line in outcome.lines:
        say(line)
    prints = {outcome.fingerprint}
    for _ in range(options.repeat - 1):
        prints.add(run_plan(seed, plan).fingerprint)
    say(f"plan         {outcome.plan}")
    say(f"simulated    {outcome.simulated_ms / 1000:.1f} s")
    for name, count in sorted(outcome.figures.items()):
        say(f"{name:<12} {count}")
    say(f"fingerprints {len(prints)} of {options.repeat} runs: {' '.join(sorted(prints))}")
    if not outcome.passed:
        say(outcome.detail)
        say(f"FAILED       {outcome.violation}")
        if options.shrink:
            outcome = shrink_outcome(outcome)
        say(f"again        {replay_command(seed, outcome.plan)}")
    failed = not outcome.passed or len(prints) > 1
    say(f"{int(not failed)} passed, {int(failed)} failed")
    return int(failed)


def run_many(options: argparse.Namespace) -> int:
    """A sweep; 1 when any seed failed."""
    began = time.monotonic()
    jobs = options.jobs or default_jobs()
    totals = run_sweep(options.first, options.seeds, jobs, options.nodes, options.keep, say)
    describe(totals, time.monotonic() - began, jobs)
    say(f"{totals.passed} passed, {totals.failed} failed")
    return int(totals.failed > 0)


def describe(totals: Totals, took_s: float, jobs: int) -> None:
    """The figures of a sweep."""
    runs = max(totals.passed + totals.failed, 1)
    say(f"{took_s:.0f} s with {jobs} processes: {took_s * jobs / runs:.2f} s a seed")
    say(f"{totals.simulated_ms / 3_600_000:.1f} hours simulated")
    for name, count in sorted(totals.figures.items()):
        say(f"  {name:<24} {count:>12,}")


def main(words: list[str] | None = None) -> int:
    """Run; the process's exit code."""
    options = parse_options(words)
    if options.seed is None:
        return run_many(options)
    try:
        plan = parse_plan(options.schedule) if options.schedule else draw_plan(options.seed, options.nodes)
    except FlockError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    return run_one(options.seed, plan, options)


if __name__ == "__main__":
    sys.exit(main())
