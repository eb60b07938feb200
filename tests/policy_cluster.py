"""The world that the leader of group 0 decides about: nodes that die and come back, time, a group that follows."""

from __future__ import annotations

from flockmq.cluster.model import ALIVE, CORE, DEAD
from flockmq.cluster.policy import Decision, PolicySettings, SeenMember, decide
from flockmq.raft.configuration import Configuration
from state_cases import Machine


class World:
    """Nodes 1 to ``count`` start alive; group 0 is node 1 alone."""

    def __init__(self, count: int, zones: tuple[str, ...] = ("",), *, autoclean: bool = True) -> None:
        self.machine = Machine()
        self.machine.wall_ms = 10_000_000
        self.members: dict[int, SeenMember] = {}
        self.current = Configuration((1,))
        self.settings = PolicySettings(autoclean=autoclean)
        self.leading_ms = 1_000_000
        self.steps: list[Configuration] = []
        for node in range(1, count + 1):
            self.start(node, zone=zones[node % len(zones)])

    def start(self, node: int, *, name: str = "", zone: str = "", role: int = CORE) -> None:
        self.members[node] = SeenMember(node, name or f"n{node}@h", "h", node, ALIVE, role, "", zone)

    def voters(self) -> tuple[int, ...]:
        return self.current.voters

    def says(self, node: int, state: int) -> None:
        self.members[node].state = state

    @property
    def leader(self) -> int:
        """A voter that is alive, if a quorum is; 0 when there is none."""
        alive = {node for node, member in self.members.items() if member.state == ALIVE}
        if not self.current.has_quorum(alive):
            return 0
        return next(voter for voter in self.current.voters if voter in alive)

    def decide(self, caught_up: frozenset[int] | None = None) -> Decision:
        ready = frozenset(self.current.learners) if caught_up is None else caught_up
        return decide(
            self.leader,
            list(self.members.values()),
            self.machine.state,
            self.current,
            ready,
            self.machine.wall_ms,
            self.leading_ms,
            self.settings,
        )

    def round(self) -> Decision:
        """Decide, do it, and let it succeed."""
        decision = self.decide()
        for command in decision.commands:
            self.machine.done(command)
        if decision.configuration is not None:
            self.current = decision.configuration
            self.steps.append(self.current)
        return decision

    def calm(self, rounds: int = 12) -> None:
        for _ in range(rounds):
            self.round()

    def wait(self, milliseconds: int) -> None:
        self.machine.wall_ms += milliseconds

    def dead(self, *nodes: int) -> None:
        for node in nodes:
            self.says(node, DEAD)
