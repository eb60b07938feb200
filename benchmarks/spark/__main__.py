"""Spark on durable topics, on this machine: three nodes on loopback, local Spark.

    python -m benchmarks.spark [--quick] [--only CASE]... [--records N] [--repeats N] [--data FOLDER] [--save] [--json]

```
 table     rows/s of a topic read as a table, of Parquet files with the same rows, and of a reader of Python tuples
 trigger   how long a micro-batch of ten rows takes
 alert     from the publish of a strange value to the alert that pipeline `anomalies` publishes
```
``--data`` says on which disk nodes, checkpoints and Parquet files are; all of it is removed in the end.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.report import RESULTS, file_name
from benchmarks.spark import cluster, reading, streams
from flockmq.errors import FlockError
from flockmq.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATEST = "latest-spark.json"
CASES = ("table", "trigger", "alert")
RECORDS = 5_000_000
RECORDS_QUICK = 500_000
Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table. ``judge`` says whether the target was met."""

    name: str
    title: str
    text: Callable[[Figures], str]
    target: str = ""
    judge: Callable[[Figures], bool] | None = None


def _rate(figures: Figures) -> str:
    return f"{figures['rate']:,.0f} rows/s ({figures['of_parquet']:.2f}x Parquet, {figures['of_tuples']:.1f}x tuples)"


def _wait(figures: Figures) -> str:
    return f"p50 {figures['p50_ms']:.0f} ms, p99 {figures['p99_ms']:.0f} ms"


LINES = (
    Line("load", "the rows written by the sink, 3 replicas", lambda one: f"{one['rate']:,.0f} rows/s"),
    Line("parquet", "read as Parquet files", _rate),
    Line("tuples", "read as Python tuples from the log", _rate),
    Line(
        "flockmq",
        "read by format('flockmq')",
        _rate,
        ">= 0.6x Parquet, >= 3x tuples",
        lambda one: one["of_parquet"] >= 0.6 and one["of_tuples"] >= 3,
    ),
    Line("trigger", "micro-batch of 10 rows, 1 task", _wait, "p50 <= 120 ms", lambda one: one["p50_ms"] <= 120),
    Line("alert", "publish to alert, anomalies", _wait, "p50 <= 500 ms", lambda one: one["p50_ms"] <= 500),
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description="Measure Spark on durable topics.")
    parser.add_argument("--quick", action="store_true", help=f"{RECORDS_QUICK:,} records, fewer batches and alerts")
    parser.add_argument("--only", action="append", metavar="CASE", choices=CASES, help="may repeat")
    parser.add_argument("--records", type=int, default=0, help=f"in the table ({RECORDS:,}; quick: {RECORDS_QUICK:,})")
    parser.add_argument("--repeats", type=int, default=3, help="readings of the table; the median counts (3)")
    parser.add_argument("--data", metavar="FOLDER", help="where everything is kept (a temporary folder)")
    parser.add_argument("--master", help="where Spark runs (local[*])")
    parser.add_argument("--save", action="store_true", help="keep the result under benchmarks/results")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> tuple[dict[str, Figures], dict[str, str]]:
    """Run the cases on one cluster and one session; figures, and notes where there are none."""
    found: dict[str, Figures] = {}
    notes: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="flockmq-bench-", dir=options.data) as folder:
        conf = {"spark.local.dir": f"{folder}/scratch", "spark.driver.memory": "2g"}
        spark = session.build("benchmarks", master=options.master, conf=conf)
        try:
            with cluster.running(folder) as nodes:
                for case in options.only or CASES:
                    print(f"{case}:", file=sys.stderr)
                    try:
                        found |= _case(case, spark, nodes, folder, options)
                    except FlockError as error:
                        notes[case] = f"failed: {error}"
                        print(f"  {error}", file=sys.stderr)
        finally:
            spark.stop()
    return found, notes


def _case(
    name: str, spark: SparkSession, nodes: cluster.Cluster, folder: str, options: argparse.Namespace
) -> dict[str, Figures]:
    if name == "trigger":
        return {name: streams.triggers(spark, nodes, folder, 30 if options.quick else 100)}
    if name == "alert":
        return {name: streams.alerts(nodes, folder, 20 if options.quick else 60)}
    records = records_of(options)
    took_s = reading.load(spark, nodes, records)
    return {
        "load": {"rate": records / took_s},
        **reading.measure(spark, nodes, folder, records, options.repeats),
    }


def records_of(options: argparse.Namespace) -> int:
    """Rows of the table."""
    found: int = options.records or (RECORDS_QUICK if options.quick else RECORDS)
    return found


def verdict(line: Line, found: Mapping[str, Figures]) -> bool | None:
    """Whether the target was met; None when that can't be said."""
    return None if line.judge is None or line.name not in found else line.judge(found[line.name])


def table(found: Mapping[str, Figures], title: str) -> Table:
    """All lines."""
    made = Table(title=title, title_justify="left", header_style="bold", pad_edge=False)
    for column in ("work", "FlockMQ and Spark", "target", ""):
        made.add_column(column)
    for line in LINES:
        if line.name in found:
            met = verdict(line, found)
            mark = "" if met is None else "[green]met[/]" if met else "[bold red]missed[/]"
            made.add_row(line.title, line.text(found[line.name]), line.target, mark)
    return made


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for; exit code 1 when a target was missed or a case failed."""
    options = parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # also then nothing is left behind
    load_average = os.getloadavg()[0]
    found, notes = measure(options)
    about = {**machine.describe(), **{name: importlib.metadata.version(name) for name in ("pyspark", "pyarrow")}}
    records = records_of(options)
    result: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": about,
        "load_average_before": load_average,
        "settings": {"quick": options.quick, "records": records, "repeats": options.repeats},
        "notes": notes,
        "cases": {
            line.name: {
                "title": line.title,
                "figures": found[line.name],
                "target": line.target,
                "met": verdict(line, found),
            }
            for line in LINES
            if line.name in found
        },
    }
    for name in [LATEST] + (["spark-" + file_name(result)] if options.save else []):
        Path(RESULTS / name).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        title = (
            f"{records:,} records of {reading.PAYLOAD_BYTES} B, {reading.SHARDS} shards; FlockMQ {about['flockmq']} "
            f"({about['build']}), Spark {about['pyspark']}, {about['cpu']}, {about['cores']} cores"
        )
        console = Console(highlight=False)
        (console if console.is_terminal else Console(highlight=False, width=160)).print(table(found, title))
        console.print(f"load average before: {load_average:.1f}; written: {RESULTS / LATEST}")
        for case, note in notes.items():
            console.print(f"{case}: {note}", style="dim", markup=False)
    return 1 if notes or any(verdict(line, found) is False for line in LINES) else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except FlockError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        sys.exit(1)
