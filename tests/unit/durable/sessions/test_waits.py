from __future__ import annotations

from flockmq.durable.sessions.waits import BOUNDS_MS, Waits


def test_a_wait_counts_for_all_bounds_that_it_does_not_exceed() -> None:
    waits = Waits()
    for took_ms in (0, 1, 3, 5_000, 5_001):
        waits.note(took_ms)
    found = waits.figures("claim")
    assert [found[f"claim_le_{bound}"] for bound in ("0.001", "0.002", "0.005", "2", "5", "+Inf")] == [2, 2, 3, 3, 4, 5]
    assert found["claim_sum"] == 10.005
    assert len(found) == len(BOUNDS_MS) + 2
