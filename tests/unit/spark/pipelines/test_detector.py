"""One group of a micro-batch: in order of time, whatever order it came in, and with what earlier batches left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import Row

from flockmq.spark.pipelines.baseline import Baseline, Rule, judge
from flockmq.spark.pipelines.detector import Detector

RULE = Rule(threshold=5.0, warm_up=5)
KEY = ("press7", "temperature")
BEGIN = datetime(2026, 5, 1, 12, tzinfo=UTC)


class State:
    """Stands for Spark's value state: one tuple."""

    def __init__(self) -> None:
        self.value: tuple[Any, ...] | None = None

    def get(self) -> tuple[Any, ...] | None:
        return self.value

    def update(self, value: tuple[Any, ...]) -> None:
        self.value = value


class Handle:
    """Stands for Spark's handle."""

    def __init__(self) -> None:
        self.state = State()

    def getValueState(self, _name: str, _schema: str) -> State:  # noqa: N802 (Spark's name)
        return self.state


@pytest.fixture
def handle() -> Handle:
    return Handle()


def detector(handle: Handle) -> Detector:
    found = Detector(RULE)
    found.init(handle)  # type: ignore[arg-type]
    return found


def rows(values: dict[int, float]) -> list[Row]:
    made = Row("device", "metric", "value", "time")
    return [made(*KEY, value, BEGIN + timedelta(seconds=second)) for second, value in values.items()]


def alerts(found: Detector, values: dict[int, float]) -> list[Row]:
    return list(found.handleInputRows(KEY, iter(rows(values)), None))


def test_values_are_judged_in_order_of_time(handle: Handle) -> None:
    usual = {second: 20.0 + second % 3 for second in range(10)}
    shuffled = dict(sorted({**usual, 10: 90.0}.items(), key=lambda item: item[0] * 7 % 11))
    [alert] = alerts(detector(handle), shuffled)
    assert alert.asDict().keys() == {"device", "metric", "value", "expected", "score", "time"}
    assert alert[:3] == (*KEY, 90.0)
    assert alert.time == BEGIN + timedelta(seconds=10)
    known = Baseline()
    for value in [*usual.values(), 90.0]:
        known, verdict = judge(known, value, RULE)
    assert alert[3:5] == (verdict.expected, verdict.score)
    assert handle.state.value == tuple(known)


def test_the_next_batch_goes_on(handle: Handle) -> None:
    assert alerts(detector(handle), {second: 20.0 + second % 3 for second in range(10)}) == []
    assert len(alerts(detector(handle), {10: 90.0})) == 1
    assert handle.state.value is not None
    assert handle.state.value[0] == 11
