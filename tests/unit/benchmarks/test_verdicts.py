from __future__ import annotations

import pytest
from benchmarks.cases import CASES, FLOCKMQ, MOSQUITTO, NATS, Goal
from benchmarks.verdicts import Figures, judge

BY_NAME = {case.name: case for case in CASES}


@pytest.mark.parametrize(
    ("name", "results", "met"),
    [
        ("qos0-1-1", {FLOCKMQ: {"rate": 1000}, MOSQUITTO: {"rate": 100}, NATS: {"rate": 1000}}, [True, True]),
        ("qos0-1-1", {FLOCKMQ: {"rate": 999}, MOSQUITTO: {"rate": 100}, NATS: {"rate": 1000}}, [False, False]),
        ("qos0-1-1", {FLOCKMQ: {"rate": 999}, MOSQUITTO: {"rate": 10}}, [True, None]),
        ("fan-out", {MOSQUITTO: {"rate": 10}}, [None]),
        ("latency", {FLOCKMQ: {"p50_us": 60, "p99_us": 300}, MOSQUITTO: {"p50_us": 60, "p99_us": 149}}, [True, False]),
        ("memory", {FLOCKMQ: {"kb": 4.0}}, [True]),
        ("memory", {FLOCKMQ: {"kb": 4.1}}, [False]),
        ("wildcards-fresh", {FLOCKMQ: {"few_us": 1.0, "many_us": 2.0}}, [True]),
        ("wildcards-fresh", {FLOCKMQ: {"few_us": 1.0, "many_us": 2.1}}, [False]),
        ("wildcards-fresh", {FLOCKMQ: {"many_us": 2.1}}, [None]),
    ],
)
def test_a_goal_is_met_missed_or_unknown(name: str, results: dict[str, Figures], met: list[bool | None]) -> None:
    assert [verdict.met for verdict in judge(BY_NAME[name], results)] == met


def test_every_line_of_the_table_can_be_judged() -> None:
    assert len(BY_NAME) == len(CASES)
    for case in CASES:
        assert FLOCKMQ in case.brokers
        assert case.goals
        for goal in case.goals:
            assert goal.against in {"", "few_us", *case.brokers}


@pytest.mark.parametrize(
    ("goal", "text"),
    [
        (Goal("rate", "at least", 10, MOSQUITTO), ">= 10x mosquitto"),
        (Goal("rate", "at least", 1, NATS), ">= nats"),
        (Goal("p99_us", "at most", 2, MOSQUITTO), "p99 <= 2x mosquitto"),
        (Goal("kb", "at most", 4), "<= 4 KB"),
        (Goal("many_us", "at most", 2, "few_us"), "<= 2x with 100"),
    ],
)
def test_a_goal_says_what_it_wants(goal: Goal, text: str) -> None:
    assert str(goal) == text
