"""Persistent sessions among whole nodes: subscribers go away, come back to any node, and miss nothing."""

from __future__ import annotations

import pytest

from flockmq.testing.simulation.layers import run_plan
from flockmq.testing.simulation.nodes.plan import parse_plan

WILLS = "nodes=3 shards=1 copies=3 ms=12000 wills=1"
CALM = "nodes=3 shards=1 copies=3 ms=4000 sessions=1"
ROAM = f"{CALM}; 600 roam 1; 1100 roam 2; 1700 roam 3; 2300 roam 1; 2900 roam 2; 3500 roam 3"


@pytest.mark.parametrize("plan", [CALM, ROAM], ids=["calm", "roam"])
@pytest.mark.parametrize("seed", [1, 2])
def test_sessions_that_move_between_living_nodes_miss_nothing(seed: int, plan: str) -> None:
    outcome = run_plan(seed, parse_plan(plan))
    assert outcome.violation == ""
    for figure in ("absences", "live acknowledged", "session messages due"):
        assert outcome.figures[figure] > 0, figure


KILLED = (
    f"{WILLS}; 4000 kill 1; 5500 start all; 7000 kill 2; 7000 kill 3; 8000 start all; 9900 blackout; 9990 start all"
)


@pytest.mark.parametrize("plan", [WILLS, KILLED], ids=["calm", "killed"])
@pytest.mark.parametrize("seed", [1, 2])
def test_each_will_reaches_its_log_once(seed: int, plan: str) -> None:
    outcome = run_plan(seed, parse_plan(plan))
    assert outcome.violation == ""
    for figure in ("wills due", "wills void", "wills seen"):
        assert outcome.figures[figure] > 0, figure
