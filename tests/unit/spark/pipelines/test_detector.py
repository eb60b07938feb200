"""One group of a micro-batch: in order of time, whatever order it came in, and with what earlier batches left."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from flockmq.spark.pipelines.baseline import Baseline, Rule, judge
from flockmq.spark.pipelines.detector import Detector

RULE = Rule(threshold=5.0, warm_up=5)
KEY = ("press7", "temperature")


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


def frame(values: dict[int, float]) -> Any:
    times = [pd.Timestamp(1_777_636_800 + second, unit="s") for second in values]
    return pd.DataFrame({"device": "press7", "metric": "temperature", "value": list(values.values()), "time": times})


def alerts(found: Detector, *frames: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for part in found.handleInputRows(KEY, iter(frames), None) for row in part.to_numpy().tolist()]


def test_values_are_judged_in_order_of_time(handle: Handle) -> None:
    usual = {second: 20.0 + second % 3 for second in range(10)}
    shuffled = dict(sorted({**usual, 10: 90.0}.items(), key=lambda item: item[0] * 7 % 11))
    [alert] = alerts(detector(handle), frame(shuffled))
    assert alert[:3] == (*KEY, 90.0)
    assert alert[5] == pd.Timestamp(1_777_636_810, unit="s")
    known = Baseline()
    for value in [*usual.values(), 90.0]:
        known, verdict = judge(known, value, RULE)
    assert alert[3:5] == (verdict.expected, verdict.score)
    assert handle.state.value == tuple(known)


def test_a_group_may_come_in_parts(handle: Handle) -> None:
    whole = {second: 20.0 + second % 3 for second in range(10)}
    alerts(detector(handle), frame(dict(list(whole.items())[5:])), frame(dict(list(whole.items())[:5])))
    parts = handle.state.value
    handle.state.value = None
    alerts(detector(handle), frame(whole))
    assert handle.state.value == parts


def test_the_next_batch_goes_on(handle: Handle) -> None:
    assert alerts(detector(handle), frame({second: 20.0 + second % 3 for second in range(10)})) == []
    assert len(alerts(detector(handle), frame({10: 90.0}))) == 1
    assert handle.state.value is not None
    assert handle.state.value[0] == 11
