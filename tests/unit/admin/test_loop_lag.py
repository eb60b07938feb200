from __future__ import annotations

import asyncio

from flockmq.admin.loop_lag import SAMPLES_PER_SLOT, SLOTS, LagWindow, LoopLag


def test_the_last_and_the_largest() -> None:
    window = LagWindow()
    for lag_s in (0.1, 0.5, 0.2):
        window.add(lag_s)
    assert (window.last_s, window.max_s) == (0.2, 0.5)


def test_early_is_not_late() -> None:
    window = LagWindow()
    window.add(-0.1)
    assert (window.last_s, window.max_s) == (0.0, 0.0)


def test_the_largest_is_forgotten_after_a_window() -> None:
    window = LagWindow()
    window.add(9.0)
    for _ in range(SAMPLES_PER_SLOT * (SLOTS - 1)):
        window.add(0.1)
    assert window.max_s == 9.0
    for _ in range(SAMPLES_PER_SLOT):
        window.add(0.1)
    assert window.max_s == 0.1


async def test_a_loop_is_sampled_until_it_is_stopped() -> None:
    lag = LoopLag()
    samples: list[float] = []
    enough = asyncio.Event()

    class Noting(LagWindow):
        def add(self, lag_s: float) -> None:
            samples.append(lag_s)
            enough.set()

    lag.window = Noting()
    lag.start()
    lag.start()
    await enough.wait()
    lag.stop()
    lag.stop()
    assert len(samples) == 1
    assert samples[0] >= 0
