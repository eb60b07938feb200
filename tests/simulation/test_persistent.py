"""Persistent sessions among whole nodes: subscribers go away, come back to any node, and miss nothing."""

from __future__ import annotations

import pytest

from flockmq.testing.simulation.layers import run_plan
from flockmq.testing.simulation.nodes.plan import parse_plan

CALM = "nodes=3 shards=1 copies=3 ms=4000 sessions=1"
ROAM = f"{CALM}; 600 roam 1; 1100 roam 2; 1700 roam 3; 2300 roam 1; 2900 roam 2; 3500 roam 3"


@pytest.mark.parametrize("plan", [CALM, ROAM], ids=["calm", "roam"])
@pytest.mark.parametrize("seed", [1, 2])
def test_sessions_that_move_between_living_nodes_miss_nothing(seed: int, plan: str) -> None:
    outcome = run_plan(seed, parse_plan(plan))
    assert outcome.violation == ""
    for figure in ("absences", "live acknowledged", "session messages due"):
        assert outcome.figures[figure] > 0, figure
