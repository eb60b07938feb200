"""Persistent sessions on this machine: real nodes on loopback, fsynced on a majority before a PUBACK.

    python -m benchmarks.sessions [--quick] [--only SESSION]... [--data FOLDER] [--save] [--json]

``--data`` says which disk is measured. Load generators run on the same machine as the nodes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.report import RESULTS, file_name
from benchmarks.sessions.cases import LINES, SESSIONS, Effort, Found, Line
from flockmq.errors import FlockError

LATEST = "latest-sessions.json"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sessions", description="Measure persistent sessions.")
    parser.add_argument("--quick", action="store_true", help="two minutes: a tenth of the sessions and messages")
    parser.add_argument("--only", action="append", metavar="SESSION", choices=sorted({one.name for one in SESSIONS}))
    parser.add_argument("--data", metavar="FOLDER", help="where the nodes keep their data (a temporary folder)")
    parser.add_argument("--seconds", type=float, default=0.0, help="how long rates are measured (4; quick: 2)")
    parser.add_argument("--sessions", type=int, default=0, help="sessions that are away (10000; quick: 1000)")
    parser.add_argument("--messages", type=int, default=0, help="messages for them (10000; quick: 1000)")
    parser.add_argument("--save", action="store_true", help="keep the result under benchmarks/results")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args(arguments)


def effort_of(options: argparse.Namespace) -> Effort:
    """How much to measure."""
    quick = options.quick
    return Effort(
        seconds=options.seconds or (2.0 if quick else 4.0),
        connects=5_000 if quick else 20_000,
        sessions=options.sessions or (1_000 if quick else 10_000),
        messages=options.messages or (1_000 if quick else 10_000),
        folder=options.data,
    )


def measure(effort: Effort, only: Sequence[str]) -> tuple[Found, dict[str, str]]:
    """Figures by line, and why some sessions have none."""
    found: Found = {}
    notes: dict[str, str] = {}
    for session in SESSIONS:
        if only and session.name not in only:
            continue
        print(f"  {session.name}", file=sys.stderr)
        try:
            found |= session.measure(effort)
        except FlockError as error:
            notes[session.name] = f"failed: {error}"
            print(f"  {session.name}: {error}", file=sys.stderr)
    return found, notes


def verdict(line: Line, found: Found) -> bool | None:
    """Whether the target was met; None when that can't be said."""
    figures = found.get(line.name)
    return None if line.judge is None or figures is None else line.judge(figures)


def title_of(line: Line, effort: Effort) -> str:
    """What was done."""
    return line.title.format(messages=effort.messages, sessions=effort.sessions)


def table(found: Found, title: str, effort: Effort) -> Table:
    """All lines that were measured."""
    made = Table(title=title, title_justify="left", header_style="bold", pad_edge=False)
    for column in ("work", "measured", "target", ""):
        made.add_column(column)
    for line in LINES:
        if line.name in found:
            met = verdict(line, found)
            mark = "" if met is None else "[green]met[/]" if met else "[bold red]missed[/]"
            made.add_row(title_of(line, effort), line.text(found[line.name]), line.target, mark)
    return made


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for; exit code 1 when a target was missed or something failed."""
    options = parse(arguments)
    effort = effort_of(options)
    load_average = os.getloadavg()[0]
    found, notes = measure(effort, options.only or ())
    about = machine.describe()
    result: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": about,
        "load_average_before": load_average,
        "settings": {"quick": options.quick, "sessions": effort.sessions, "messages": effort.messages},
        "notes": notes,
        "cases": {
            line.name: {
                "title": title_of(line, effort),
                "figures": found[line.name],
                "target": line.target,
                "met": verdict(line, found),
            }
            for line in LINES
            if line.name in found
        },
    }
    for name in [LATEST] + (["sessions-" + file_name(result)] if options.save else []):
        (RESULTS / name).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        title = f"FlockMQ {about['flockmq']} ({about['build']}) on {about['cpu']}, {about['cores']} cores"
        console = Console(highlight=False)
        (console if console.is_terminal else Console(highlight=False, width=160)).print(table(found, title, effort))
        console.print(f"load average before: {load_average:.1f}; written: {RESULTS / LATEST}")
        for name, note in notes.items():
            console.print(f"{name}: {note}", style="dim", markup=False)
    if about["build"] == "pure":
        print("This is the plain Python build; the targets are for the compiled one (make setup).", file=sys.stderr)
    return 1 if notes or any(verdict(line, found) is False for line in LINES) else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except FlockError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        sys.exit(1)
