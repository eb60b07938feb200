"""How the process beside the demo tells its progress, and when it has read enough; without Spark."""

from __future__ import annotations

import io
import sys
import threading

import msgspec
import pytest

from flockmq.spark.pipelines.beside import Line, Progress, Reporter, Until, say
from flockmq.spark.pipelines.progress import Tally


def told(output: bytes) -> list[Progress]:
    lines = [msgspec.json.decode(line, type=Line) for line in output.splitlines()]
    return [line.progress for line in lines if line.progress is not None]


def tally(rows: int, batches: int, lag: int | None = 0) -> list[Tally]:
    return [Tally("rollup", rows=rows, batches=batches, lag=lag)]


def test_only_what_is_new_is_told(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    reporter = Reporter(threading.Event())
    for state in (tally(0, 0, None), tally(0, 0, None), tally(5, 1, 2), tally(5, 1, 2), tally(5, 1, 0)):
        reporter.show(state)
    found = told(capsysbinary.readouterr().out)
    assert [(one.rows, one.batches, one.lag) for one in found] == [(0, 0, None), (5, 1, 2), (5, 1, 0)]


def test_it_ends_one_batch_after_all_records_were_read() -> None:
    enough = threading.Event()
    reporter = Reporter(enough)
    reporter.show(tally(10, 1))
    reporter.until = Until(records=11)
    reporter.show(tally(10, 2))
    reporter.show(tally(10, 3))
    assert not enough.is_set()
    reporter.show(tally(11, 4))
    reporter.show(tally(11, 4))
    assert not enough.is_set()
    reporter.show(tally(11, 5))
    assert enough.is_set()


def listen(monkeypatch: pytest.MonkeyPatch, text: bytes) -> tuple[Reporter, threading.Event]:
    enough = threading.Event()
    reporter = Reporter(enough)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    reporter.listen()
    return reporter, enough


def test_the_end_is_told_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    reporter, enough = listen(monkeypatch, b'{"records": 7}\n')
    assert reporter.until == Until(records=7)
    assert not enough.is_set()


def test_it_ends_with_whoever_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reporter, enough = listen(monkeypatch, b"")
    assert reporter.until is None
    assert enough.is_set()


def test_a_line_says_only_what_it_has(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    say(Line(progress=Progress(rows=1, batches=1, lag=None, rows_per_s=0.5, trigger_ms=9)))
    assert b"result" not in capsysbinary.readouterr().out
