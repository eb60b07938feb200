from __future__ import annotations

import io

import pytest
from rich.console import Console

from flockmq.cli.demo_view import LineView, LiveView, Rates, make_view, sparkline, summary, verdict
from flockmq.client.load.fleet.report import Plan, Report

PLAN = Plan(ports=[1883], devices=3, seconds=20)
WHERE = "2 nodes on 127.0.0.1, MQTT on 1883, 1884"
NODES = [("n1", "running"), ("n2", "killed")]


def report(seconds: float = 10.0, **changed: object) -> Report:
    values: dict[str, object] = {
        "seconds": seconds,
        "devices": 3,
        "online": 2,
        "published": [10, 10, 10],
        "received": [9, 10, 10],
        "repeated": [0, 1, 0],
        "latency_us_p50": 123.0,
        "latency_us_p99": 456.0,
        "commands": 4,
        "answers": 4,
        "command_us_p50": 789.0,
        "wills_due": 1,
        "wills_seen": 1,
        "missing": 0,
        "retained": 3,
        "top": [("plant/berlin/line1/press1/#", 7)],
        "events": ["plant/berlin/line1/press1 dropped off: its will was published"],
        "broker": {"clients/connected": "42"},
    }
    return Report(**{**values, **changed})  # type: ignore[arg-type]


def drawn(what: object) -> str:
    stream = io.StringIO()
    Console(file=stream, width=120).print(what)
    return stream.getvalue()


def test_rates_are_what_came_between_two_reports() -> None:
    rates = Rates()
    rates.update(report(1.0))
    rates.update(report(3.0, published=[20, 20, 20], received=[19, 20, 10]))
    assert (rates.published, rates.received) == (15.0, 10.0)
    assert list(rates.history) == [29.0, 10.0]


def test_a_sparkline_is_full_at_its_highest_value() -> None:
    rates = Rates()
    rates.history.extend([0.0, 5.0, 10.0])
    assert sparkline(rates.history) == " ▄█"


def test_the_picture_shows_what_matters() -> None:
    with LiveView(PLAN, WHERE, Console(file=io.StringIO(), width=120)) as view:
        view.show(report(), NODES)
        assert isinstance(view, LiveView)
        text = drawn(view.picture(report(per_node=[2, 0]), NODES))
    for word in (
        "123 / 456 us",
        "2 of 3",
        "42",
        "plant/berlin/line1/press1/#",
        "its will was published",
        "10 s left",
        "n2 killed",
    ):
        assert word in text


def test_without_a_terminal_there_is_a_line_now_and_then() -> None:
    stream = io.StringIO()
    with make_view(PLAN, WHERE, stream) as view:
        assert isinstance(view, LineView)
        for second in range(1, 8):
            view.show(report(float(second), per_node=[2, 0]), NODES)
    lines = stream.getvalue().splitlines()
    assert "MQTT on 1883, 1884" in lines[0]
    assert "devices n1 2, n2 killed" in lines[1]
    assert [line.split(" s ")[0].strip() for line in lines[1:]] == ["3.0", "6.0"]


def test_spark_has_its_place_in_both_views() -> None:
    line = "Spark: 1,234 rows, 5 batches, lag 6, trigger 78 ms"
    with LiveView(PLAN, WHERE, Console(file=io.StringIO(), width=120)) as view:
        view.wait(line)
        assert isinstance(view, LiveView)
        assert line in drawn(view.picture(report(per_node=[2, 0]), NODES, line))
    stream = io.StringIO()
    with make_view(PLAN, WHERE, stream) as view:
        view.show(report(3.0, per_node=[2, 0]), NODES, line)
        for _ in range(3):
            view.wait(f"{line}; soon")
    lines = stream.getvalue().splitlines()
    assert lines[1].endswith(line)
    assert lines[2:] == [f"         {line}; soon"]


def test_the_summary_sets_promises_against_what_was_kept() -> None:
    text = drawn(summary(report()))
    assert "messages of QoS 2" in text
    assert "commands answered" in text


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "Nothing was lost"),
        ({"missing": 2}, "2 messages of QoS 1 or 2 lost"),
        ({"repeated": [0, 0, 3]}, "3 messages of QoS 2 doubled"),
        ({"answers": 3}, "1 commands unanswered"),
        ({"wills_seen": 0}, "1 wills missing"),
        ({"retained": 1}, "2 retained statuses missing"),
    ],
)
def test_one_broken_promise_is_enough(changed: dict[str, object], words: str) -> None:
    one = report(**changed)  # type: ignore[arg-type]
    assert words in drawn(verdict(one, broker_stopped=True))
    assert one.flawless == (not changed)


def test_what_died_with_a_node_is_told_apart() -> None:
    one = report(nodes_lost=3, excused=2, wills_seen=4)
    assert one.flawless
    assert "but what only the killed node had" in drawn(verdict(one, broker_stopped=True))
    text = drawn(summary(one))
    assert "devices that lost their node" in text
    assert "wills that other nodes published for it" in text


def test_a_broker_that_dies_is_no_success() -> None:
    assert "did not stop in order" in drawn(verdict(report(), broker_stopped=False))
