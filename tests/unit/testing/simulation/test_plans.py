"""Schedules as text, as drawn from a seed, and cut down."""

from __future__ import annotations

import pytest

from flockmq.testing.simulation.consensus.generate import WEIGHTS, draw_plan
from flockmq.testing.simulation.consensus.plan import KINDS, ConsensusPlan, parse_plan
from flockmq.testing.simulation.plan import Fault, PlanError
from flockmq.testing.simulation.shrink import shrink


def test_a_plan_can_be_read_back() -> None:
    head = "nodes=5 groups=2 voters=1,2,3 victims=none election=300 tiny=1 lease=0 prefer=1 ms=8000"
    text = f"{head}; 12 crash 3; 40 cut 1>2 2>1 hold; 50 members 0 1,2,3 4"
    plan = parse_plan(text)
    assert str(plan) == text
    assert (plan.election_ms, plan.tiny, plan.lease, plan.prefer) == (300, True, False, True)
    assert parse_plan("nodes=5 voters=1,2,3,4,5 ms=10000") == ConsensusPlan()
    assert plan.voters == (1, 2, 3)
    assert plan.faults[0] == Fault(12, "crash", ("3",))
    assert plan.faults[2].numbers(1) == (1, 2, 3)
    assert plan.faults[2].numbers(2) == (4,)
    assert plan.faults[2].numbers(3) == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "12 crash 3",
        "nodes=5 groups=1 voters=1 victims=none ms=x",
        "nodes=5 groups=1 voters=1,2 victims=none ms=9; 12 explode 3",
        "nodes=5 groups=1 voters=1,2 victims=none ms=9; crash 3",
    ],
)
def test_what_is_no_plan_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(PlanError, match=r"(starts with its cluster|is no fault)"):
        parse_plan(text)


def test_seeds_draw_all_kinds_and_the_same_seed_the_same() -> None:
    plans = [draw_plan(seed) for seed in range(200)]
    assert {fault.kind for plan in plans for fault in plan.faults} == set(KINDS)
    assert set(WEIGHTS) <= set(KINDS)
    assert [str(draw_plan(seed)) for seed in range(20)] == [str(plan) for plan in plans[:20]]
    for plan in plans:
        assert parse_plan(str(plan)) == plan


def test_disks_lie_only_on_a_minority_of_every_configuration() -> None:
    for seed in range(500):
        plan = draw_plan(seed)
        lying = {fault.number(0) for fault in plan.faults if fault.kind in ("flip", "wipe")}
        assert lying <= set(plan.victims)
        configurations = [
            plan.voters,
            *(fault.numbers(1) for fault in plan.faults if fault.kind == "members" and fault.words[1] != "here"),
        ]
        for voters in configurations:
            assert 2 * len(plan.victims) < max(len(voters), 1)


def test_shrinking_finds_the_faults_that_matter() -> None:
    faults = [Fault(at, "crash", ("1",)) for at in range(100)]
    needed = {17, 44, 91}
    tries = []

    def still_fails(left: list[Fault]) -> bool:
        tries.append(left)
        return needed <= {fault.at_ms for fault in left}

    assert {fault.at_ms for fault in shrink(faults, still_fails)} == needed
    assert len(tries) < 120


def test_shrinking_gives_up_in_time_and_can_end_with_nothing() -> None:
    faults = [Fault(at, "crash", ("1",)) for at in range(100)]
    tries = []

    def never(left: list[Fault]) -> bool:
        tries.append(left)
        return False

    assert shrink(faults, never, tries_max=30) == faults
    assert len(tries) == 30
    assert shrink(faults, lambda left: True) == []


def test_a_plan_keeps_its_cluster_when_faults_are_taken_away() -> None:
    plan = ConsensusPlan(groups=3, voters=(1, 2, 3), faults=(Fault(1, "join"), Fault(2, "join")))
    assert plan.with_faults([Fault(2, "join")]) == ConsensusPlan(groups=3, voters=(1, 2, 3), faults=(Fault(2, "join"),))
