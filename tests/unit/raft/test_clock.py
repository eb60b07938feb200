from __future__ import annotations

from flockmq.raft.clock import TickClock


def test_it_counts_ticks_and_time() -> None:
    clock = TickClock(50, 1_000)
    for now in (1_050, 1_100, 1_160):
        clock.tick(now)
    assert (clock.elapsed, clock.ticks, clock.jumps) == (160, 3, 0)


def test_a_jump_ahead_counts_as_two_ticks_at_most() -> None:
    clock = TickClock(50, 0)
    clock.tick(3_600_000)
    assert clock.elapsed == 100
    assert clock.jumps == 1


def test_a_jump_back_counts_as_nothing() -> None:
    clock = TickClock(50, 1_000)
    clock.tick(400)
    assert clock.elapsed == 0
    assert clock.jumps == 1
    clock.tick(450)
    assert clock.elapsed == 50


def test_what_can_be_the_time() -> None:
    clock = TickClock(50, 1_000)
    assert [clock.is_sane(now) for now in (999, 1_000, 1_200, 1_201)] == [False, True, True, False]
