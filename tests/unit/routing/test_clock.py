from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flockmq.routing.clock import AHEAD_MS_MAX, HybridClock, stamp_at, stamp_wall_ms


def test_a_stamp_tells_when_it_was_made() -> None:
    clock = HybridClock()
    assert stamp_wall_ms(clock.next(1_772_366_400_000)) == 1_772_366_400_000
    assert stamp_at(5) == 5 << 16
    assert stamp_at(-5) == 0


@given(st.lists(st.integers(0, 20), max_size=50))
def test_stamps_of_a_clock_only_grow_whatever_the_wall_clock_does(walls: list[int]) -> None:
    clock = HybridClock()
    made = [clock.next(wall) for wall in walls]
    assert made == sorted(set(made))


def test_more_stamps_than_the_counter_holds_run_over_into_the_next_millisecond() -> None:
    clock = HybridClock()
    last = max(clock.next(7) for _ in range(1 + (1 << 16)))
    assert stamp_wall_ms(last) == 8
    assert clock.next(7) > last


def test_a_change_by_somebody_who_saw_another_one_is_the_later_one() -> None:
    ahead, behind = HybridClock(), HybridClock()
    first = ahead.next(50_000)
    assert behind.observe(first, 10_000)
    assert behind.next(10_000) > first


def test_a_stamp_too_far_ahead_is_refused_and_moves_nothing() -> None:
    clock = HybridClock()
    assert clock.observe(stamp_at(AHEAD_MS_MAX), 0)
    before = clock.latest
    assert not clock.observe(stamp_at(AHEAD_MS_MAX + 1), 0)
    assert (clock.refused, clock.latest) == (1, before)
    assert clock.observe(stamp_at(AHEAD_MS_MAX + 1), 1)


def test_after_a_restart_stamps_go_on_where_they_were_also_when_the_clock_was_set_back() -> None:
    clock = HybridClock()
    clock.resume(stamp_at(9_000_000))
    assert clock.next(5) > stamp_at(9_000_000)
    clock.resume(3)
    assert clock.next(5) > stamp_at(9_000_000)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 30)), max_size=60))
def test_what_happened_before_has_the_lower_stamp(steps: list[tuple[int, int, int]]) -> None:
    """Four nodes with walls of their own, messages between them: cause before effect, always."""
    clocks = [HybridClock() for _ in range(4)]
    skew = [0, 100, -100, 7_000]
    seen = [0, 0, 0, 0]
    for sender, receiver, wall in steps:
        stamp = clocks[sender].next(10_000 + wall + skew[sender])
        assert stamp > seen[sender]
        seen[sender] = stamp
        assert clocks[receiver].observe(stamp, 10_000 + wall + skew[receiver])
        seen[receiver] = max(seen[receiver], stamp)
