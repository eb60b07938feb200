"""Compares figures with goals. Pure: numbers in, verdicts out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.cases import BROKERS, FLOCKMQ, Case, Goal

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a goal was met; ``met`` is None when that can't be said."""

    goal: Goal
    ratio: float | None
    met: bool | None
    why: str = ""


def judge(case: Case, results: Mapping[str, Figures]) -> list[Verdict]:
    """A verdict for every goal of the case."""
    return [_judge(goal, results) for goal in case.goals]


def _judge(goal: Goal, results: Mapping[str, Figures]) -> Verdict:
    ours = results.get(FLOCKMQ, {})
    value = ours.get(goal.figure)
    if value is None:
        return Verdict(goal, None, None, "not measured")
    base: float | None = 1.0
    if goal.against in BROKERS:
        base = results.get(goal.against, {}).get(goal.figure)
    elif goal.against:
        base = ours.get(goal.against)
    if not base:
        return Verdict(goal, None, None, f"no figure of {goal.against}")
    ratio = value / base
    met = ratio >= goal.factor if goal.relation == "at least" else ratio <= goal.factor
    return Verdict(goal, ratio, met)
