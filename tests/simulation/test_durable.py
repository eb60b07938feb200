"""Whole nodes with durable topics: some seeds, runs that failed once, and runs that must always be the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flockmq.testing.simulation.layers import run_plan, run_seed
from flockmq.testing.simulation.nodes.plan import draw_plan, parse_plan
from flockmq.testing.simulation.plan import Plan
from flockmq.testing.simulation.sweep import kept_runs

KEPT = kept_runs(Path(__file__).with_name("failing_durable.txt"), "nodes")
FRESH = (1, 30_001)
SHORT = (
    "nodes=3 shards=2 copies=3 ms=3000; 300 kill L0; 700 start all; 900 split 1|2,3; 1500 roam 2; 2000 join; "
    "2200 slow 3 50; 2400 crash L1; 2700 start all"
)


@pytest.mark.parametrize(("seed", "plan"), KEPT, ids=[f"{seed}-{number}" for number, (seed, _) in enumerate(KEPT)])
def test_what_failed_once_passes(seed: int, plan: Plan) -> None:
    assert run_plan(seed, plan).violation == ""


@pytest.mark.parametrize("seed", FRESH)
def test_some_seeds_pass(seed: int) -> None:
    outcome = run_seed("nodes", seed)
    assert outcome.violation == ""
    assert outcome.figures["acknowledged"] > 0
    assert outcome.figures["deliveries"] > 0


def test_plans_can_be_read_back() -> None:
    for seed in range(50):
        plan = draw_plan(seed)
        assert parse_plan(str(plan)) == plan


def test_runs_are_the_same_in_every_process() -> None:
    expected = run_plan(7, parse_plan(SHORT)).fingerprint
    command = [sys.executable, "-m", "flockmq.testing.simulate_durable", "--seed", "7", "--plan", SHORT]
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        told = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        assert f"fingerprints 1 of 1 runs: {expected}" in told
