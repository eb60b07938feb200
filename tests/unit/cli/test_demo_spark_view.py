from __future__ import annotations

import io

import pytest
from rich.console import Console

from flockmq.cli.demo_spark_view import BAR_WIDTH, bar, chart, is_complete, spark_summary
from flockmq.client.load.fleet.report import Report
from flockmq.spark.pipelines.beside import Result, Window

REPORT = Report(
    seconds=10.0,
    devices=1,
    online=1,
    published=[5, 60, 40],
    received=[5, 60, 40],
    repeated=[0, 0, 0],
    latency_us_p50=1.0,
    latency_us_p99=1.0,
    commands=0,
    answers=0,
    command_us_p50=0.0,
    wills_due=0,
    wills_seen=0,
    missing=0,
    stored=100,
)
WINDOWS = [
    Window(start_ms=1_700_000_000_000, metric="pieces", count=20, mean=3.0),
    Window(start_ms=1_700_000_000_000, metric="vibration", count=20, mean=2.0),
    Window(start_ms=1_700_000_005_000, metric="vibration", count=60, mean=2.5),
]


def result(readings: int = 100, **fields: object) -> Result:
    columns = ["device", "metric", "count", "mean"]
    rows = [["lyon/line1/robot1", "vibration", 1234, 2.3456]]
    values = {"columns": columns, "rows": rows, "windows": WINDOWS, "files": ["/tmp/x/rollup.png", "/tmp/x/lake"]}
    return Result(readings=readings, **{**values, **fields})  # type: ignore[arg-type]


def drawn(*what: object) -> str:
    stream = io.StringIO()
    Console(file=stream, width=120).print(*what, sep="\n")
    return stream.getvalue()


def test_a_bar_is_as_long_as_its_share() -> None:
    assert bar(1.0) == "█" * BAR_WIDTH
    assert bar(0.5) == "█" * (BAR_WIDTH // 2)
    assert bar(0.0) == ""
    assert bar(1 / (8 * BAR_WIDTH)) == "▏"


def test_the_chart_adds_up_the_metrics_of_a_window() -> None:
    lines = drawn(*chart(WINDOWS)).splitlines()
    assert lines[1].startswith("22:13:20")
    assert [line.split()[-1] for line in lines[1:]] == ["40", "60"]
    assert lines[1].count("█") < lines[2].count("█") == BAR_WIDTH


def test_no_window_is_no_mistake() -> None:
    assert len(chart([])) == 1


def test_the_summary_has_table_chart_and_counts() -> None:
    text = drawn(*spark_summary(REPORT, result()))
    for words in ("lyon/line1/robot1", "1,234", "2.35", "chart: /tmp/x/rollup.png"):
        assert words in text
    assert "acknowledged 100, in the log 100, counted by Spark 100: nothing lost, nothing twice." in text
    assert "/tmp/x/lake" not in text


@pytest.mark.parametrize("readings", [99, 101])
def test_one_record_less_or_more_is_told(readings: int) -> None:
    assert not is_complete(REPORT, result(readings))
    text = drawn(*spark_summary(REPORT, result(readings, late=3)))
    assert "does not agree; 3 groups came too late" in text


def test_an_error_is_told_instead() -> None:
    failed = Result(error="Java is too old.")
    assert not is_complete(REPORT, failed)
    assert drawn(*spark_summary(REPORT, failed)).strip() == "Spark: Java is too old."
