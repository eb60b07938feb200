"""A node that leaves gives its replicas and votes to the others first, whoever it is."""

from __future__ import annotations

import pytest

from flockmq.testing.simulation.nodes.plan import draw_plan
from flockmq.testing.simulation.nodes.world import NodesWorld

SEED = 5
LEAVE_MS_MAX = 60_000


@pytest.mark.parametrize("number", [1, 3])
def test_nothing_depends_on_a_node_that_left(number: int) -> None:
    harness = NodesWorld(SEED, draw_plan(SEED))
    harness.form()
    leaving = harness.machine(number).process
    assert leaving is not None
    leaving.durable.set_leaving(True)

    def still_there() -> str:
        leaving.durable.hand_over()
        return f"{leaving.durable.belongings()} replicas are left" if leaving.durable.belongings() else ""

    harness.until("leaving", still_there, LEAVE_MS_MAX)

    def still_known() -> str:
        knowing = [one.number for one in harness.processes() if number in one.durable.meta.state.nodes]
        return f"{knowing} know it" if knowing else ""

    harness.until("forgetting", still_known, LEAVE_MS_MAX)
    for process in harness.processes():
        if process is not leaving:
            state = process.durable.meta.state
            assert all(
                number not in partition.members() for topic in state.topics.values() for partition in topic.partitions
            )
