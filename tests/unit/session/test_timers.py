from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flockmq.session.timers import GRAIN_MS, TimerWheel


def test_fires_once_not_early_and_at_most_a_grain_late() -> None:
    wheel = TimerWheel(0)
    wheel.add(1_050, 1, "x")
    assert wheel.due(1_049) == []
    assert [timer.subject for timer in wheel.due(1_050 + GRAIN_MS)] == ["x"]
    assert wheel.due(10_000) == []
    assert wheel.count == 0


def test_a_deadline_in_the_past_is_due_at_the_next_call() -> None:
    wheel = TimerWheel(0)
    assert wheel.due(5_000) == []
    wheel.add(1, 1, "late")
    assert [timer.subject for timer in wheel.due(5_100)] == ["late"]


def test_cancelled_timers_leave_nothing_behind() -> None:
    wheel = TimerWheel(0)
    timers = [wheel.add(1_000_000_000 + number, 1, number) for number in range(1_000)]
    for timer in timers:
        wheel.cancel(timer)
        wheel.cancel(timer)
    wheel.cancel(None)
    assert wheel.count == 0
    assert wheel.slots == {}


def test_a_timer_can_be_taken_back_after_it_was_handed_out() -> None:
    wheel = TimerWheel(0)
    early, late = wheel.add(100, 1, "early"), wheel.add(100, 1, "late")
    assert wheel.due(200) == [early, late]
    wheel.cancel(late)
    assert [timer.is_off for timer in (early, late)] == [False, True]
    assert wheel.count == 0


@given(
    deadlines=st.lists(st.integers(0, 100_000), max_size=50),
    steps=st.lists(st.integers(1, 30_000), min_size=1, max_size=20),
)
def test_against_the_obvious(deadlines: list[int], steps: list[int]) -> None:
    wheel = TimerWheel(0)
    for deadline in deadlines:
        wheel.add(deadline, 1, deadline)
    left = sorted(deadlines)
    now = 0
    for step in steps:
        now += step
        fired = [timer.subject for timer in wheel.due(now)]
        assert all(isinstance(deadline, int) and deadline <= now for deadline in fired)
        overdue = [deadline for deadline in left if deadline <= now - GRAIN_MS]
        assert set(overdue) <= set(fired)
        for subject in fired:
            assert isinstance(subject, int)
            left.remove(subject)
    assert wheel.count == len(left)
