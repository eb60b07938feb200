"""Virtual time: order of events, and that nothing but events moves it."""

from __future__ import annotations

from flockmq.testing.simulation.clock import NodeClock
from flockmq.testing.simulation.events import EventQueue


def test_events_happen_by_time_then_in_the_order_they_were_asked_for() -> None:
    queue = EventQueue()
    seen: list[tuple[str, int]] = []
    queue.at(20, lambda: seen.append(("late", queue.now)))
    queue.at(10, lambda: seen.append(("first", queue.now)))
    queue.at(10, lambda: seen.append(("second", queue.now)))
    queue.run_until(15)
    assert seen == [("first", 10), ("second", 10)]
    assert queue.now == 15
    queue.run_until(30)
    assert seen[-1] == ("late", 20)


def test_an_event_may_ask_for_more_within_the_same_run() -> None:
    queue = EventQueue()
    seen: list[int] = []

    def again(left: int) -> None:
        seen.append(queue.now)
        if left:
            queue.after(5, again, left - 1)

    queue.at(0, again, 3)
    queue.run_until(100)
    assert seen == [0, 5, 10, 15]
    assert queue.worked_on == 4


def test_a_clock_errs_drifts_and_jumps() -> None:
    queue = EventQueue()
    clock = NodeClock(queue, error_ms=500, drift_ppm=10_000)
    assert clock.now_ms() == 500
    queue.run_until(10_000_000)
    assert clock.now_ms() == 10_600
    clock.jump(-4_000)
    assert clock.now_ms() == 6_600
