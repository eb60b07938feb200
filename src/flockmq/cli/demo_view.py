"""How the demo looks: a picture that changes on a terminal, a line every few seconds anywhere else.

Reports come in, pictures go out; nothing here knows how they were made.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from flockmq.cli.demo_spark_view import spark_summary
from flockmq.server.build import build_kind

if TYPE_CHECKING:
    from flockmq.client.load.fleet.report import Plan, Report
    from flockmq.spark.pipelines.beside import Result

NodeState = tuple[str, str]
"""A node's name, and how it is."""
BARS: Final = " ▁▂▃▄▅▆▇█"
HISTORY: Final = 40
EVENTS_SHOWN: Final = 5
LINE_INTERVAL_S: Final = 3.0


class Rates:
    """Messages a second, out of counts that only grow."""

    def __init__(self) -> None:
        self.published = 0.0
        self.received = 0.0
        self.history: deque[float] = deque(maxlen=HISTORY)
        self._last: Report | None = None

    def update(self, report: Report) -> None:
        """Take in the next report."""
        before = self._last
        span = report.seconds - (before.seconds if before else 0.0)
        if span <= 0:
            return
        self.published = (sum(report.published) - sum(before.published if before else [0])) / span
        self.received = (sum(report.received) - sum(before.received if before else [0])) / span
        self.history.append(self.received)
        self._last = report


def sparkline(values: deque[float]) -> str:
    """Values as a row of bars, the highest one full."""
    top = max(values, default=0.0) or 1.0
    return "".join(BARS[round(value / top * (len(BARS) - 1))] for value in values)


