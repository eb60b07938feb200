from __future__ import annotations

import io
import json
from typing import Any

from flockmq.spark.pipelines.progress import Display, Tally, lag_of


def report(second: int, rows: int, *, end: int, latest: int, worked: bool = True, dropped: int = 0) -> dict[str, Any]:
    return {
        "batchId": second - 1,
        "timestamp": f"2026-03-01T12:00:{second:02}.000Z",
        "durationMs": {"triggerExecution": 100 + second, **({"addBatch": 1} if worked else {})},
        "stateOperators": [{"numRowsDroppedByWatermark": dropped}],
        "sources": [
            {
                "numInputRows": rows,
                "endOffset": json.dumps({"t": {"0": end}}),
                "latestOffset": json.dumps({"t": {"0": latest}}),
            }
        ],
    }


def test_a_micro_batch_that_was_missed_is_noticed() -> None:
    tally = Tally("q")
    assert tally.is_next(report(1, 5, end=5, latest=5))
    tally.add([report(1, 5, end=5, latest=5)])
    assert tally.is_next(report(1, 5, end=5, latest=5)), "the same once more"
    assert tally.is_next(report(2, 0, end=5, latest=5, worked=False)), "nothing to do since"
    assert not tally.is_next(report(3, 5, end=15, latest=15))


def test_a_report_counts_once() -> None:
    tally = Tally("q")
    first, second = report(1, 10, end=10, latest=30), report(2, 20, end=30, latest=30, dropped=3)
    tally.add([first])
    assert (tally.rows, tally.batches, tally.lag, tally.trigger_ms) == (10, 1, 20, 101)
    tally.add([first, second, report(3, 0, end=30, latest=31, worked=False)])
    assert (tally.rows, tally.batches, tally.lag, tally.trigger_ms, tally.late_rows) == (30, 2, 1, 102, 3)
    assert tally.trigger_ms_median == 102
    assert "30 rows" in tally.line()
    assert "lag 1," in tally.line()


def test_lag_is_what_all_sources_have_left() -> None:
    sources: list[dict[str, Any]] = [
        {"endOffset": {"a": {"0": 5}}, "latestOffset": {"a": {"0": 7, "1": 4}}},
        {"endOffset": None, "latestOffset": '{"b": {"0": 2}}'},
        {"endOffset": "7", "latestOffset": "9"},
        {"endOffset": "x", "latestOffset": "not json"},
    ]
    assert lag_of(sources) == 2 + 4 + 2
    assert lag_of([{"endOffset": "7", "latestOffset": None}]) is None


def test_elsewhere_than_on_a_terminal_there_are_lines_now_and_then() -> None:
    out = io.StringIO()
    display = Display(out)
    display.say("begin")
    tally = Tally("q")
    display.show([tally])
    display.show([tally])
    display.close()
    assert out.getvalue().splitlines() == ["begin", tally.line()]


def test_programs_are_not_disturbed() -> None:
    out = io.StringIO()
    display = Display(out, quiet=True)
    display.say("begin")
    display.show([Tally("q")])
    assert out.getvalue() == ""
