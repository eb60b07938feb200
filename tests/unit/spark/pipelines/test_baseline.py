"""What is usual is learned, what is strange is found, and what is strange does not become usual at once."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.spark.pipelines.baseline import Baseline, Rule, Verdict, judge

FINITE = st.floats(min_value=-1e9, max_value=1e9)


def follow(values: list[float], rule: Rule) -> tuple[Baseline, list[Verdict]]:
    known = Baseline()
    verdicts = []
    for value in values:
        known, verdict = judge(known, value, rule)
        verdicts.append(verdict)
    return known, verdicts


def noise(count: int, mean: float = 20.0, deviation: float = 0.5, seed: int = 1) -> list[float]:
    source = random.Random(seed)
    return [source.gauss(mean, deviation) for _ in range(count)]


def test_a_plain_average_is_learned_first() -> None:
    values = noise(20)
    known, _ = follow(values, Rule(weight=0.001))
    assert known.values == 20
    assert known.mean == pytest.approx(statistics.mean(values))
    assert known.variance == pytest.approx(statistics.pvariance(values))


def test_a_spike_is_found_and_told_from_what_was_expected() -> None:
    _, verdicts = follow([*noise(200), 40.0], Rule())
    assert not any(one.is_strange for one in verdicts[:-1])
    assert verdicts[-1].is_strange
    assert verdicts[-1].expected == pytest.approx(20.0, abs=0.5)
    assert verdicts[-1].score > 20


def test_a_fall_has_a_negative_score() -> None:
    _, verdicts = follow([*noise(200), 0.0], Rule())
    assert verdicts[-1].score < -20


def test_nothing_is_strange_while_learning() -> None:
    _, verdicts = follow([1.0] * 9 + [1e6], Rule(warm_up=10))
    assert not any(one.is_strange for one in verdicts)
    _, verdicts = follow([1.0] * 10 + [1e6], Rule(warm_up=10))
    assert verdicts[-1].is_strange


def test_one_spike_does_not_hide_the_next() -> None:
    _, verdicts = follow([*noise(200), 40.0, 20.0, 40.0], Rule())
    assert [one.is_strange for one in verdicts[-3:]] == [True, False, True]


def test_a_lasting_change_is_learned() -> None:
    _, verdicts = follow([*noise(200), *noise(300, mean=40.0)], Rule())
    strange = [one.is_strange for one in verdicts]
    assert strange[200]
    assert not any(strange[-200:])


def test_what_never_moves_is_not_strange_for_its_last_digit() -> None:
    _, verdicts = follow([*([100.0] * 100), 100.0001], Rule())
    assert not verdicts[-1].is_strange
    _, verdicts = follow([*([100.0] * 100), 101.0], Rule())
    assert verdicts[-1].is_strange


@given(st.lists(FINITE, max_size=200), st.floats(min_value=0.01, max_value=1.0))
def test_the_state_stays_sane(values: list[float], weight: float) -> None:
    known, verdicts = follow(values, Rule(weight=weight, warm_up=2))
    assert known.values == len(values)
    assert known.variance >= 0
    assert abs(known.mean) <= 1e10
    assert all(one.score == one.score for one in verdicts)
