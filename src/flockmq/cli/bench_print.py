"""What ``flockmq bench`` prints: a line that moves while it runs, and the figures at the end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from flockmq.cli.output import print_fields, print_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.client.load.hold import CrowdOutcome
    from flockmq.client.load.outcome import Outcome
    from flockmq.client.load.plan import Load


def live_rates() -> Callable[[float, int, int], None] | None:
    """A line that shows how it goes, on a terminal only."""
    if not sys.stderr.isatty():
        return None
    last = [0.0, 0, 0]

    def show(seconds: float, sent: int, received: int) -> None:
        if seconds - last[0] < 0.5:
            return
        span = seconds - last[0]
        out, back = (sent - last[1]) / span, (received - last[2]) / span
        print(f"\r{seconds:6.1f} s   out {out:>12,.0f}/s   in {back:>12,.0f}/s", end="", file=sys.stderr, flush=True)
        last[:] = [seconds, sent, received]

    return show


def count_up(as_json: bool, total: int) -> Callable[[int], None] | None:
    """A line that counts connections, on a terminal only."""
    if as_json or not sys.stderr.isatty():
        return None

    def show(count: int) -> None:
        if count % 500 == 0 or count == total:
            end = "\n" if count == total else ""
            print(f"\r{count:,} of {total:,} connections", end=end, file=sys.stderr, flush=True)

    return show


def fields_of(load: Load, outcome: Outcome) -> list[tuple[str, object]]:
    """What is worth saying about this kind of load."""
    fields: list[tuple[str, object]] = []
    if load.publishers:
        fields += [("published", outcome.sent), ("publish rate", f"{outcome.publish_rate:,.0f}/s")]
    if load.subscribers:
        fields += [("received", outcome.received), ("delivery rate", f"{outcome.deliver_rate:,.0f}/s")]
    if load.publishers and load.subscribers:
        fields.append(("lost", outcome.lost))
    if outcome.duplicates:
        fields.append(("marked as duplicates", outcome.duplicates))
    if outcome.refused:
        fields.append(("refused by the broker", outcome.refused))
    fields.append(("elapsed", f"{outcome.elapsed_s:.2f} s"))
    for name, value in (
        ("latency p50", outcome.latency_us_p50),
        ("latency p99", outcome.latency_us_p99),
        ("latency p99.9", outcome.latency_us_p999),
        ("latency max", outcome.latency_us_max),
    ):
        if value is not None:
            fields.append((name, f"{value:,.0f} us"))
    fields.append(("generator busy", f"{outcome.client_busy:.0%} of one processor"))
    if outcome.broker_cpu_s is not None:
        fields.append(("broker CPU time", f"{outcome.broker_cpu_s:.2f} s"))
    if outcome.messages_per_cpu_s is not None:
        fields.append(("messages a broker CPU second", f"{outcome.messages_per_cpu_s:,.0f}"))
    if outcome.broker_memory_kb is not None:
        fields.append(("broker memory", f"{outcome.broker_memory_kb / 1_024:,.1f} MB"))
    return fields


def print_outcome(load: Load, outcome: Outcome) -> None:
    """The figures of a run, for people."""
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print_fields(fields_of(load, outcome))
    remark(outcome)


def remark(outcome: Outcome) -> None:
    """Say so when the figures may be about the generator, not about the broker."""
    if outcome.client_busy > 0.95 and outcome.latency_us_p50 is None:
        print(
            "The generator was busy all the time and may itself be the limit; try --processes 2 on other processors.",
            file=sys.stderr,
        )


def print_crowd(outcome: CrowdOutcome, *, as_json: bool) -> None:
    """The figures of many connections; exit code 1 when the broker dropped some."""
    if as_json:
        print_json(outcome.as_json())
    else:
        fields: list[tuple[str, object]] = [
            ("connections", outcome.connections),
            ("connect rate", f"{outcome.connect_rate:,.0f}/s"),
            ("connect p50", f"{outcome.connect_us_p50 / 1_000:,.1f} ms"),
            ("connect p99", f"{outcome.connect_us_p99 / 1_000:,.1f} ms"),
            ("elapsed", f"{outcome.elapsed_s:.2f} s"),
        ]
        if outcome.dropped:
            fields.append(("dropped by the broker", outcome.dropped))
        if outcome.broker_memory_kb is not None and outcome.kb_per_connection is not None:
            fields.append(("broker memory", f"{outcome.broker_memory_kb / 1_024:,.1f} MB"))
            fields.append(("broker memory a connection", f"{outcome.kb_per_connection:.2f} KB"))
        if outcome.system_kb_per_connection is not None:
            fields.append(("machine memory a connection", f"{outcome.system_kb_per_connection:.2f} KB"))
        print_fields(fields)
    if outcome.dropped:
        raise typer.Exit(1)
