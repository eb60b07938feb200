"""Known mistakes of Raft implementations, of whole nodes and of sessions, planted one at a time: each is found.

The plans are those that found them, cut down. Chance within a run depends on every message, so a later version may need
another seed for the same plan; some are tried.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flockmq.testing.simulation.layers import run_plan
from flockmq.testing.simulation.sweep import kept_runs
from simulation.planted_bugs import BUGS, GOSSIP_BUGS, GROUP_BUGS, NODE_BUGS, SESSION_BUGS, plan_of

SCRIPT = Path(__file__).with_name("planted_bugs.py")
PLANS = dict(zip(BUGS, kept_runs(SCRIPT.with_suffix(".txt")), strict=True))
SEEDS = 60


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found_and_without_it_the_same_run_passes(name: str) -> None:
    first, plan = PLANS[name]
    command = [sys.executable, str(SCRIPT), name, "--first", str(first), "--seeds", str(SEEDS), "--schedule", str(plan)]
    environment = {**os.environ, "FLOCKMQ_PURE": "1"}
    told = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
    seed = int(told.stdout.partition(" ")[0])
    assert run_plan(seed, plan).violation == ""


@pytest.mark.parametrize("name", [*NODE_BUGS, *GOSSIP_BUGS])
def test_a_bug_of_another_layer_is_found_and_without_it_the_same_run_passes(name: str) -> None:
    command = [sys.executable, str(SCRIPT), name, "--seeds", "10"]
    environment = {**os.environ, "FLOCKMQ_PURE": "1"}
    told = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
    seed = int(told.stdout.partition(" ")[0])
    assert run_plan(seed, plan_of(name)).violation == ""


NO_FENCE = """
from simulation.planted_bugs import Change, plant
from unit.durable.test_exactly_once import test_every_message_is_in_the_logs_once_and_in_order as check
refused = "if epoch and not 0 < oldest[names[position]] <= epoch:"
plant(Change("durable.machine.fences", "Fences.admits", refused, "if False:"))
check(138)
"""


def test_leaders_that_take_what_replaced_owners_still_send_make_doubles() -> None:
    """Without the bug the same seed passes in ``unit/durable/test_exactly_once``."""
    environment = {**os.environ, "FLOCKMQ_PURE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run(
        [sys.executable, "-c", NO_FENCE], env=environment, check=False, capture_output=True, text=True
    )
    assert told.returncode != 0
    assert "AssertionError: each once" in told.stderr


def test_the_bugs_are_known() -> None:
    assert len(BUGS) == 10
    assert len(SESSION_BUGS) >= 8
    assert len(GROUP_BUGS) >= 5
