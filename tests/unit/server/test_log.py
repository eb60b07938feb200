from __future__ import annotations

import io
import json
import logging
import threading

import pytest

from flockmq.server.log import Log, LogHandler, console_line, json_line


def lines_of(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_json_line() -> None:
    line = json_line((1_700_000_000.5, "info", "connected", {"client_id": "a\n\x7fü", "topic": b"a/b", "count": 3}))
    assert line == (
        '{"time":"2023-11-14T22:13:20.500Z","level":"info","event":"connected",'
        '"client_id":"a\\n\\u007f\\u00fc","topic":"a/b","count":3}'
    )


def test_a_console_line() -> None:
    fields = {"client_id": 'a "b"\n', "ok": True, "empty": "", "where": ["127.0.0.1:1", "[::1]:1"]}
    assert console_line((1_700_000_000.5, "warning", "refused", fields)) == (
        '2023-11-14 22:13:20.500 WARNING refused client_id="a \\"b\\"\\n" ok=true empty="" where=127.0.0.1:1,[::1]:1'
    )


@pytest.mark.parametrize("line", [json_line, console_line])
@pytest.mark.parametrize("evil", ["\n", "\r", "\x1b[2J", "\u2028", "\x85", "\u202e", "\x00"])
def test_client_input_stays_on_its_line(line: object, evil: str) -> None:
    assert callable(line)
    written = line((0.0, "info", "x", {"client_id": f"a{evil}b"}))
    assert written.isprintable()
    assert len(written.splitlines()) == 1


@pytest.mark.parametrize("line", [json_line, console_line])
def test_secrets_are_not_written(line: object) -> None:
    assert callable(line)
    written = line((0.0, "info", "x", {"password": "hunter2", "admin_token": "t0k3n", "password_file": "/etc/pw"}))
    assert "hunter2" not in written
    assert "t0k3n" not in written
    assert "/etc/pw" in written


def test_below_the_level_nothing_is_written() -> None:
    stream = io.StringIO()
    log = Log(stream, json_line, level="warning")
    log.start()
    log.event("info", "quiet")
    log.event("error", "loud")
    log.stop()
    assert [line["event"] for line in lines_of(stream)] == ["loud"]


class StuckStream(io.StringIO):
    """Blocks its writer until let go, as a pipe does that nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.writing = threading.Event()
        self.let_go = threading.Event()

    def write(self, text: str) -> int:
        self.writing.set()
        self.let_go.wait()
        return super().write(text)


def test_a_reader_that_hangs_costs_a_bounded_queue_and_nothing_else() -> None:
    stream = StuckStream()
    log = Log(stream, json_line, queue_events_max=10)
    log.start()
    log.event("info", "first")
    assert stream.writing.wait(10)
    for _ in range(15):
        log.event("info", "more")
    stream.let_go.set()
    log.stop(10)
    events = lines_of(stream)
    assert [line["event"] for line in events] == ["first", *["more"] * 10, "log_dropped"]
    assert events[-1]["events"] == 5


def test_a_storm_is_cut_to_the_rate_but_warnings_pass() -> None:
    stream = io.StringIO()
    log = Log(stream, json_line, events_per_s_max=3, clock=lambda: 100.0)
    for _ in range(10):
        log.event("info", "storm")
    log.event("warning", "important")
    log.start()
    log.stop()
    assert [line["event"] for line in lines_of(stream)] == ["storm", "storm", "storm", "important", "log_dropped"]
    assert lines_of(stream)[-1]["events"] == 7


def test_a_closed_stream_is_no_reason_to_fail() -> None:
    stream = io.StringIO()
    stream.close()
    log = Log(stream, json_line)
    log.start()
    log.event("error", "x")
    log.stop()


def test_what_libraries_log_is_one_line_too() -> None:
    stream = io.StringIO()
    log = Log(stream, json_line)
    logger = logging.Logger("library")
    logger.addHandler(LogHandler(log))
    try:
        raise ValueError("bad\nthing")
    except ValueError:
        logger.exception("It failed")
    logger.info("not worth it")
    log.start()
    log.stop()
    (line,) = lines_of(stream)
    assert (line["level"], line["logger"], line["message"]) == ("error", "library", "It failed")
    assert line["error"] == "ValueError('bad\\nthing')"
    assert "test_log.py" in str(line["at"])
