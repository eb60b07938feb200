"""The order of a turn and of a tick, as an assembled node has it."""

from __future__ import annotations

from flockmq.durable.order import after_consensus, before_consensus, slow_tick_of, tick_of, turn_of
from flockmq.testing.simulation.nodes.plan import draw_plan
from flockmq.testing.simulation.nodes.world import NodesWorld


def test_consensus_comes_behind_what_a_turn_brought_and_feeds_behind_it() -> None:
    world = NodesWorld(1, draw_plan(1))
    world.form()
    process = world.processes()[0]
    node = process.whole.cluster
    base, durable = process.durable.base, process.durable
    turn = [name for name, _ in turn_of(base, node.formation, node.components)]
    assert turn == [
        "routes",
        "RetainedSync",
        "OwnedMaps",
        "Forwarding",
        "Consensus",
        "Delivery",
        "formation",
    ]
    ticks = [name for name, _ in tick_of(base, node.formation, node.components)]
    assert (ticks[0], ticks[-1]) == ("formation", "calls")
    assert [name for name, _ in before_consensus(durable)][-1] == "control", "cursors and releases go into its batch"
    assert [name for name, _ in after_consensus(durable)] == ["state", "barrier", "groups"]
    assert [name for name, _ in slow_tick_of(durable)][:2] == ["barrier", "members"]
