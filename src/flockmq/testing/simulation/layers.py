"""The layers that can be simulated, and one run of any of them: a seed and a plan in, an outcome out."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from flockmq.testing.simulation.consensus import generate as consensus_drawing
from flockmq.testing.simulation.consensus import plan as consensus_plan
from flockmq.testing.simulation.consensus.cluster import Cluster
from flockmq.testing.simulation.gossip import plan as gossip_plan
from flockmq.testing.simulation.gossip.world import GossipWorld
from flockmq.testing.simulation.nodes import plan as nodes_plan
from flockmq.testing.simulation.nodes.world import NodesWorld
from flockmq.testing.simulation.outcome import Outcome
from flockmq.testing.simulation.plan import Plan
from flockmq.testing.simulation.world import Violation, World

P = TypeVar("P", bound=Plan)


@dataclass(frozen=True, slots=True)
class Layer(Generic[P]):
    """How runs of a layer are made."""

    draw: Callable[[int, int], P]
    """The plan of a seed, with so many nodes (0: as many as the layer likes)."""
    parse: Callable[[str], P]
    """The plan that a text says; PlanError when the text is none."""
    world: Callable[[int, P, bool], World]
    """Seed, plan, and whether the story is wanted."""


LAYERS: Final[dict[str, Layer[Any]]] = {
    "consensus": Layer(consensus_drawing.draw_plan, consensus_plan.parse_plan, Cluster),
    "nodes": Layer(nodes_plan.draw_plan, nodes_plan.parse_plan, NodesWorld),
    "gossip": Layer(gossip_plan.draw_plan, gossip_plan.parse_plan, GossipWorld),
}


def run_plan(seed: int, plan: Plan, trace: bool = False) -> Outcome:
    """Simulate; all that goes wrong ends up in the outcome, also an exception of the code under test."""
    world = LAYERS[plan.LAYER].world(seed, plan, trace)
    outcome = Outcome(seed=seed, plan=plan)
    try:
        world.run()
    except Violation as violation:
        outcome.rule = violation.rule
        outcome.violation = str(violation)
    except Exception as error:
        outcome.rule = f"no exception: {type(error).__name__}"
        outcome.violation = f"{outcome.rule}: {error}"
        outcome.detail = traceback.format_exc()
    outcome.fingerprint = world.trace.fingerprint()
    outcome.simulated_ms = world.queue.now // 1_000
    outcome.figures = {**world.figures, "events": world.queue.worked_on, "frames": world.frames()}
    outcome.lines = world.trace.lines or []
    return outcome


def run_seed(layer: str, seed: int, nodes: int = 0) -> Outcome:
    """One run with the plan that its seed draws."""
    return run_plan(seed, LAYERS[layer].draw(seed, nodes))
