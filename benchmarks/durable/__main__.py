"""Durable topics on this machine: three nodes on loopback, replication 3, fsynced on a majority before the PUBACK.

    python -m benchmarks.durable [--quick] [--only SESSION]... [--data FOLDER] [--seconds S] [--repeats N] [--save]

64-byte messages, QoS 1, clients spread over all nodes. NATS JetStream does the same in the same run with three replicas
of six streams; it does not fsync. ``--data`` says which disk is measured.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.durable.cases import FLOCKMQ, LINES, NATS, SESSIONS, Effort, Figures, Line
from benchmarks.report import RESULTS, file_name
from flockmq.errors import FlockError

LATEST = "latest-durable.json"
Results = dict[str, dict[str, Figures]]
"""Line -> broker -> figures."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.durable", description="Measure durable topics.")
    parser.add_argument("--quick", action="store_true", help="a few minutes: short runs, one of each, 100 idle topics")
    parser.add_argument("--only", action="append", metavar="SESSION", choices=sorted({one.name for one in SESSIONS}))
    parser.add_argument("--brokers", default=f"{FLOCKMQ},{NATS}", help="which to run, with commas")
    parser.add_argument("--data", metavar="FOLDER", help="where the nodes keep their data (a temporary folder)")
    parser.add_argument("--seconds", type=float, default=0.0, help="how long each is measured (4; quick: 2)")
    parser.add_argument("--repeats", type=int, default=0, help="how often; the median counts (3; quick: 1)")
    parser.add_argument("--window", type=int, default=500, help="messages a publisher has in flight (500)")
    parser.add_argument("--topics", type=int, default=0, help="idle topics (1000; quick: 100)")
    parser.add_argument("--save", action="store_true", help="keep the result under benchmarks/results")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> tuple[Results, dict[str, str]]:
    """Run the sessions; figures, and notes where there are none."""
    quick = options.quick
    effort = Effort(
        seconds=options.seconds or (2.0 if quick else 4.0),
        window=options.window,
        topics=topics_of(options),
        folder=options.data,
    )
    repeats = options.repeats or (1 if quick else 3)
    runs: dict[str, dict[str, list[Figures]]] = {}
    notes: dict[str, str] = {}
    for repeat in range(repeats):
        for session in SESSIONS:
            title = f"{session.name}, {session.broker}"
            if session.broker not in options.brokers.split(",") or (options.only and session.name not in options.only):
                continue
            if repeat and session.name == "idle":
                continue  # takes minutes, and hardly differs
            print(f"  {title}, {repeat + 1} of {repeats}", file=sys.stderr)
            try:
                found = session.measure(effort)
            except FlockError as error:
                notes[title] = f"failed: {error}"
                print(f"  {title}: {error}", file=sys.stderr)
                continue
            for line, figures in found.items():
                runs.setdefault(line, {}).setdefault(session.broker, []).append(figures)
    return {line: {broker: _median(some) for broker, some in brokers.items()} for line, brokers in runs.items()}, notes


def topics_of(options: argparse.Namespace) -> int:
    """How many topics nobody uses."""
    found: int = options.topics or (100 if options.quick else 1_000)
    return found


def _median(runs: Sequence[Figures]) -> Figures:
    return {figure: statistics.median(run[figure] for run in runs) for figure in runs[0]}


def text(line: str, figures: Mapping[str, float] | None) -> str:
    """The figure that counts, with its unit."""
    if figures is None:
        return "-"
    if "p50_ms" in figures:
        return f"{figures['p50_ms']:.2f} / {figures['p99_ms']:.2f} ms"
    if "seconds" in figures:
        return f"{figures['seconds']:.1f} s"
    if "core_percent" in figures:
        return f"{figures['core_percent']:.1f} %"
    rate = figures["deliver_rate" if line == "end-to-end" else "rate"]
    lost = f"\n({figures['lost']:,.0f} lost)" if figures.get("lost") else ""
    return f"{rate:,.0f}/s{lost}"


def verdict(line: Line, results: Results) -> bool | None:
    """Whether the target was met; None when that can't be said."""
    figures = results.get(line.name, {}).get(FLOCKMQ)
    return None if line.judge is None or figures is None else line.judge(figures)


def table(results: Results, title: str, topics: int) -> Table:
    """All lines, side by side; ``topics`` that nobody uses."""
    made = Table(title=title, title_justify="left", header_style="bold", pad_edge=False)
    for column in ("work", "FlockMQ", "NATS JetStream R3", "all nodes together", "target", ""):
        made.add_column(column)
    for line in LINES:
        if line.name not in results:
            continue
        ours = results[line.name].get(FLOCKMQ)
        met = verdict(line, results)
        mark = "" if met is None else "[green]met[/]" if met else "[bold red]missed[/]"
        cost = f"{ours['cores']:.2f} cores, {ours['cpu_us']:.1f} us a message" if ours and "cpu_us" in ours else ""
        theirs = text(line.name, results[line.name].get(NATS))
        made.add_row(line.title.format(topics=topics), text(line.name, ours), theirs, cost, line.target, mark)
    return made


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for; exit code 1 when a target was missed or a session failed."""
    options = parse(arguments)
    load_average = os.getloadavg()[0]
    results, notes = measure(options)
    about = machine.describe()
    result: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": about,
        "load_average_before": load_average,
        "settings": {"quick": options.quick, "seconds": options.seconds, "window": options.window},
        "notes": notes,
        "cases": {
            line.name: {
                "title": line.title.format(topics=topics_of(options)),
                "figures": results[line.name],
                "target": line.target,
                "met": verdict(line, results),
            }
            for line in LINES
            if line.name in results
        },
    }
    for name in [LATEST] + (["durable-" + file_name(result)] if options.save else []):
        (RESULTS / name).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        title = f"FlockMQ {about['flockmq']} ({about['build']}) on {about['cpu']}, {about['cores']} cores"
        console = Console(highlight=False)
        (console if console.is_terminal else Console(highlight=False, width=160)).print(
            table(results, title, topics_of(options))
        )
        console.print(f"load average before: {load_average:.1f}; written: {RESULTS / LATEST}")
        for title, note in notes.items():
            console.print(f"{title}: {note}", style="dim", markup=False)
    if about["build"] == "pure":
        print("This is the plain Python build; the targets are for the compiled one (make setup).", file=sys.stderr)
    return 1 if notes or any(verdict(line, results) is False for line in LINES) else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except FlockError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        sys.exit(1)
