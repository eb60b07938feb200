"""``rollup`` as a process beside another program that watches it: what the demo runs.

```
 standard input:   Task as JSON --> ... --> Until(records) --> (the last windows are written) --> end
 standard output:  Progress, whenever it moves; in the end a Result: figures, table, windows, files, or why not
```
A window is final when something later than it was read. To get all of them, publish one record more, late
enough, and tell how many records there are: when they are read, one more micro-batch writes the windows.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from flockmq.errors import FlockError
from flockmq.spark.pipelines.parameters import make_values
from flockmq.spark.pipelines.progress import Display, Tally
from flockmq.spark.pipelines.run import Job, RunSettings, needs_spark, plain

WINDOWS_MAX: Final = 60
"""The newest windows that a result lists."""


class Task(msgspec.Struct, kw_only=True, frozen=True):
    """What to do: options of the source, parameters of ``rollup``, settings of Spark."""

    options: dict[str, str]
    parameters: dict[str, str]
    conf: dict[str, str] = {}
    master: str = "local[2]"


class Until(msgspec.Struct, kw_only=True, frozen=True):
    """End when that many records were read and what follows from them is written."""

    records: int


class Progress(msgspec.Struct, kw_only=True, frozen=True):
    """How far it is."""

    rows: int
    batches: int
    lag: int | None
    rows_per_s: float
    trigger_ms: int


class Window(msgspec.Struct, kw_only=True, frozen=True):
    """One window of time, over all devices."""

    start_ms: int
    metric: str
    count: int
    mean: float


class Result(msgspec.Struct, kw_only=True):
    """Figures, table and files of a finished run."""

    readings: int = 0
    """In all windows together."""
    late: int = 0
    """Groups that came too late for their window."""
    columns: list[str] = []
    rows: list[list[Any]] = []
    windows: list[Window] = []
    files: list[str] = []
    error: str = ""


class Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A line of output: one of them."""

    progress: Progress | None = None
    result: Result | None = None


class Reporter(Display):
    """Tells progress in JSON, and when it is enough."""

    def __init__(self, enough: threading.Event) -> None:
        super().__init__(quiet=True)
        self.until: Until | None = None
        self._enough = enough
        self._told: Progress | None = None
        self._batches_all_read: int | None = None

    def show(self, tallies: Iterable[Tally]) -> None:
        """Write a line when something has changed."""
        one = next(iter(tallies))
        progress = Progress(
            rows=one.rows, batches=one.batches, lag=one.lag, rows_per_s=one.rows_per_s, trigger_ms=one.trigger_ms
        )
        if self._told is None or (progress.batches, progress.lag) != (self._told.batches, self._told.lag):
            self._told = progress
            say(Line(progress=progress))
        if self.until is None or one.rows < self.until.records:
            return
        if self._batches_all_read is None:
            self._batches_all_read = one.batches
        elif one.batches > self._batches_all_read:
            self._enough.set()

    def listen(self) -> None:
        """Wait for the end to be told; when the parent process is gone, end at once."""
        line = sys.stdin.buffer.readline()
        if line.strip():
            self.until = msgspec.json.decode(line, type=Until)
        else:
            self._enough.set()


def say(line: Line) -> None:
    """One line on standard output."""
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


def run(task: Task) -> Result:
    """Roll up until told to end."""
    from flockmq.spark.pipelines.rollup import PIPELINE
    from flockmq.spark.session import build

    needs_spark()
    values = make_values(PIPELINE.parameters, task.parameters)
    spark = build("flockmq rollup", master=task.master, conf=task.conf)
    try:
        job = Job(PIPELINE.name, spark, values, RunSettings(options=task.options))
        job.display = reporter = Reporter(job.stopping)
        threading.Thread(target=reporter.listen, daemon=True).start()
        summary = PIPELINE.run(job)
        result = Result(late=sum(tally.late_rows for tally in job.tallies), files=list(summary.files))
        if summary.tables:
            result.columns = list(summary.tables[0].columns)
            result.rows = [list(row) for row in summary.tables[0].rows]
        _add_windows(result, spark.read.parquet(values.text("lake")))
        return result
    finally:
        spark.stop()


def _add_windows(result: Result, table: Any) -> None:
    from pyspark.sql import functions as sql

    mean = sql.sum(sql.col("mean") * sql.col("count")) / sql.sum("count")
    by_window = table.groupBy(sql.unix_millis("window_start").alias("start"), "metric")
    found = by_window.agg(sql.sum("count").alias("n"), mean.alias("mean")).orderBy("start", "metric").collect()
    result.readings = sum(row["n"] for row in found)
    result.windows = [
        Window(start_ms=row["start"], metric=row["metric"], count=row["n"], mean=row["mean"])
        for row in found[-WINDOWS_MAX:]
    ]


def main() -> int:
    """Run as a process."""
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=Task)
    try:
        result = run(task)
    except FlockError as error:
        result = Result(error=str(error))
    except Exception as error:  # the parent process shows no traceback; it is in the log
        import traceback

        traceback.print_exc()
        result = Result(error=plain(str(error)))
    say(Line(result=result))
    return 1 if result.error else 0


if __name__ == "__main__":
    sys.exit(main())
