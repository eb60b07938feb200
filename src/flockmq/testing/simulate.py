"""``python -m flockmq.testing.simulate``: clusters in one process, a seed each, with everything going wrong.

```
 --layers nodes --seeds 1000 --first 0         a sweep; the last line is "N passed, M failed"
 --layers nodes --seed 42 [--plan '...']       one run; --trace tells its story
 --seed 42 --repeat 100                        the same run again and again: one fingerprint, or it is not deterministic
```
Layers: consensus (Raft, log and journal alone), nodes (whole nodes with clients), gossip (membership alone); several
with commas between them. See docs/how-to/simulate.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from flockmq.errors import FlockError
from flockmq.testing.simulation.layers import LAYERS, run_plan
from flockmq.testing.simulation.outcome import replay_command
from flockmq.testing.simulation.plan import Plan
from flockmq.testing.simulation.sweep import Totals, default_jobs, report, shrink_outcome, sweep


def say(text: str) -> None:
    """Print a line now: sweeps are long and often watched through a pipe."""
    print(text, flush=True)  # noqa: T201


def parse_options(words: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m flockmq.testing.simulate", description="Simulate clusters.")
    parser.add_argument("--layers", default="consensus", help=f"{', '.join(LAYERS)} (default consensus)")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run (default 100)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default 0)")
    parser.add_argument("--jobs", type=int, default=0, help="processes at a time (default: one a processor)")
    parser.add_argument("--nodes", type=int, default=0, help="nodes of the cluster (default: the layer decides)")
    parser.add_argument("--keep", type=Path, help="add failing runs to this file")
    parser.add_argument("--seed", type=int, help="run this one only, and say more about it")
    parser.add_argument("--plan", "--schedule", help="with --seed: this plan instead of the seed's own")
    parser.add_argument("--trace", action="store_true", help="with --seed: tell all that happens")
    parser.add_argument("--shrink", action="store_true", help="with --seed: if it fails, look for fewer faults")
    parser.add_argument("--repeat", type=int, default=1, help="with --seed: run it so often, compare fingerprints")
    options = parser.parse_args(words)
    options.layers = options.layers.split(",")
    for layer in options.layers:
        if layer not in LAYERS:
            parser.error(f"there is no layer {layer!r}; use {', '.join(LAYERS)}")
    if options.seed is not None and len(options.layers) > 1:
        parser.error("one seed is a run of one layer")
    return options


def run_one(seed: int, plan: Plan, options: argparse.Namespace) -> int:
    """One seed, told in detail; 1 when it failed."""
    outcome = run_plan(seed, plan, trace=options.trace)
    for line in outcome.lines:
        say(line)
    prints = {outcome.fingerprint, *(run_plan(seed, plan).fingerprint for _ in range(options.repeat - 1))}
    say(f"plan         {outcome.plan}")
    say(f"simulated    {outcome.simulated_ms / 1000:.1f} s")
    for name, count in sorted(outcome.figures.items()):
        say(f"{name:<24} {count}")
    say(f"fingerprints {len(prints)} of {options.repeat} runs: {' '.join(sorted(prints))}")
    if not outcome.passed:
        say(outcome.detail)
        say(f"FAILED       {outcome.violation}")
        if options.shrink:
            outcome = shrink_outcome(outcome)
        say(f"again        {replay_command(outcome)}")
    failed = not outcome.passed or len(prints) > 1
    say(f"{int(not failed)} passed, {int(failed)} failed")
    return int(failed)


def run_many(layer: str, options: argparse.Namespace) -> int:
    """A sweep; 1 when any seed failed."""
    began = time.monotonic()
    jobs = options.jobs or default_jobs()
    outcomes = sweep(layer, options.first, options.seeds, jobs, options.nodes)
    totals = report(outcomes, options.seeds, options.keep, say)
    describe(layer, totals, time.monotonic() - began, jobs)
    say(f"{totals.passed} passed, {totals.failed} failed")
    return int(totals.failed > 0)


def describe(layer: str, totals: Totals, took_s: float, jobs: int) -> None:
    """The figures of a sweep."""
    runs = max(totals.passed + totals.failed, 1)
    say(f"{layer}: {took_s:.0f} s with {jobs} processes: {took_s * jobs / runs:.2f} s a seed")
    say(f"{totals.simulated_ms / 3_600_000:.1f} hours simulated")
    for name, count in sorted(totals.figures.items()):
        say(f"  {name:<24} {count:>12,}")


def main(words: list[str] | None = None) -> int:
    """Run; the process's exit code."""
    options = parse_options(words)
    if options.seed is None:
        return max([run_many(layer, options) for layer in options.layers])
    layer = LAYERS[options.layers[0]]
    try:
        plan = layer.parse(options.plan) if options.plan else layer.draw(options.seed, options.nodes)
    except FlockError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    return run_one(options.seed, plan, options)


if __name__ == "__main__":
    sys.exit(main())