class View:
    """What both kinds of view share."""

    def __init__(self, plan: Plan, where: str, console: Console) -> None:
        self._plan = plan
        self._where = where
        self._console = console
        self._rates = Rates()

    def __enter__(self) -> View:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to tidy up."""

    def show(self, report: Report, nodes: Sequence[NodeState], spark: str = "") -> None:
        """Show how things stand with the fleet, the nodes and Spark."""
        raise NotImplementedError

    def wait(self, text: str) -> None:
        """Show what is waited for when the fleet is done."""
        raise NotImplementedError

    def summarize(self, report: Report, *, broker_stopped: bool, result: Result | None = None) -> None:
        """Print what came of it."""
        self._console.print(summary(report))
        if result is not None:
            self._console.print(*spark_summary(report, result), sep="\n", soft_wrap=True)
        self._console.print(verdict(report, broker_stopped=broker_stopped))

    def headline(self) -> str:
        """Where everything is."""
        return f"FlockMQ ({build_kind()}): {self._where}; {self._plan.devices} devices, {self._plan.seconds:g} s"


class LineView(View):
    """For logs and pipes."""

    def __enter__(self) -> View:
        self._console.print(self.headline(), soft_wrap=True)
        self._shown_s = 0.0
        self._waited_s = 0.0
        return self

    def show(self, report: Report, nodes: Sequence[NodeState], spark: str = "") -> None:
        """Print a line, every few seconds; what happens to nodes at once."""
        self._rates.update(report)
        for event in report.events:
            if "@" in event:
                self._console.print(f"         {event}", soft_wrap=True)
        if report.last or report.seconds - self._shown_s < LINE_INTERVAL_S:
            return
        self._shown_s = report.seconds
        self._console.print(
            f"{report.seconds:5.1f} s  {report.online}/{report.devices} online  in {self._rates.published:,.0f}/s  "
            f"out {self._rates.received:,.0f}/s  p50 {report.latency_us_p50:,.0f} us  "
            f"commands {report.answers}/{report.commands}  wills {report.wills_seen}  "
            f"devices {_spread(report, nodes)}" + (f"  {spark}" if spark else ""),
            soft_wrap=True,
        )

    def wait(self, text: str) -> None:
        """Print a line, every few seconds."""
        if time.monotonic() - self._waited_s >= LINE_INTERVAL_S:
            self._waited_s = time.monotonic()
            self._console.print(f"         {text}", soft_wrap=True)


class LiveView(View):
    """For people at a terminal."""

    def __enter__(self) -> View:
        self._recent: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._live = Live(Text("connecting ..."), console=self._console, refresh_per_second=8, transient=True)
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def show(self, report: Report, nodes: Sequence[NodeState], spark: str = "") -> None:
        """Redraw."""
        if report.last:
            return
        self._rates.update(report)
        self._recent.extend(report.events)
        self._live.update(self.picture(report, nodes, spark))

    def wait(self, text: str) -> None:
        """Redraw."""
        self._live.update(Panel(Text(text, style="cyan"), title=self.headline()))

    def picture(self, report: Report, nodes: Sequence[NodeState], spark: str = "") -> RenderableType:
        """Everything at a glance."""
        columns = Table.grid(padding=(0, 3), expand=True)
        columns.add_column(ratio=1)
        columns.add_column(ratio=1)
        columns.add_row(self._figures(report), self._busiest(report))
        events = "\n".join(self._recent) or "waiting for a device to drop off ..."
        left = max(0.0, self._plan.seconds - report.seconds)
        return Panel(
            Group(
                _node_line(report, nodes),
                Text(spark, style="cyan"),
                columns,
                Text(),
                Text(sparkline(self._rates.history), style="green"),
                Text(events, style="dim"),
            ),
            title=self.headline(),
            subtitle=f"{left:.0f} s left, Ctrl-C ends it earlier",
        )

    def _figures(self, report: Report) -> Table:
        table = _plain_table()
        broker = report.broker
        rows = [
            ("messages in", f"{self._rates.published:,.0f}/s"),
            ("messages out", f"{self._rates.received:,.0f}/s"),
            ("latency p50 / p99", f"{report.latency_us_p50:,.0f} / {report.latency_us_p99:,.0f} us"),
            ("devices online", f"{report.online} of {report.devices}"),
            ("connections", broker.get("clients/connected", "-")),
            ("retained messages", broker.get("retained/count", "-")),
            ("commands answered", f"{report.answers} of {report.commands}"),
            ("command p50", f"{report.command_us_p50:,.0f} us"),
            ("wills published", f"{report.wills_seen} of {report.wills_due}"),
            ("QoS 1, 2 under way", str(report.missing)),
        ]
        for row in rows:
            table.add_row(*row)
        return table

    @staticmethod
    def _busiest(report: Report) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("busiest", overflow="ellipsis", no_wrap=True)
        table.add_column("messages", justify="right")
        for topic, count in report.top:
            table.add_row(Text(topic), f"{count}")
        return table


def _spread(report: Report, nodes: Sequence[NodeState]) -> str:
    pairs = zip(nodes, report.per_node, strict=False)
    return ", ".join(f"{name} {'killed' if state == 'killed' else count}" for (name, state), count in pairs)


def _node_line(report: Report, nodes: Sequence[NodeState]) -> Text:
    """The nodes in a row: green while they run, red when killed."""
    line = Text()
    for (name, state), count in zip(nodes, report.per_node, strict=False):
        style = "bold red" if state == "killed" else "bold green"
        line.append("● ", style=style)
        line.append(f"{name} ", style="bold")
        line.append(f"{'killed' if state == 'killed' else f'{count} devices'}    ")
    return line


def _plain_table() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(justify="right")
    return table


def summary(report: Report) -> Table:
    """The figures of the whole run."""
    table = Table(title="What came of it", title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in ("", "promised", "kept", "repeated"):
        table.add_column(column, justify="left" if not column else "right")
    for qos in range(3):
        table.add_row(
            f"messages of QoS {qos}",
            f"{report.published[qos]:,}",
            f"{report.received[qos]:,}",
            f"{report.repeated[qos]:,}",
        )
    if report.stored or report.unstored:
        acknowledged = report.published[1] + report.published[2]
        table.add_row("stored, read back from another node", f"{acknowledged:,}", f"{report.stored:,}", "")
    table.add_row("commands answered", f"{report.commands:,}", f"{report.answers:,}", "")
    table.add_row("wills published", f"{report.wills_due:,}", f"{min(report.wills_seen, report.wills_due):,}", "")
    table.add_row("retained statuses found", f"{report.devices:,}", f"{report.retained:,}", "")
    if report.nodes_lost:
        table.add_row("devices that lost their node", "", f"{report.nodes_lost:,}", "")
        table.add_row("wills that other nodes published for it", "", f"{report.wills_seen - report.wills_due:,}", "")
        table.add_row("in that node's hands, lost with it", "", f"{report.excused:,}", "")
    table.add_row("latency p50 / p99", "", f"{report.latency_us_p50:,.0f} / {report.latency_us_p99:,.0f} us", "")
    return table


def verdict(report: Report, *, broker_stopped: bool) -> Text:
    """One sentence."""
    if not broker_stopped:
        return Text("The broker did not stop in order.", style="bold red")
    if report.flawless:
        if report.excused:
            return Text("Nothing was lost but what only the killed node had.", style="bold green")
        return Text("Nothing was lost.", style="bold green")
    broken = {
        "messages of QoS 1 or 2 lost": report.missing,
        "acknowledged messages not in the log": report.unstored,
        "messages of QoS 2 doubled": report.repeated[2],
        "commands unanswered": report.commands - report.answers,
        "wills missing": max(0, report.wills_due - report.wills_seen),
        "retained statuses missing": report.devices - report.retained,
    }
    found = ", ".join(f"{count} {what}" for what, count in broken.items() if count)
    return Text(f"Promises were broken: {found}.", style="bold red")


def make_view(plan: Plan, where: str, stream: TextIO) -> View:
    """The view that suits where the output goes."""
    console = Console(file=stream, highlight=False)
    return LiveView(plan, where, console) if console.is_terminal else LineView(plan, where, console)
