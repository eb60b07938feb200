"""What Spark computed, for the terminal: a table, bars for windows of time, and whether it counted everything."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from flockmq.cli.demo_spark import WINDOW_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from flockmq.client.load.fleet.report import Report
    from flockmq.spark.pipelines.beside import Result, Window

ROWS_SHOWN: Final = 8
WINDOWS_SHOWN: Final = 16
BAR_WIDTH: Final = 40
EIGHTHS: Final = " ▏▎▍▌▋▊▉"


def is_complete(report: Report, result: Result) -> bool:
    """Whether Spark counted every record of the log, no more and no less."""
    return not result.error and result.readings == report.stored


def spark_summary(report: Report, result: Result) -> list[RenderableType]:
    """All of it, in the order in which it is printed."""
    if result.error:
        return [Text(f"Spark: {result.error}", style="bold red")]
    return [
        Text(),
        _table(result),
        Text(),
        *chart(result.windows),
        Text(),
        _counts(report, result),
        *[Text(f"chart: {file}") for file in result.files if file.endswith((".png", ".html"))],
    ]


def _table(result: Result) -> Table:
    title = f"What Spark computed of it ({len(result.rows)} of the busiest devices and metrics)"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in result.columns:
        table.add_column(column, justify="left" if column in ("device", "metric") else "right")
    for row in result.rows[:ROWS_SHOWN]:
        table.add_row(*(_cell(value) for value in row))
    return table


def _cell(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def chart(windows: Sequence[Window]) -> list[Text]:
    """A bar for each window of time: how many readings came in it."""
    counts: dict[int, int] = {}
    for one in windows:
        counts[one.start_ms] = counts.get(one.start_ms, 0) + one.count
    shown = sorted(counts.items())[-WINDOWS_SHOWN:]
    top = max((count for _, count in shown), default=1)
    lines = [Text(f"Readings in each window of {WINDOW_S} s", style="bold")]
    for start_ms, count in shown:
        at = datetime.fromtimestamp(start_ms / 1_000, UTC).strftime("%H:%M:%S")
        line = Text(f"{at}  ")
        line.append(bar(count / top), style="green")
        line.append(f" {count:,}")
        lines.append(line)
    return lines


def bar(share: float) -> str:
    """A bar as long as a share of the whole, to an eighth of a letter."""
    eighths = round(share * BAR_WIDTH * 8)
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def _counts(report: Report, result: Result) -> Text:
    acknowledged = report.published[1] + report.published[2]
    text = f"acknowledged {acknowledged:,}, in the log {report.stored:,}, counted by Spark {result.readings:,}"
    if is_complete(report, result):
        return Text(f"{text}: nothing lost, nothing twice.", style="bold green")
    late = f"; {result.late:,} groups came too late for their window" if result.late else ""
    return Text(f"{text}: that does not agree{late}.", style="bold red")
