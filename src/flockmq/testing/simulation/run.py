"""One run: a seed and a plan in, an outcome out."""

from __future__ import annotations

import traceback

from flockmq.testing.simulation.cluster import Cluster
from flockmq.testing.simulation.history import Violation
from flockmq.testing.simulation.outcome import Outcome
from flockmq.testing.simulation.schedule import Plan


def run_plan(seed: int, plan: Plan, trace: bool = False) -> Outcome:
    """Simulate; whatever goes wrong ends up in the outcome, also an exception of the code under test."""
    cluster = Cluster(seed, plan, trace)
    outcome = Outcome(seed=seed, plan=plan)
    try:
        cluster.run()
    except Violation as violation:
        outcome.rule = violation.rule
        outcome.violation = str(violation)
    except Exception as error:
        outcome.rule = f"no exception: {type(error).__name__}"
        outcome.violation = f"{outcome.rule}: {error}"
        outcome.detail = traceback.format_exc()
    outcome.fingerprint = cluster.trace.fingerprint()
    outcome.simulated_ms = cluster.queue.now // 1_000
    outcome.figures = {
        **cluster.figures,
        "events": cluster.queue.worked_on,
        "frames": cluster.network.sent,
    }
    outcome.lines = cluster.trace.lines or []
    return outcome
