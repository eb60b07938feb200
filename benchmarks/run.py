"""Side by side in one run: FlockMQ, mosquitto and NATS under the same load on the same machine.

    python -m benchmarks.run [--quick] [--only CASE]... [--save] [--pin 0:1] [--blast PROGRAM] [--hold PROGRAM]
    python -m benchmarks.run --render benchmarks/results/FILE.json

```
 for each case:  for each repeat:  for each broker:  start it --> make the load --> stop it
                                                                    `--> figures; the median of the repeats counts
```
Brokers take turns within a repeat, so that a machine that slows down slows down all of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import brokers, machine, report
from benchmarks.cases import CASES, FLOCKMQ, Case
from benchmarks.generators import Effort, Figures, many, measure
from flockmq.errors import FlockError

GENERATOR_BUSY_MAX = 0.95


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description="Compare brokers under load.")
    parser.add_argument("--quick", action="store_true", help="about a minute: short runs, one of each")
    parser.add_argument("--only", action="append", metavar="CASE", help="only this case, or those that begin so")
    parser.add_argument("--list", action="store_true", help="name the cases and end")
    parser.add_argument("--brokers", default=",".join((FLOCKMQ, *brokers.PROGRAMS)), help="which to run, with commas")
    parser.add_argument("--seconds", type=float, default=0.0, help="how long each load publishes (4; quick: 0.7)")
    parser.add_argument("--repeats", type=int, default=0, help="how often each is measured (3; quick: 1)")
    parser.add_argument("--connections", type=int, default=0, help="idle connections (10000; quick: 2000)")
    parser.add_argument("--save", action="store_true", help="keep the result under benchmarks/results")
    parser.add_argument("--pin", default="", metavar="B:L", help="processors of broker and of load, like 0:1")
    parser.add_argument("--blast", default="", metavar="PROGRAM", help="an external load generator")
    parser.add_argument("--hold", default="", metavar="PROGRAM", help="an external program that holds connections")
    parser.add_argument("--render", default="", metavar="FILE", help="print a kept result as Markdown and end")
    return parser.parse_args(arguments)


def choose(names: Sequence[str] | None, *, quick: bool = False) -> list[Case]:
    """The cases to run; FlockError for a name that fits none. In a hurry, variants are measured at QoS 0 only."""
    if not names:
        return [case for case in CASES if not (quick and case.name.endswith("-qos1"))]
    found = [case for case in CASES if any(case.name.startswith(name) for name in names)]
    for name in names:
        if not any(case.name.startswith(name) for case in CASES):
            raise FlockError(f"No case is called {name!r}; there are {', '.join(case.name for case in CASES)}")
    return found


def run_case(case: Case, names: Sequence[str], effort: Effort, repeats: int, broker_cpus: Sequence[int]) -> report.Line:
    """Measure one case on all brokers."""
    line = report.Line(case)
    for name in case.brokers:
        if name not in names:
            line.notes[name] = "left out: not asked for"
        elif brokers.missing(name):
            line.notes[name] = f"not installed: {brokers.PROGRAMS[name]} is not on this machine"
    for repeat in range(repeats):
        for name in case.brokers:
            if name in line.notes:
                continue
            print(f"  {case.name}: {name}, {repeat + 1} of {repeats}", file=sys.stderr)
            try:
                figures, generator = run_once(case, name, effort, broker_cpus)
            except FlockError as error:
                line.notes[name] = f"failed: {error}"
                continue
            line.runs.setdefault(name, []).append(figures)
            line.generators[name] = generator
    for name, runs in line.runs.items():
        line.figures[name] = {key: statistics.median(one[key] for one in runs) for key in runs[0]}
        if line.figures[name].get("generator_busy", 0.0) > GENERATOR_BUSY_MAX:
            line.notes[name] = "the generator was busy all the time: the broker may be faster than this"
    return line


def run_once(case: Case, name: str, effort: Effort, broker_cpus: Sequence[int]) -> tuple[Figures, str]:
    """One measurement of one broker; a cost is measured twice, with few and with many subscriptions."""
    figures: Figures = {}
    generator = ""
    for part in (case, many(case)) if case.kind == "cost" else (case,):
        with brokers.start(name, case.setup, broker_cpus) as running:
            found, generator = measure(part, running, effort)
            figures.update(found)
    return figures, generator


def processors(text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """``0:1`` or ``0,1:2,3`` as processors of broker and of load."""
    if not text:
        return (), ()
    try:
        first, second = (tuple(int(one) for one in part.split(",") if one) for part in text.split(":"))
    except ValueError:
        raise FlockError(f"--pin can't be {text!r}; write processors of broker and of load, like 0:1") from None
    return first, second


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for; exit code 1 when a target was missed."""
    options = parse(arguments)
    if options.list:
        for case in CASES:
            print(f"{case.name:<18} {case.title}")
        return 0
    if options.render:
        print(report.markdown(json.loads(Path(options.render).read_text(encoding="utf-8"))))
        return 0
    quick = options.quick
    broker_cpus, load_cpus = processors(options.pin)
    effort = Effort(
        seconds=options.seconds or (0.7 if quick else 4.0),
        connections=options.connections or (2_000 if quick else 10_000),
        cpus=load_cpus,
        blast=options.blast,
        hold=options.hold,
    )
    repeats = options.repeats or (1 if quick else 3)
    about = machine.describe()
    names = options.brokers.split(",")
    lines = [run_case(case, names, effort, repeats, broker_cpus) for case in choose(options.only, quick=quick)]
    settings = {"seconds": effort.seconds, "repeats": repeats, "connections": effort.connections, "pin": options.pin}
    settings["generator"] = "external" if effort.blast else "flockmq bench"
    result = report.as_json(lines, about, settings)
    title = f"FlockMQ {about['flockmq']} ({about['build']}) on {about['cpu']}, {about['cores']} cores"
    report.print_table(lines, title)
    if about["build"] == "pure":
        print("This is the plain Python build; the targets are for the compiled one (make setup).", file=sys.stderr)
    for path in report.save(result, keep=options.save):
        print(f"written: {path}", file=sys.stderr)
    return 1 if any(verdict.met is False for line in lines for verdict in line.verdicts) else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except FlockError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        sys.exit(1)
