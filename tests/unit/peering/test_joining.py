from __future__ import annotations

import pytest

from flockmq.peering.joining import MOVE, REFUSE, STAY, Belongings, JoinPlan, LeavePlan, plan_join, plan_leave

OTHER = 9


@pytest.mark.parametrize(
    ("mine", "discard_data", "expected"),
    [
        (Belongings(0, 0, 0, 0), False, JoinPlan(MOVE)),
        (Belongings(1, 1, 0, 0), False, JoinPlan(MOVE)),
        (Belongings(1, 1, 0, 0), True, JoinPlan(MOVE)),
        (Belongings(1, 1, 2, 0), True, JoinPlan(MOVE, discard_data=True)),
        (Belongings(1, 1, 0, 1), True, JoinPlan(MOVE, discard_data=True)),
        (Belongings(1, 3, 0, 0), True, JoinPlan(MOVE, leave_first=True)),
        (Belongings(1, 3, 1, 1), True, JoinPlan(MOVE, leave_first=True, discard_data=True)),
    ],
)
def test_who_may_move(mine: Belongings, discard_data: bool, expected: JoinPlan) -> None:
    assert plan_join(mine, OTHER, discard_data=discard_data) == expected


@pytest.mark.parametrize(
    ("mine", "loss"),
    [
        (Belongings(1, 1, 1, 0), "1 topic;"),
        (Belongings(1, 1, 0, 1_000), "1,000 sessions;"),
        (Belongings(1, 3, 2, 1), "membership in a cluster of 3 nodes, 2 topics and 1 session;"),
    ],
)
def test_what_would_be_lost_is_said(mine: Belongings, loss: str) -> None:
    plan = plan_join(mine, OTHER)
    assert plan.kind == REFUSE
    assert loss in plan.reason
    assert "--discard-data" in plan.reason


def test_the_same_cluster_is_no_move() -> None:
    assert plan_join(Belongings(OTHER, 3, 5, 5), OTHER, discard_data=True).kind == STAY


def test_nobody_joins_a_node_without_a_cluster() -> None:
    assert plan_join(Belongings(1, 1, 0, 0), 0).kind == REFUSE


@pytest.mark.parametrize(
    ("mine", "discard_data", "expected"),
    [
        (Belongings(1, 3, 2, 1, 3), False, LeavePlan(MOVE, hand_over=True)),
        (Belongings(1, 3, 2, 1, 3), True, LeavePlan(MOVE)),
        (Belongings(1, 1, 2, 1, 3), True, LeavePlan(MOVE)),
        (Belongings(1, 1, 2, 1, 1), True, LeavePlan(MOVE)),
        (Belongings(1, 1, 0, 0, 1), True, LeavePlan(MOVE)),
        (Belongings(1, 1, 0, 0, 1), False, LeavePlan(STAY, "This node is a cluster of its own already.")),
    ],
)
def test_who_may_leave(mine: Belongings, discard_data: bool, expected: LeavePlan) -> None:
    assert plan_leave(mine, discard_data=discard_data) == expected


@pytest.mark.parametrize(
    ("mine", "reason"),
    [
        (Belongings(1, 1, 0, 0, 3), "None of the other 2 nodes of this cluster answers"),
        (Belongings(1, 1, 4, 0, 2), "The other node of this cluster does not answer"),
        (Belongings(1, 1, 1, 2, 1), "would cost it 1 topic and 2 sessions"),
    ],
)
def test_why_a_node_does_not_leave_is_said(mine: Belongings, reason: str) -> None:
    plan = plan_leave(mine)
    assert plan.kind == REFUSE
    assert reason in plan.reason
    assert "--discard-data" in plan.reason
