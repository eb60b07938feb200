"""The table for people and the file for programs."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.cases import BROKERS, FLOCKMQ, MOSQUITTO, NATS, Case
from benchmarks.verdicts import Verdict, judge

RESULTS = Path(__file__).parent / "results"
MARKS = {True: "", False: " **missed**", None: " (not judged)"}
TITLES = {FLOCKMQ: "FlockMQ", MOSQUITTO: "mosquitto", NATS: "NATS"}


@dataclass(slots=True)
class Line:
    """What is known of one case: figures by broker, or why there are none."""

    case: Case
    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    runs: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    generators: dict[str, str] = field(default_factory=dict)

    @property
    def verdicts(self) -> list[Verdict]:
        """Goals and whether they were met."""
        return judge(self.case, self.figures)


def table(lines: Sequence[Line], title: str) -> Table:
    """All cases, side by side."""
    made = Table(title=title, title_justify="left", header_style="bold", pad_edge=False)
    made.add_column("work", ratio=3)
    for broker in BROKERS:
        made.add_column(TITLES[broker], justify="right")
    for column in ("ratio", "target", ""):
        made.add_column(column)
    for line in lines:
        verdicts = line.verdicts
        made.add_row(
            line.case.title,
            *(_cell(line, broker) for broker in BROKERS),
            "\n".join(_ratio(verdict) for verdict in verdicts),
            "\n".join(str(verdict.goal) for verdict in verdicts),
            Text("\n").join(_mark(verdict) for verdict in verdicts),
        )
    return made


def print_table(lines: Sequence[Line], title: str) -> None:
    """Print the table and what it comes to."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=160)
    console.print(table(lines, title))
    verdicts = [verdict for line in lines for verdict in line.verdicts]
    met = sum(verdict.met is True for verdict in verdicts)
    missed = sum(verdict.met is False for verdict in verdicts)
    console.print(f"{met} targets met, {missed} missed, {len(verdicts) - met - missed} could not be judged")
    for line in lines:
        for broker, note in line.notes.items():
            console.print(f"{line.case.name}, {TITLES[broker]}: {note}", style="dim", markup=False)


def _cell(line: Line, broker: str) -> str:
    figures = line.figures.get(broker)
    if figures is None:
        return line.notes.get(broker, "").partition(":")[0] if broker in line.case.brokers else "-"
    lost = figures.get("lost", 0)
    return f"{figure_text(figures)}\n({lost:,.0f} lost)" if lost else figure_text(figures)


def figure_text(figures: Mapping[str, float]) -> str:
    """The figures of one measurement, with their unit."""
    if "p50_us" in figures:
        return f"{figures['p50_us']:,.0f} / {figures['p99_us']:,.0f} us"
    if "kb" in figures:
        return f"{figures['kb']:.2f} KB"
    if "rate" in figures:
        return f"{figures['rate']:,.0f}/s"
    return f"{figures.get('few_us', 0):.2f} -> {figures.get('many_us', 0):.2f} us"


def _ratio(verdict: Verdict) -> str:
    return verdict.why if verdict.ratio is None else f"{verdict.ratio:.2f}x" if verdict.goal.against else ""


def _mark(verdict: Verdict) -> Text:
    if verdict.met is None:
        return Text("?", style="yellow")
    return Text("met", style="green") if verdict.met else Text("missed", style="bold red")


def as_json(lines: Sequence[Line], machine: Mapping[str, object], settings: Mapping[str, object]) -> dict[str, object]:
    """Everything that was measured, and on what."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": dict(machine),
        "settings": dict(settings),
        "cases": [
            {
                "name": line.case.name,
                "title": line.case.title,
                "figures": line.figures,
                "runs": line.runs,
                "notes": line.notes,
                "generators": line.generators,
                "targets": [
                    {"target": str(one.goal), "figure": one.goal.figure, "ratio": one.ratio, "met": one.met}
                    for one in line.verdicts
                ],
            }
            for line in lines
        ],
    }


def save(result: Mapping[str, object], *, keep: bool, folder: Path = RESULTS) -> list[Path]:
    """Write ``latest.json``, and a file to keep when asked for."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "latest.json"]
    if keep:
        paths.append(folder / file_name(result))
    for path in paths:
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return paths


def file_name(result: Mapping[str, object]) -> str:
    """A name that says when and on what kind of machine, and nothing about whose."""
    machine = result["machine"]
    assert isinstance(machine, Mapping)
    cpu = re.sub(r"\(.*?\)|@.*|\bcpu\b|\bprocessor\b", "", str(machine["cpu"]).lower())
    slug = re.sub(r"[^a-z0-9]+", "-", f"{cpu} {machine['cores']} cores {machine['build']}").strip("-")
    return f"{str(result['date'])[:10]}-{slug}.json"


def markdown(result: Mapping[str, Any]) -> str:
    """A kept result as a Markdown table, for the documentation."""
    about = result["machine"]
    versions = f"FlockMQ {about['flockmq']} ({about['build']}), {about['mosquitto']}, {about['nats']}"
    machine = f"{about['cpu']}, {about['cores']} cores, {about['kernel']}, {about['python']}"
    effort = f"median of {result['settings']['repeats']} runs of {result['settings']['seconds']:g} s"
    rows = [
        f"{versions}; {machine}; {result['date'][:10]}, {effort}.",
        "",
        "| work | FlockMQ | mosquitto | NATS | ratio | target |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for case in result["cases"]:
        figures = [figure_text(case["figures"][broker]) if broker in case["figures"] else "-" for broker in BROKERS]
        ratios = ", ".join(
            f"{one['ratio']:.1f}x" for one in case["targets"] if one["ratio"] is not None and one["figure"] != "kb"
        )
        wanted = ", ".join(f"{one['target']}{MARKS[one['met']]}" for one in case["targets"])
        rows.append(" | ".join(("| " + case["title"], *figures, ratios, wanted)) + " |")
    return "\n".join(rows)
