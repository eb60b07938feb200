"""Membership as a layer of the simulator: plans, rules, and runs that are always the same."""

from __future__ import annotations

import pytest

from flockmq.testing.simulate import main
from flockmq.testing.simulation.gossip.plan import KINDS, draw_plan, parse_plan
from flockmq.testing.simulation.layers import run_plan, run_seed

ALL_KINDS = (
    "nodes=6 loss=20 ms=40000; 1000 kill 4; 3000 start 4 new; 5000 kill 5 silent; 9000 pause 6 1200; 12000 start 5; "
    "14000 leave 6; 18000 start 6; 20000 split 1,2|3,4,5,6; 30000 join; 32000 cut 4>5; 36000 join"
)


@pytest.mark.parametrize("seed", range(10))
def test_some_seeds_pass(seed: int) -> None:
    assert run_seed("gossip", seed).violation == ""


def test_every_kind_of_fault_is_survived_and_the_run_is_always_the_same() -> None:
    plan = parse_plan(ALL_KINDS)
    outcomes = [run_plan(3, plan) for _ in range(2)]
    assert outcomes[0].violation == ""
    assert outcomes[0].fingerprint == outcomes[1].fingerprint
    assert {name for name in outcomes[0].figures if name.startswith("fault ")} == {f"fault {kind}" for kind in KINDS}


def test_members_that_hear_nothing_break_the_rule_of_liveness() -> None:
    assert run_plan(1, parse_plan("nodes=4 loss=1000 ms=1000")).rule == "liveness"


def test_a_node_that_stands_still_too_long_is_a_wrong_death() -> None:
    """Pauses that are short for the rules, one after the other, are long for the others."""
    pauses = "; ".join(f"{at} pause 4 1200" for at in range(1_000, 31_000, 1_200))
    outcome = run_plan(1, parse_plan(f"nodes=5 loss=0 ms=40000; {pauses}"))
    assert outcome.rule == "wrong death"


def test_plans_can_be_read_back() -> None:
    for seed in range(50):
        plan = draw_plan(seed)
        assert parse_plan(str(plan)) == plan


def test_layers_are_swept_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--layers", "gossip,consensus", "--seeds", "1", "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert said.count("1 passed, 0 failed") == 2


def test_a_layer_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--layers", "nothing"])
    assert "consensus, nodes, gossip" in capsys.readouterr().err
