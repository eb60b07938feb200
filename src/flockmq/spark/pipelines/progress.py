"""How far streaming queries are, from what Spark reports of each micro-batch.

```
 query.lastProgress --> Tally.add: rows, batches, lag, time of a trigger --> Display: a table that moves, or lines
```
Spark keeps the last hundred reports, and repeats those of an idle query: a report counts once, by its time. Lag is what
the sources have committed and the query has not read: the sum over partitions of latest minus end offset.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from rich.live import Live

RATE_SPAN_S: Final = 10.0
"""The rate shown is that of the last seconds, not of the whole run."""
LINE_EVERY_S: Final = 5.0
TRIGGERS_MAX: Final = 100_000
"""Triggers that the median is taken of."""


@dataclass(slots=True)
class Tally:
    """What one query has done since it was started here."""

    name: str
    rows: int = 0
    batches: int = 0
    lag: int | None = None
    trigger_ms: int = 0
    trigger_ms_all: list[int] = field(default_factory=list)
    late_rows: int = 0
    """Dropped by a watermark."""
    _last: str = ""
    _batch: int = -1
    """The last micro-batch that was counted."""
    _recent: deque[tuple[float, int]] = field(default_factory=lambda: deque([(time.monotonic(), 0)], maxlen=1_000))

    def is_next(self, report: Mapping[str, Any]) -> bool:
        """Whether no micro-batch is missing between what was counted and this one."""
        return int(report["batchId"]) <= self._batch + 1

    def add(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """Take the reports that are new."""
        for report in reports:
            if report["timestamp"] <= self._last:
                continue
            self._last = report["timestamp"]
            self.lag = lag_of(report.get("sources") or ())
            if "addBatch" not in (report.get("durationMs") or {}):
                continue  # nothing to do at that time
            self.batches += 1
            self._batch = int(report["batchId"])
            self.rows += rows_of(report)
            self.late_rows += sum(int(one.get("numRowsDroppedByWatermark") or 0) for one in report["stateOperators"])
            self.trigger_ms = int(report["durationMs"].get("triggerExecution", 0))
            if len(self.trigger_ms_all) < TRIGGERS_MAX:
                self.trigger_ms_all.append(self.trigger_ms)
        self._recent.append((time.monotonic(), self.rows))

    def count(self, rows: int, batches: int, trigger_ms: int) -> None:
        """What a pipeline counted itself: those that are no streaming queries."""
        self.rows, self.batches, self.trigger_ms = rows, batches, trigger_ms
        if len(self.trigger_ms_all) < TRIGGERS_MAX:
            self.trigger_ms_all.append(trigger_ms)
        self._recent.append((time.monotonic(), rows))

    @property
    def rows_per_s(self) -> float:
        """Rate of the last seconds."""
        now_s, rows = self._recent[-1]
        while len(self._recent) > 2 and now_s - self._recent[0][0] > RATE_SPAN_S:
            self._recent.popleft()
        begin_s, before = self._recent[0]
        return (rows - before) / (now_s - begin_s) if now_s > begin_s else 0.0

    @property
    def trigger_ms_median(self) -> int:
        """Half of the micro-batches took at most this."""
        return sorted(self.trigger_ms_all)[len(self.trigger_ms_all) // 2] if self.trigger_ms_all else 0

    def line(self) -> str:
        """One line of text."""
        lag = "-" if self.lag is None else f"{self.lag:,}"
        return (
            f"{self.name}: {self.rows:,} rows, {self.rows_per_s:,.0f} rows/s, {self.batches:,} batches, "
            f"lag {lag}, trigger {self.trigger_ms:,} ms"
        )


def rows_of(report: Mapping[str, Any]) -> int:
    """Rows that a micro-batch read from all its sources."""
    return sum(max(0, int(one.get("numInputRows") or 0)) for one in report.get("sources") or ())


def lag_of(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """Records that are committed and not read; None where the sources don't tell."""
    total: int | None = None
    for source in sources:
        latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        if latest is None:
            continue
        behind = sum(max(0, offset - (end or {}).get(shard, 0)) for shard, offset in latest.items())
        total = (total or 0) + behind
    return total


def _offsets(offset: object) -> dict[tuple[str, str], int] | None:
    """``{"topic": {"0": 12}}`` by topic and shard, whether it came as JSON or as a value; None for anything else."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    if not isinstance(offset, Mapping) or not all(isinstance(shards, Mapping) for shards in offset.values()):
        return None
    return {
        (topic, shard): int(value)
        for topic, shards in offset.items()
        for shard, value in shards.items()
        if isinstance(value, int)
    }


class Display:
    """Shows tallies on standard error: a table that moves on a terminal, a line now and then elsewhere."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._moves = not quiet and self._stream.isatty()
        self._live: Live | None = None
        self._next_s = 0.0

    def say(self, text: str) -> None:
        """One line that stays."""
        if self._quiet:
            return
        if self._live is not None:
            self._live.console.print(text, highlight=False, markup=False)
        else:
            print(text, file=self._stream, flush=True)

    def show(self, tallies: Iterable[Tally]) -> None:
        """Show how far the queries are."""
        if self._moves:
            self._table(list(tallies))
        elif not self._quiet and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + LINE_EVERY_S
            for tally in tallies:
                print(tally.line(), file=self._stream, flush=True)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _table(self, tallies: list[Tally]) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("QUERY")
        for heading in ("ROWS", "ROWS/S", "BATCHES", "LAG", "TRIGGER"):
            table.add_column(heading, justify="right", min_width=9)
        for one in tallies:
            lag = "-" if one.lag is None else f"{one.lag:,}"
            table.add_row(
                one.name, f"{one.rows:,}", f"{one.rows_per_s:,.0f}", f"{one.batches:,}", lag, f"{one.trigger_ms:,} ms"
            )
        if self._live is None:
            self._live = Live(console=Console(file=self._stream), auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(table, refresh=True)
