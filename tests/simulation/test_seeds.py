"""Runs that once failed, a few that nobody has seen, and one that must always be the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flockmq.testing.simulation.consensus.plan import parse_plan
from flockmq.testing.simulation.layers import run_plan, run_seed
from flockmq.testing.simulation.plan import Plan
from flockmq.testing.simulation.sweep import kept_runs

KEPT = kept_runs(Path(__file__).with_name("failing_seeds.txt"))
FRESH = (1, 20_001, 20_002, 20_003)
SHORT = (
    "nodes=5 groups=1 voters=1,2,3,4,5 victims=3 election=300 tiny=1 lease=1 prefer=0 ms=1200; 300 crash L0; "
    "400 network 100 300 300 100 50; 450 cut 1>2 2>3 hold; 500 start 1; 500 start 2; 550 flip 3 2; 600 jump 4 -1500; "
    "650 start 3; 700 compact L0 0; 750 members 0 1,2,3 4,5; 800 pause 5 100; 900 join; 950 network 0 0 0 0 1"
)
"""A little of everything, in as little time as a group needs to elect and to heal."""


@pytest.mark.parametrize(("seed", "plan"), KEPT, ids=[str(seed) for seed, _ in KEPT])
def test_what_failed_once_passes(seed: int, plan: Plan) -> None:
    assert run_plan(seed, plan).violation == ""


@pytest.mark.parametrize("seed", FRESH)
def test_some_seeds_pass(seed: int) -> None:
    outcome = run_seed("consensus", seed)
    assert outcome.violation == ""
    assert outcome.figures["acknowledged"] > 0


def test_one_seed_run_100_times_gives_one_fingerprint() -> None:
    plan = parse_plan(SHORT)
    outcomes = [run_plan(7, plan) for _ in range(100)]
    assert {outcome.violation for outcome in outcomes} == {""}
    assert len({outcome.fingerprint for outcome in outcomes}) == 1
    assert run_plan(8, plan).fingerprint != outcomes[0].fingerprint


def test_fingerprints_are_the_same_in_every_process_compiled_or_not() -> None:
    expected = run_plan(7, parse_plan(SHORT)).fingerprint
    command = [sys.executable, "-m", "flockmq.testing.simulate", "--seed", "7", "--plan", SHORT]
    for pure, hash_seed in (("0", "1"), ("1", "2"), ("1", "3")):
        environment = {**os.environ, "FLOCKMQ_PURE": pure, "PYTHONHASHSEED": hash_seed}
        told = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        assert f"fingerprints 1 of 1 runs: {expected}" in told
