"""Deadlines: in order, once, and none at all for 0."""

from __future__ import annotations

from flockmq.drivers.deadlines import Deadlines


class Waiter:
    def __init__(self, name: str, told: list[str]) -> None:
        self.name = name
        self.told = told

    def deadline_passed(self) -> None:
        self.told.append(self.name)


def test_each_is_told_once_when_its_time_is_up() -> None:
    told: list[str] = []
    deadlines = Deadlines(100)
    deadlines.begin(Waiter("a", told), 0)
    deadlines.begin(Waiter("b", told), 50)
    deadlines.expire(99)
    assert told == []
    deadlines.expire(100)
    assert told == ["a"]
    deadlines.expire(1000)
    deadlines.expire(2000)
    assert told == ["a", "b"]


def test_all_can_be_ended_early() -> None:
    told: list[str] = []
    deadlines = Deadlines(100)
    deadlines.begin(Waiter("a", told), 0)
    deadlines.end_all()
    deadlines.expire(1000)
    assert told == ["a"]


def test_zero_means_never() -> None:
    told: list[str] = []
    deadlines = Deadlines(0)
    deadlines.begin(Waiter("a", told), 0)
    deadlines.expire(1 << 60)
    assert told == []
