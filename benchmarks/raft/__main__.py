"""Consensus on this machine: three processes on loopback, replication 3, durable on a majority before the answer.

    python -m benchmarks.raft [--quick] [--only CASE]... [--data FOLDER] [--seconds S] [--repeats N] [--save] [--json]

Writers are a process of their own and speak a tiny protocol (``flockmq.testing.processes``) to the nodes that lead the
groups, one frame a message, 64 bytes of payload; MQTT has no part in it. ``--data`` says which disk is measured.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
from collections.abc import Sequence
from typing import Any

import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.raft.cases import CASES, Case, Effort, Figures
from benchmarks.report import RESULTS, file_name
from flockmq.errors import FlockError

LATEST = "latest-raft.json"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.raft", description="Measure consensus.")
    parser.add_argument("--quick", action="store_true", help="about a minute: short runs, one of each")
    parser.add_argument("--only", action="append", metavar="CASE", choices=[case.name for case in CASES])
    parser.add_argument("--data", metavar="FOLDER", help="where the nodes keep their data (a temporary folder)")
    parser.add_argument("--seconds", type=float, default=0.0, help="how long each is measured (5; quick: 2)")
    parser.add_argument("--repeats", type=int, default=0, help="how often; the median counts (3; quick: 1)")
    parser.add_argument("--save", action="store_true", help="keep the result under benchmarks/results")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args(arguments)


def measure(case: Case, effort: Effort, repeats: int) -> Figures:
    runs: list[Figures] = []
    for repeat in range(repeats):
        print(f"  {case.name}, {repeat + 1} of {repeats}", file=sys.stderr)
        runs.append(uvloop.run(case.measure(effort)))
    return {figure: statistics.median(run[figure] for run in runs) for figure in runs[0]}


def text(figures: Figures) -> str:
    if "p50_ms" in figures:
        return f"p50 {figures['p50_ms']:.2f} ms, p99 {figures['p99_ms']:.2f} ms"
    if "core_percent" in figures:
        return f"{figures['core_percent']:.1f} %"
    return f"{figures['rate']:,.0f}/s"


def details(figures: Figures) -> str:
    if "cpu_us" not in figures:
        return ""
    each = figures["rate"] / max(figures["entries_rate"], 1.0)
    return f"{figures['cores']:.2f} cores, {figures['cpu_us']:.1f} us a message, {each:.0f} messages an entry"


def table(found: dict[str, Figures], title: str) -> Table:
    made = Table(title=title, title_justify="left", header_style="bold", pad_edge=False)
    for column in ("work", "figure", "all nodes together", "target", ""):
        made.add_column(column)
    for case in CASES:
        if case.name in found:
            figures = found[case.name]
            met = case.is_met(found)
            mark = "" if met is None else "[green]met[/]" if met else "[bold red]missed[/]"
            made.add_row(case.title, text(figures), details(figures), case.target, mark)
    return made


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    effort = Effort(
        seconds=options.seconds or (2.0 if options.quick else 5.0),
        warm_up_s=1.0 if options.quick else 2.0,
        folder=options.data,
    )
    repeats = options.repeats or (1 if options.quick else 3)
    load_average = os.getloadavg()[0]
    cases = [case for case in CASES if not options.only or case.name in options.only]
    found = {case.name: measure(case, effort, repeats) for case in cases}
    about = machine.describe()
    result: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": about,
        "load_average_before": load_average,
        "settings": {"seconds": effort.seconds, "repeats": repeats},
        "cases": {
            case.name: {
                "title": case.title,
                "figures": found[case.name],
                "target": case.target,
                "met": case.is_met(found),
            }
            for case in cases
        },
    }
    for name in [LATEST] + (["raft-" + file_name(result)] if options.save else []):
        (RESULTS / name).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        title = f"FlockMQ {about['flockmq']} ({about['build']}) on {about['cpu']}, {about['cores']} cores"
        console = Console(highlight=False)
        (console if console.is_terminal else Console(highlight=False, width=160)).print(table(found, title))
        console.print(f"load average before: {load_average:.1f}; written: {RESULTS / LATEST}")
    return 1 if any(case.is_met(found) is False for case in cases) else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except FlockError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        sys.exit(1)
