"""How a run ended, in figures."""

from __future__ import annotations

from dataclasses import dataclass, field

from flockmq.testing.simulation.plan import Plan


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The end of one run. ``violation`` is empty when every rule held."""

    seed: int
    plan: Plan
    violation: str = ""
    rule: str = ""
    detail: str = ""
    """Where in the code, if an exception was the end."""
    fingerprint: str = ""
    simulated_ms: int = 0
    figures: dict[str, int] = field(default_factory=dict)
    """Counts by name: faults by kind, frames, elections, acknowledged writes, reads ..."""
    lines: list[str] = field(default_factory=list)
    """The story of the run, when it was asked for."""

    @property
    def passed(self) -> bool:
        """Whether every rule held."""
        return not self.rule


def replay_command(outcome: Outcome) -> str:
    """The command that shows this run again."""
    plan = outcome.plan
    return f"python -m flockmq.testing.simulate --layers {plan.LAYER} --seed {outcome.seed} --plan '{plan}'"
