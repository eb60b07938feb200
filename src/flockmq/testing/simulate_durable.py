"""``python -m flockmq.testing.simulate_durable``: whole nodes with durable topics, one seed after the other.

```
 --seeds 1000 --first 0      many seeds on all processors; a failing one is told with the command that runs it again
 --seed 17 [--plan '...']    one seed, in detail; --trace tells all that happens, --repeat 2 compares two runs
```
The last line is ``N passed, M failed``; exit code 1 when any failed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field

from flockmq.errors import FlockError
from flockmq.testing.durable_harness import DurableHarness
from flockmq.testing.durable_plan import Fault, Plan, draw_plan, parse_plan
from flockmq.testing.simulation.history import Violation
from flockmq.testing.simulation.sweep import default_jobs


@dataclass(slots=True, kw_only=True)
class DurableOutcome:
    """The end of one run. ``violation`` is empty when every rule held."""

    seed: int
    plan: Plan
    violation: str = ""
    rule: str = ""
    detail: str = ""
    fingerprint: str = ""
    simulated_ms: int = 0
    figures: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)


def run_plan(seed: int, plan: Plan, trace: bool = False) -> DurableOutcome:
    """Simulate; whatever goes wrong ends up in the outcome, also an exception of the code under test."""
    outcome = DurableOutcome(seed=seed, plan=plan)
    harness = DurableHarness(seed, plan, trace)
    try:
        harness.run()
    except Violation as violation:
        outcome.rule, outcome.violation = violation.rule, str(violation)
    except Exception as error:
        outcome.rule = f"no exception: {type(error).__name__}"
        outcome.violation = f"{outcome.rule}: {error}"
        outcome.detail = traceback.format_exc()
    outcome.fingerprint = harness.trace.fingerprint()
    outcome.simulated_ms = harness.queue.now // 1_000
    outcome.figures = {**harness.figures, "events": harness.queue.worked_on, "frames": harness.network.frames}
    outcome.lines = harness.trace.lines or []
    return outcome


def run_seed(seed: int) -> DurableOutcome:
    """One run with the plan that its seed draws."""
    return run_plan(seed, draw_plan(seed))


def shrink(outcome: DurableOutcome) -> DurableOutcome:
    """The same failure without the faults that it does not need."""
    faults = list(outcome.plan.faults)
    for fault in outcome.plan.faults:
        fewer: list[Fault] = [one for one in faults if one is not fault]
        if run_plan(outcome.seed, outcome.plan.with_faults(fewer)).rule == outcome.rule:
            faults = fewer
    return run_plan(outcome.seed, outcome.plan.with_faults(faults))


def replay_command(outcome: DurableOutcome) -> str:
    """What to type to see this run again."""
    return f"python -m flockmq.testing.simulate_durable --seed {outcome.seed} --plan '{outcome.plan}'"


def sweep(first: int, seeds: int, jobs: int) -> Iterator[DurableOutcome]:
    """Outcomes in the order of the seeds."""
    numbers = range(first, first + seeds)
    if jobs == 1 or seeds == 1:
        yield from map(run_seed, numbers)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(run_seed, numbers)


def say(text: str) -> None:
    """Print a line now: sweeps are long and often watched through a pipe."""
    print(text, flush=True)  # noqa: T201


def parse_options(words: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m flockmq.testing.simulate_durable", description="Simulate nodes.")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run (default 100)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default 0)")
    parser.add_argument("--jobs", type=int, default=0, help="processes at a time (default: one a processor)")
    parser.add_argument("--seed", type=int, help="run this one only, and say more about it")
    parser.add_argument("--plan", help="with --seed: this plan instead of the seed's own")
    parser.add_argument("--trace", action="store_true", help="with --seed: tell all that happens")
    parser.add_argument("--shrink", action="store_true", help="with --seed: if it fails, leave out faults")
    parser.add_argument("--repeat", type=int, default=1, help="with --seed: run it so often, compare fingerprints")
    return parser.parse_args(words)


def run_many(options: argparse.Namespace) -> int:
    """A sweep; 1 when any seed failed."""
    began = time.monotonic()
    jobs = options.jobs or default_jobs()
    passed = failed = simulated_ms = 0
    figures: dict[str, int] = {}
    for outcome in sweep(options.first, options.seeds, jobs):
        simulated_ms += outcome.simulated_ms
        for name, count in outcome.figures.items():
            figures[name] = figures.get(name, 0) + count
        if outcome.rule:
            failed += 1
            say(f"seed {outcome.seed} FAILED  {outcome.violation}")
            say(f"  again: {replay_command(outcome)}")
        else:
            passed += 1
        if (passed + failed) % 100 == 0:
            say(f"{passed + failed:>6} of {options.seeds}: {failed} failed")
    took_s = time.monotonic() - began
    say(f"{took_s:.0f} s with {jobs} processes: {took_s * jobs / max(options.seeds, 1):.2f} s a seed")
    say(f"{simulated_ms / 3_600_000:.2f} hours simulated")
    for name, count in sorted(figures.items()):
        say(f"  {name:<24} {count:>12,}")
    say(f"{passed} passed, {failed} failed")
    return int(failed > 0)


def run_one(options: argparse.Namespace) -> int:
    """One seed, told in detail; 1 when it failed."""
    plan = parse_plan(options.plan) if options.plan else draw_plan(options.seed)
    outcome = run_plan(options.seed, plan, options.trace)
    for line in outcome.lines:
        say(line)
    prints = {outcome.fingerprint, *(run_plan(options.seed, plan).fingerprint for _ in range(options.repeat - 1))}
    say(f"plan         {outcome.plan}")
    say(f"simulated    {outcome.simulated_ms / 1000:.1f} s")
    for name, count in sorted(outcome.figures.items()):
        say(f"{name:<20} {count}")
    say(f"fingerprints {len(prints)} of {options.repeat} runs: {' '.join(sorted(prints))}")
    if outcome.rule:
        say(outcome.detail)
        say(f"FAILED       {outcome.violation}")
        if options.shrink:
            outcome = shrink(outcome)
        say(f"again        {replay_command(outcome)}")
    is_failed = bool(outcome.rule) or len(prints) > 1
    say(f"{int(not is_failed)} passed, {int(is_failed)} failed")
    return int(is_failed)


def main(words: list[str] | None = None) -> int:
    """Run; the process's exit code."""
    options = parse_options(words)
    try:
        return run_many(options) if options.seed is None else run_one(options)
    except FlockError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2


if __name__ == "__main__":
    sys.exit(main())
