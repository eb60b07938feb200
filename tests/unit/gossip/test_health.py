from __future__ import annotations

from flockmq.gossip.health import LocalHealth


def test_the_score_stays_in_bounds_and_scales_durations() -> None:
    health = LocalHealth(8)
    health.better()
    assert health.scale(100) == 100
    health.worse(3)
    health.better()
    assert health.scale(100) == 300
    health.worse(100)
    assert health.scale(100) == 900
